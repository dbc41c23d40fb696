"""Rules of a namespace that capture its non-persistent topics into persistent ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pulsarish.model.errors import InvalidArgument, InvalidTopicName
from pulsarish.model.policy_words import CaptureAcknowledged, CaptureSyntax, CaptureWhenFull
from pulsarish.model.topic_name import TopicName
from pulsarish.model.topic_pattern import compile_pattern, wildcard_pattern

__all__ = ["CAPTURES_MAX", "CaptureRule"]

CAPTURES_MAX: Final = 32
"""Rules of one namespace. Each may use memory on each broker."""


class CaptureRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which non-persistent topics of a namespace are captured, and into which persistent topic."""

    pattern: Annotated[
        str, Meta(description="What the name of a topic matches, without domain and namespace.")
    ]
    into: Annotated[str, Meta(description="The persistent topic, with its domain and namespace.")]
    syntax: Annotated[
        CaptureSyntax,
        Meta(description="wildcard: * is one token between dots, > the rest; regex: RE2."),
    ] = "wildcard"
    acknowledged: Annotated[
        CaptureAcknowledged,
        Meta(description="When publishers get their receipts: received, or once it is stored."),
    ] = "received"
    when_full: Annotated[
        CaptureWhenFull,
        Meta(description="What happens while too many bytes wait: pause publishers, or drop."),
    ] = msgspec.field(name="whenFull", default="pause")
    pending_bytes_max: Annotated[
        int,
        Meta(
            ge=64 << 10,
            le=1 << 30,
            description="Bytes that wait on one broker to be stored, before it is full.",
        ),
    ] = msgspec.field(name="pendingMaxBytes", default=8 << 20)

    def __post_init__(self) -> None:
        try:
            name = TopicName.parse(self.into)
        except InvalidTopicName as error:
            raise ValueError(f"into: {error}") from None
        if not name.persistent or "://" not in self.into:
            raise ValueError(
                f"into is {self.into!r}; name a persistent topic in full, such as "
                f"persistent://{name.tenant}/{name.namespace}/{name.local}"
            )
        if self.acknowledged == "stored" and self.when_full == "drop":
            raise ValueError(
                "acknowledged is stored and whenFull is drop, which contradict each other: what "
                "is dropped could not be acknowledged; set whenFull to pause"
            )

    @property
    def target(self) -> TopicName:
        return TopicName.parse(self.into)

    @property
    def waits_for_storage(self) -> bool:
        """Whether publishers get their receipts once the captured copy is stored."""
        return self.acknowledged == "stored"

    def check(self) -> None:
        """Check the pattern. Raises ``InvalidArgument``, which shows where it is wrong."""
        if "://" in self.pattern:
            raise InvalidArgument(
                f"pattern is {self.pattern!r}; give what comes after the namespace in the names of "
                "topics, such as sensors.*.temperature"
            )
        _ = self._matcher()

    def matches(self, name: TopicName) -> bool:
        """Return whether the rule of the topic's namespace captures the topic."""
        return not name.persistent and self._matcher()(name.partitioned.local)

    def _matcher(self) -> Callable[[str], bool]:
        is_wildcard = self.syntax == "wildcard"
        return compile_pattern(wildcard_pattern(self.pattern) if is_wildcard else self.pattern)
