"""A process whose wall clock is moved while it runs: its wall clock alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from pulsarish.cli.chaos.moved_clock import write_offset

PROGRAM = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from pulsarish.cli.chaos.moved_clock import move_clock

    true_seconds, started = time.time, time.monotonic()
    move_clock(Path(sys.argv[1]))
    from grpc.aio import _utils
    for _line in sys.stdin:
        deadline = _utils._timeout_to_deadline(10.0)
        print(
            round(time.time() - true_seconds()), round(time.time_ns() / 1e9 - true_seconds()),
            round(deadline - true_seconds()), time.monotonic() - started < 60, flush=True,
        )
""")


def test_the_wall_clock_follows_the_file_and_nothing_else_does(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    write_offset(offset, 0)
    command = [sys.executable, "-c", PROGRAM, str(offset)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seconds in (0, 86_400, -86_400, 0):
            write_offset(offset, seconds)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline().split() == [str(seconds), str(seconds), "10", "True"]
        process.stdin.close()
