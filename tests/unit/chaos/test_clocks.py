"""A process whose wall clock is moved while it runs: its wall clock alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from pulsarish.chaos.moved_clock import write_offset

PROGRAM = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from pulsarish.chaos.moved_clock import move_clock

    true_seconds, started = time.time, time.monotonic()
    move_clock(Path(sys.argv[1]))
    from grpc.aio import _utils
    for _line in sys.stdin:
        # The machine may stand still between any two of these.
        before, deadline = true_seconds(), _utils._timeout_to_deadline(10.0)
        now, now_ns, after = time.time(), time.time_ns(), true_seconds()
        seconds = int(_line)
        print(
            *(before - 0.001 <= each - seconds <= after + 0.001 for each in (now, now_ns / 1e9)),
            before + 9.999 <= deadline <= after + 10.001,
            time.monotonic() - started < 600,
            flush=True,
        )
""")


def test_the_wall_clock_follows_the_file_and_nothing_else_does(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    write_offset(offset, 0)
    command = [sys.executable, "-c", PROGRAM, str(offset)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seconds in (0, 86_400, -86_400, 0):
            write_offset(offset, seconds)
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
            assert process.stdout.readline().split() == ["True"] * 4
        process.stdin.close()
