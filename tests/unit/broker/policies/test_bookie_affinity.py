"""The groups of bookies that a topic's ledgers are made with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.model import policies as model
from pulsarish.model.errors import ConfigError, InvalidArgument
from pulsarish.model.ledger_metadata import BookieGroups
from pulsarish.model.topic_name import TopicName

NAME = TopicName.parse("persistent://acme/orders/new")


def groups(value: model.BookieAffinity | None, **log: Any) -> BookieGroups | None:
    config = BrokerConfig(managed_ledger=ManagedLedgerOptions(**log))
    values = {} if value is None else {model.BOOKIE_AFFINITY: value}
    limits = TopicLimits(
        NAME,
        config,
        SimpleNamespace(monotonic=lambda: 0.0),  # type: ignore[arg-type]
        Effective(broker_defaults(config), values),
        Meter(0),
    )
    return limits.log_options().bookie_groups


def test_the_namespace_decides_before_the_broker() -> None:
    assert groups(None) is None
    assert groups(None, isolation_groups=("default",)) == BookieGroups(("default",))
    bound = model.BookieAffinity("a,b", "c")
    assert groups(bound) == BookieGroups(("a", "b"), ("c",))
    assert groups(bound, isolation_groups=("default",)) == BookieGroups(("a", "b"), ("c",))
    assert groups(model.BookieAffinity(""), isolation_groups=("default",)) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"bookkeeperAffinityGroupPrimary": "a b"}, "bookkeeperAffinityGroupPrimary"),
        ({"bookkeeperAffinityGroupPrimary": "a,,b"}, "bookkeeperAffinityGroupPrimary"),
        (
            {"bookkeeperAffinityGroupPrimary": "", "bookkeeperAffinityGroupSecondary": "c"},
            "Secondary c needs a bookkeeperAffinityGroupPrimary",
        ),
    ],
)
def test_values_that_are_no_groups_are_refused(raw: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        model.BOOKIE_AFFINITY.value(raw)


def test_secondary_groups_alone_are_refused() -> None:
    with pytest.raises(ConfigError, match="secondary_isolation_groups = c has no effect"):
        ManagedLedgerOptions(secondary_isolation_groups=("c",)).validate()
