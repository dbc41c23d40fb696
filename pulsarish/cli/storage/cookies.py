"""``pulsarish storage cookie show|create|delete``."""

from __future__ import annotations

import asyncio

import click

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookie_repair import create_cookies, delete_cookies
from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.bookie.inspection.directories import Inspected
from pulsarish.cli.groups import Group
from pulsarish.cli.output import fail, output_option, print_json, print_table, say
from pulsarish.cli.storage.access import (
    bookie_config,
    check_directories,
    has_several_volumes,
    inspecting,
    run_locked,
)
from pulsarish.cli.storage.tree import tree_of
from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import CorruptData

__all__ = ["cookie"]

_METADATA = "the metadata"


@click.group(cls=Group)
def cookie() -> None:
    """The cookies of a bookie: who it is, in each of its directories and in the metadata.

    \b
    Examples:
      pulsarish storage cookie show --config bookie.toml
      pulsarish storage cookie create --config bookie.toml
    """


@cookie.command()
@click.option("--metadata", is_flag=True, help="Show the cookie in the metadata, too.")
@bookie_config
@output_option
def show(config: BookieConfig, metadata: bool, output: str) -> None:
    """Show the cookie of each directory. The bookie may run.

    \b
    Example:
      pulsarish storage cookie show --metadata --config bookie.toml
    """

    async def work() -> list[dict[str, object]]:
        async with inspecting(config) as inspected:
            rows = [await _row(inspected, directory) for directory in inspected.cookies]
        if metadata:
            rows.append(_shown(_METADATA, await _stored(config)))
        return rows

    rows = asyncio.run(work())
    columns = ["where", "bookie_id", "instance_id", "cluster_id"]
    if any(row.get("problem") for row in rows):
        columns.append("problem")
    print_table(rows, columns, output)


async def _stored(config: BookieConfig) -> Cookie | None:
    async with tree_of(config) as tree:
        found = await tree.records.get(paths.cookie(config.bookie_id), Cookie)
    return None if found is None else found[0]


async def _row(inspected: Inspected, directory: str) -> dict[str, object]:
    try:
        return _shown(f"{directory}/{COOKIE_NAME}", await inspected.cookie_in(directory))
    except CorruptData as error:
        return {"where": f"{directory}/{COOKIE_NAME}", "problem": str(error)}


def _shown(where: str, found: Cookie | None) -> dict[str, object]:
    if found is None:
        return {"where": where, "problem": "there is none"}
    return {
        "where": where,
        "bookie_id": found.bookie_id,
        "instance_id": found.instance_id,
        "cluster_id": found.cluster_id,
        "created_ms": found.created_ms,
        "journal_position": found.journal_position,
        "limbo_times": found.limbo_times,
    }


@cookie.command()
@bookie_config
@output_option
def create(config: BookieConfig, output: str) -> None:
    """Write the cookies that are lost, after those that are left. The bookie must not run.

    The metadata must be reachable. A directory without a cookie may have lost more than that. So
    the bookie then answers "unknown" instead of "not there" for every ledger that existed, until
    auto-recovery has repaired its ledgers.

    \b
    Example:
      pulsarish storage cookie create --config bookie.toml
    """
    config.validate()
    check_directories(config)

    async def work() -> list[str]:
        async with tree_of(config) as tree:
            return await create_cookies(
                tree.files,
                await tree.guarded(),
                config.paths,
                config.bookie_id,
                several_volumes=has_several_volumes(),
                limbo_directory=config.ledger_path,
                given_out=tree.ledgers_given_out,
            )

    written = run_locked(work())
    if output == "json":
        print_json({"written": written})
        return
    say(f"cookies written: {', '.join(written)}" if written else "no cookie is missing")
    if any(place != _METADATA for place in written):
        say("start the bookie and let auto-recovery work: it is in limbo for all ledgers")


@cookie.command()
@click.option("--confirm", metavar="BOOKIE_ID", help="The id of the bookie: do not ask for it.")
@click.option("--force", is_flag=True, help="Delete them even if ledgers have entries on it.")
@bookie_config
@output_option
def delete(config: BookieConfig, confirm: str | None, force: bool, output: str) -> None:
    """Delete the cookies in the directories and in the metadata. The bookie must not run.

    Afterwards no bookie starts on these directories: empty them for another one. While ledgers
    name the bookie, `pulsarish bookies decommission` is the way, because it copies their entries
    first.

    \b
    Example:
      pulsarish storage cookie delete --config bookie.toml
    """
    config.validate()
    check_directories(config)
    if confirm is None:
        confirm = click.prompt(
            f"Type the id of the bookie, {config.bookie_id}, to delete its cookies", err=True
        )
    if confirm != config.bookie_id:
        fail(f"{confirm!r} is not the id of the bookie, {config.bookie_id}: nothing was deleted")

    async def work() -> list[str]:
        async with tree_of(config) as tree:
            return await delete_cookies(
                tree.files,
                await tree.guarded(),
                config.paths,
                config.bookie_id,
                several_volumes=has_several_volumes(),
                force=force,
            )

    deleted = run_locked(work())
    if output == "json":
        print_json({"deleted": deleted})
    else:
        say(f"cookies deleted: {', '.join(deleted)}" if deleted else "there was no cookie")
