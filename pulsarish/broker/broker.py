"""A broker node: creates all parts, and starts and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from pulsarish.autorecovery.switch import Switch
from pulsarish.broker.audit_topic import AuditTopic
from pulsarish.broker.audit_trail import AuditTrail
from pulsarish.broker.binary.face import BinaryFace
from pulsarish.broker.binary.questions import BrokerQuestions
from pulsarish.broker.clients.authorization import Gate, Permission
from pulsarish.broker.clients.traffic import ConnectionTraffic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dynamic_options import DynamicOptions
from pulsarish.broker.http.admin import Admin
from pulsarish.broker.http.admission import LoopShare
from pulsarish.broker.http.face import HttpFace, health_routes
from pulsarish.broker.http.openapi import openapi_route
from pulsarish.broker.listeners import ListenerPlan, Listeners
from pulsarish.broker.metrics import BrokerMetrics
from pulsarish.broker.ownership.balancer import Balancer
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.group_sharing import GroupSharing
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.splitter import Splitter
from pulsarish.broker.policies.grant_policy import GrantPolicy
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.progress.watchdog import ProgressWatchdog
from pulsarish.broker.sessions.grpc_calls import GrpcCalls
from pulsarish.broker.sessions.grpc_server import GrpcFace
from pulsarish.broker.sessions.open_sessions import OpenSessions
from pulsarish.broker.sessions.topic_calls import TopicCalls
from pulsarish.broker.stats.broker_load import LoadMeter
from pulsarish.broker.stats.topic_stats import Statistics
from pulsarish.broker.topics.capture_store import CaptureStore
from pulsarish.broker.topics.drain import Drain
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.loader import MakeTopic
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.broker.topics.schedule_clock import ScheduleClock
from pulsarish.broker.topics.sweeper import Sweeper
from pulsarish.broker.topics.topic import Topic
from pulsarish.broker.topics.topic_lists import TopicLists
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.backup.backup import check_not_being_restored
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger, set_log_level
from pulsarish.runtime.metrics import Histogram
from pulsarish.runtime.network.addresses import advertised_address, plain_address
from pulsarish.runtime.network.tls_options import tls_of_server
from pulsarish.runtime.seams import FRAMED, TLS, Listener, StreamHandler, World
from pulsarish.runtime.usage import Usage
from pulsarish.security.authentication import Authenticator, NoAuthentication
from pulsarish.security.callers import Callers
from pulsarish.security.failed_attempts import SALT_BYTES, FailedAttempts
from pulsarish.security.tls import TlsServerConfig

__all__ = ["Broker"]

_log = get_logger("broker")

_MESSAGE_ROOM_BYTES = 4 << 20  # for the other entries and commands of a message

_GRACE_SECONDS = 1.0
# Time for clients to read that their producers and consumers were closed, before their streams
# break.
_FAREWELL_SECONDS = 0.1


class _Serve(Protocol):
    """Begins to listen on an address."""

    def __call__(
        self, address: str, /, *, tls: TlsServerConfig | None, is_shared: bool = False
    ) -> Awaitable[Listener]: ...


def _no_lag() -> float:
    return 0.0


def _topics_made_by(config: BrokerConfig, world: World) -> MakeTopic:
    """Return what makes the topics. Raises ``ConfigError`` when tracing is not installed."""
    if not config.tracing_endpoint:
        return Topic
    # OpenTelemetry is imported by brokers that trace only.
    from pulsarish.broker.topics.traced_topic import BrokerSpans, TracedTopic, otlp_provider

    provider = otlp_provider(config.tracing_endpoint, config.broker_id)
    return partial(TracedTopic, spans=BrokerSpans(provider, config.broker_id, world.clock))


class Broker:
    """One broker.

    Args:
        lag_seconds: returns the current lag of its event loop.
        take_lag_max: returns the worst lag since the last call.
        lags: histogram of all lags, if they are measured.
        read_usage: returns what this process and its machine have used.
        authenticator: decides who callers are; without one, callers are not checked.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        *,
        lag_seconds: Callable[[], float] = _no_lag,
        take_lag_max: Callable[[], float] = _no_lag,
        lags: Histogram | None = None,
        read_usage: Callable[[], Usage] = Usage,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.address = ""
        self.http_address = ""
        self.pulsar_address = ""
        self.listeners: dict[str, ListenerAddresses] = {}
        self.broker_id = config.broker_id
        self._world = world
        # Of this broker alone: dynamic options change it.
        self._config = config = msgspec.structs.replace(config)
        self._ready = False
        self._ledgers = LedgerClient(world, config.ledger)
        self._records = records = Records(
            world.metadata, world.clock, world.random, guard=self._ledgers.age
        )
        self._recovery_switch = Switch(world, records, lambda: None)
        assert authenticator is not None or not config.authentication_enabled
        self._audit_topic = AuditTopic(world, config.audit_topic)
        self._audit = audit = AuditTrail(
            world,
            config.audit_log_directory,
            self._audit_topic,
            file_size_bytes=config.audit_log_file_size_bytes,
            files_max=config.audit_log_files_max,
            broker=config.broker_id,
        )
        attempts = None
        if config.authentication_enabled:
            attempts = FailedAttempts(
                world.clock.monotonic,
                world.random.randbytes(SALT_BYTES),
                failures_max=config.authentication_failures_max,
                window_seconds=config.authentication_failures_window_seconds,
                proxies=config.trusted_proxy_addresses,
            )
        callers = Callers(
            authenticator or NoAuthentication(),
            proxy_roles=config.proxy_roles,
            checks_original=config.authenticate_original_auth_data,
            audit=audit,
            attempts=attempts,
        )
        self._plans = config.listener_plans()
        listeners = Listeners(self._plans)
        self._namespaces = Namespaces(world, records, config)
        gate = Gate(
            GrantPolicy(self._namespaces, config.super_user_roles)
            if config.authorization_enabled
            else None,
            audit=audit,
            report_only=config.authorization_report_only,
        )
        self._options = DynamicOptions(world, records, config, self._options_changed)
        self._sessions = OpenSessions(world, callers, gate)
        self._ownership = Ownership(
            world,
            config,
            records,
            ledgers=self._ledgers,
            lost=self._lost,
            taken=self._taken,
            take_lag_max=take_lag_max,
        )
        self._topics = LoadedTopics(
            world,
            config,
            records,
            self._ledgers,
            self._namespaces,
            self._ownership,
            _topics_made_by(config, world),
        )
        self._drain = Drain(world, self._ownership, self._topics)
        self._watchdog = ProgressWatchdog(world, config, self._topics.loaded.values)
        lookup = Lookup(
            self._namespaces,
            self._ownership,
            self._topics.bundles,
            world.random,
            is_open=self._topics.is_open,
        )
        captured = CaptureStore(world, config, self._topics, gate, lookup, self._ownership)
        self._topics.not_kept.captures.begin(captured.send)
        self._traffic = traffic = ConnectionTraffic(world.clock, config)
        self._face = GrpcFace(
            topics=self._topics,
            gate=gate,
            world=world,
            config=config,
            traffic=traffic,
            callers=callers,
            sessions=self._sessions,
        )
        session = SessionWatch(world)
        statistics = Statistics(
            world, config, self._topics, self._ownership, self._ledgers, session
        )
        metrics = BrokerMetrics(
            config,
            self._topics,
            self._ownership,
            traffic,
            lookup,
            session,
            self._ledgers,
            self._watchdog,
            world.clock,
            callers,
            gate,
            audit,
            self._audit_topic,
            lambda: attempts.refused_addresses_count if attempts is not None else 0,
            lambda: self._sessions.ended_count,
            lag_seconds=lag_seconds,
            lags=lags,
        )
        unready = self.unready_reason
        share = LoopShare(world.clock, config.admin_share_beside_messages, traffic.messages_flow)
        meter = LoadMeter(world, self._topics, self._ownership, self._namespaces, read_usage)
        self._ownership.cpu_percent = lambda: round(meter.process().cpu * 100)
        self._sharing = GroupSharing(
            world,
            self._namespaces.store.groups,
            self._ownership,
            self._namespaces.store.defaults.groups,
        )
        self.orphans = OrphanSearch(world, config, records, self._ownership)
        admin = Admin(
            world,
            config,
            self._namespaces,
            self._ownership,
            self._topics,
            self._ledgers,
            lookup,
            listeners,
            unready,
            statistics,
            metrics.scrape,
            share,
            gate,
            meter,
            self._drain,
            self.orphans,
            self._options,
            self._sharing,
        )
        self._ask_shares = admin.ask_shares
        self._balancer = Balancer(world, config, self._ownership, admin.ask_load, admin.move_bundle)
        self._splitter = Splitter(
            world, config, self._ownership, self._namespaces, meter.loads, self._topics.split_bundle
        )
        metrics.add_balance(self._balancer, self._splitter, self._drain)
        metrics.add_resource_groups(self._sharing)
        self._topic_lists = lists = TopicLists(
            world, records, self._namespaces, admin.owners.non_persistent_topics
        )
        questions = BrokerQuestions(
            gate=gate, listeners=listeners, namespaces=self._namespaces, lookup=lookup, lists=lists
        )
        self._binary = BinaryFace(
            topics=self._topics,
            gate=gate,
            world=world,
            config=config,
            traffic=traffic,
            questions=questions,
            callers=callers,
            sessions=self._sessions,
        )
        self._sweeper = Sweeper(
            world, config, records, self._namespaces, self._ownership, admin.sweep
        )
        self._schedules = ScheduleClock(world, records, self._ownership, admin.publish_due)
        metrics.add_sweeping(self._sweeper, self.orphans)
        metrics.add_schedules(self._schedules, self._topics.schedule_counts)
        scrapers = Permission.ANY_ROLE if config.authenticate_metrics_endpoint else Permission.NONE
        routes = [
            *admin.routes(),
            *health_routes(unready, self.warnings, metrics.scrape, metrics.scrape_of, scrapers),
        ]
        self.http = HttpFace(
            world, config, gate, [*routes, openapi_route(routes)], share, callers, audit
        )
        admin.owners.here = self.http.forwarded
        self._publish_audit_lines = admin.publish_audit_lines
        self._topic_calls = TopicCalls(
            clock=world.clock,
            gate=gate,
            callers=callers,
            namespaces=self._namespaces,
            lists=lists,
        )
        self.calls = GrpcCalls(
            config=config,
            gate=gate,
            listeners=listeners,
            namespaces=self._namespaces,
            ownership=self._ownership,
            lookup=lookup,
            bundles=self._topics.bundles,
            schemas=self._topics.schemas,
            topics=self._topic_calls,
            captured=captured,
            forwarded=self.http.forwarded,
            lag_seconds=lag_seconds,
            callers=callers,
            refused_peers=FailedAttempts(
                world.clock.monotonic,
                b"",
                failures_max=0,
                window_seconds=config.authentication_failures_window_seconds,
            ),
        )
        self._listeners: list[Listener] = []
        self._shared_listeners: list[Listener] = []

    async def start(self) -> None:
        """Start the broker.

        Returns when it serves. Raises ``OSError`` (a port in use), ``MetadataUnavailable``,
        ``ConfigError`` (the audit directory is in use).
        """
        if self._config.authorization_report_only:
            _log.warning(
                "AUTHORIZATION IS NOT ENFORCED: authorization_report_only is true, so every "
                "authenticated role may do everything; denials are only reported"
            )
        await self._audit.start()
        await check_not_being_restored(self._records)
        await self._namespaces.start()
        await self._options.start()
        _ = run_in_background(
            self._world.tasks,
            self._world.clock,
            "switch of auto-recovery",
            self._recovery_switch.run,
        )
        await self._ledgers.start()
        self.listeners = {plan.name: await self._listen(plan) for plan in self._plans}
        internal = self.listeners[self._plans[0].name]
        self.address, self.http_address, self.pulsar_address = (
            # What is between brokers is encrypted where it can be.
            internal.address_tls or internal.address,
            internal.http_address,
            internal.pulsar_address,
        )
        self._topics.start()
        self.broker_id = self._config.broker_id or plain_address(self.address)
        self._ledgers.age.holder = f"broker {self.broker_id}"
        template = BrokerRegistration(
            broker_id=self.broker_id,
            instance_id="",
            address=self.address,
            http_address=self.http_address,
            pulsar_address=self.pulsar_address,
            listeners=self.listeners,
            knows_splits=True,
        )
        await self._ownership.start(template)
        self._audit_topic.start(self.broker_id, partial(self._publish_audit_lines, self.broker_id))
        self._sweeper.start()
        self._schedules.start()
        self.orphans.start()
        self._balancer.start()
        self._splitter.start()
        self._sharing.start(self._ask_shares)
        self._watchdog.start()
        self._sessions.start()
        self._ready = True
        # Last: until then a broker that serves takes the connections to these.
        for shared in self._config.shared():
            serve = self._faces(shared.listener)[shared.face]
            tls = tls_of_server(self._config) if shared.is_tls else None
            self._shared_listeners.append(await serve(shared.address, tls=tls, is_shared=True))
        _log.info(
            "serving",
            broker=self.broker_id,
            address=self.address,
            http=self.http_address,
            pulsar=self.pulsar_address,
            framed=internal.framed_address or "not offered",
            https=internal.http_address_tls or "not offered",
            pulsar_tls=internal.pulsar_address_tls or "not offered",
            framed_tls=internal.framed_address_tls or "not offered",
        )

    def streams(self, came_in_on: str) -> Mapping[str, StreamHandler]:
        """Return the handlers of streams for one listener's port."""
        return self._face.streams(came_in_on)

    def _faces(self, listener: str) -> dict[str, _Serve]:
        """Return what begins to listen for clients of a listener, by the scheme without TLS."""
        connections = self._world.connections
        largest = self._config.max_message_size_bytes + _MESSAGE_ROOM_BYTES
        streams, calls = self.streams(listener), self.calls.handlers(listener)
        return {
            "pulsarish": partial(
                connections.serve, streams=streams, calls=calls, message_bytes_max=largest
            ),
            "http": partial(
                connections.serve_http,
                handler=partial(self.http.handle, came_in_on=listener),
                body_limit=self.http.body_limit,
            ),
            "pulsar": partial(
                connections.serve_bytes, factory=partial(self._binary.connection, listener)
            ),
            "framed": partial(
                connections.serve_framed, streams=streams, calls=calls, message_bytes_max=largest
            ),
        }

    async def _listen(self, plan: ListenerPlan) -> ListenerAddresses:
        """Bind the ports of a listener. Return the addresses that its clients get."""
        secure = tls_of_server(self._config)
        faces = self._faces(plan.name)

        async def at(
            scheme: str,
            bind: str,
            advertised: str,
            transport: str = "",
        ) -> str:
            """Bind an address, if there is one. Return what clients get."""
            if not bind:
                return transport + advertised if advertised else ""
            listener = await faces[scheme](bind, tls=secure if transport.endswith(TLS) else None)
            self._listeners.append(listener)
            return advertised_address(advertised, listener.address)

        return ListenerAddresses(
            address=await at("pulsarish", plan.bind_address, plan.advertised),
            http_address=await at("http", plan.bind_http_address, plan.advertised_http),
            pulsar_address=await at("pulsar", plan.bind_pulsar_address, plan.advertised_pulsar),
            framed_address=await at(
                "framed", plan.bind_framed_address, plan.advertised_framed, FRAMED
            ),
            address_tls=await at("pulsarish", plan.bind_address_tls, plan.advertised_tls, TLS),
            # The scheme of a URL says the rest.
            http_address_tls=plain_address(
                await at("http", plan.bind_http_address_tls, plan.advertised_http_tls, TLS)
            ),
            pulsar_address_tls=plain_address(
                await at("pulsar", plan.bind_pulsar_address_tls, plan.advertised_pulsar_tls, TLS)
            ),
            framed_address_tls=await at(
                "framed", plan.bind_framed_address_tls, plan.advertised_framed_tls, FRAMED + TLS
            ),
        )

    def unready_reason(self) -> str:
        """Return why this broker cannot serve now; empty when it can."""
        if not self._ready:
            return "starting or stopping"
        if not self._ownership.serving:
            return "not registered: the metadata session is lost or was taken away"
        return ""

    def serves_topic(self, name: str) -> bool:
        """Return whether the topic of this whole name is loaded here and open."""
        topic = self._topics.loaded.get(name)
        return topic is not None and topic.closed is None

    @property
    def stalls_count(self) -> int:
        """How often a dispatcher did not move although it had no reason to wait."""
        return self._watchdog.stalls_count

    def warnings(self) -> list[str]:
        """Return problems that an operator should know and that do not stop the service."""
        found = []
        if shortage := self._ledgers.bookies.shortage(self._config.managed_ledger.ack_quorum):
            found.append(shortage)
        if since_ms := self._ownership.away_since_ms:
            seconds = (self._world.clock.wall_ms() - since_ms) // 1000
            found.append(
                f"the metadata service has been away for {seconds} s: open topics are served; all "
                "else waits for its return"
            )
        if self._config.authorization_report_only:
            found.append("authorization is not enforced: authorization_report_only is true")
        if self._options.refused:
            found.append(self._options.refused)
        if self._recovery_switch.off_reason:
            found.append(self._recovery_switch.off_reason)
        return found

    def _options_changed(self, names: Collection[str]) -> None:
        """Tell those that do not read options at each use."""
        if "log_level" in names:
            set_log_level(self._config.log_level)
        self._traffic.options_changed(self._config)
        self._namespaces.options_changed()

    def _lost(self, reason: str) -> None:
        """Drop all topics: the session is lost, or another broker evicted this one.

        Other brokers may serve them now (rule 19).
        """
        self._topics.drop_all(reason)

    def _taken(self, bundles: Sequence[Bundle]) -> None:
        """Drop the topics of bundles that other brokers took while the metadata were away."""
        self._topics.drop_bundles(bundles, "another broker took it while the metadata were away")

    async def stop(self) -> None:
        """Stop gracefully: hand over the bundles one by one, unregister so that others take over at
        once, then stop listening.
        """
        # First: a new connection is to reach a broker that goes on serving.
        shared_ended = [
            self._world.tasks.spawn(listener.stop(_GRACE_SECONDS), name="stop a shared address")
            for listener in self._shared_listeners
        ]
        if shared_ended:
            # For the requests of connections that have just arrived.
            await self._world.clock.sleep(_FAREWELL_SECONDS)
        self._ready = False
        self._audit_topic.stop()
        self._ownership.stop_serving()
        self._topics.stop()
        self._sweeper.stop()
        self._schedules.stop()
        self.orphans.stop()
        self._balancer.stop()
        self._options.stop()
        self._recovery_switch.stop()
        self._splitter.stop()
        self._sharing.stop()
        self._drain.stop()
        self._watchdog.stop()
        try:
            async with self._world.clock.timeout(self._config.broker_shutdown_timeout_seconds):
                await self._topics.hand_over_all()
        except TimeoutError:
            _log.warning("not everything was handed over in time; the next owners recover the rest")
        except Exception as error:  # noqa: BLE001
            # Whatever it is: unregister, or no other broker can own the topics.
            _log.error(
                "not everything was handed over; the next owners recover the rest", exception=error
            )
        await self._ownership.stop()
        self._topic_lists.stop()
        self._topic_calls.stop()
        if self._face.finish_all() + self._binary.finish_all():
            await self._world.clock.sleep(_FAREWELL_SECONDS)
        self._face.abort_all("the broker has stopped")
        self._binary.abort_all("the broker has stopped")
        self._sessions.stop()
        _ = await asyncio.gather(*shared_ended)
        for listener in self._listeners:
            await listener.stop(_GRACE_SECONDS)
        await self._audit.stop()
        await self._ledgers.close()
