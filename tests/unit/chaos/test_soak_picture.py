"""The memory of a soak's processes, in numbers and in its picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from pulsarish.chaos.process_memory import ProcessMemory
from pulsarish.chaos.soak_picture import draw_soak

MIB = 1 << 20


def memory() -> ProcessMemory:
    found = ProcessMemory(list, lambda _name: 0, lambda: 0, every_seconds=1.0)
    for second in range(100):
        rows = {"bookie-1": (50 + second) * MIB, "broker-1": 0 if 40 <= second < 50 else 60 * MIB}
        if second >= 80:
            rows["bookie-2"] = 45 * MIB
        found.add(float(second), second * 100, rows)
    return found


def test_growth_shows_in_the_first_and_the_last_tenth() -> None:
    rows = memory().row()
    assert rows["bookie-1"] == {"first": 54.5, "last": 144.5, "most": 149.0}
    assert rows["broker-1"] == {"first": 60.0, "last": 60.0, "most": 60.0}
    assert rows["bookie-2"] == {"first": 45.0, "last": 45.0, "most": 45.0}


def test_a_process_that_does_not_run_has_no_memory() -> None:
    series = memory().series()
    assert series["mib"]["broker-1"][39:51] == [60.0, *[None] * 10, 60.0]
    assert series["mib"]["bookie-2"][79:81] == [None, 45.0]


def test_the_picture_shows_each_process_and_names_each_fault() -> None:
    faults = [
        {"at_seconds": 10.0, "kind": "kill", "node": "bookie-1"},
        {"at_seconds": 40.0, "kind": "rot-index", "node": "bookie-<1>"},
    ]
    picture = draw_soak(memory(), faults)
    root = ElementTree.fromstring(picture)
    texts = [each.text for each in root.iter() if each.text]
    assert {"bookie-1", "bookie-2", "broker-1", "kill (1)", "rot (1)", "cut (0)"} <= set(texts)
    assert "40.0 s: rot-index of bookie-<1>" in texts
    lines = [each for each in root.iter() if each.tag.endswith("polyline")]
    assert len(lines) == 5, "rates, and two parts of the broker that was away"


def test_a_run_without_samples_has_a_picture() -> None:
    empty = ProcessMemory(list, lambda _name: 0, lambda: 0, every_seconds=1.0)
    assert draw_soak(empty, []).startswith("<svg")
