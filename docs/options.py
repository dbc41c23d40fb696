"""Writes the list of all options at the end of configuration.md from the classes that load them.

python docs/options.py            write it
python docs/options.py --check    exit with 1 when it is not current
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from pulsarish.autorecovery.config import AutoRecoveryConfig
from pulsarish.bookie.config import BookieConfig
from pulsarish.broker.config import BrokerConfig
from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.zookeeper_server import ZooKeeperServerConfig
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.config import Option, describe

FILE: Final = Path(__file__).with_name("configuration.md")
PROCESSES: Final[dict[str, type[msgspec.Struct]]] = {
    "broker": BrokerConfig,
    "bookie": BookieConfig,
    "metadata": MetadataConfig,
    "zookeeper": ZooKeeperServerConfig,
    "autorecovery": AutoRecoveryConfig,
    "proxy": ProxyConfig,
}
_BEGIN: Final = "<!-- Everything from here on is written by docs/options.py from the code. -->"
_UNITS: Final = {
    "ms": "milliseconds",
    "seconds": "seconds",
    "minutes": "minutes",
    "hours": "hours",
    "days": "days",
    "bytes": "bytes",
    "mb": "MB (2^20 bytes)",
    "entries": "entries",
}


def _unit(name: str) -> str:
    words = name.rpartition(".")[2].split("_")
    return next((_UNITS[word] for word in reversed(words) if word in _UNITS), "")


def _row(process: str, option: Option) -> str:
    variable = f"PULSARISH_{process.upper()}__{option.name.replace('.', '__').upper()}"
    dynamic = "dynamic" if option.is_dynamic else ""
    parts = (option.type, option.limits, _unit(option.name), dynamic)
    kind = ", ".join(part for part in parts if part)
    meaning = " ".join(option.meaning.split())
    cells = (f"`{option.name}`<br>`{variable}`", kind, f"`{option.default}`", meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def render() -> str:
    """The generated part of the file."""
    lines = [_BEGIN, "", "## Every option"]
    for process, config in PROCESSES.items():
        lines += [
            "",
            f"### All of `pulsarish {process}`",
            "",
            "| option, and its variable in the environment | type | default | meaning |",
        ]
        lines += [
            "| --- | --- | --- | --- |",
            *(_row(process, option) for option in describe(config)),
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    text = FILE.read_text()
    wanted = text.partition(_BEGIN)[0].rstrip("\n") + "\n\n" + render()
    if "--check" not in sys.argv:
        FILE.write_text(wanted)
    elif text != wanted:
        raise SystemExit("docs/configuration.md is not current: run python docs/options.py")


if __name__ == "__main__":
    main()
