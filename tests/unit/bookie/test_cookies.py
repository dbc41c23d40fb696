"""The table of rule 7: which cookies may start a bookie."""

from __future__ import annotations

import msgspec
import pytest

from pulsarish.bookie.cookies import decide_cookie
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import ConfigError

MINE = Cookie("b1", "b1~1", "c1", "J", "L", "I", 0)
OTHER_LIFE = msgspec.structs.replace(MINE, instance_id="b1~2")
OTHER_BOOKIE = msgspec.structs.replace(MINE, bookie_id="b2", instance_id="b2~1")
OTHER_CLUSTER = msgspec.structs.replace(MINE, cluster_id="c2")
WANTED = msgspec.structs.replace(MINE, instance_id="b1~new")
DIRECTORIES = ["J", "L", "I"]


@pytest.mark.parametrize(
    ("local", "stored", "has_data", "expected"),
    [
        # The first start, and one that ended before the metadata knew.
        ([None, None, None], None, False, None),
        ([MINE, None, None], None, False, None),
        ([MINE, MINE, MINE], None, False, None),
        # Every later start.
        ([MINE, MINE, MINE], MINE, True, MINE),
        ([MINE, MINE, MINE], MINE, False, MINE),
        # A disk that is not there, or was emptied.
        ([None, MINE, MINE], MINE, True, "J has no cookie"),
        ([MINE, None, MINE], MINE, True, "L has no cookie"),
        ([MINE, MINE, None], MINE, True, "I has no cookie"),
        ([None, None, None], MINE, False, "J, L, I has no cookie"),
        # Metadata that does not know this bookie, but the bookie has data.
        ([MINE, MINE, MINE], None, True, "the metadata has no cookie of bookie b1"),
        ([None, None, None], None, True, "without a cookie"),
        # Somebody else's directories, or a mixture.
        ([OTHER_BOOKIE, OTHER_BOOKIE, OTHER_BOOKIE], None, True, "belongs to bookie b2"),
        ([MINE, OTHER_BOOKIE, MINE], MINE, True, "L belongs to bookie b2"),
        ([OTHER_CLUSTER, OTHER_CLUSTER, OTHER_CLUSTER], MINE, True, "belongs to cluster c2"),
        ([MINE, MINE, OTHER_LIFE], MINE, True, "different instances"),
        # Another life took the name, or old directories were put back.
        ([MINE, MINE, MINE], OTHER_LIFE, True, "the metadata knows b1~2"),
        ([MINE, MINE, MINE], OTHER_CLUSTER, True, "in the metadata is of cluster c2"),
    ],
)
def test_the_table(
    local: list[Cookie | None], stored: Cookie | None, has_data: bool, expected: Cookie | str | None
) -> None:
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            decide_cookie(WANTED, DIRECTORIES, local, stored, has_data=has_data)
    else:
        assert decide_cookie(WANTED, DIRECTORIES, local, stored, has_data=has_data) == expected
