"""The types of subscriptions: the one declaration that protocols, policies, the administration and
the client share.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["SubscriptionType"]


class SubscriptionType(Enum):
    """How the consumers of a subscription share its messages.

    Each type is declared as its number in the protocols, Apache Pulsar's name of it in the
    administration, and whether several consumers get messages at the same time.
    """

    EXCLUSIVE = 0, "Exclusive", False
    SHARED = 1, "Shared", True
    FAILOVER = 2, "Failover", False
    KEY_SHARED = 3, "Key_Shared", True

    title: str
    is_spread: bool

    def __new__(cls, number: int, title: str = "", is_spread: bool = False) -> SubscriptionType:
        made = object.__new__(cls)
        made._value_ = number
        made.title = title
        made.is_spread = is_spread
        return made

    @property
    def option(self) -> str:
        """The type's name on the command line."""
        return self.title.lower().replace("_", "-")
