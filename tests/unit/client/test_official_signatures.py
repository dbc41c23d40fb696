"""Classes and methods have the arguments of Apache Pulsar's Python client, in its order and with
its defaults. What differs is in one table, with the reason.
"""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any

import pulsar
import pulsar.asyncio
import pulsar.schema
import pytest

import pulsarish
import pulsarish.asyncio
import pulsarish.schema
from pulsarish.client.messages.arguments import (
    asyncio_consumer_options,
    asyncio_reader_options,
    reader_options,
)
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.options import ClientOptions, ProducerOptions

URL = "pulsarish://localhost"

DIFFERENT_DEFAULTS = {
    "tls_validate_hostname": "True here: a certificate of another host is not accepted",
    "batch_index_ack_enabled": "True here: brokers of this project know it, so a batch of which"
    " some messages were refused is not delivered again as a whole",
    "max_num_message": "-1 here: the official policy has no default",
    "max_num_bytes": "10 MiB here: the official policy has no default",
    "timeout_ms": "100 here: the official policy has no default",
}

_CLASSES = [
    name
    for name, value in sorted(vars(pulsar).items())
    if isinstance(value, type)
    and value.__module__.partition(".")[0] in ("pulsar", "_pulsar")
    and not issubclass(value, Exception)
]
"""All classes of the official package that are no exceptions."""

NOT_MADE_BY_PROGRAMS = {"EncryptionContext", "Message", "TableView"}
"""Programs do not make them: a client returns them."""


def _official_methods(kind: type) -> list[str]:
    return [
        name
        for name, value in vars(kind).items()
        if (name == "__init__" or not name.startswith("_"))
        and (inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod)))
    ]


def _rows(there: Any, here: Any, names: list[str]) -> list[Any]:
    return [
        pytest.param(getattr(there, name), getattr(here, name, None), method, id=f"{name}.{method}")
        for name in names
        for method in _official_methods(getattr(there, name))
        if (name, method) not in [(made, "__init__") for made in NOT_MADE_BY_PROGRAMS]
    ]


def _shown(value: object) -> object:
    """Return a default in a form that can be compared: enumerations by name, and ``None`` for the
    schema of bytes, which both clients take for it.
    """
    if type(value).__name__ == "BytesSchema":
        return None
    if hasattr(value, "name") and hasattr(value, "value"):
        return f"{type(value).__name__}.{value.name}"
    return value


