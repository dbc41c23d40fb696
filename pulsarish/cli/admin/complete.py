"""Names for the shell to complete. A broker has a short time to answer; without an answer there is
nothing to complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from pulsarish.admin import Admin
from pulsarish.cli.connections import ADMIN_URL, connected_admin
from pulsarish.model.errors import PulsarishError

__all__ = ["namespaces", "subscriptions", "tenants", "topics"]

_PATIENCE_SECONDS: Final = 0.5
_ITEMS_MAX: Final = 100
_SCHEME: Final = "persistent://"

_Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(names: Callable[[Admin, click.Context, str], list[str]]) -> _Completer:
    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        try:
            admin = context.params.get("admin")
            if not isinstance(admin, Admin):
                admin = connected_admin(ADMIN_URL, context)
            asked = admin.with_timeout(_PATIENCE_SECONDS)
            found = names(asked, context, begun)
        except PulsarishError:
            return []
        return [name for name in found if name.startswith(begun)][:_ITEMS_MAX]

    return complete


def _tenants(admin: Admin, context: click.Context, begun: str) -> list[str]:
    return admin.tenants.list()


def _namespaces(admin: Admin, context: click.Context, begun: str) -> list[str]:
    tenant, slash, _ = begun.partition("/")
    return admin.namespaces.list(tenant) if slash else [f"{name}/" for name in admin.tenants.list()]


def _topics(admin: Admin, context: click.Context, begun: str) -> list[str]:
    """Return topics in the form that the user began: full, ``tenant/namespace/topic``, or bare."""
    full = (
        begun
        if begun.startswith(_SCHEME)
        else _SCHEME + (begun if "/" in begun else f"public/default/{begun}")
    )
    untyped = full[: len(full) - len(begun)]
    tenant, *rest = full.removeprefix(_SCHEME).split("/", 2)
    if not rest:
        names = [f"{_SCHEME}{name}/" for name in admin.tenants.list()]
    elif len(rest) == 1:
        names = [f"{_SCHEME}{name}/" for name in admin.namespaces.list(tenant)]
    else:
        # All names with this beginning sort after it.
        names = admin.topics.list(
            f"{tenant}/{rest[0]}", after=full if rest[1] else "", limit=_ITEMS_MAX
        )
    return [name.removeprefix(untyped) for name in names]


def _subscriptions(admin: Admin, context: click.Context, begun: str) -> list[str]:
    topic = context.params.get("topic")
    return admin.subscriptions.list(topic) if topic else []


tenants: Final = _completer(_tenants)
namespaces: Final = _completer(_namespaces)
topics: Final = _completer(_topics)
subscriptions: Final = _completer(_subscriptions)
