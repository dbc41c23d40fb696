"""The page that maps ``bookkeeper shell``: its commands are all named, and ours exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from pulsarish.cli.main import pulsarish

PAGE = (Path(__file__).resolve().parents[3] / "docs/bookkeeper-shell.md").read_text()
# Those of BookKeeper 4.16 and 4.17.
THEIRS = re.findall(
    r"\S+",
    """
    activeledgers autorecovery bookieformat bookieinfo bookiesanity check-db-ledgers-index
    clusterinfo convert-to-db-storage convert-to-interleaved-storage cookie_create cookie_delete
    cookie_generate cookie_get cookie_update decommissionbookie deleteledger endpointinfo
    forceauditchecks help initbookie initnewcluster lastmark ledger ledgermetadata listbookies
    listfilesondisc listledgers listunderreplicated localconsistencycheck lostbookierecoverydelay
    metaformat nukeexistingcluster queryautorecoverystatus readjournal readledger readlog
    readlogmetadata rebuild-db-ledger-locations-index rebuild-db-ledgers-index recover
    regenerate-interleaved-storage-index-file simpletest triggeraudit updateBookieInLedger
    updatecookie updateledgers whatisinstanceid whoisauditor
    """,
)
SPANS = re.findall(r"`([^`]+)`", PAGE.replace("\n", " "))
OURS = sorted({each for each in SPANS if each.startswith("pulsarish ")})


def test_each_of_their_commands_has_one_row() -> None:
    first_cells = re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE)
    named = [name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted(THEIRS)


@pytest.mark.parametrize("line", OURS)
def test_each_of_our_commands_exists(line: str) -> None:
    command: click.Command = pulsarish
    words = line.split()[1:]
    context = click.Context(command)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{line}: there is no command {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context)
    options = {name for each in command.params for name in each.opts} | {"--help"}
    for word in words:
        assert not word.startswith("-") or word in options, f"{line}: there is no {word}"
