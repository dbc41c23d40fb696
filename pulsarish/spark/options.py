"""The options of the format, from Spark's strings to typed values.

Every mistake names the option, its value and what is allowed.

Spark compares option names without case. They are written here as users know them from Spark's
connectors to Pulsar and Kafka.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.profiles import Profile, find_profile, is_tls_url
from pulsarish.spark.access import (
    NO_BOOKIE_ACCESS,
    BookieAccess,
    BrokerAccess,
    parse_token_life,
)
from pulsarish.spark.positions import Bound, parse_bound, parse_time_ms

__all__ = [
    "ADMIN_URL",
    "BROKER_NAMES",
    "STREAM_NAMES",
    "DirectReads",
    "OnDecodeError",
    "OptionError",
    "ReadOptions",
    "Taken",
    "ValueSchema",
    "broker_access",
    "check_names",
    "read_options",
]

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

SERVICE_URL: Final = "pulsarish://127.0.0.1:6660"
ADMIN_URL: Final = "http://127.0.0.1:8080"

_SIZE: Final = re.compile(r"(\d+)\s*(b|kb?|kib|mb?|mib|gb?|gib)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SPLIT_BYTES_MIN: Final = 1 << 16
_MAY_BE_SECRET: Final = re.compile(
    r"auth|token|password|secret|credential|private|key$", re.IGNORECASE
)
_NOT_SHOWN: Final = "(not shown)"


class OptionError(InvalidArgument):
    """An option has an unusable value."""

    code = InvalidArgument.code

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"option {name!r} = {value!r}: {allowed}")


class DirectReads(StrEnum):
    """Whether executors read closed ledgers from bookies: where possible, never, or always."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class ValueSchema(StrEnum):
    """``value`` as bytes, or decoded by the topic's schema into columns."""

    RAW = "raw"
    TOPIC = "topic"


class OnDecodeError(StrEnum):
    """How to handle a value that the schema does not decode."""

    FAIL = "fail"
    KEEP = "keep"
    DROP = "drop"


BROKER_NAMES: Final = (
    "service.url",
    "admin.url",
    "profile",
    "authPlugin",
    "authParams",
    "tlsTrustCertsFilePath",
    "tlsCertificateFilePath",
    "tlsPrivateKeyFilePath",
    "tlsValidateHostname",
    "tlsAllowInsecureConnection",
)
"""Where the brokers are, and who uses them: options of reading and of writing."""
_TLS_NAMES: Final = tuple(name for name in BROKER_NAMES if name.startswith("tls"))
READ_NAMES: Final = (
    *BROKER_NAMES,
    "topic",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTime",
    "endingTime",
    "failOnDataLoss",
    "maxBytesPerTrigger",
    "maxMessagesPerTrigger",
    "maxLedgersPerTrigger",
    "subscription",
    "subscriptionRolePrefix",
    "directReads",
    "clusterKeyFile",
    "bookieTokenLife",
    "bookieTlsTrustCertsFilePath",
    "bookieTlsCertificateFilePath",
    "bookieTlsPrivateKeyFilePath",
    "splitBytes",
    "publishTimeSlackSeconds",
    "valueSchema",
    "onDecodeError",
)
"""All read options."""
STREAM_NAMES: Final = (
    "subscription",
    "maxBytesPerTrigger",
    "maxMessagesPerTrigger",
    "maxLedgersPerTrigger",
)
"""Options of streaming queries only."""


