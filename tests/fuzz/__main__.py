"""The command line of the fuzzers."""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

import click

from pulsarish.model.errors import PulsarishError
from tests.fuzz.canary import Defect
from tests.fuzz.files import fuzz_files
from tests.fuzz.fuzzer import (
    LAG_SECONDS_MAX,
    LOCKED_TARGETS,
    TARGETS,
    Fuzzer,
    fuzzed_cluster,
    load_inputs,
)


@click.command()
@click.argument("target", type=click.Choice([*LOCKED_TARGETS, "files", "all"]))
@click.option("--seconds", default=60.0, show_default=True, help="How long each target is fuzzed.")
@click.option("--seed", default=1, show_default=True, help="The same seed sends the same inputs.")
@click.option(
    "--replay",
    type=click.Path(path_type=Path, exists=True),
    help="Send the inputs of this file again.",
)
@click.option(
    "--locked",
    is_flag=True,
    help="The cluster asks for credentials, with TLS; inputs have none.",
)
def main(target: str, seconds: float, seed: int, replay: Path | None, *, locked: bool) -> None:
    """Send hostile input to a cluster of real processes, or damage its files.

    Exit status 1 when something does not hold.
    """
    if replay is not None and target in ("files", "all"):
        raise click.UsageError(
            f"--replay sends the inputs of one target again; {target} has none: name the target, "
            "or give --seed"
        )
    if target == ("files" if locked else "tls"):
        raise click.UsageError(
            f"{target} is no target {'with' if locked else 'without'} --locked: "
            f"{'leave it out' if locked else 'give it'}"
        )
    failed = False
    everything = LOCKED_TARGETS if locked else (*TARGETS, "files")
    for each in everything if target == "all" else (target,):
        directory = Path(tempfile.mkdtemp(prefix="pulsarish-fuzz-"))
        try:
            if each == "files":
                click.echo(f"files: {fuzz_files(directory, seed, seconds)}")
            else:
                _fuzz(directory, each, seconds, seed, replay, locked=locked)
        except (Defect, PulsarishError, OSError) as error:
            click.echo(
                f"{each}, seed {seed}: {error or repr(error)}\nlogs and data are in {directory}",
                err=True,
            )
            failed = True
    sys.exit(failed)


def _fuzz(
    directory: Path, target: str, seconds: float, seed: int, replay: Path | None, *, locked: bool
) -> None:
    """Fuzz one target, and print what was sent and how much memory it took. Raises ``Defect``."""
    with (
        fuzzed_cluster(directory, locked=locked) as cluster,
        closing(Fuzzer(cluster, target, seed)) as fuzzer,
    ):
        if replay is not None:
            recorded_target, inputs = load_inputs(replay)
            if recorded_target != target:
                raise click.UsageError(
                    f"{replay} has inputs for {recorded_target}, not for {target}"
                )
            fuzzer.replay(inputs)
            fuzzer.restart()
        else:
            try:
                fuzzer.run(seconds)
                fuzzer.restart()
            except Defect as defect:
                _save(fuzzer, f"fuzz-{target}-{seed}.json", defect, locked=locked)
                raise
        click.echo(
            f"{target}: {fuzzer.count} inputs, nothing found; memory in MiB before, at most and "
            f"after a restart: {fuzzer.growth()}; loops that waited for a CPU for more than "
            f"{LAG_SECONDS_MAX} s: {fuzzer.starved_count}; longest send of the normal client: "
            f"{fuzzer.longest_send_seconds:.1f} s"
        )


def _save(fuzzer: Fuzzer, name: str, defect: Defect, *, locked: bool) -> None:
    fuzzer.save(Path(name))
    again = f"{fuzzer.target}{' --locked' if locked else ''} --replay {name}"
    click.echo(f"{defect}\nagain: python -m tests.fuzz {again}", err=True)


if __name__ == "__main__":
    main()