def _compare(there: Any, here: Any) -> None:
    official = list(inspect.signature(there).parameters.values())
    ours = list(inspect.signature(here).parameters.values())
    if here is object.__init__:
        assert [each.name for each in official] == ["self"]
        return
    keywords = [each.name for each in official if each.kind is each.VAR_KEYWORD]
    official = [each for each in official if each.kind is not each.VAR_KEYWORD]
    places = [each for each in ours if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert [each.name for each in places][: len(official)] == [each.name for each in official]
    for there_one, here_one in zip(official, places, strict=False):
        if there_one.name not in DIFFERENT_DEFAULTS:
            assert _shown(here_one.default) == _shown(there_one.default), there_one.name
    added = [each for each in ours if each.name not in {one.name for one in official}]
    assert keywords or all(
        each.default is not each.empty or each.kind is each.VAR_KEYWORD for each in added
    )


@pytest.mark.parametrize("name", _CLASSES)
def test_each_class_is_here(name: str) -> None:
    assert isinstance(getattr(pulsarish, name, None), type)


@pytest.mark.parametrize(("there", "here", "method"), _rows(pulsar, pulsarish, _CLASSES))
def test_methods(there: type, here: type, method: str) -> None:
    assert hasattr(here, method), f"{here.__name__} has no {method}"
    _compare(getattr(there, method), getattr(here, method))


_ASYNCIO = ["Client", "Consumer", "Producer", "Reader"]


@pytest.mark.parametrize(
    ("there", "here", "method"),
    [
        row
        for row in _rows(pulsar.asyncio, pulsarish.asyncio, _ASYNCIO)
        # Programs get these of a client.
        if row.values[2] != "__init__" or row.id.startswith("Client")
    ],
)
def test_methods_of_asyncio(there: type, here: type, method: str) -> None:
    assert hasattr(here, method), f"{here.__name__} has no {method}"
    _compare(getattr(there, method), getattr(here, method))
    is_awaited = inspect.iscoroutinefunction(getattr(there, method))
    assert inspect.iscoroutinefunction(getattr(here, method)) == is_awaited


def test_asyncio_has_each_class() -> None:
    official = {
        name
        for name, value in vars(pulsar.asyncio).items()
        if isinstance(value, type) and value.__module__.partition(".")[0] in ("pulsar", "_pulsar")
    }
    assert len(official) > 10
    assert official <= set(pulsarish.asyncio.__all__)


def _enumerations() -> list[str]:
    return [name for name in _CLASSES if hasattr(getattr(pulsar, name), "__members__")]


@pytest.mark.parametrize("name", _enumerations())
def test_enumerations_have_the_same_members(name: str) -> None:
    there, here = getattr(pulsar, name), getattr(pulsarish, name)
    assert issubclass(here, Enum)
    assert {each.name: each.value for each in here} == {
        each: int(value) for each, value in there.__members__.items()
    }
    for member in here:
        assert str(member) == str(there.__members__[member.name])
        assert repr(member) == repr(there.__members__[member.name])
        assert int(member) == member.value


@pytest.mark.parametrize("name", ["exceptions", "functions", "schema", "tableview"])
def test_modules_are_attributes_of_the_package(name: str) -> None:
    there, here = getattr(pulsar, name), getattr(pulsarish, name)
    own = [
        each
        for each, value in vars(there).items()
        if isinstance(value, type) and value.__module__.partition(".")[0] in ("pulsar", "_pulsar")
    ]
    for each in own:
        assert hasattr(here, each), each
        assert each in here.__all__, each


def _seen(options: Any) -> dict[str, object]:
    """Return what options hold, in a form that can be compared."""
    return {
        name: value if isinstance(value, (str, int, float, bool, type(None))) else repr(type(value))
        for name, value in vars(options).items()
    }


@pytest.mark.parametrize(
    ("options", "there", "required"),
    [
        (ClientOptions, pulsar.Client.__init__, (URL,)),
        (ProducerOptions, pulsar.Client.create_producer, ("t",)),
        (ConsumerOptions, pulsar.Client.subscribe, ("t", "s")),
        (asyncio_consumer_options, pulsar.asyncio.Client.subscribe, ("t", "s")),
        (reader_options, pulsar.Client.create_reader, ("t", pulsarish.MessageId.earliest)),
        (
            asyncio_reader_options,
            pulsar.asyncio.Client.create_reader,
            ("t", pulsarish.MessageId.earliest),
        ),
    ],
    ids=lambda value: getattr(value, "__qualname__", None),
)
def test_every_official_default_means_no_change(
    options: Any, there: Any, required: tuple[Any, ...]
) -> None:
    defaults: dict[str, Any] = {}
    for each in list(inspect.signature(there).parameters.values())[1 + len(required) :]:
        if each.name not in DIFFERENT_DEFAULTS:
            kind = getattr(pulsarish, type(each.default).__name__, None)
            is_choice = kind is not None and issubclass(kind, Enum)
            defaults[each.name] = kind[each.default.name] if is_choice else _shown(each.default)
    assert _seen(options(*required, **defaults)) == _seen(options(*required))


def test_a_pattern_as_text() -> None:
    options = asyncio_consumer_options("a-.*", "s", is_pattern_topic=True)
    assert options.filter is not None
    assert isinstance(options, ConsumerOptions)
    with pytest.raises(pulsarish.InvalidArgument, match="is no regular expression"):
        asyncio_consumer_options("a-(", "s", is_pattern_topic=True)
