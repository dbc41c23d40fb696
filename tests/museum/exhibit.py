"""What an exhibit is: a defect that others had, a check that our program passes, and the proof that
the check can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from pulsarish.sim.workloads.safeguard import Mutant, Patch, Verdict, run_mutant

__all__ = ["Defect", "Exhibit", "Kind", "from_mutant"]


class Kind(Enum):
    """How the upstream defect is shown here."""

    MUTANT = "mutant"
    """Our program with a safeguard taken away, so that it has the same defect."""
    SCENARIO = "scenario"
    """The same situation with our real code."""
    IMPOSSIBLE = "impossible by design"
    """Our design lacks the part that was wrong; the test shows what stands in its place."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One way to put the defect into our program.

    In the context ``patch()`` the exhibit's check must raise.
    """

    name: str
    what: str
    patch: Patch


@dataclass(frozen=True, slots=True)
class Exhibit:
    """``check(seed)`` raises when the defect is there.

    It must pass as the program is, and fail with each of ``defects``.
    """

    name: str
    upstream: tuple[str, ...]
    """Issues and pull requests, the main one first."""
    wrong: str
    """What went wrong there, in one line."""
    here: str
    """What the check does, or why the defect cannot be in our design, in one line."""
    kind: Kind
    check: Callable[[int], None]
    defects: tuple[Defect, ...]
    seeds: Sequence[int] = (0,)
    """Tried in this order until one notices a defect."""

    def judge(self) -> list[Verdict]:
        """One verdict for each defect.

        Raises when the check fails without a defect, too, or when a patch does not fit any more.
        """
        return [
            run_mutant(
                Mutant(
                    f"{self.name}.{defect.name}",
                    defect.what,
                    (),
                    defect.patch,
                    self.check,
                    len(self.seeds),
                ),
                self.seeds,
            )
            for defect in self.defects
        ]


def from_mutant(
    mutant: Mutant, upstream: tuple[str, ...], wrong: str, *, seed: int, name: str = ""
) -> Exhibit:
    """An exhibit whose defect and check are a mutant's of the simulator.

    ``seed`` is the one that is tried first.
    """
    return Exhibit(
        name=name or mutant.name,
        upstream=upstream,
        wrong=wrong,
        here=f"The simulator runs without this safeguard: {mutant.removes}.",
        kind=Kind.MUTANT,
        check=mutant.check,
        defects=(Defect(mutant.name, mutant.removes, mutant.patch),),
        seeds=(seed, *range(mutant.seeds)),
    )
