"""Mutants of what each port checks by itself, noticed by the matrices of callers and requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pulsarish.bookie import call_guard
from pulsarish.bookie import service as bookie_service
from pulsarish.bookie.service import BookieService
from pulsarish.broker.binary.connection import Connection
from pulsarish.broker.binary.questions import BrokerQuestions
from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.http.face import HttpFace
from pulsarish.broker.http.routes.authorization_routes import AuthorizationRoutes
from pulsarish.broker.http.routes.grant_routes import GrantRoutes
from pulsarish.broker.sessions.grpc_calls import GrpcCalls
from pulsarish.broker.sessions.session import Session
from pulsarish.broker.sessions.topic_calls import TopicCalls
from pulsarish.metadata.daemon import daemon as metadata_daemon
from pulsarish.metadata.daemon import jobs
from pulsarish.metadata.daemon.connection import Connection as MetadataConnection
from pulsarish.metadata.daemon.jobs import RequestJob
from pulsarish.proxy import relay
from pulsarish.proxy.broker_link import BrokerLinks, Shown
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.security.callers import Callers
from pulsarish.security.identity import Identity
from pulsarish.security.metadata_login import MetadataLogins
from pulsarish.sim.workloads.binary_rights import run_binary_rights
from pulsarish.sim.workloads.bookie_rights import run_bookie_rights
from pulsarish.sim.workloads.http_rights import run_checks_of_handlers, run_http_rights
from pulsarish.sim.workloads.metadata_rights import run_metadata_rights
from pulsarish.sim.workloads.proxy_rights import run_proxy_rights
from pulsarish.sim.workloads.rights_cases import Matrix
from pulsarish.sim.workloads.safeguard import Mutant, Patch, all_replaced, replacing
from pulsarish.sim.workloads.stream_rights import run_stream_rights
from pulsarish.wire._pb import pulsar_pb2 as pb

__all__ = ["FACE_MUTANTS"]


def _few_http_rights() -> Matrix:
    return run_http_rights(("credentials: none", "root", "stranger", "reader"))


def _with_open_gate(was: Any) -> object:
    """Have a method find a gate that permits everything."""

    async def run(owner: Any, *arguments: Any, **options: Any) -> object:
        gate, owner._gate = owner._gate, Gate()
        try:
            return await was(owner, *arguments, **options)
        finally:
            owner._gate = gate

    return run


def _explains_to_all(was: Any) -> object:
    async def explain(routes: AuthorizationRoutes, call: Any) -> object:
        call.identity = Identity(call.text("role"), proxy_role=call.text("proxyRole"))
        return await was(routes, call)

    return explain


def _permits(_was: object) -> object:
    async def permit(_session: Session, _command: object, *_names: str) -> None:
        return

    return permit


def _connects_anyone(_was: object) -> object:
    async def authenticate(connection: Connection, connect: pb.Connect) -> None:
        connection.session.identity = Identity("root")
        connection._accept(connect)

    return authenticate


def _begins_with_anything(_was: object) -> object:
    def shake_hands(connection: Connection, command: pb.Command) -> None:
        connection._begin_authentication(connection._authenticate(command.connect))

    return shake_hands


def _knows_anyone(_was: object) -> object:
    async def identify_caller(_callers: Callers, _caller: object) -> Identity:
        return Identity("root")

    return identify_caller


def _any_key(_was: object) -> object:
    def is_own_key(_calls: GrpcCalls, _key: str, _caller: object) -> bool:
        return True

    return is_own_key


def _any_broker(_was: object) -> object:
    def binary(_brokers: KnownBrokers, address: str) -> str:
        return address

    return binary


def _any_address(_was: object) -> object:
    def check(_brokers: KnownBrokers, _address: str) -> None:
        return

    return check


def _one_link(was: Any) -> object:
    """Ask for every client on the connection that was made for the first one."""

    async def link(links: BrokerLinks, address: str, shown: Shown) -> object:
        for _, first in links._links:
            return await was(links, address, first)
        return await was(links, address, shown)

    return link


def _no_original(was: Any) -> object:
    async def link(links: BrokerLinks, address: str, shown: Shown) -> object:
        return await was(links, address, Shown(shown.credentials))

    return link


def _never(_was: object) -> object:
    def is_so(_asked: object) -> bool:
        return False

    return is_so


def _always(_was: object) -> object:
    def is_so(*_asked: object) -> bool:
        return True

    return is_so


def _any_ledger(_was: object) -> object:
    def check_ledger(_member: object, _ledger_id: int) -> None:
        return

    return check_ledger


def _serves_anyone(_was: object) -> object:
    async def serve(_service: BookieService, stream: Any, method: str, serve: Any) -> None:
        await serve(stream, None)

    return serve


def _any_scheme(was: Any) -> object:
    def log_in(job: RequestJob, tree: Any, request: Any) -> None:
        was(job, tree, replace(request, scheme="digest"))

    return log_in


def _stays(_was: object) -> object:
    def refuse(_job: RequestJob, _reason: str) -> None:
        return

    return refuse


def _login_of_the_session(was: Any) -> object:
    """Take a session that comes to another connection for a login."""
    seen: set[int] = set()

    def attach(connection: MetadataConnection, session_id: int) -> None:
        connection.is_admitted = connection.is_admitted or session_id in seen
        seen.add(session_id)
        was(connection, session_id)

    return attach


def _mutant(name: str, removes: str, run: Callable[[], Matrix], *patches: Patch) -> Mutant:
    def check(_seed: int) -> None:
        anomalies = run().anomalies
        assert not anomalies, "; ".join(anomalies[:3])

    return Mutant(name, removes, (22,), all_replaced(*patches), check, seeds=1)


FACE_MUTANTS: Final = (
    _mutant(
        "route_not_checked",
        "a request by HTTP needs the permission of its route",
        _few_http_rights,
        replacing(HttpFace, "_permitted", _with_open_gate),
    ),
    _mutant(
        "grants_in_a_body_not_checked",
        "who grants on several topics administers each of them",
        run_checks_of_handlers,
        replacing(GrantRoutes, "_change_several", _with_open_gate),
    ),
    _mutant(
        "rights_explained_to_all",
        "what another role may do is explained to administrators only",
        run_checks_of_handlers,
        replacing(AuthorizationRoutes, "_explain", _explains_to_all),
    ),
    _mutant(
        "openings_not_checked",
        "opening a producer or consumer needs its permission",
        run_binary_rights,
        replacing(Session, "_permit", _permits),
    ),
    _mutant(
        "questions_not_checked",
        "lookups and lists of the binary protocol need their permission",
        run_binary_rights,
        replacing(BrokerQuestions, "answer", _with_open_gate),
    ),
    _mutant(
        "watch_not_checked",
        "a watch of a namespace's topics needs the permission to see all of them",
        run_binary_rights,
        replacing(BrokerQuestions, "watch", _with_open_gate),
    ),
    _mutant(
        "credentials_in_connect_not_checked",
        "CONNECT needs valid credentials",
        run_binary_rights,
        replacing(Connection, "_authenticate", _connects_anyone),
    ),
    _mutant(
        "connection_begins_with_anything",
        "a connection of the binary protocol begins with CONNECT",
        run_binary_rights,
        replacing(Connection, "_shake_hands", _begins_with_anything),
    ),
    _mutant(
        "callers_not_identified",
        "streams and calls need valid credentials",
        run_stream_rights,
        replacing(Callers, "identify_caller", _knows_anyone),
    ),
    _mutant(
        "lookups_not_checked",
        "a call for the owner of a topic needs its permission",
        run_stream_rights,
        replacing(GrpcCalls, "_named", _with_open_gate),
    ),
    _mutant(
        "schema_calls_not_checked",
        "a call for a schema needs its permission",
        run_stream_rights,
        replacing(GrpcCalls, "_schema", _with_open_gate),
    ),
    _mutant(
        "list_calls_not_checked",
        "a call for the topics of a namespace needs its permission",
        run_stream_rights,
        replacing(TopicCalls, "_answer", _with_open_gate),
    ),
    _mutant(
        "key_of_a_registration_not_compared",
        "a broker runs requests that other brokers pass on, and no client's",
        run_stream_rights,
        replacing(GrpcCalls, "_is_own_key", _any_key),
    ),
    _mutant(
        "passed_on_anywhere",
        "a proxy passes connections on to brokers only",
        run_proxy_rights,
        replacing(KnownBrokers, "binary", _any_broker),
    ),
    _mutant(
        "tunnel_anywhere",
        "CONNECT of HTTP reaches brokers only",
        run_proxy_rights,
        replacing(KnownBrokers, "check", _any_address),
    ),
    _mutant(
        "clients_share_a_link",
        "a proxy asks with the credentials of the client for which it asks",
        run_proxy_rights,
        replacing(BrokerLinks, "_link", _one_link),
    ),
    _mutant(
        "original_not_passed_on",
        "a proxy says for whom a client says that it speaks",
        run_proxy_rights,
        replacing(BrokerLinks, "_link", _no_original),
    ),
    _mutant(
        "certificate_of_the_proxy_lent",
        "a client without credentials is not taken for the proxy",
        run_proxy_rights,
        replacing(relay, "_has_only_certificate", _never),
    ),
    _mutant(
        "streams_of_a_bookie_not_checked",
        "a stream of a bookie is for members that may use it",
        run_bookie_rights,
        replacing(BookieService, "_serve", _serves_anyone),
    ),
    _mutant(
        "ledgers_of_a_reader_not_checked",
        "a reader reads the ledgers that its token names",
        run_bookie_rights,
        replacing(call_guard, "check_ledger", _any_ledger),
        replacing(bookie_service, "check_ledger", _any_ledger),
    ),
    _mutant(
        "login_not_required",
        "the metadata daemon reads and changes nothing without a login",
        run_metadata_rights,
        replacing(jobs, "_needs_no_login", _always),
    ),
    _mutant(
        "any_login_accepted",
        "a login of the metadata is one of its file",
        run_metadata_rights,
        replacing(MetadataLogins, "accepts", _always),
    ),
    _mutant(
        "any_scheme_logs_in",
        "a login of the metadata comes by the scheme that is checked",
        run_metadata_rights,
        replacing(RequestJob, "_log_in", _any_scheme),
    ),
    _mutant(
        "refused_login_stays",
        "a client of the metadata loses its connection with a wrong login",
        run_metadata_rights,
        replacing(RequestJob, "_refuse", _stays),
    ),
    _mutant(
        "words_for_every_address",
        "where logins are asked for, words that tell something are for the daemon's own machine",
        run_metadata_rights,
        replacing(metadata_daemon, "is_loopback", _always),
    ),
    _mutant(
        "login_of_the_session",
        "a session is no login: each connection shows one",
        run_metadata_rights,
        replacing(MetadataConnection, "attach", _login_of_the_session),
    ),
)
