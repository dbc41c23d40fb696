"""What a program imports before it starts: heavy modules that it may never use would hold up each
start.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

_DISK: Final = ("rocksdict", "tempfile")
_METADATA_TREE: Final = ("pulsarish.metadata.damage", "pulsarish.metadata.tree.tree")
_HTTP_CLIENT: Final = ("email", "http.client", "urllib.request")
_CRYPTOGRAPHY: Final = ("bcrypt", "cryptography", "jwt")
_OTHER_ROLES: Final = ("pulsarish.client", "pulsarish.admin", "pulsarish.sim", "pulsarish.spark")

_NOT_IMPORTED: Final = {
    "pulsarish.broker.main": (
        *_DISK,
        *_METADATA_TREE,
        *_HTTP_CLIENT,
        *_CRYPTOGRAPHY,
        *_OTHER_ROLES,
        "pulsarish.bookie",
    ),
    "pulsarish.bookie.main": (
        *_DISK,
        *_METADATA_TREE,
        *_HTTP_CLIENT,
        *_CRYPTOGRAPHY,
        *_OTHER_ROLES,
        "pulsarish.broker",
    ),
    "pulsarish.proxy.main": (
        *_DISK,
        *_METADATA_TREE,
        *_HTTP_CLIENT,
        *_CRYPTOGRAPHY,
        *_OTHER_ROLES,
        "pulsarish.broker",
        "pulsarish.ledger",
    ),
    "pulsarish.client.api.blocking_client": (
        *_DISK,
        *_HTTP_CLIENT,
        *_CRYPTOGRAPHY,
        "click",
        "kazoo",
        "pulsarish.broker",
        "pulsarish.ledger",
        "pulsarish.metadata",
    ),
}


@pytest.mark.parametrize("module", _NOT_IMPORTED)
def test_a_start_does_not_import(module: str) -> None:
    assert _imported(module) & set(_NOT_IMPORTED[module]) == set()


def test_the_package_alone_imports_nothing_of_its_own() -> None:
    assert {each for each in _imported("pulsarish") if each.startswith("pulsarish.")} == set()


def _imported(module: str) -> set[str]:
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())
