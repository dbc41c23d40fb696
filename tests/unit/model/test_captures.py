"""Rules of capture: which topics they match, and what they refuse."""

from __future__ import annotations

import re

import pytest

from pulsarish.model.captures import CaptureRule
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.policies import CAPTURES
from pulsarish.model.topic_name import TopicName

INTO = "persistent://acme/live/stored"


@pytest.mark.parametrize(
    ("syntax", "pattern", "local", "matches"),
    [
        ("wildcard", "sensors.*.temperature", "sensors.1.temperature", True),
        ("wildcard", "sensors.*.temperature", "sensors.1.temperature-partition-3", True),
        ("wildcard", "sensors.*.temperature", "sensors.1.2.temperature", False),
        ("wildcard", "sensors.>", "sensors.1.2.temperature", True),
        ("wildcard", "sensors.>", "sensors", False),
        ("regex", "sensors-[0-9]+", "sensors-17", True),
        ("regex", "sensors-[0-9]+", "sensors-17b", False),
        ("regex", ".*", "sensors.1", True),
    ],
)
def test_a_rule_matches_whole_names(syntax: str, pattern: str, local: str, matches: bool) -> None:
    rule = CAPTURES.value({"r": {"pattern": pattern, "into": INTO, "syntax": syntax}})["r"]
    rule.check()
    assert rule.matches(TopicName.parse(f"non-persistent://acme/live/{local}")) is matches
    assert not rule.matches(TopicName.parse(f"persistent://acme/live/{local}"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"into": "acme/live/stored"}, "in full, such as persistent://acme/live/stored"),
        ({"into": "non-persistent://acme/live/x"}, "such as persistent://acme/live/x"),
        ({"into": "persistent://acme"}, "has 1 of 3 parts"),
        ({"acknowledged": "stored", "whenFull": "drop"}, "set whenFull to pause"),
        ({"acknowledged": "sometimes"}, "acknowledged"),
        ({"pendingMaxBytes": 1}, "pendingMaxBytes"),
        ({"more": 1}, "more"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(reason)):
        _ = CAPTURES.value({"r": {"pattern": "*", "into": INTO, **fields}})


@pytest.mark.parametrize(
    ("syntax", "pattern", "reason"),
    [
        ("wildcard", "a..b", "a token between dots is empty"),
        ("wildcard", "a*", "stand for whole tokens"),
        ("regex", "a(", "is no regular expression of RE2"),
        ("wildcard", "non-persistent://acme/live/*", "what comes after the namespace"),
    ],
)
def test_a_wrong_pattern_is_shown(syntax: str, pattern: str, reason: str) -> None:
    rule: CaptureRule = CAPTURES.value({"r": {"pattern": pattern, "into": INTO, "syntax": syntax}})[
        "r"
    ]
    with pytest.raises(InvalidArgument, match=reason):
        rule.check()
