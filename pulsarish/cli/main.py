"""The ``pulsarish`` command: a table of commands, each imported only when it is called."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final

import click

from pulsarish.cli.connections import security_options
from pulsarish.cli.groups import Group
from pulsarish.cli.output import report_errors

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["main", "pulsarish"]

_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    # name: (module:attribute, one line of help, kept here so that --help imports nothing)
    "standalone": ("servers:standalone", "run everything in one process"),
    "metadata": (
        "servers:metadata",
        (
            "run the metadata daemon (ZooKeeper's protocol, no Java); back up, restore, compare "
            "metadata"
        ),
    ),
    "zookeeper": ("servers:zookeeper", "run the real ZooKeeper, from PySpark's jars"),
    "bookie": ("servers:bookie", "run a bookie"),
    "broker": ("servers:broker", "run a broker"),
    "proxy": ("servers:proxy", "run a relay for clients that can reach only one address"),
    "autorecovery": (
        "servers:autorecovery",
        "run a process that repairs lost copies; switch it on and off, show its state",
    ),
    "health": ("health:health", "check whether servers can serve"),
    "cluster": (
        "cluster:cluster",
        "start, show, break and stop a cluster of processes on this machine",
    ),
    "produce": ("messages:produce", "send messages"),
    "consume": ("messages:consume", "receive and acknowledge messages of a subscription"),
    "read": ("messages:read", "read a topic without a subscription"),
    "perf": ("perf:perf", "measure rates and latencies"),
    "cluster-info": (
        "admin.cluster_info:cluster_info",
        "show the brokers, bookies, tenants and addresses of a cluster",
    ),
    "tenants": ("admin.tenants:tenants", "list, get, create, update and delete tenants"),
    "namespaces": (
        "admin.namespaces:namespaces",
        "list, create, delete, unload namespaces; their policies",
    ),
    "topics": (
        "admin.topics:topics",
        "list, create, delete, look up, unload, terminate topics; partitions, statistics, policies",
    ),
    "subscriptions": (
        "admin.subscriptions:subscriptions",
        "list, create, delete, move subscriptions; peek into their backlogs",
    ),
    "schemas": ("admin.schemas:schemas", "get, list, upload, delete, compare schemas of topics"),
    "brokers": (
        "admin.brokers:brokers",
        "list brokers; the leader, health, bundles, load, options in force",
    ),
    "isolation-policies": (
        "admin.placement:isolation_policies",
        "list, get, set, delete policies of which brokers serve which namespaces",
    ),
    "failure-domains": (
        "admin.placement:failure_domains",
        "list, get, set, delete groups of brokers that fail together",
    ),
    "resourcegroups": (
        "admin.resource_groups:resource_groups",
        "create, update, get, list, delete groups of namespaces and topics that share rates",
    ),
    "bookies": (
        "admin.bookies:bookies",
        "list bookies and under-replicated ledgers; set read-only, decommission a bookie",
    ),
    "ledgers": ("admin.ledgers:ledgers", "list and get ledgers"),
    "tokens": ("tokens:tokens", "make keys and tokens with which clients say who they are"),
    "passwords": ("passwords:passwords", "make the file of users of basic authentication"),
    "auth": ("admin.auth:auth", "explain what a role may do, and by which rule"),
    "audit": ("audit:audit", "check the records of who did what on a broker"),
    "certificates": (
        "certificates:certificates",
        "make certificates for development, and show certificates",
    ),
    "storage": ("storage:storage", "look at the disks of a bookie, check them, repair them"),
    "job": (
        "job:job",
        (
            "run offline jobs over ledgers with Spark: verify copies, find leaks, sum up usage, "
            "export, import"
        ),
    ),
    "pipeline": ("pipeline:pipeline", "run pipelines on Spark that are described in a file"),
    "chaos": (
        "chaos:chaos",
        "break real processes while messages are published, and check every message",
    ),
    "sim": ("sim:sim", "run the cluster in simulation: seeds, replay, mutants, models"),
    "profiles": (
        "profiles:profiles",
        "save clusters by name: addresses, authorities, references to credentials",
    ),
    "completion": (
        "completion:completion",
        "print the script with which bash, zsh or fish complete commands, options and names",
    ),
}

_HIDDEN: Final = {"commands": ("commands_doc:commands", "print docs/commands.md")}


class _LazyGroup(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = _COMMANDS.get(cmd_name) or _HIDDEN.get(cmd_name)
        if found is None:
            return None
        module, _, attribute = found[0].partition(":")
        command = getattr(importlib.import_module(f"pulsarish.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete from the table: no command is imported."""
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=line)
            for name, (_, line) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=(
        "Start with:  pulsarish standalone   then   pulsarish produce greetings -m hello   "
        "and   pulsarish consume greetings -s me"
    ),
)
@click.version_option(package_name="pulsarish", prog_name="pulsarish")
@click.option(
    "--admin-url", metavar="URL", help="HTTP address of any broker, for commands with --admin-url."
)
@click.option("--url", metavar="URL", help="gRPC address of any broker, for commands with --url.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    help="How to print, for commands with --output.",
)
@security_options
def pulsarish(
    admin_url: str | None, url: str | None, output: str | None, **_security: str | None
) -> None:
    """A durable, replicated publish/subscribe log and queue: the design of Apache Pulsar, in
    Python.
    """
    # Commands read their defaults from the environment, so an option before the command sets them
    # there, too.
    for name, value in (
        ("PULSARISH_ADMIN_URL", admin_url),
        ("PULSARISH_URL", url),
        ("PULSARISH_OUTPUT", output),
    ):
        if value is not None:
            os.environ[name] = value


def main() -> None:
    """Run the command line. Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted."""
    with report_errors():
        try:
            raise SystemExit(pulsarish.main(prog_name="pulsarish", standalone_mode=False))
        except click.Abort:
            raise SystemExit(130) from None
        except click.ClickException as error:
            error.show()
            if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdigit():
                click.echo("Write -- before a value that begins with -.", err=True)
            raise SystemExit(error.exit_code) from None
