"""What a process records about its callers, and where it hands the records over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from pulsarish.security.identity import Identity

__all__ = ["NO_AUDIT", "AuditClass", "AuditEvent", "Auditor", "Disposition"]


class AuditClass(Enum):
    """What kind of thing happened, with the class names of OCSF where they fit."""

    AUTHENTICATION = "Authentication"
    AUTHORIZATION = "Authorize Session"
    CHANGE = "API Activity"
    """A change by an administrator."""
    TRAIL = "Audit"
    """Of the trail itself: its start and stop, its rotation, what was lost."""


class Disposition(Enum):
    """What came of it."""

    ALLOWED = "Allowed"
    DENIED = "Denied"
    OBSERVED = "Observed"
    """It would have been denied; ``authorization_report_only`` let it happen."""
    FAILED = "Failed"
    """It was permitted and did not succeed, or could not be decided."""
    UNKNOWN = "Unknown"
    """It was permitted, and nothing said in time whether it happened: it may still happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One thing that happened. No field ever holds a credential."""

    kind: AuditClass
    activity: str
    """``Logon``, ``Renew``, ``Deny``, ``Change``."""
    identity: Identity
    """Who did it, and from where."""
    disposition: Disposition
    action: str = ""
    """The method, command or route."""
    resource: str = ""
    reason: str = ""
    detail: str = ""
    """What a change changes: the role and actions of a grant."""
    part: str = ""
    """Which record of several this is, ``2 of 3``, when one cannot hold the whole detail."""
    path: str = ""
    """Of an HTTP request, without its query."""
    status: int = 0
    """Of the HTTP answer; 0: none."""


class Auditor(Protocol):
    """Takes the records of a process."""

    def note(self, event: AuditEvent) -> None:
        """Record an event. Never blocks and never fails."""
        ...


class _NoAudit:
    def note(self, event: AuditEvent) -> None:
        """Record nothing."""


NO_AUDIT: Final[Auditor] = _NoAudit()
