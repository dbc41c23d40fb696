"""Commands that compare a tree with its bookies, repair it, and protect it."""

from __future__ import annotations

import click

from pulsarish.cli.bookie_access import BookieFiles, bookie_options
from pulsarish.cli.metadata.trees import (
    URL_HELP,
    check_directory,
    ids_of_registered,
    records_of,
    registered_bookies,
    run,
    tree_at,
)
from pulsarish.cli.metadata_access import access_options, chosen_access
from pulsarish.cli.output import (
    output_option,
    print_json,
    print_table,
    say,
)
from pulsarish.ledger.repair.inventory import Inventory, take_inventory
from pulsarish.ledger.repair.rehearsal import instances
from pulsarish.metadata import paths
from pulsarish.metadata.acceptance import accept_older_tree
from pulsarish.metadata.backup.restore import LEDGER_ID_GAP
from pulsarish.metadata.damage import (
    CutNotFinished,
    check_cut_is_finished,
    cut_path,
    index_directory,
    mark_incomplete,
    open_tree,
)
from pulsarish.metadata.id_counter import ID_GAP_MAX
from pulsarish.metadata.protection import set_access_below
from pulsarish.metadata.records import RestoredTree
from pulsarish.metadata.tree.local import LocalTree
from pulsarish.metadata.tree_age import confirm_tree, why_older
from pulsarish.model.errors import (
    InvalidArgument,
    NotAllowedError,
)
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.rocks.index import accept_index_loss, look_at_index
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import production

__all__ = ["accept", "audit", "confirm", "cut", "protect"]


@click.command(epilog=URL_HELP)
@click.argument("url")
@output_option
@bookie_options
@access_options
def audit(url: str, output: str, bookies: BookieFiles) -> None:
    """Compare the ledgers on the bookies with those in the metadata. Exit status 1 when they
    differ. Changes nothing.

    After a restore it lists what to repair. "unknown" ledgers were made after the backup, "unheld"
    ones were deleted after it. Those "elsewhere" were open in the backup, and bookies that their
    record does not name hold them, too.

    \b
    Example:
      pulsarish metadata audit zk://127.0.0.1:2181/pulsarish -o json
    """
    stock = run(_stock(url, bookies))
    if output == "json":
        print_json(
            {
                "silent": stock.silent,
                "unknown": [
                    {"ledger": ledger, "bookies": by} for ledger, by in stock.unknown.items()
                ],
                "unheld": stock.unheld,
                "elsewhere": [
                    {"ledger": ledger, "bookies": by} for ledger, by in stock.elsewhere.items()
                ],
            }
        )
    else:
        _print_stock(stock)
    if not stock.is_clean:
        raise SystemExit(1)


def _print_stock(stock: Inventory) -> None:
    if stock.is_clean:
        say("bookies and metadata have the same ledgers")
        return
    rows: list[dict[str, object]] = [
        {"finding": "silent", "bookies": name, "why": why} for name, why in stock.silent.items()
    ]
    rows += [
        {"finding": "unknown", "ledger": ledger, "bookies": by}
        for ledger, by in stock.unknown.items()
    ]
    rows += [{"finding": "unheld", "ledger": ledger} for ledger in stock.unheld]
    rows += [
        {"finding": "elsewhere", "ledger": ledger, "bookies": by}
        for ledger, by in stock.elsewhere.items()
    ]
    print_table(rows, ["finding", "ledger", "bookies", "why"], "table")


async def _stock(url: str, bookies: BookieFiles) -> Inventory:
    """Return the ledgers of all bookies that the cluster ever had. A bookie that is not registered
    counts as silent.
    """
    async with tree_at(url, bookies=bookies) as world:
        records = records_of(world)
        control, _ = await registered_bookies(world, records)
        return await take_inventory(records, control, await instances(records))


