"""The bundles of this broker: how it acquires, releases and loses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from google.protobuf.message import DecodeError

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.core import (
    Mine,
    Owned,
    OwnerOf,
    Split,
    Theirs,
    Unknown,
    Unowned,
    judge,
)
from pulsarish.broker.ownership.leader import LeaderElection
from pulsarish.broker.ownership.outage import Outage
from pulsarish.broker.ownership.peer_pings import PeerPings
from pulsarish.broker.ownership.placement import Candidate, namespace_of
from pulsarish.broker.ownership.placement_rules import PlacementRules
from pulsarish.broker.ownership.registry import BrokerRegistry
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, BundleOwner
from pulsarish.model.errors import MetadataUnavailable, NotAllowedError, NotOwner, ServiceNotReady
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import (
    CallFailed,
    Conflict,
    Op,
    StreamBroken,
    World,
)
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.json_record import encode_record

__all__ = ["BundleSplit", "Ownership"]

_log = get_logger("broker.ownership")

_AWAY = (
    "the metadata service is away: no broker reaches it. Open topics continue; new topics, "
    "subscriptions and ledgers, and all changes, wait for its return"
)


class BundleSplit(ServiceNotReady):
    """The bundle was split: the caller's list of bundles is old."""


class Ownership:
    """Acquires and releases bundles. ``pings`` watches the other brokers.

    Args:
        ledgers: the ledgers of this broker. The ``outage`` of their age is set while this broker
            continues without metadata.
        lost: called at once when everything that this broker owned may be served elsewhere.
        taken: called at once with the bundles that other brokers took while the metadata were away.
        take_lag_max: returns the worst lag of its event loop in seconds since the last call.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        *,
        ledgers: LedgerClient,
        lost: Callable[[str], None],
        taken: Callable[[Sequence[Bundle]], None],
        take_lag_max: Callable[[], float],
    ) -> None:
        self.owned = Owned()
        self.draining = False
        """Whether this broker takes no bundle that another broker could take."""
        self.cpu_percent: Callable[[], int] = lambda: 0
        """Returns the CPU time of this process, as a share of one core."""
        self.placement = PlacementRules(world, records)
        self.leader = LeaderElection(world, records, self._is_registered)
        self.registry = BrokerRegistry(
            world,
            records,
            lost=self._lost,
            registered=self._registered,
            why_end=self._why_end_now,
            returned=self._find_taken,
            listed=self.leader.look_again,
        )
        self.away_since_ms = 0
        """Since when this broker continues without metadata, by the wall clock; 0: it does not."""
        # A check of the outage is late by one interval of pings at most.
        self._outage = Outage(
            (config.metadata_session_timeout_ms - config.broker_ping_interval_ms) / 1000
        )
        self._ledgers = ledgers
        self._age = ledgers.age
        self._tell_taken = taken
        self.pings = PeerPings(
            world,
            config,
            records,
            self.registry,
            self._outage,
            serving=lambda: self.serving,
            began=self._check_outage,
            take_lag_max=take_lag_max,
        )
        self.peers = self.pings.peers
        self._world = world
        self._config = config
        self._records = records
        self._tell_lost = lost
        self._stopped = False
        # their records may still name this broker, which no longer owns them
        self._releasing: dict[Bundle, None] = {}
        # from which instance a bundle is being taken, until it was read whether that is registered
        self._formers: dict[Bundle, str] = {}
        self._leases: dict[Bundle, tuple[Op, ...]] = {}
        self._fresh_seconds = config.broker_ping_interval_ms / 1000 * 1.5

    async def start(self, template: BrokerRegistration) -> None:
        """Register with a new instance id and start to watch the other brokers.

        Returns once this broker may own bundles. Raises the errors of ``PlacementRules.start``.
        """
        await self.placement.start()
        self.leader.start()
        await self.registry.start(template)
        self.pings.start()

    async def _is_registered(self, instance_id: str) -> bool:
        registry = self.registry
        return instance_id in registry.alive or await registry.is_registered(instance_id)

    def _registered(self, me: BrokerRegistration) -> None:
        self._end_outage()
        self.leader.stand(me)

    def _lost(self, reason: str) -> None:
        self._end_outage()
        self.owned.clear()
        self._leases.clear()
        self.leader.stand(None)
        self._tell_lost(reason)

    @property
    def serving(self) -> bool:
        """Whether this broker is registered and may serve what it owns."""
        return self.registry.me is not None and not self._stopped

    # -- without metadata

    def _why_end_now(self) -> str:
        """Return why this broker must stop serving, now that its session is lost.

        If it need not, it continues without metadata.
        """
        why = self._why_end(begins=True)
        if not why:
            self.away_since_ms = self._world.clock.wall_ms()
            self._age.outage = _AWAY
            self.leader.stand(None)
            _log.error("the metadata service is away", bundles=len(self.owned))
            _ = run_in_background(
                self._world.tasks, self._world.clock, "fenced ledgers", self._find_fenced
            )
        return why

    async def _find_fenced(self) -> None:
        """Stop what a broker took over that this one does not know.

        Such a broker was registered after this one lost its session.
        """
        while self.registry.away and not self._stopped:
            await self._world.clock.sleep(self._config.metadata_session_timeout_ms / 4000)
            await self._ledgers.find_fenced()

    def _why_end(self, *, begins: bool) -> str:
        others = [other.instance_id for other in self.registry.others()]
        return self._outage.why_end(others, self._world.clock.monotonic(), begins=begins)

    def check_changes(self) -> None:
        """Raise ``MetadataUnavailable`` if it is known that no owner can be changed now.

        A bundle that was given up now could not be acquired again, by this broker or another one.
        """
        if self._records.is_away:
            raise MetadataUnavailable(self._age.outage or "the metadata service is not reached now")

    async def confirm_changes(self) -> None:
        """Return once the metadata service has answered, so that owners can be changed now.

        A service that has gone silent counts as away only when the session is lost. A topic that
        was closed meanwhile could not be opened before the service is back.

        Raises ``MetadataUnavailable``.
        """
        self.check_changes()
        await self._records.sync(paths.OWNERS)

    def _check_outage(self) -> None:
        if self.registry.away and (why := self._why_end(begins=False)):
            self.registry.gone(f"the metadata session is lost, and {why}")

    def _end_outage(self) -> None:
        if self.away_since_ms:
            seconds = (self._world.clock.wall_ms() - self.away_since_ms) / 1000
            _log.warning("the outage of the metadata is over", seconds=seconds)
            self.away_since_ms, self._age.outage = 0, ""

    def is_away_for(self, instance_id: str) -> bool:
        """Return whether this broker does not reach the metadata service, and that instance was
        registered when it last did.
        """
        silent_seconds = self._world.clock.monotonic() - self._records.answered_at
        is_away = silent_seconds * 2000 > self._config.metadata_session_timeout_ms
        return is_away and instance_id in self.registry.alive

    async def _find_taken(self) -> None:
        """Give up the bundles that other brokers took while the metadata were away.

        Raises ``MetadataUnavailable``.
        """
        bundles = self.owned.bundles()
        await self._age.check_age()
        records = Records(self._world.metadata, self._world.clock, self._world.random)
        found = await records.get_many([bundle.path for bundle in bundles], BundleOwner)
        taken: list[Bundle] = []
        for bundle, record in zip(bundles, found, strict=True):
            epoch = self.owned.epoch(bundle)
            mine = judge(record, self.registry.instance_id, {})
            if epoch is not None and mine != Mine(epoch):
                self.owned.released(bundle)
                taken.append(bundle)
        if taken:
            _log.warning("bundles were taken while the metadata were away", bundles=len(taken))
            self._tell_taken(taken)

    # -- owners

    async def owner(self, bundle: Bundle) -> OwnerOf:
        """Return who owns a bundle now according to metadata, never ``Unknown`` or ``Split``.

        Raises ``MetadataUnavailable``, ``ServiceNotReady``, ``BundleSplit``.
        """
        epoch = self.owned.epoch(bundle)
        if epoch is not None:
            return Mine(epoch)
        me = self.registry.instance_id
        record = await self._records.get(bundle.path, BundleOwner)
        found = judge(record, me, self.registry.alive)
        if isinstance(found, Unknown):
            # The list of registrations may be behind. Only a read of the node itself says that an
            # instance is gone.
            registered = await self.registry.is_registered(found.instance_id)
            found = judge(
                record, me, self.registry.alive, () if registered else (found.instance_id,)
            )
        if isinstance(found, Split):
            raise BundleSplit(f"bundle {bundle} was split; look the topic up again")
        if isinstance(found, Mine):
            await self._evict_former(bundle)
            self._acquired(bundle, found.epoch, me)
        return found

    def lease(self, bundle: Bundle) -> Sequence[Op] | None:
        """Return the conditions on metadata that hold while this broker owns the bundle; ``None``:
        it does not own it.

        The record's version alone is not enough: a bundle that was deleted with its namespace and
        created again could have the same version. Instance ids never return.
        """
        epoch, instance_id = self.owned.epoch(bundle), self.registry.instance_id
        # An evicted broker has no id for a moment before it gives its bundles up.
        if epoch is None or not instance_id:
            return None
        lease = (
            Op("check", bundle.path, version=epoch),
            Op("check", paths.broker(instance_id)),
        )
        if self._leases.get(bundle) != lease:
            self._leases[bundle] = lease
        return self._leases[bundle]  # one for all topics of the bundle

    def _acquired(self, bundle: Bundle, epoch: int, instance_id: str) -> None:
        """Count a bundle as this broker's, unless its instance ended before the answer came, or the
        bundle is being released.
        """
        if instance_id != self.registry.instance_id or self._stopped:
            raise ServiceNotReady(
                "this broker has just lost its registration; look the topic up again"
            )
        if bundle in self._releasing:
            raise ServiceNotReady(f"bundle {bundle} is being released; look the topic up again")
        self.owned.acquired(bundle, epoch)

    async def acquire(self, bundle: Bundle, version: int | None, former: str = "") -> OwnerOf:
        """Acquire a bundle that was ``Unowned`` at ``version``, from the instance ``former``.

        Return its owner then. Raises ``MetadataUnavailable``, ``ServiceNotReady``.
        """
        me = self.registry.me
        if me is None or self._stopped:
            raise ServiceNotReady(
                "this broker is not registered at the moment; ask another one or try again"
            )
        record = BundleOwner(me.broker_id, me.instance_id)
        self._formers[bundle] = former
        try:
            # One commit with the proof that this instance is registered: an evicted instance cannot
            # acquire anything.
            epoch = await self._records.compare_and_set(
                bundle.path, record, version, with_ops=[Op("check", paths.broker(me.instance_id))]
            )
        except Conflict:
            return await self.owner(bundle)
        await self._evict_former(bundle)
        self._acquired(bundle, epoch, me.instance_id)
        _log.info("bundle acquired", bundle=bundle, epoch=epoch)
        return Mine(epoch)

    async def _evict_former(self, bundle: Bundle) -> None:
        """Evict the former owner of a bundle that this broker has taken, if it is registered now.

        After an outage it may have registered again before this broker's commit, and have found
        that no other broker has its bundles. If it registers after this read, it finds that this
        one has.
        """
        former = self._formers.get(bundle)
        if former and await self.registry.is_registered(former):
            await self.registry.evict(former)
            _log.warning("former owner evicted: it had just returned", bundle=bundle, former=former)
        self._formers.pop(bundle, None)

    async def release(self, bundle: Bundle, to: BrokerRegistration | None = None) -> None:
        """Release a bundle whose topics are closed.

        The broker ``to`` takes it over in one step. Without one, or if it does not, any broker may
        acquire the bundle. Raises ``ServiceNotReady`` if another request released a bundle that
        ``to`` should have taken.
        """
        epoch = self.owned.epoch(bundle)
        if epoch is None:
            if to is not None:
                raise ServiceNotReady(
                    f"bundle {bundle} was released before {to.broker_id} could take it; look it "
                    "up, and try again if it is not there"
                )
            return
        me = self.registry.instance_id
        self.owned.released(bundle)
        self._releasing[bundle] = None
        try:
            if to is not None and await self._have_taken(bundle, epoch, me, to):
                _log.info("bundle handed over", bundle=bundle, epoch=epoch, to=to.broker_id)
                return
            await self._records.compare_and_set(bundle.path, BundleOwner("", ""), epoch)
            _log.info("bundle released", bundle=bundle, epoch=epoch)
        except Conflict:
            _log.info("bundle was taken while it was released", bundle=bundle)
        except MetadataUnavailable as error:
            _log.warning("bundle not released", bundle=bundle, reason=error)
        finally:
            self._releasing.pop(bundle, None)

    async def _have_taken(
        self, bundle: Bundle, epoch: int, me: str, to: BrokerRegistration
    ) -> bool:
        """Ask a broker to take a bundle of this one. Return whether it says that it did."""
        try:
            await self._ask_to_take(bundle, epoch, me, to, later=False)
        except ServiceNotReady as error:
            # It may have taken it all the same: then the record cannot be released any more.
            _log.warning("bundle not taken", bundle=bundle, by=to.broker_id, reason=error)
            return False
        return True

    async def _ask_to_take(
        self, bundle: Bundle, epoch: int, me: str, to: BrokerRegistration, *, later: bool
    ) -> None:
        """Ask a broker to take a bundle of this one, or whether it will.

        Raises ``ServiceNotReady`` if it says no, or nothing.
        """
        request = pb.TakeRequest(
            tenant=bundle.tenant,
            namespace=bundle.namespace,
            range=bundle.range,
            owner=me,
            epoch=epoch,
            admin_key=to.admin_key,
            later=later,
        )
        try:
            data = await self._world.connections.call(
                to.address,
                "broker.take",
                request.SerializeToString(),
                timeout_seconds=self._config.broker_ping_timeout_ms / 1000,
            )
            answer = pb.TakeResponse.FromString(data)
        except (StreamBroken, TimeoutError, CallFailed, DecodeError) as error:
            raise ServiceNotReady(
                f"broker {to.broker_id} does not answer; try again: {error!r}"
            ) from None
        if answer.code:
            raise ServiceNotReady(f"broker {to.broker_id} does not take it: {answer.message}")

    async def take(self, bundle: Bundle, owner: str, epoch: int) -> None:
        """Acquire a bundle whose owner, the instance ``owner``, has closed its topics and asks
        for this.

        Raises ``ServiceNotReady`` if this broker takes none or the record says otherwise, and
        ``MetadataUnavailable``.
        """
        self.check_takes(bundle)
        record = await self._records.get(bundle.path, BundleOwner)
        if record is None or (record[0].instance_id, record[1]) != (owner, epoch):
            raise ServiceNotReady(f"bundle {bundle} is not owned by {owner} at epoch {epoch}")
        if not isinstance(await self.acquire(bundle, epoch), Mine):
            raise ServiceNotReady(f"bundle {bundle} was taken by another broker")

    async def free_versions(self, parts: Sequence[Bundle]) -> dict[Bundle, int | None]:
        """Return the version of the record of each bundle that is not in the list yet; ``None``:
        it has none.

        It has one if a broker kept the bundle from a former namespace of this name.

        Raises ``ServiceNotReady`` if that is another broker, and the errors of ``owner``.
        """
        versions: dict[Bundle, int | None] = {}
        for part in parts:
            owner = await self.owner(part)
            if isinstance(owner, Theirs):
                raise ServiceNotReady(
                    f"broker {owner.registration.broker_id} still has {part} of a former "
                    "namespace; split the bundle elsewhere, or restart that broker"
                )
            assert isinstance(owner, Mine | Unowned)
            versions[part] = owner.epoch if isinstance(owner, Mine) else owner.version
        return versions

    def split_ops(self, bundle: Bundle, parts: Mapping[Bundle, int | None]) -> list[Op]:
        """Return what replaces a bundle of this broker by its parts, which this broker owns then.

        ``parts``: with their ``free_versions``.

        Raises ``NotOwner``, ``MetadataUnavailable``, and ``NotAllowedError`` while a broker is
        registered that knows only bundles that are equal parts.
        """
        self.check_changes()
        lease, me = self.lease(bundle), self.registry.me
        epoch = self.owned.epoch(bundle)
        if lease is None or me is None or epoch is None:
            raise NotOwner(f"this broker does not own {bundle}")
        for other in self.registry.alive.values():
            if not other.knows_splits:
                raise NotAllowedError(
                    f"broker {other.broker_id} is of a version that knows no splits of bundles; "
                    "upgrade it first"
                )
        gone = encode_record(BundleOwner("", "", is_split=True))
        mine = encode_record(BundleOwner(me.broker_id, me.instance_id))
        return [
            *lease[1:],
            Op("put", bundle.path, gone, epoch),
            *(
                Op("create", part.path, mine)
                if version is None
                else Op("put", part.path, mine, version)
                for part, version in parts.items()
            ),
        ]

    def was_split(
        self, bundle: Bundle, parts: Mapping[Bundle, int | None], instance_id: str
    ) -> None:
        """Own the parts of a bundle after the commit of ``split_ops``, which ``instance_id`` made.

        Raises ``ServiceNotReady`` if this broker is not that instance any more.
        """
        self.owned.released(bundle)
        self._leases.pop(bundle, None)
        for part, version in parts.items():
            self._acquired(part, 0 if version is None else version + 1, instance_id)

    # -- the other brokers

    def check_takes(self, bundle: Bundle) -> None:
        """Raise ``ServiceNotReady`` if this broker takes no bundles, or may not have this one."""
        me = self.registry.me
        if self.draining or not self.serving or me is None:
            raise ServiceNotReady("this broker is draining or stopping and takes no bundles")
        if self._records.is_away:
            raise ServiceNotReady("this broker does not reach the metadata service")
        if reason := self._refusal(bundle, me):
            raise ServiceNotReady(reason)

    async def announce(self, bundle: Bundle, to: BrokerRegistration) -> None:
        """Ask a broker to let clients wait for a bundle of this one, which it will be asked to
        take.

        Raises ``ServiceNotReady`` if it does not answer or takes no bundles.
        """
        epoch = self.owned.epoch(bundle)
        if epoch is not None:
            await self._ask_to_take(bundle, epoch, self.registry.instance_id, to, later=True)

    def least_loaded(
        self, given: Mapping[str, int] | None = None, *, bundle: Bundle | None = None
    ) -> BrokerRegistration | None:
        """Return the broker with the fewest bundles among the others that answer and take more;
        ``None``: there is none.

        ``given``: how many bundles each instance got that its last answer does not count yet.
        ``bundle``: only brokers that may take it by the rules of placement.
        """
        if bundle is not None and (rules := self.placement.current):
            chosen = rules.choose(namespace_of(bundle), self._other_candidates(bundle, given))
            return chosen[0].broker if chosen else None
        return min(
            filter(self.takes_bundles, self.registry.others()),
            key=lambda other: (
                self.peers.bundles(other.instance_id) + (given or {}).get(other.instance_id, 0),
                other.broker_id,
            ),
            default=None,
        )

    def other_taker(self, bundle: Bundle, *, is_final: bool) -> BrokerRegistration | None:
        """Return the broker that should acquire a bundle instead of this one; ``None``: this one
        should.

        It owns at least two bundles fewer, unless this broker drains, or may not have the bundle by
        the rules of placement. ``is_final``: another broker chose this one, which so takes the
        bundle if it may.

        Raises ``ServiceNotReady`` if no broker may take it now.
        """
        rules, me = self.placement.current, self.registry.me
        if not rules or me is None:
            return None if is_final else self._less_loaded()
        namespace, others = namespace_of(bundle), self._other_candidates(bundle)
        with_me = [*others, self._own_candidate(me, bundle)]
        if is_final and me in [each.broker for each in rules.permitted(namespace, with_me)]:
            return None
        taker = rules.taker(namespace, others if self.draining else with_me, me.instance_id)
        if taker is None and self.draining:
            taker = rules.taker(namespace, with_me, me.instance_id)
        if taker is None:
            raise ServiceNotReady(rules.missing_broker(namespace))
        if taker is me:
            return None
        if group := rules.group_of(namespace):
            self.peers.expects_group(taker.instance_id, group)
        return taker

    def _less_loaded(self) -> BrokerRegistration | None:
        best = self.least_loaded()
        if best is None or self.draining:
            return best
        return best if self.peers.bundles(best.instance_id) + 2 <= len(self.owned) else None

    # -- rules of placement

    def takes_bundles(self, other: BrokerRegistration) -> bool:
        """Return whether another broker answers, and neither drains nor stops."""
        now = self._world.clock.monotonic()
        return self.peers.fresh(other.instance_id, now, self._fresh_seconds) and self.peers.takes(
            other.instance_id
        )

    def check_destination(self, bundle: Bundle, to: BrokerRegistration) -> None:
        """Raise ``NotAllowedError``, which names the rule, if another broker may not have a bundle
        of this one.
        """
        if reason := self._refusal(bundle, to):
            raise NotAllowedError(reason)

    def permitted(
        self, bundle: Bundle, brokers: Sequence[BrokerRegistration]
    ) -> Sequence[BrokerRegistration]:
        """Return those of some brokers that isolation permits for a bundle."""
        if not (rules := self.placement.current):
            return brokers
        found = rules.permitted(namespace_of(bundle), self.candidates(bundle))
        instances = {each.instance_id for each in found}
        return [each for each in brokers if each.instance_id in instances]

    def candidates(self, bundle: Bundle) -> list[Candidate]:
        """Return the brokers that take bundles, this one included unless it drains."""
        me = self.registry.me
        own = [self._own_candidate(me, bundle)] if me is not None and not self.draining else []
        return self._other_candidates(bundle) + own

    def group_counts(self) -> dict[str, int]:
        """Return how many bundles of this broker each anti-affinity group has."""
        return self.placement.current.group_counts(self.owned.bundles())

    def _refusal(self, bundle: Bundle, to: BrokerRegistration) -> str:
        if not (rules := self.placement.current):
            return ""
        source = "" if self.draining else self.registry.instance_id
        return rules.refusal(namespace_of(bundle), to, self.candidates(bundle), source)

    def _other_candidates(
        self, bundle: Bundle, given: Mapping[str, int] | None = None
    ) -> list[Candidate]:
        peers, now = self.peers, self._world.clock.monotonic()
        group = self.placement.current.group_of(namespace_of(bundle))
        return [
            Candidate(
                other,
                peers.bundles(other.instance_id) + (given or {}).get(other.instance_id, 0),
                peers.usage_percent(other.instance_id),
                peers.group_bundles(other.instance_id, group),
                peers.fresh(other.instance_id, now, self._fresh_seconds),
            )
            for other in self.registry.others()
            if peers.takes(other.instance_id)
        ]

    def _own_candidate(self, me: BrokerRegistration, bundle: Bundle) -> Candidate:
        group = self.placement.current.group_of(namespace_of(bundle))
        in_group = self.group_counts().get(group, 0) if group else 0
        return Candidate(
            me,
            len(self.owned),
            self.cpu_percent(),
            in_group - (1 if group and bundle in self.owned else 0),
        )

    def heir(self, bundle: Bundle) -> BrokerRegistration | None:
        """While this broker stops, return the other broker that should have a bundle next: the one
        that rules of placement choose, otherwise the one with the fewest bundles, if possible one
        that takes more; ``None`` if it does not stop, or without another broker.
        """
        if not self._stopped or not self.registry.others():
            return None
        chosen = self.least_loaded(bundle=bundle) if self.placement.current else None
        return chosen or min(
            self.registry.others(),
            key=lambda other: (
                not self.peers.takes(other.instance_id),
                self.peers.bundles(other.instance_id),
                other.broker_id,
            ),
        )

    # -- the end

    def stop_serving(self) -> None:
        """Acquire nothing more, and send clients to other brokers."""
        self._stopped = True
        self.pings.stop()

    async def stop(self) -> None:
        """Unregister. Bundles that were not handed over are free once the registration is gone.

        They are not released one by one: that would take minutes while the metadata service is
        down.
        """
        self.stop_serving()
        self.placement.stop()
        self.leader.stop()
        await self.leader.resign()
        await self.registry.stop()
