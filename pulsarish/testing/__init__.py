"""For the tests of programs that use Pulsarish.

``LocalServer`` is a real server in a thread of the test's process, on free ports. ``simulate`` runs
a program against a cluster of several brokers and bookies in virtual time: hours pass in a second,
brokers crash when the test says so, and one seed always gives the same run. For pytest, the
fixtures ``pulsarish_server``, ``pulsarish_client`` and ``pulsarish_topic`` are there as soon as the
package is installed.
"""

from __future__ import annotations

from pulsarish.testing.local_server import LocalServer
from pulsarish.testing.simulated import SimulatedCluster, simulate

__all__ = ["LocalServer", "SimulatedCluster", "simulate"]
