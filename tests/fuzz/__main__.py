"""The command line of the fuzzers."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.fuzz.canary import Defect
from tests.fuzz.files import fuzz_files
from tests.fuzz.fuzzer import TARGETS, Fuzzer, fuzzed_cluster, load_inputs


@click.command()
@click.argument("target", type=click.Choice([*TARGETS, "files", "all"]))
@click.option("--seconds", default=60.0, show_default=True, help="How long each target is fuzzed.")
@click.option("--seed", default=1, show_default=True, help="The same seed sends the same inputs.")
@click.option("--replay", type=click.Path(path_type=Path, exists=True), help="Send the inputs of this file again.")
def main(target: str, seconds: float, seed: int, replay: Path | None) -> None:
    """Send hostile input to a cluster of real processes, or damage its files. Exit status 1 when something does not hold."""
    if replay is not None and target in ("files", "all"):
        raise click.UsageError(f"--replay sends the inputs of one target again; {target} has none: name the target, or give --seed")
    failed = False
    for each in (*TARGETS, "files") if target == "all" else (target,):
        failed |= not _fuzz(each, seconds, seed, replay)
    sys.exit(failed)


def _fuzz(target: str, seconds: float, seed: int, replay: Path | None) -> bool:
    directory = Path(tempfile.mkdtemp(prefix="pulsarish-fuzz-"))
    if target == "files":
        try:
            click.echo(f"files: {fuzz_files(directory, seed, seconds)}")
        except Defect as defect:
            click.echo(f"files, seed {seed}: {defect}\nthe files are in {directory}", err=True)
            return False
        return True
    with fuzzed_cluster(directory) as cluster:
        fuzzer = Fuzzer(cluster, target if replay is None else load_inputs(replay)[0], seed)
        try:
            if replay is None:
                fuzzer.run(seconds)
            else:
                fuzzer.replay(load_inputs(replay)[1])
            fuzzer.restart()
        except Defect as defect:
            kept = Path(f"fuzz-{target}-{seed}.json")
            fuzzer.save(kept)
            click.echo(
                f"{target}, seed {seed}: {defect}\nagain: python -m tests.fuzz {target} --replay {kept}; logs are in {directory}", err=True
            )
            return False
        finally:
            fuzzer.close()
        click.echo(f"{target}: {fuzzer.count} inputs, nothing found; memory in MiB before, at most and after a restart: {fuzzer.growth()}")
    return True


if __name__ == "__main__":
    main()
