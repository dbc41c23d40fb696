"""Which topics of a namespace a consumer of a pattern receives from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pulsarish.client.checks import check_text, shown
from pulsarish.client.enums import RegexSubscriptionMode
from pulsarish.model.errors import InvalidArgument, InvalidTopicName
from pulsarish.model.topic_name import check_name
from pulsarish.model.topic_pattern import PATTERN_CHARS_MAX, compile_pattern, wildcard_pattern
from pulsarish.runtime.log import get_logger

__all__ = ["TopicFilter", "Wildcard", "filter_of"]

_log = get_logger("client")

_DOMAINS: Final = ("persistent", "non-persistent")
_PATTERN, _WILDCARD = "topic pattern", "wildcard"
_EXAMPLES: Final = {
    _PATTERN: "persistent://public/default/orders-.*",
    _WILDCARD: "persistent://public/default/orders.*",
}


class Wildcard:
    """Topics whose names have certain tokens between their dots, for ``subscribe``.

    ``*`` stands for one token, and ``>`` at the end for one or more: ``orders.*.created`` has
    ``orders.eu.created``, and ``orders.>`` has that and ``orders.eu``. A namespace stands before
    it as in the name of a topic: ``acme/shop/orders.>``.
    """

    def __init__(self, text: str) -> None:
        """Raises ``InvalidArgument``, which names the wrong token, or ``InvalidTopicName``."""
        self.text = check_text("wildcard", text)
        self.domain, self.namespace, local = _parts(self.text, _WILDCARD)
        self.pattern = wildcard_pattern(local)

    def __repr__(self) -> str:
        return f"Wildcard({self.text!r})"


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topics of a namespace whose whole names, without domain, match a pattern of RE2."""

    namespace: str
    pattern: str
    text: str
    """As the program gave it."""
    persistent: bool
    non_persistent: bool


def filter_of(topic: re.Pattern[str] | Wildcard, mode: RegexSubscriptionMode) -> TopicFilter:
    """Return the filter of a pattern or wildcard. Its domain is left out: ``mode`` says which.

    Raises ``InvalidArgument``, which shows where the pattern is wrong, or ``InvalidTopicName``.
    """
    if isinstance(topic, Wildcard):
        text, domain, namespace, pattern = topic.text, topic.domain, topic.namespace, topic.pattern
    else:
        text = _checked(topic)
        domain, namespace, pattern = _parts(text, _PATTERN)
    persistent = mode is not RegexSubscriptionMode.NonPersistentOnly
    non_persistent = mode is not RegexSubscriptionMode.PersistentOnly
    if domain and not (persistent if domain == "persistent" else non_persistent):
        _log.warning(
            "the domain of a topic pattern has no effect: regex_subscription_mode says which "
            "topics it has",
            pattern=text,
            regex_subscription_mode=mode.name,
        )
    _ = compile_pattern(pattern)  # alone, so that an error shows what the program has written
    flags = "(?i)" if not isinstance(topic, Wildcard) and topic.flags & re.IGNORECASE else ""
    whole = f"{flags}{re.escape(namespace)}/(?:{pattern})"
    if len(whole) > PATTERN_CHARS_MAX:
        raise InvalidArgument(
            f"topic is a pattern of {len(whole)} characters with its namespace; at most "
            f"{PATTERN_CHARS_MAX} are taken"
        )
    _ = compile_pattern(whole)
    return TopicFilter(namespace, whole, text, persistent, non_persistent)


def _checked(topic: re.Pattern[str]) -> str:
    if not isinstance(topic.pattern, str):
        raise InvalidArgument(f"topic is the pattern {shown(topic.pattern)} of bytes: pass text")
    if topic.flags & (re.VERBOSE | re.LOCALE):
        raise InvalidArgument(
            f"topic is the pattern {shown(topic.pattern)} with VERBOSE or LOCALE, which topic "
            "patterns do not have: only IGNORECASE has an effect"
        )
    return topic.pattern


def _parts(text: str, what: str) -> tuple[str, str, str]:
    """Return domain (or nothing), namespace, and what is for the rest of the name.

    Raises ``InvalidTopicName``.
    """
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = "", text
    elif domain not in _DOMAINS:
        raise InvalidTopicName(
            f"{what} {shown(text)}: unknown domain {domain!r}; write it like {_EXAMPLES[what]}"
        )
    if not separator and "/" not in rest:
        return domain, "public/default", rest
    parts = rest.split("/", 2)
    if len(parts) < 3 or not parts[2]:
        raise InvalidTopicName(
            f"{what} {shown(text)} has no tenant/namespace/name; write it like {_EXAMPLES[what]}"
        )
    try:
        check_name("tenant", parts[0])
        check_name("namespace", parts[1])
    except InvalidTopicName as error:
        raise InvalidTopicName(
            f"{what} {shown(text)}: {error}; it is for topics of one namespace"
        ) from None
    return domain, f"{parts[0]}/{parts[1]}", parts[2]
