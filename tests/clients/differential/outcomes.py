"""What a program of the differential suite found, in a form that is the same for both packages:
data as JSON has them, errors by the names under which a program catches them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any, Final

__all__ = ["caught", "differing", "error_name", "normalised"]

_OTHERS: Final = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and kind not in (Exception, OSError, ArithmeticError)
}


def error_name(package: ModuleType, error: BaseException) -> str:
    """Return the name by which a program that knows Apache Pulsar's package catches an error of
    ``package``. An error of ours may have several: ``A|B``.
    """
    if package.__name__ == "pulsar":
        return type(error).__name__
    official = import_module("pulsar.exceptions")
    names: dict[Any, str] = {
        getattr(package, name, None): name
        for name, kind in vars(official).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    names |= {kind: name for name, kind in _OTHERS.items()}
    found = [names[kind] for kind in type(error).__mro__ if kind in names]
    # Every error is a PulsarException: that says nothing while there is a better name.
    better = [name for name in found if name != "PulsarException"]
    return "|".join(better or found or [type(error).__name__])


def differing(there: Any, here: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Return where an outcome of ours is not that of Apache Pulsar's package, and both values
    there. An error of ours agrees when it has the name of theirs.
    """
    if isinstance(there, dict) and isinstance(here, dict) and there.keys() == here.keys():
        parts = [(name, there[name], here[name]) for name in there]
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        parts = [(index, *pair) for index, pair in enumerate(zip(there, here, strict=True))]
    elif isinstance(there, str) and isinstance(here, str) and there in here.split("|"):
        return {}
    else:
        return {} if there == here and type(there) is type(here) else {path: (there, here)}
    found: dict[str, tuple[Any, Any]] = {}
    for name, one, other in parts:
        found |= differing(one, other, f"{path}/{name}" if path else str(name))
    return found


def caught(package: ModuleType, work: Callable[[], object]) -> Any:
    """Return what ``work`` returned, or ``{"raised": name}``.

    A name that nothing has is a mistake of the program and no outcome: raised.
    """
    try:
        return work()
    except Exception as error:
        of = getattr(error, "obj", None)
        if isinstance(error, NameError) or (
            isinstance(error, AttributeError)
            and (isinstance(of, ModuleType) or _package(type(of)) in ("pulsar", "pulsarish"))
        ):
            raise
        return {"raised": error_name(package, error)}


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0].removeprefix("_")


def normalised(found: Any, topic: str) -> Any:
    """Return an outcome as JSON has it, with ``TOPIC`` for the program's own topic."""
    if isinstance(found, str):
        return found.replace(topic, "TOPIC").replace(topic.rpartition("/")[2], "TOPIC")
    if isinstance(found, bytes):
        return repr(found)
    if found is None or type(found) in (bool, int, float):
        return found
    if isinstance(found, Mapping):
        return {str(key): normalised(value, topic) for key, value in found.items()}
    if isinstance(found, (set, frozenset)):
        return sorted((normalised(each, topic) for each in found), key=str)
    if isinstance(found, (list, tuple)):
        return [normalised(each, topic) for each in found]
    if isinstance(found, Enum) or hasattr(found, "name"):
        return str(found.name)
    return f"a {type(found).__name__}"
