"""Names of topics: ``persistent://tenant/namespace/topic[-partition-N]``, or with
``non-persistent``.

A bare name is a persistent topic in ``public/default``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from pulsarish.model.errors import InvalidTopicName

__all__ = ["NAME_LENGTH_MAX", "TopicName", "check_name", "decode_segment", "encode_segment"]

NAME_LENGTH_MAX: Final = 512
_SHOWN_MAX: Final = 40
_PERSISTENT: Final = "persistent"
_NON_PERSISTENT: Final = "non-persistent"
_PARTITION: Final = "-partition-"
_PART: Final = re.compile(r"[A-Za-z0-9_.=:\-]+")  # tenants and namespaces, as in Apache Pulsar
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~\-]+")  # characters that percent-encoding does not change
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_NOT_UTF8: Final = re.compile("[\ufffd\ud800-\udfff]")


def encode_segment(text: str) -> str:
    """Return a name as one path segment of the metadata tree or of a URL: percent-encoded, "." and
    ".." included.
    """
    # Nearly every name is plain, and each is encoded many times while its topic opens: ``quote``
    # costs ten times as much.
    encoded = text if _PLAIN.fullmatch(text) else quote(text, safe="")
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded


def decode_segment(segment: str) -> str:
    return unquote(segment)


def check_name(kind: str, name: str) -> str:
    """Check the name of a tenant, namespace or subscription.

    Raises ``InvalidTopicName`` naming the kind and the rule.
    """
    if _PART.fullmatch(name) and len(name) <= NAME_LENGTH_MAX:
        return name  # nearly every name
    if not name.strip():
        raise InvalidTopicName(f"{kind} name {name!r} is empty")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopicName(
            f"{kind} name {name[:_SHOWN_MAX]!r}... must have 1 to {NAME_LENGTH_MAX} characters, "
            f"not {len(name)}"
        )
    if kind in ("tenant", "namespace") and not _PART.fullmatch(name):
        raise InvalidTopicName(f"{kind} name {name!r} may hold only letters, digits and _ - = : .")
    if _CONTROL.search(name):
        raise InvalidTopicName(f"{kind} name {name!r} holds a control character")
    if _NOT_UTF8.search(name):
        raise InvalidTopicName(f"{kind} name {name!r} is not UTF-8")
    return name


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A parsed topic name. ``partition`` is -1 for a topic that is not a partition."""

    tenant: str
    namespace: str
    local: str  # with the partition suffix, if any
    persistent: bool = field(default=True, kw_only=True)
    full: str = field(init=False, compare=False, repr=False)  # one text, shared by all users

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "full", f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"
        )

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse a full or short name. Raises ``InvalidTopicName`` that shows the accepted forms."""
        hint = (
            "use persistent://tenant/namespace/topic, non-persistent://..., "
            "tenant/namespace/topic or a bare topic name"
        )
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = _PERSISTENT, text
        if domain not in (_PERSISTENT, _NON_PERSISTENT):
            raise InvalidTopicName(f"topic {text!r}: unknown domain {domain!r}; {hint}")
        parts = rest.split("/")
        if len(parts) == 1 and not separator:
            parts = ["public", "default", *parts]
        if len(parts) < 3:
            raise InvalidTopicName(f"topic {text!r} has {len(parts)} of 3 parts; {hint}")
        tenant, namespace, local = parts[0], parts[1], "/".join(parts[2:])
        check_name("tenant", tenant)
        check_name("namespace", namespace)
        check_name("topic", local)
        # many topics share it
        return cls(
            sys.intern(tenant), sys.intern(namespace), local, persistent=domain == _PERSISTENT
        )

    def __str__(self) -> str:
        return self.full

    @property
    def domain(self) -> str:
        """The part before ``://``."""
        return _PERSISTENT if self.persistent else _NON_PERSISTENT

    @property
    def namespace_name(self) -> str:
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition(self) -> int:
        _, separator, number = self.local.rpartition(_PARTITION)
        return (
            int(number) if separator and number.isdecimal() and str(int(number)) == number else -1
        )

    @property
    def partitioned(self) -> TopicName:
        """The partitioned topic of this partition; the topic itself when it is not a partition."""
        if self.partition < 0:
            return self
        return TopicName(
            self.tenant,
            self.namespace,
            self.local.rpartition(_PARTITION)[0],
            persistent=self.persistent,
        )

    def with_partition(self, index: int) -> TopicName:
        return TopicName(
            self.tenant,
            self.namespace,
            f"{self.local}{_PARTITION}{index}",
            persistent=self.persistent,
        )
