"""Which brokers may take a bundle now, best first: the core, without I/O.

Three rules, in this order:

* An isolation policy binds namespaces to its primary brokers. Its secondary brokers serve them too
  while too few primary ones are available. A namespace without a policy is served by brokers that
  are primary for none, or by any broker when there is no other.
* Of what is left, the bundles of an anti-affinity group are spread: over failure domains first,
  then over brokers.
* Of what is left, the broker with the fewest bundles is best.

A bundle that is served stays where it is, until the balancer moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pulsarish.broker.ownership.balance import Move
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.metadata.records import BrokerRegistration, PlacementRecord
from pulsarish.model.placement import IsolationPolicy, compile_rule
from pulsarish.runtime.network.addresses import plain_address

__all__ = ["ANYWHERE", "Candidate", "Placement", "names_of", "namespace_of"]

_CACHED_MAX: Final = 10_000
_CALM_PERCENT: Final = 10
"""A bundle leaves a secondary broker only when primary ones are this far below the threshold."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered broker that is neither draining nor stopping.

    Args:
        bundles: how many it owns.
        usage_percent: CPU time of its process, as a share of one core.
        group_bundles: how many it owns of the group of the bundle that is placed, without that one.
        answers: whether it can be given a bundle now; otherwise it is silent at the moment.
    """

    broker: BrokerRegistration
    bundles: int = 0
    usage_percent: int = 0
    group_bundles: int = 0
    answers: bool = True

    @property
    def instance_id(self) -> str:
        return self.broker.instance_id


def names_of(broker: BrokerRegistration) -> frozenset[str]:
    """Return the names by which rules know a broker: its id, and its addresses as host:port."""
    addresses = [broker.address, broker.http_address, broker.pulsar_address]
    for listener in broker.listeners.values():
        addresses += [
            listener.address,
            listener.http_address,
            listener.pulsar_address,
            listener.address_tls,
            listener.http_address_tls,
            listener.pulsar_address_tls,
        ]
    return frozenset({broker.broker_id, *(plain_address(each) for each in addresses if each)})


def namespace_of(bundle: Bundle) -> str:
    """Return the full name of a bundle's namespace, as rules name it."""
    return f"{bundle.tenant}/{bundle.namespace}"


class _Policy:
    """A compiled isolation policy."""

    def __init__(self, name: str, policy: IsolationPolicy) -> None:
        self.name = name
        self.policy = policy
        self.min_limit = policy.auto_failover_policy.min_limit
        self.usage_threshold = policy.auto_failover_policy.usage_threshold
        self.has = compile_rule(policy.namespaces, "namespaces")
        self._is_primary = compile_rule(policy.primary, "brokers")
        self._is_secondary = compile_rule(policy.secondary, "brokers")

    def is_primary(self, names: Iterable[str]) -> bool:
        return any(map(self._is_primary, names))

    def is_secondary(self, names: Iterable[str]) -> bool:
        return any(map(self._is_secondary, names))


