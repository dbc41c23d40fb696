"""The ``pulsarish`` command: a table of commands, each imported only when it is called."""

from __future__ import annotations

import importlib
from typing import Final

import click

from pulsarish.cli.output import report_errors

__all__ = ["main"]

_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    # name: (module:attribute, one line of help, kept here so that --help imports nothing)
    "standalone": ("servers:standalone", "run everything in one process"),
    "metadata": ("servers:metadata", "run the metadata daemon (ZooKeeper's wire protocol, no Java)"),
    "zookeeper": ("servers:zookeeper", "run the real ZooKeeper that PySpark brings"),
    "bookie": ("servers:bookie", "run a bookie"),
    "broker": ("servers:broker", "run a broker"),
    "cluster": ("cluster:cluster", "start, look at, break and stop a cluster of processes on this machine"),
    "produce": ("messages:produce", "send messages"),
    "consume": ("messages:consume", "receive and acknowledge messages of a subscription"),
    "read": ("messages:read", "read a topic without a subscription"),
    "perf": ("perf:perf", "measure rates and latencies"),
    "tenants": ("admin:tenants", "list, get, create and delete tenants"),
    "namespaces": ("admin:namespaces", "list, get, create and delete namespaces"),
    "topics": ("admin:topics", "list, create, delete, look up, unload topics; statistics; peek"),
    "subscriptions": ("admin:subscriptions", "list, create, delete, move subscriptions"),
    "brokers": ("admin:brokers", "list brokers, the leader, health"),
    "bookies": ("admin:bookies", "list bookies"),
    "ledgers": ("admin:ledgers", "list and get ledgers"),
    "sim": ("sim:sim", "run the cluster in simulation: seeds, replay, mutants"),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(f"pulsarish.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Start with:  pulsarish standalone   then   pulsarish produce greetings -m hello   and   pulsarish consume greetings -s me",
)
@click.version_option(package_name="pulsarish", prog_name="pulsarish")
def _pulsarish() -> None:
    """A durable, replicated publish/subscribe log and queue: the design of Apache Pulsar, in Python."""


def main() -> None:
    """Entry point. Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted."""
    with report_errors():
        try:
            raise SystemExit(_pulsarish.main(prog_name="pulsarish", standalone_mode=False))
        except click.Abort:
            raise SystemExit(130) from None
        except click.ClickException as error:
            error.show()
            raise SystemExit(error.exit_code) from None
