"""All figures, one bench after the other: ``make bench``.

Each prints what was measured beside what is wanted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHES = (
    "metadata",
    "ledger",
    "bookie",
    "client",
    "cluster",
    "delayed",
    "failover",
    "steady",
    "topics",
    "streams",
    "peers",
)


def main() -> int:
    chosen = sys.argv[1:] or BENCHES
    root = Path(__file__).parent.parent
    failed = []
    for name in chosen:
        print(f"== {name}", flush=True)
        if subprocess.run(
            [sys.executable, "-m", f"bench.{name}"], cwd=root, check=False
        ).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