class Placement:
    """The rules of a cluster, ready for use. It is false without any rule.

    A namespace that several isolation policies have gets the first of them by name.

    Raises ``InvalidArgument`` for a pattern that cannot be compiled.
    """

    def __init__(self, record: PlacementRecord | None = None) -> None:
        record = record or PlacementRecord()
        self._policies = [_Policy(name, each) for name, each in sorted(record.isolation.items())]
        self._groups: Mapping[str, str] = record.groups
        self._domains = {
            broker: domain
            for domain, each in sorted(record.domains.items(), reverse=True)
            for broker in each.brokers
        }
        self._of_namespace: dict[str, _Policy | None] = {}
        # By instance id: the policies for which it is primary, and secondary, and its domain.
        self._roles: dict[str, tuple[frozenset[str], frozenset[str], str]] = {}

    def __bool__(self) -> bool:
        return bool(self._policies or self._groups)

    # -- what rules say of a namespace and of a broker

    def group_of(self, namespace: str) -> str:
        """Return the anti-affinity group of a namespace; empty: it has none."""
        return self._groups.get(namespace, "")

    def policy_of(self, namespace: str) -> str:
        """Return the name of the isolation policy of a namespace; empty: it has none."""
        policy = self._policy(namespace)
        return policy.name if policy is not None else ""

    def isolation_of(self, broker: BrokerRegistration) -> list[tuple[str, bool, IsolationPolicy]]:
        """Return the isolation policies for which a broker is primary (true) or secondary."""
        primary, secondary, _ = self._role(broker)
        return [
            (each.name, each.name in primary, each.policy)
            for each in self._policies
            if each.name in primary or each.name in secondary
        ]

    def group_counts(self, bundles: Iterable[Bundle]) -> dict[str, int]:
        """Return how many of these bundles each anti-affinity group has."""
        found: dict[str, int] = {}
        if self._groups:
            for bundle in bundles:
                if group := self._groups.get(namespace_of(bundle)):
                    found[group] = found.get(group, 0) + 1
        return found

    def _policy(self, namespace: str) -> _Policy | None:
        known = self._of_namespace
        if namespace not in known:
            if len(known) >= _CACHED_MAX:
                known.clear()
            known[namespace] = next((each for each in self._policies if each.has(namespace)), None)
        return known[namespace]

    def _role(self, broker: BrokerRegistration) -> tuple[frozenset[str], frozenset[str], str]:
        known = self._roles.get(broker.instance_id)
        if known is None:
            names = names_of(broker)
            primary = frozenset(each.name for each in self._policies if each.is_primary(names))
            secondary = frozenset(each.name for each in self._policies if each.is_secondary(names))
            domains = sorted({self._domains[name] for name in names if name in self._domains})
            # A broker in no domain fails alone.
            domain = domains[0] if domains else f"/{broker.instance_id}"
            if len(self._roles) >= _CACHED_MAX:
                self._roles.clear()
            known = self._roles[broker.instance_id] = (primary, secondary - primary, domain)
        return known

    # -- decisions

    def permitted(
        self, namespace: str, candidates: Iterable[Candidate], *, calm_percent: int = 0
    ) -> list[Candidate]:
        """Return the brokers that isolation permits, silent ones included.

        ``calm_percent``: how far primary brokers must be below the threshold to be available.
        """
        found = list(candidates)
        policy = self._policy(namespace)
        if policy is None:
            shared = [each for each in found if not self._role(each.broker)[0]]
            return shared or found
        primary = [each for each in found if policy.name in self._role(each.broker)[0]]
        threshold = policy.usage_threshold - calm_percent
        available = sum(self._is_below(each, threshold) for each in primary)
        if available >= policy.min_limit:
            return primary
        return primary + [each for each in found if policy.name in self._role(each.broker)[1]]

    @staticmethod
    def _is_below(candidate: Candidate, threshold: int) -> bool:
        return candidate.answers and candidate.usage_percent < threshold

    def choose(self, namespace: str, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the brokers that may take a bundle of the namespace now, best first."""
        found = [each for each in self.permitted(namespace, candidates) if each.answers]
        if self.group_of(namespace) and found:
            spread = self._spread(candidates)
            least = min(map(spread, found))
            found = [each for each in found if spread(each) == least]
        return sorted(found, key=lambda each: self._rank(namespace, each))

    def taker(
        self, namespace: str, candidates: Sequence[Candidate], me: str
    ) -> BrokerRegistration | None:
        """Return the broker that takes a bundle: the instance ``me`` unless it may not, or another
        one has at least two bundles fewer; ``None``: no broker may.
        """
        found = self.choose(namespace, candidates)
        if not found:
            return None
        best = found[0]
        mine = next((each for each in found if each.instance_id == me), None)
        if (
            mine is not None
            and self._tier(namespace, mine) == self._tier(namespace, best)
            and mine.bundles < best.bundles + 2
        ):
            best = mine
        return best.broker

    def _rank(self, namespace: str, candidate: Candidate) -> tuple[bool, int, str]:
        return self._tier(namespace, candidate), candidate.bundles, candidate.broker.broker_id

    def _tier(self, namespace: str, candidate: Candidate) -> bool:
        """Return whether it is a broker that a policy counts as not available."""
        policy = self._policy(namespace)
        return policy is not None and candidate.usage_percent >= policy.usage_threshold

    def _spread(self, candidates: Iterable[Candidate]) -> Callable[[Candidate], tuple[int, int]]:
        """Return a function that says how many bundles of the group are in a broker's domain, and
        at the broker.
        """
        by_domain: dict[str, int] = {}
        for each in candidates:
            domain = self._role(each.broker)[2]
            by_domain[domain] = by_domain.get(domain, 0) + each.group_bundles
        return lambda each: (by_domain[self._role(each.broker)[2]], each.group_bundles)

    # -- reasons

    def missing_broker(self, namespace: str) -> str:
        """Say why no broker may take a bundle of the namespace now."""
        policy = self._policy(namespace)
        if policy is None:
            return "no broker that takes bundles answers at the moment; try again"
        return (
            f"namespace isolation policy {policy.name!r} binds namespace {namespace} to brokers "
            f"that match {_listed(policy.policy.primary)}"
            + (
                f", or {_listed(policy.policy.secondary)} while fewer than {policy.min_limit} of "
                "those are available"
                if policy.policy.secondary
                else ""
            )
            + ", and none of them takes bundles at the moment; start one, or change the policy"
        )

    def refusal(
        self,
        namespace: str,
        destination: BrokerRegistration,
        candidates: Sequence[Candidate],
        source: str = "",
    ) -> str:
        """Say by which rule a broker may not have a bundle; empty: it may.

        ``source``: the instance that has the bundle. Then the spread of a group may not get worse
        either.
        """
        by_instance = {each.instance_id: each for each in candidates}
        to = by_instance.get(destination.instance_id, Candidate(destination))
        permitted = self.permitted(namespace, (by_instance | {to.instance_id: to}).values())
        name = destination.broker_id
        if to.instance_id not in {each.instance_id for each in permitted}:
            others = ", ".join(sorted({each.broker.broker_id for each in permitted}))
            policy = self._policy(namespace)
            if policy is not None:
                return (
                    f"namespace isolation policy {policy.name!r} does not permit broker {name} for "
                    f"namespace {namespace}; it permits {others or 'no broker that takes bundles'}"
                )
            foreign = min(self._role(destination)[0])
            return (
                f"broker {name} is primary for namespace isolation policy {foreign!r}, which does "
                f"not have namespace {namespace}; brokers that may take it: {others}"
            )
        group, own = self.group_of(namespace), by_instance.get(source)
        if group and own is not None:
            spread = self._spread(candidates)
            if to.instance_id in by_instance and spread(to) > spread(own):
                return (
                    f"anti-affinity group {group!r} of namespace {namespace}: broker {name} or its "
                    "failure domain has more bundles of the group than where the bundle is now"
                )
        return ""

    # -- for the balancer

    def pool(self, bundle: Bundle, candidates: Sequence[Candidate]) -> frozenset[str]:
        """Return the instances among which load may move a bundle; none for one of a group, which
        moves for the sake of the spread only.
        """
        namespace = namespace_of(bundle)
        if self.group_of(namespace):
            return frozenset()
        return frozenset(each.instance_id for each in self.permitted(namespace, candidates))

    def moves(
        self,
        owned: Mapping[str, Iterable[Bundle]],
        candidates: Sequence[Candidate],
        *,
        moves_max: int,
        moves_of_broker_max: int,
    ) -> list[Move]:
        """Return moves of bundles that stand on a broker that may not have them, or where their
        group is not spread.

        Args:
            owned: the bundles of each instance. What is at an instance that is no candidate stays.
        """
        by_instance = {each.instance_id: each for each in candidates}
        counts = {name: each.bundles for name, each in by_instance.items()}
        groups = {name: self.group_counts(owned.get(name, ())) for name in by_instance}
        standing: dict[str, frozenset[str]] = {}  # by policy
        moves: list[Move] = []
        for source in sorted(by_instance):
            moved = 0
            for bundle in sorted(owned.get(source, ())):
                if len(moves) >= moves_max:
                    return moves
                if moved >= moves_of_broker_max:
                    break
                namespace = namespace_of(bundle)
                policy, group = self.policy_of(namespace), self.group_of(namespace)
                if policy not in standing:
                    standing[policy] = frozenset(
                        each.instance_id
                        for calm in (0, _CALM_PERCENT)
                        for each in self.permitted(namespace, candidates, calm_percent=calm)
                    )
                is_permitted = source in standing[policy]
                if is_permitted and not group:
                    continue
                now = [
                    Candidate(
                        each.broker,
                        counts[name],
                        each.usage_percent,
                        groups[name].get(group, 0) - (name == source) if group else 0,
                        each.answers,
                    )
                    for name, each in by_instance.items()
                ]
                found = self.choose(namespace, now)
                spread = self._spread(now)
                if not found or source in {each.instance_id for each in found}:
                    continue
                if is_permitted:
                    own = next(each for each in now if each.instance_id == source)
                    if spread(found[0]) >= spread(own):
                        continue
                destination = found[0].instance_id
                moves.append(Move(bundle, source, destination))
                moved += 1
                for name, change in ((source, -1), (destination, 1)):
                    counts[name] += change
                    if group:
                        groups[name][group] = groups[name].get(group, 0) + change
        return moves


def _listed(patterns: Iterable[str]) -> str:
    return " or ".join(patterns)


ANYWHERE: Final = Placement()
"""No rules: any broker may take any bundle."""
