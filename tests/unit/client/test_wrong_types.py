"""An argument of a wrong type is an ``InvalidType``, wherever it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import pulsarish
import pulsarish.schema
from pulsarish.client.api.metering import export_metrics
from pulsarish.client.api.service_source import checked_info
from pulsarish.client.api.tracing import Tracing
from pulsarish.client.messages.options import ClientOptions, ProducerOptions, make_extras

WRONG: Any = 5
HERE = pulsarish.ServiceInfo("pulsar://a")
URL_WITH_PASSWORD: Any = "pulsar://user:hunter2@host"

CALLS: dict[str, Callable[[], object]] = {
    "authentication": lambda: ClientOptions("pulsar://a", WRONG),
    "operation_timeout_seconds": lambda: ClientOptions("pulsar://a", None, cast("Any", "30")),
    "io_threads": lambda: ClientOptions("pulsar://a", io_threads=cast("Any", "4")),
    "logger": lambda: ClientOptions("pulsar://a", logger=WRONG),
    "transport": lambda: ClientOptions("pulsar://a", transport=WRONG),
    "tracer_provider": lambda: Tracing(WRONG, lambda: 0),
    "meter_provider": lambda: export_metrics(None, WRONG),
    "authentication of a cluster": lambda: pulsarish.ServiceInfo("pulsar://a", WRONG),
    "primary": lambda: pulsarish.AutoClusterFailover(WRONG, [HERE]),
    "secondary": lambda: pulsarish.AutoClusterFailover(HERE, WRONG),
    "one of secondary": lambda: pulsarish.AutoClusterFailover(HERE, [HERE, WRONG]),
    "what a provider gave": lambda: checked_info(WRONG),
    "encryption_key": lambda: ProducerOptions("t", encryption_key=WRONG),
    "priority": lambda: make_extras(*[None] * 7, cast("Any", "high"), lambda: 0),
    "token": lambda: pulsarish.AuthenticationToken(WRONG),
    "username": lambda: pulsarish.AuthenticationBasic(WRONG, "p"),
    "certificate": lambda: pulsarish.AuthenticationTLS(WRONG, "k"),
    "auth_params_string": lambda: pulsarish.AuthenticationOauth2(WRONG),
    "log_level": lambda: pulsarish.ConsoleLogger(WRONG),
    "log_file": lambda: pulsarish.FileLogger(pulsarish.LoggerLevel.Info, WRONG),
    "public_key_path": lambda: pulsarish.CryptoKeyReader(WRONG, "k"),
    "schema_definition": lambda: pulsarish.AvroSchema(None, WRONG),
    "record_cls of Avro": lambda: pulsarish.AvroSchema(int),
    "record_cls of JSON": lambda: pulsarish.JsonSchema(WRONG),
    "record_cls of protobuf": lambda: pulsarish.schema.ProtobufNativeSchema(WRONG),
    "encoding": lambda: pulsarish.schema.KeyValueSchema(
        pulsarish.StringSchema(), pulsarish.StringSchema(), WRONG
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_wrong_type_is_one_for_python_too(call: Callable[[], object]) -> None:
    with pytest.raises(pulsarish.InvalidType):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: pulsarish.AutoClusterFailover(URL_WITH_PASSWORD, [HERE]),
        lambda: pulsarish.AutoClusterFailover(HERE, URL_WITH_PASSWORD),
        lambda: pulsarish.AutoClusterFailover(HERE, [URL_WITH_PASSWORD]),
        lambda: checked_info(URL_WITH_PASSWORD),
        lambda: ClientOptions("pulsar://a", URL_WITH_PASSWORD),
    ],
)
def test_what_may_hold_a_password_is_not_shown(call: Callable[[], object]) -> None:
    with pytest.raises(pulsarish.InvalidType, match="of type str: pass") as raised:
        call()
    assert "hunter2" not in str(raised.value)
