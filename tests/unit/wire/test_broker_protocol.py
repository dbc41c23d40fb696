"""The own protocol between programs of different versions: each ignores what it does not know."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pulsarish.wire._pb import broker_pb2 as pb

_NEW = ("credentials", "ask_credentials")


def older(name: str) -> Any:
    """Return a message class as it was before clients showed new credentials on open streams."""
    file = descriptor_pb2.FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    for message in file.message_type:
        kept = [field for field in message.field if field.name not in _NEW]
        del message.field[:]
        message.field.extend(kept)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"pulsarish.broker.{name}"))


@pytest.mark.parametrize(
    "message",
    [
        pb.PublishResponse(answered=3, heartbeat=True, ask_credentials=True),
        pb.ConsumeResponse(counted=True, entries=b"e", ask_credentials=True),
        pb.PublishRequest(heartbeat=True, credentials=pb.Credentials(method="token", data=b"t")),
        pb.ConsumeRequest(taken=5, credentials=pb.Credentials(method="token", data=b"t")),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_older_program_reads_the_rest_of_a_message_with_credentials(message: Any) -> None:
    known = older(type(message).__name__).FromString(message.SerializeToString())
    expected = type(message).FromString(message.SerializeToString())
    for name in _NEW:
        assert name not in known.DESCRIPTOR.fields_by_name
        if name in expected.DESCRIPTOR.fields_by_name:
            expected.ClearField(name)
    known.DiscardUnknownFields()
    assert known.SerializeToString() == expected.SerializeToString()


@pytest.mark.parametrize("name", ["PublishResponse", "ConsumeResponse"])
def test_an_older_broker_asks_for_no_credentials(name: str) -> None:
    said = older(name)(heartbeat=True).SerializeToString()
    assert getattr(pb, name).FromString(said).ask_credentials is False


@pytest.mark.parametrize("name", ["PublishRequest", "ConsumeRequest"])
def test_an_older_client_shows_none(name: str) -> None:
    said = older(name)(heartbeat=True).SerializeToString()
    assert not getattr(pb, name).FromString(said).HasField("credentials")
