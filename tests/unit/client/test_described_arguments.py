"""``help`` says what each argument of the calls that take many means."""

from __future__ import annotations

import inspect
import re

import pytest

import pulsarish.asyncio
from pulsarish import Client

METHODS = ("__init__", "create_producer", "subscribe", "create_reader")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("client", [Client, pulsarish.asyncio.Client], ids=["blocking", "asyncio"])
def test_each_argument_is_described_once(client: type, method: str) -> None:
    call = getattr(client, method)
    wanted = [name for name in inspect.signature(call).parameters if name != "self"]
    assert re.findall(r"^    (\w+): ", inspect.getdoc(call) or "", re.MULTILINE) == wanted
