"""The flag that a signal handler may set."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

from pulsarish.runtime.stop_flag import StopFlag


def test_all_who_wait_hear_of_it() -> None:
    flag = StopFlag()
    assert not flag.wait(0.0)
    assert not flag.wait(-1.0)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(flag.wait(60.0))) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join()
    assert found == [True] * 3
    assert flag.is_set()
    assert flag.wait(0.0)


def test_a_signal_may_come_at_each_line_of_a_wait() -> None:
    """With ``threading.Event`` the handler waits for ever where ``wait`` holds its lock."""
    before = signal.getsignal(signal.SIGUSR1)
    lines_count, at = 0, 0
    flag = StopFlag()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines_count
        if event == "line":
            lines_count += 1
            if lines_count == at:
                signal.raise_signal(signal.SIGUSR1)
        return trace

    signal.signal(signal.SIGUSR1, lambda *_: flag.set())
    try:
        while lines_count >= at:
            flag, lines_count, at = StopFlag(), 0, at + 1
            sys.settrace(trace)
            heard = flag.wait(0.01)
            sys.settrace(None)
            assert heard is (lines_count >= at)
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGUSR1, before)
    assert at > 3
