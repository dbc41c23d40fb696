"""For the tests of programs that use Pulsarish.

``LocalServer`` is a real server in a thread of the test's process, on free ports. ``simulate`` runs
a program against a cluster of several brokers and bookies in virtual time: hours pass in a second,
brokers crash when the test says so, and one seed always gives the same run. For pytest, the
fixtures ``pulsarish_server``, ``pulsarish_client`` and ``pulsarish_topic`` are there as soon as the
package is installed. So each run of pytest imports this package, and nothing else before it is
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsarish.testing.local_server import LocalServer
    from pulsarish.testing.simulated import SimulatedCluster, simulate

__all__ = ["LocalServer", "SimulatedCluster", "simulate"]

_MODULES = {
    "LocalServer": "local_server",
    "SimulatedCluster": "simulated",
    "simulate": "simulated",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pulsarish.testing' has no attribute {name!r}")
    return getattr(import_module(f"pulsarish.testing.{_MODULES[name]}"), name)
