"""Functions that process messages, with the interfaces of ``pulsar.functions`` of Apache Pulsar's
Python client, and a runner of such functions in a program.
"""

from __future__ import annotations

from pulsarish.functions.context import Context
from pulsarish.functions.function import Function
from pulsarish.functions.local_runner import LocalRunner
from pulsarish.functions.serde import IdentitySerDe, PickleSerDe, SerDe

__all__ = ["Context", "Function", "IdentitySerDe", "LocalRunner", "PickleSerDe", "SerDe"]
