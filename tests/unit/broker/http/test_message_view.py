"""Headers of a message for an operator: whatever its producer wrote, they are valid headers."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.broker.http.message_view import MessageView, message_in
from pulsarish.wire._pb.message_pb2 import KeyValue, MessageMetadata
from pulsarish.wire.entry import encode_entry


def headers_of(key: str, properties: dict[str, str]) -> dict[str, str]:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key=key)
    metadata.properties.extend(
        KeyValue(key=name, value=value) for name, value in properties.items()
    )
    found = message_in(encode_entry(metadata, b"x"), 0)
    assert isinstance(found, MessageView)
    return found.headers


@pytest.mark.parametrize(
    "key", ["\x0b", "a\r\nSet-Cookie: b", " edge ", "\x7f\x80\x9b", "\u202e", "ключ", "\t"]
)
def test_any_key_fits_in_a_header(key: str) -> None:
    headers = headers_of(key, {key: key})
    h11.Response(status_code=200, headers=list(headers.items()))


@given(st.text(min_size=1))
def test_no_key_is_refused_by_the_server(key: str) -> None:
    h11.Response(status_code=200, headers=list(headers_of(key, {}).items()))