class Taken:
    """Spark's options by name, ignoring case; each access validates."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        """Return the value; ``None`` when it was not given or is empty."""
        value = self._given.get(name.lower())
        return value.strip() or None if value is not None else None

    def parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except OptionError:
            raise
        except (ValueError, PulsarishError) as error:
            raise OptionError(name, value, str(error)) from None

    def choice(self, name: str, kind: type[E], default: E) -> E:
        value = self.text(name)
        if value is None:
            return default
        try:
            return kind(value.lower())
        except ValueError:
            raise OptionError(
                name, value, "allowed are " + ", ".join(each.value for each in kind)
            ) from None

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(name, value, "allowed are true and false")
        return value.lower() == "true"

    def count(self, name: str, default: int | None = None) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not value.isdecimal() or int(value) < 1:
            raise OptionError(name, value, "it must be a whole number of 1 or more")
        return int(value)

    def size(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """Return a number of bytes: ``67108864`` or ``64m``."""
        value = self.text(name)
        if value is None:
            return default
        found = _SIZE.fullmatch(value)
        if found is None:
            raise OptionError(name, value, "it must be a number of bytes such as 67108864 or 64m")
        size_bytes = int(found[1]) * _UNITS[(found[2] or "b")[0].lower()]
        if size_bytes < least:
            raise OptionError(name, value, f"it must be at least {least} bytes")
        return size_bytes


def check_names(given: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
    """Raise ``OptionError`` for an option that ``what`` (reading or writing) does not have."""
    by_lower = {name.lower(): name for name in known}
    for name, value in given.items():
        if name.lower() in by_lower:
            continue
        near = difflib.get_close_matches(name.lower(), by_lower, n=1)
        meant = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
        # What looks like a secret under another name is one.
        shown = _NOT_SHOWN if _MAY_BE_SECRET.search(name) else value
        raise OptionError(
            name, shown, f"{what} has no such option{meant} It has {', '.join(known)}"
        )


def broker_access(taken: Taken) -> BrokerAccess:
    """Return where the brokers are and who uses them.

    A profile is read here, on the driver; options given beside it count more. Raises
    ``OptionError``, which shows no secret, and the errors of ``find_profile``.
    """
    named = taken.text("profile")
    profile = find_profile(named)[1] if named is not None else Profile()
    plugin, parameters = taken.text("authPlugin"), taken.text("authParams")
    if plugin is not None or parameters is not None:
        profile = replace(profile, auth_plugin=plugin or "", auth_params=parameters or "")
    profile = replace(
        profile,
        url=taken.text("service.url") or profile.url or SERVICE_URL,
        admin_url=taken.text("admin.url") or profile.admin_url or ADMIN_URL,
        tls_trust_certs_file_path=taken.text("tlsTrustCertsFilePath")
        or profile.tls_trust_certs_file_path,
        tls_certificate_file_path=taken.text("tlsCertificateFilePath")
        or profile.tls_certificate_file_path,
        tls_private_key_file_path=taken.text("tlsPrivateKeyFilePath")
        or profile.tls_private_key_file_path,
        tls_validate_hostname=taken.flag(
            "tlsValidateHostname", default=profile.tls_validate_hostname
        ),
        tls_allow_insecure_connection=taken.flag(
            "tlsAllowInsecureConnection", default=profile.tls_allow_insecure_connection
        ),
    )
    _check_access(taken, profile)
    return BrokerAccess(profile)


def _check_access(taken: Taken, profile: Profile) -> None:
    if not profile.url.startswith(("pulsarish://", "pulsarish+ssl://")):
        raise OptionError(
            "service.url",
            profile.url,
            "it must be pulsarish://host:6660[,host2:6660], with TLS pulsarish+ssl://host:6661",
        )
    if not profile.admin_url.startswith(("http://", "https://")):
        raise OptionError(
            "admin.url",
            profile.admin_url,
            "it must be http://host:8080[,host2:8080], with TLS https://host:8443",
        )
    _check_pair(taken, "tlsCertificateFilePath", "tlsPrivateKeyFilePath")
    if not (is_tls_url(profile.url) or is_tls_url(profile.admin_url)):
        for name in _TLS_NAMES:
            if taken.text(name) is not None:
                raise OptionError(
                    name,
                    taken.text(name),
                    "it needs TLS: give a service.url that begins with pulsarish+ssl:// and an "
                    "admin.url that begins with https://",
                )
    name = "authParams" if taken.text("authParams") is not None else "authPlugin"
    try:
        profile.check()
    except PulsarishError as error:
        text = str(error).replace("auth_params", "authParams").replace("auth_plugin", "authPlugin")
        raise OptionError(name, _NOT_SHOWN, text) from None


def _check_pair(taken: Taken, certificate: str, key: str) -> None:
    given = [name for name in (certificate, key) if taken.text(name) is not None]
    if len(given) == 1:
        missing = key if given[0] == certificate else certificate
        raise OptionError(given[0], taken.text(given[0]), f"it belongs to {missing}: give both")


def _bookie_access(taken: Taken) -> BookieAccess:
    _check_pair(taken, "bookieTlsCertificateFilePath", "bookieTlsPrivateKeyFilePath")
    cluster_key_file, life = taken.text("clusterKeyFile") or "", taken.text("bookieTokenLife")
    if life is not None and not cluster_key_file:
        raise OptionError(
            "bookieTokenLife",
            life,
            "it belongs to clusterKeyFile, with which the tokens are made: give both",
        )
    return BookieAccess(
        cluster_key_file=cluster_key_file,
        trust_file=taken.text("bookieTlsTrustCertsFilePath") or "",
        certificate_file=taken.text("bookieTlsCertificateFilePath") or "",
        key_file=taken.text("bookieTlsPrivateKeyFilePath") or "",
        token_life_ms=taken.parsed(
            "bookieTokenLife", parse_token_life, NO_BOOKIE_ACCESS.token_life_ms
        ),
    )


def _direct_reads(taken: Taken, brokers: BrokerAccess, bookies: BookieAccess) -> DirectReads:
    """Return whether bookies are read.

    A role that brokers know has rights to topics, and bookies give a member of the cluster every
    ledger. So such a role reads through brokers, unless an operator's access to bookies is given.
    """
    found = taken.choice("directReads", DirectReads, DirectReads.AUTO)
    if found is DirectReads.AUTO and brokers.is_known and not bookies.is_given:
        return DirectReads.NEVER
    return found


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a batch or streaming read."""

    brokers: BrokerAccess
    bookies: BookieAccess
    topics: tuple[str, ...]
    """Full names; empty with a pattern."""
    pattern: str | None
    starting: Bound | None
    """``None``: the earliest of a batch, the latest of a stream."""
    ending: Bound | None
    starting_time_ms: int | None
    ending_time_ms: int | None
    fail_on_data_loss: bool
    max_bytes_per_trigger: int | None
    max_messages_per_trigger: int | None
    max_ledgers_per_trigger: int | None
    subscription: str | None
    subscription_role_prefix: str
    direct_reads: DirectReads
    split_bytes: int | None
    publish_time_slack_ms: int
    value_schema: ValueSchema
    on_decode_error: OnDecodeError


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Return the options. ``streaming`` ``None``: not known yet. Raises ``OptionError``."""
    check_names(given, READ_NAMES, "reading")
    taken = Taken(given)
    brokers, bookies = broker_access(taken), _bookie_access(taken)
    topics, pattern = _topics(taken)
    if streaming:
        for name in ("endingOffsets", "endingTime"):
            if taken.text(name) is not None:
                raise OptionError(
                    name,
                    taken.text(name),
                    "a streaming query has no end; leave it out, or read a batch",
                )
        slack = taken.text("publishTimeSlackSeconds")
        if slack is not None:
            raise OptionError(
                "publishTimeSlackSeconds",
                slack,
                "it is for batches only: a stream passes over no ledger; leave it out",
            )
    elif streaming is False:
        for name in STREAM_NAMES:
            if taken.text(name) is not None:
                raise OptionError(
                    name, taken.text(name), "it is for streaming queries only; leave it out"
                )
    for offsets, time in (("startingOffsets", "startingTime"), ("endingOffsets", "endingTime")):
        if taken.text(offsets) is not None and taken.text(time) is not None:
            raise OptionError(time, taken.text(time), f"give it or {offsets}, not both")
        _check_read(taken, offsets, topics)
    value_schema = taken.choice("valueSchema", ValueSchema, ValueSchema.RAW)
    if value_schema is not ValueSchema.TOPIC and taken.text("onDecodeError") is not None:
        raise OptionError(
            "onDecodeError",
            taken.text("onDecodeError"),
            "it needs option 'valueSchema' = 'topic'; bytes are not decoded",
        )
    return ReadOptions(
        brokers=brokers,
        bookies=bookies,
        topics=topics,
        pattern=pattern,
        starting=taken.parsed("startingOffsets", parse_bound, None),
        ending=taken.parsed("endingOffsets", parse_bound, None),
        starting_time_ms=taken.parsed("startingTime", parse_time_ms, None),
        ending_time_ms=taken.parsed("endingTime", parse_time_ms, None),
        fail_on_data_loss=taken.flag("failOnDataLoss", default=True),
        max_bytes_per_trigger=taken.size("maxBytesPerTrigger"),
        max_messages_per_trigger=taken.count("maxMessagesPerTrigger"),
        max_ledgers_per_trigger=taken.count("maxLedgersPerTrigger"),
        subscription=taken.text("subscription"),
        subscription_role_prefix=taken.text("subscriptionRolePrefix") or "",
        direct_reads=_direct_reads(taken, brokers, bookies),
        split_bytes=taken.size("splitBytes", least=_SPLIT_BYTES_MIN),
        publish_time_slack_ms=1_000 * (taken.count("publishTimeSlackSeconds", 600) or 0),
        value_schema=value_schema,
        on_decode_error=taken.choice("onDecodeError", OnDecodeError, OnDecodeError.FAIL),
    )


def _check_read(taken: Taken, name: str, topics: tuple[str, ...]) -> None:
    """Check the topics in offsets.

    A list of topics limits the names; a pattern may match topics that do not exist yet.
    """
    bound = taken.parsed(name, parse_bound, None)
    read = {each for topic in topics for each in (topic, TopicName.parse(topic).partitioned.full)}
    for topic in bound.by_topic if bound is not None and topics else ():
        if not {topic, TopicName.parse(topic).partitioned.full} & read:
            raise OptionError(
                name,
                taken.text(name),
                f"it names {topic}, which is not read; the topics are {', '.join(topics)}",
            )


def _topics(taken: Taken) -> tuple[tuple[str, ...], str | None]:
    given = {
        name: value
        for name in ("topic", "topics", "topicsPattern")
        if (value := taken.text(name)) is not None
    }
    if len(given) != 1:
        found = " and ".join(sorted(given)) if given else "none of them"
        raise OptionError(
            next(iter(given), "topic"),
            next(iter(given.values()), ""),
            f"give one of topic, topics, topicsPattern, not {found}",
        )
    name, value = given.popitem()
    if name == "topicsPattern":
        _pattern(value)
        return (), value
    names = (
        [value] if name == "topic" else [each.strip() for each in value.split(",") if each.strip()]
    )
    try:
        parsed = [TopicName.parse(each) for each in names]
    except PulsarishError as error:
        raise OptionError(name, value, str(error)) from None
    for each in parsed:
        if not each.persistent:
            raise OptionError(
                name,
                value,
                f"{each} keeps nothing that could be read again; a consumer can follow it",
            )
    return tuple(dict.fromkeys(each.full for each in parsed)), None


def _pattern(value: str) -> None:
    try:
        re.compile(value)
        TopicName.parse(re.sub(r"[^/]*$", "any", value))
    except re.error as error:
        raise OptionError("topicsPattern", value, f"it is no regular expression: {error}") from None
    except PulsarishError:
        allowed = (
            "it must be tenant/namespace/ and a regular expression for the topic's name, such "
            "as public/default/orders-.*"
        )
        raise OptionError("topicsPattern", value, allowed) from None
