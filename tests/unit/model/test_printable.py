"""Control, bidirectional and invisible characters are shown escaped."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.model.printable import printable, printable_json


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert (
        printable("a\x1b]0;owned\x07b\x9b31m\u202e\u200b\u2066")
        == r"a\x1b]0;owned\x07b\x9b31m\u202e\u200b\u2066"
    )
    assert printable("Grüße, 世界 🎉") == "Grüße, 世界 🎉"
    assert printable("a\nb\x0b", keep="\n") == "a\nb\\x0b"


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_stays_the_same_value(value: object) -> None:
    shown = printable_json(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(shown) == value
    assert all(each.isprintable() or each == "\n" for each in shown)
