"""``pulsarish storage``: look at the disks of a bookie, check them and repair them."""

from __future__ import annotations

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.storage.additions import add_volume
from pulsarish.cli.storage.cookies import cookie
from pulsarish.cli.storage.cordons import cordon, uncordon
from pulsarish.cli.storage.drains import drain
from pulsarish.cli.storage.journals import journal, last_mark
from pulsarish.cli.storage.ledgers import index, ledger
from pulsarish.cli.storage.logs import entry_log
from pulsarish.cli.storage.metadata import rebuild_metadata, save_records
from pulsarish.cli.storage.rebuild import rebuild
from pulsarish.cli.storage.removals import remove_volume
from pulsarish.cli.storage.verify import verify

__all__ = ["storage"]


@click.group(cls=Group)
def storage() -> None:
    """Look at the disks of a bookie, check them and repair them.

    Give each command the options of the bookie: its file, its environment or --set. The commands
    that only read take no lock and write nothing, so the bookie may run meanwhile. What its last
    checkpoint has not written yet is in the journal only. `cordon`, `uncordon`, `drain`,
    `remove-volume` and `add-volume` ask a broker.

    \b
    Examples:
      pulsarish storage ledger list --config bookie.toml
      pulsarish storage verify --config bookie.toml
      pulsarish storage rebuild-index --config bookie.toml
      pulsarish storage cordon bookie-2 /d1/ledgers
    """


for _command in (
    add_volume,
    cookie,
    cordon,
    drain,
    entry_log,
    index,
    journal,
    last_mark,
    ledger,
    rebuild,
    rebuild_metadata,
    save_records,
    remove_volume,
    uncordon,
    verify,
):
    storage.add_command(_command)
