"""What the leader's search for orphans has found, and a search at once."""

from __future__ import annotations

from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import OrphanBody, OrphansBody
from pulsarish.broker.http.route import Call, Moved, Parameter, Route, answer, no_content
from pulsarish.broker.listeners import http_url_at
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics.orphan_plan import Orphan
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.model.errors import NotFound
from pulsarish.runtime.seams import HttpResponse

__all__ = ["OrphanRoutes"]

_LIMIT: Final = Parameter(
    "limit", "Greatest number of orphans.", int, minimum=1, maximum=10_000, default=1_000
)
_AFTER: Final = Parameter("after", "Only orphans whose path comes after this one.")


class OrphanRoutes:
    def __init__(self, config: BrokerConfig, ownership: Ownership, search: OrphanSearch) -> None:
        self._config = config
        self._ownership = ownership
        self._search = search

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                "/admin/v2/ledgers/orphans",
                self._list,
                Permission.READ_CLUSTER,
                "List the ledgers and other nodes that nothing refers to, as the leader broker "
                "has found them.",
                parameters=(_AFTER, _LIMIT),
                answers=OrphansBody,
                owner=True,
            ),
            Route(
                "POST",
                "/admin/v2/ledgers/orphans/search",
                self._begin,
                Permission.SUPER_USER,
                "Have the leader broker search for orphans at once; the list says when it has "
                "ended.",
                owner=True,
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        self._require_leader(call)
        search, after = self._search, call.text("after")
        found = sorted(search.notes.found.values(), key=lambda orphan: orphan.path)
        page = [orphan for orphan in found if orphan.path > after][: call.number("limit")]
        return answer(
            OrphansBody(
                search.searched_ms,
                search.is_searching,
                search.failure,
                self._config.orphan_deletion_enabled,
                [_body(orphan) for orphan in page],
            )
        )

    async def _begin(self, call: Call) -> HttpResponse:
        self._require_leader(call)
        self._search.ask()
        return no_content()

    def _require_leader(self, call: Call) -> None:
        """Return only if this broker is the leader. Raises ``NotFound``, ``Moved``."""
        leader = self._ownership.leader
        if leader.is_leader:
            return
        if leader.leader is None:
            raise NotFound("there is no leader broker at the moment; one is being elected")
        raise Moved(http_url_at(leader.leader, call.listener, has_tls=call.request.has_tls))


def _body(orphan: Orphan) -> OrphanBody:
    return OrphanBody(
        orphan.kind.value,
        orphan.path,
        orphan.ledger_id,
        orphan.owner,
        orphan.size_bytes,
        orphan.created_ms,
        orphan.first_found_ms,
        orphan.is_deletable,
        orphan.why,
    )
