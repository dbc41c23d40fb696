"""All scenarios, by name: those of the published test first, then harsher ones."""

from __future__ import annotations

from typing import Final

from pulsarish.chaos.clocks import CLOCK_SCENARIOS
from pulsarish.chaos.ensemble import ENSEMBLE_SCENARIOS
from pulsarish.chaos.extra_faults import HARSHER_SCENARIOS
from pulsarish.chaos.power_cuts import POWER_SCENARIOS
from pulsarish.chaos.published import PUBLISHED_SCENARIOS
from pulsarish.chaos.scenario import Scenario
from pulsarish.chaos.soak import SOAK_SCENARIOS
from pulsarish.chaos.storage import STORAGE_SCENARIOS

__all__ = ["SCENARIOS"]

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        *PUBLISHED_SCENARIOS,
        *HARSHER_SCENARIOS,
        *CLOCK_SCENARIOS,
        *STORAGE_SCENARIOS,
        *POWER_SCENARIOS,
        *ENSEMBLE_SCENARIOS,
        *SOAK_SCENARIOS,
    )
}
