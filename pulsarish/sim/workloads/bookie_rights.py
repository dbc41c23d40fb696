"""Who may call a bookie.

Each role of the cluster's tokens, and each caller that is no member, makes every call and opens
every stream of a simulated bookie. These are read from the bookie. A permitted one must reach its
handler, and a denied one must not. What each role may do is written here a second time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, get_args

from google.protobuf.message import Message

from pulsarish.bookie.access import PERMISSIONS
from pulsarish.model.errors import AuthenticationError, AuthorizationError
from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.security.cluster_key import CLUSTER_METHOD, ReaderKind
from pulsarish.security.credentials import Credentials
from pulsarish.security.membership import MemberKind
from pulsarish.sim.workloads.rights_cases import FOREIGN_KEY, HOUR_MS, Matrix
from pulsarish.sim.workloads.rights_site import RightsSite, in_site
from pulsarish.sim.world.connections import SimConnections
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.bookie import ReadItem, decode_read_response, encode_read

__all__ = ["run_bookie_rights"]

_ADDRESS: Final = "bookie0:3182"
_READS: Final = frozenset({"bookie.read", "bookie.read_lac"})
_LISTS: Final = frozenset({"bookie.list_ledgers", "bookie.list_entries", "bookie.status"})
_OPERATIONS: Final = frozenset(
    {
        "bookie.list_trash",
        "bookie.change_trash",
        "bookie.collect_garbage",
        "bookie.volume",
        "bookie.add_volume",
    }
)
_REPAIRS: Final = frozenset(
    {"bookie.add", "bookie.fence", "bookie.recovery_read", "bookie.clear_limbo"}
)
_ALL: Final = _READS | _LISTS | _OPERATIONS | _REPAIRS | {"bookie.write_lacs"}
_RIGHTS: Final[Mapping[str, frozenset[str]]] = {
    "broker": _ALL,
    "operator": _ALL,
    "bookie": _READS | _LISTS | _REPAIRS,
    "autorecovery": _READS | _LISTS | _REPAIRS,
    "auditor": _READS | _LISTS | {"bookie.list_trash"},
    "reader": _READS,
}
_NAMED: Final = 1
"""The ledger that tokens of readers name."""
_OTHER: Final = 2
_REQUESTS: Final[Mapping[str, Callable[[str, int], Message]]] = {
    "bookie.fence": lambda to, ledger: pb.FenceRequest(instance_id=to, ledger=ledger),
    "bookie.read_lac": lambda to, ledger: pb.ReadLacRequest(instance_id=to, ledger=ledger),
    "bookie.write_lacs": lambda to, ledger: pb.WriteLacsRequest(
        instance_id=to, ledgers=[ledger], lacs=[0]
    ),
    "bookie.recovery_read": lambda to, ledger: pb.RecoveryReadRequest(
        instance_id=to, ledger=ledger
    ),
    "bookie.list_ledgers": lambda to, _: pb.ListLedgersRequest(instance_id=to),
    "bookie.list_entries": lambda to, ledger: pb.ListEntriesRequest(instance_id=to, ledger=ledger),
    "bookie.clear_limbo": lambda to, ledger: pb.ClearLimboRequest(instance_id=to, ledger=ledger),
    "bookie.list_trash": lambda to, _: pb.ListTrashRequest(instance_id=to),
    "bookie.change_trash": lambda to, ledger: pb.ChangeTrashRequest(
        instance_id=to, restore=True, ledgers=[ledger]
    ),
    "bookie.collect_garbage": lambda to, _: pb.CollectGarbageRequest(instance_id=to),
    "bookie.volume": lambda to, _: pb.VolumeRequest(instance_id=to, directory="/none"),
    "bookie.add_volume": lambda to, _: pb.AddVolumeRequest(instance_id=to, add=True),
    "bookie.status": lambda _to, _ledger: pb.StatusRequest(),
}
_STREAMS: Final = ("bookie.add", "bookie.read")
_NOTHING: Final[frozenset[str]] = frozenset()
_REFUSALS: Final = (AuthenticationError, AuthorizationError)


def run_bookie_rights() -> Matrix:
    """Make each call and open each stream, for every role and stranger."""

    async def ask(site: RightsSite, matrix: Matrix) -> None:
        reached: list[str] = []
        node = site.sim.nodes["bookie0"]
        node.expected_errors = _REFUSALS  # of calls whose answer carries no error
        await node.run(lambda world: _serve_watched(site, world, reached))
        client = site.sim.node("10.0.0.1")
        await client.run(lambda world: _Run(site, world, matrix, reached).run())

    return in_site(ask)


async def _serve_watched(site: RightsSite, world: World, reached: list[str]) -> None:
    """Serve the bookie at a second address, where it notes which handlers are reached."""
    service: Any = site.bookie.service
    for method in [*_REQUESTS, *_STREAMS]:
        name = f"_{method.removeprefix('bookie.')}{'_stream' if method in _STREAMS else ''}"
        setattr(service, name, _noting(method, getattr(service, name), reached))
    _ = await world.connections.serve(_ADDRESS, service.streams(), service.calls())


def _noting(method: str, handler: Callable[..., Awaitable[Any]], reached: list[str]) -> object:
    async def handle(*arguments: object) -> object:
        reached.append(method)
        return await handler(*arguments)

    return handle


class _Run:
    def __init__(self, site: RightsSite, world: World, matrix: Matrix, reached: list[str]) -> None:
        assert isinstance(world.connections, SimConnections)
        self._site = site
        self._world = world
        self._connections = world.connections
        self._matrix = matrix
        self._reached = reached

    async def run(self) -> None:
        service = self._site.bookie.service
        served = sorted({*service.calls(), *service.streams()})
        self._matrix.expect("cases", found=sorted([*_REQUESTS, *_STREAMS]), wanted=served)
        self._matrix.expect("rows", found=sorted(PERMISSIONS), wanted=served)
        kinds = sorted({*get_args(MemberKind), *get_args(ReaderKind)})
        self._matrix.expect("roles", found=sorted(_RIGHTS), wanted=kinds)
        for name, (shown, may) in self._callers().items():
            for method in served:
                found = await self._reaches(shown, method)
                wanted = [method] if method in may else []
                self._matrix.expect(f"{name}: {method}", found=found, wanted=wanted)
        await self._read_by_name()

    def _callers(self) -> dict[str, tuple[Credentials, frozenset[str]]]:
        """Return what each caller shows, and what it may call."""
        cases = self._site.cases
        audience = {"aud": "pulsarish-cluster"}

        def token(role: str, **options: Any) -> Credentials:
            claims = {**audience, **options.pop("claims", {})}
            made = cases.token(role, claims=claims, **options)
            return Credentials(CLUSTER_METHOD, made.data)

        named = {"ledgers": [_NAMED]}
        members = {
            role: (token(role, claims=named if role == "reader" else {}), may)
            for role, may in _RIGHTS.items()
        }
        strangers = {
            **{name: shown for name, shown in cases.bad().items() if name != "member's"},
            **{f"role {role} of the clients": cases.token(role) for role in ("root", "broker")},
            "an unknown role": token("ann"),
            "no role": token(""),
            "a reader of no ledger": token("reader"),
            "a client's token as a member's": Credentials(
                CLUSTER_METHOD, cases.token("broker").data
            ),
            "a member's token as a client's": Credentials("token", token("broker").data),
            **{f"{role} of another cluster": token(role, key=FOREIGN_KEY) for role in _RIGHTS},
            **{f"{role} of an hour ago": token(role, life_ms=-HOUR_MS) for role in _RIGHTS},
        }
        return {**members, **{name: (shown, _NOTHING) for name, shown in strangers.items()}}

    async def _reaches(self, shown: Credentials, method: str) -> list[str]:
        """Use a call or stream, and return which handlers are reached."""
        self._reached.clear()
        to = self._connections.showing(lambda: shown)
        try:
            if method in _STREAMS:
                stream = await to.open(_ADDRESS, method)
                await self._world.clock.sleep(0.1)
                stream.abort("done")
            else:
                request = _REQUESTS[method](self._site.bookie.instance_id, _NAMED)
                data = request.SerializeToString()
                _ = await to.call(_ADDRESS, method, data, timeout_seconds=5.0)
        except (CallFailed, StreamBroken):
            pass  # what was reached says whether it was refused
        return list(self._reached)

    async def _read_by_name(self) -> None:
        """Have a reader ask for the ledger that its token names, and for another."""
        instance_id = self._site.bookie.instance_id
        shown, _ = self._callers()["reader"]
        to = self._connections.showing(lambda: shown)
        for ledger_id, is_named in ((_NAMED, True), (_OTHER, False)):
            request = _REQUESTS["bookie.read_lac"](instance_id, ledger_id).SerializeToString()
            data = await to.call(_ADDRESS, "bookie.read_lac", request, timeout_seconds=5.0)
            code = pb.ReadLacResponse.FromString(data).code
            found = code != AuthorizationError.code
            self._matrix.expect(f"LAC of ledger {ledger_id}", found=found, wanted=is_named)
            stream = await to.open(_ADDRESS, "bookie.read")
            # Its second read is of the ledger.
            items = [
                ReadItem(number, each, [(0, 0)], 100)
                for number, each in enumerate((_NAMED, ledger_id))
            ]
            await stream.send([encode_read(instance_id, items)])
            try:
                data = await stream.receive() or b""
                answers = len(decode_read_response(data)[1])
            except StreamBroken:
                answers = 0
            wanted = 2 if is_named else 0
            self._matrix.expect(f"reads of ledger {ledger_id}", found=answers, wanted=wanted)
            stream.abort("done")
