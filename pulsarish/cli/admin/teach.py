"""Hints for errors of the administration: what to do next, printed below the error.

To suggest names near the one that was not found, the command asks a broker with a short timeout: an
error must not take longer than the request that failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pulsarish.admin import Admin
from pulsarish.model.errors import (
    NotEmpty,
    NotFound,
    PulsarishError,
    SubscriptionBusy,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName

__all__ = ["add_hints"]

_PATIENCE_SECONDS: Final = 1.0
_NEAR_MAX: Final = 3
_LOOKED_AT_MAX: Final = 2_000


def add_hints(error: PulsarishError, values: Mapping[str, Any]) -> None:
    """Add hints to an error. ``values`` has the command's arguments and options by name."""
    for hint in _hints(error, values):
        error.add_note(hint)


def _hints(error: PulsarishError, values: Mapping[str, Any]) -> Iterable[str]:
    match error:
        case SubscriptionNotFound():
            yield from _near(
                values["subscription"],
                _known(values, lambda admin: admin.subscriptions.list(values["topic"])),
            )
        case TopicNotFound() if "topic" in values:
            name = TopicName.parse(values["topic"])
            known = _known(
                values, lambda admin: admin.topics.list(name.namespace_name, limit=_LOOKED_AT_MAX)
            )
            if name.partition < 0:
                known = list({str(TopicName.parse(each).partitioned): None for each in known})
            yield from _near(str(name), known)
            # A user who deletes it, or moves its dead letters back, does not want to create it, and
            # a partition is created with its topic.
            is_to_exist = "force" in values or "dead_letter_topic" in values
            if not is_to_exist and name.partition < 0 and str(name) not in known:
                yield f"create it with: pulsarish topics create {values['topic']}"
        case NotFound() if "namespace" in values and "/" in values["namespace"]:
            tenant = values["namespace"].partition("/")[0]
            yield from _near(
                values["namespace"], _known(values, lambda admin: admin.namespaces.list(tenant))
            )
        case NotFound() if "tenant" in values:
            yield from _near(values["tenant"], _known(values, lambda admin: admin.tenants.list()))
        case NotEmpty() if values.get("force") is False:
            yield "--force also deletes its content"
        case SubscriptionBusy() if values.get("force") is False:
            yield "--force disconnects its clients"
        case Timeout():
            yield "the broker may still finish it: check, and run the command again if it did not"
        case _:
            pass


def _known(values: Mapping[str, Any], names: Callable[[Admin], Iterable[str]]) -> list[str]:
    """Return existing names; none when they cannot be read, because the error itself is what
    matters.
    """
    admin = values["admin"]
    assert isinstance(admin, Admin)
    try:
        return list(names(admin.with_timeout(_PATIENCE_SECONDS)))
    except PulsarishError:
        return []


def _near(wanted: str, known: Sequence[str]) -> Iterable[str]:
    """Return names near the wanted one; none when that exists, because then another part of it was
    not found.
    """
    if wanted in known:
        return
    # Compare the last part only: equal first parts mean nothing.
    by_last = {name.rpartition("/")[2]: name for name in known}
    near = [
        by_last[last]
        for last in difflib.get_close_matches(wanted.rpartition("/")[2], by_last, _NEAR_MAX)
    ]
    if near:
        yield f"did you mean {' or '.join(near)}?"