@click.command(epilog=URL_HELP)
@click.argument("url")
@click.option(
    "--ledger-id-gap",
    default=LEDGER_ID_GAP,
    show_default=True,
    type=click.IntRange(0, ID_GAP_MAX // 2),
    metavar="N",
    help="Ledger ids to leave out above all known ones, for ledgers that this tree has lost.",
)
@bookie_options
@access_options
def accept(url: str, ledger_id_gap: int, bookies: BookieFiles) -> None:
    """Continue with a tree that came back older than nodes had seen it. If possible, put the newer
    tree back instead.

    From then on the tree counts as restored from a backup: topics are served again, and bookies
    delete nothing until "pulsarish metadata confirm". Messages in ledgers that this tree does not
    name cannot be read.

    \b
    Example:
      pulsarish metadata accept zk://127.0.0.1:2181/pulsarish
    """

    async def work() -> int:
        async with tree_at(url, bookies=bookies) as world:
            records = records_of(world)
            held = await ids_of_registered(world, records)
            return await accept_older_tree(records, ids_held=held, ledger_id_gap=ledger_id_gap)

    count = run(work())
    say(
        f"accepted, with {count} ledgers that may continue on other bookies. Bookies delete "
        "nothing yet; next, with all bookies up:"
    )
    say(
        f"  pulsarish metadata audit {url}      list ledgers that bookies hold and this tree does "
        "not name"
    )
    say(f"  pulsarish metadata confirm {url}    let bookies delete again")


@click.command(epilog=URL_HELP)
@click.argument("url")
@click.option(
    "--delete-unknown",
    is_flag=True,
    help="Confirm although this tree does not name all ledgers: bookies will delete the others.",
)
@bookie_options
@access_options
def confirm(url: str, delete_unknown: bool, bookies: BookieFiles) -> None:
    """Confirm a restored tree: bookies delete ledgers again that it does not name.

    Refused while the audit finds ledgers that would be lost, or bookies that do not answer, unless
    --delete-unknown.

    \b
    Example:
      pulsarish metadata confirm zk://127.0.0.1:2181/pulsarish
    """

    async def restored() -> RestoredTree | None:
        async with tree_at(url) as world:
            found = await records_of(world).get(paths.RESTORED, RestoredTree)
            return None if found is None else found[0]

    async def forget() -> None:
        async with tree_at(url) as world:
            await confirm_tree(records_of(world))

    found = run(restored())
    if found is None:
        say("this tree was not restored, or is confirmed already: nothing to do")
        return
    if found.older:
        raise NotAllowedError(
            f"{why_older(found)} {url}, then run pulsarish metadata audit {url}, then run this "
            "command again: it gives up ledgers that the tree does not name"
        )
    if not found.restored_ms:
        raise NotAllowedError(
            "the restore or the rebuild has not finished: run it again as before, then confirm it"
        )
    stock = run(_stock(url, bookies))
    if (stock.silent or stock.unknown or stock.elsewhere) and not delete_unknown:
        _print_stock(stock)
        raise NotAllowedError(
            f"{len(stock.unknown)} ledgers are not named by this tree, {len(stock.elsewhere)} may "
            f"continue on other bookies, {len(stock.silent)} bookies did not answer: "
            "--delete-unknown gives all of that up forever"
        )
    run(forget())
    say(
        "confirmed: from the next garbage collection on, bookies delete ledgers that this tree "
        "does not name"
    )


@click.command()
@click.argument("directory")
@click.option(
    "--last-write",
    type=int,
    help="The last write to keep, as printed without this option; later writes are given up.",
)
def cut(directory: str, last_write: int | None) -> None:
    """Continue with the rest of a damaged tree in DIRECTORY. If a newer backup exists, restore it
    instead.

    DIRECTORY is the data directory of a stopped metadata daemon, or that of embedded:DIRECTORY. Its
    sessions end. Afterwards the tree counts as restored from a backup: bookies delete nothing until
    `pulsarish metadata confirm`.

    \b
    Example:
      pulsarish metadata cut data/metadata
      pulsarish metadata cut data/metadata --last-write 1041
    """

    check_directory(index_directory(directory))

    async def work() -> list[str]:
        outside = OutsideWork()
        parts = production(outside=outside, supervisor=Supervisor(died=lambda _name, _error: None))
        try:
            await parts.files.lock(directory)
            look = look_at_index(index_directory(directory))
            try:
                await check_cut_is_finished(parts.files, directory)
                if not look.missing:
                    raise NotAllowedError(
                        f"the tree in {directory} is complete: nothing was changed"
                    )
            except CutNotFinished:
                say(f"finished an earlier, interrupted cut of {directory}")
            if look.missing and last_write is None:
                raise NotAllowedError(
                    f"in the tree in {directory} {look.missing}. Nothing was changed; to give up "
                    f"what is missing: pulsarish metadata cut {directory} --last-write "
                    f"{look.last_write}"
                )
            if look.missing and last_write != look.last_write:
                raise InvalidArgument(
                    f"--last-write {last_write}: the tree in {directory} ends at write "
                    f"{look.last_write}; nothing was changed"
                )
            # While this file exists no process serves the tree, which looks complete before it is
            # marked.
            await parts.files.replace(cut_path(directory), b"")
            if look.missing:
                accept_index_loss(index_directory(directory))
            index, tree = await open_tree(parts.open_index, directory)
            local = await LocalTree.open(index, tree, parts.clock, parts.tasks, parts.random)
            store = await local.new_store(closes_tree=True)
            try:
                roots = await mark_incomplete(local, store, parts.clock)
            finally:
                await store.close()
            await parts.files.remove([cut_path(directory)])
            return roots
        finally:
            await parts.close()

    roots = run(work())
    say(
        f"what was missing is given up; the tree in {directory} can be served again. Next, with "
        "it and all bookies up:"
    )
    for root in roots:
        say(
            f"  pulsarish metadata audit zk://HOST:PORT{root}      list ledgers that bookies hold "
            "and this tree does not name"
        )
        say(f"  pulsarish metadata confirm zk://HOST:PORT{root}    let bookies delete again")
    if "" in roots:
        say("for a standalone server, start it with --metadata-address HOST:PORT")


@click.command(epilog=URL_HELP)
@click.argument("url")
@click.option("--open", "everyone", is_flag=True, help="Give the nodes to everyone again.")
@access_options
def protect(url: str, everyone: bool) -> None:
    """Give every node of the tree at URL to the logins of --metadata-auth-file, and to no other.

    For a tree that was made without a login, and after a change of the passwords; the cluster may
    run. All members must log in already: docs/security.md has the steps.

    \b
    Example:
      pulsarish metadata protect zk://zk1:2181/pulsarish --metadata-auth-file metadata.auth
    """
    if not chosen_access().auth_file:
        raise InvalidArgument(
            "--metadata-auth-file is missing: it has the logins that the nodes belong to"
        )

    async def work() -> int:
        async with tree_at(url) as world:
            return await set_access_below(world.metadata, everyone=everyone)

    count = run(work())
    owner = "everyone" if everyone else "the logins of --metadata-auth-file"
    say(f"{count} nodes belong to {owner} now")
