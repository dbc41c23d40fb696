"""The result of one seed of the whole cluster, and its story for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.sim.cluster.cluster import ClusterSettings
from pulsarish.sim.cluster.oracle import Anomaly
from pulsarish.sim.cluster.stage import Counts
from pulsarish.sim.world.faults import Fault

__all__ = ["BOOT_SECONDS", "Result", "tell_faults"]

BOOT_SECONDS: Final = 3.0
"""Time of a cluster before its load and its faults begin."""


@dataclass(slots=True)
class Result:
    """The result of one seed."""

    seed: int
    settings: ClusterSettings
    faults: list[Fault]
    anomalies: list[Anomaly]
    counts: Counts
    trace_hash: str
    trace: str = field(repr=False)

    def story(self, lines: int = 30) -> str:
        """Return the shortest account that shows what failed."""
        out = [
            f"seed {self.seed}: {len(self.anomalies)} anomalies",
            f"  {self.settings}",
            *(f"  {anomaly}" for anomaly in self.anomalies),
        ]
        values = list(dict.fromkeys(anomaly.value for anomaly in self.anomalies if anomaly.value))[
            :2
        ]
        trace = self.trace.splitlines()
        for value in values:
            out.append(f"what happened to {value}:")
            out += [
                f"  {line}" for line in trace if f" {value} " in line or line.endswith(f" {value}")
            ][:lines]
        return "\n".join([*out, *tell_faults(self.faults)])


def tell_faults(faults: Sequence[Fault]) -> list[str]:
    """Return a line for each fault, with the time at which it begins in the trace."""
    return [
        f"faults: {len(faults)}",
        *(
            (
                f"  {BOOT_SECONDS + fault.at_seconds:7.3f} {fault.kind} {fault.node} (peer "
                f"{fault.peer}) for {fault.lasts_seconds:.2f} s"
            )
            for fault in faults
        ),
    ]
