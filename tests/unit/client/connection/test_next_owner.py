"""Where a client goes whose topic moves to a broker that is named."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.client.connection.lookup import Lookup, LookupLimits
from pulsarish.wire._pb import broker_pb2 as pb

MOVED = pb.BrokerAddresses(
    address="b2:6660",
    framed_address="framed:b2:6661",
    address_tls="tls:b2:6662",
    framed_address_tls="framed:tls:b2:6663",
)


class Book:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.put_in: list[tuple[str, str, str]] = []

    def put(self, name: str, address: str, framed: str) -> None:
        self.put_in.append((name, address, framed))


@pytest.mark.parametrize(
    ("listener", "former", "moved_to", "address", "framed"),
    [
        ("", "b1:6660", MOVED, "b2:6660", "framed:b2:6661"),
        ("", "tls:b1:6662", MOVED, "tls:b2:6662", "framed:tls:b2:6663"),
        ("", "tls:b1:6662", pb.BrokerAddresses(address="b2:6660"), "", ""),
        ("", "b1:6660", pb.BrokerAddresses(), "", ""),
        ("external", "b1:6660", MOVED, "", ""),
    ],
)
def test_the_next_owner_is_reached_as_the_former_one(
    listener: str, former: str, moved_to: pb.BrokerAddresses, address: str, framed: str
) -> None:
    book: Any = Book()
    unused: Any = None
    lookup = Lookup(
        ["b1:6660"],
        unused,
        unused,
        listener=listener,
        limits=LookupLimits(),
        book=book,
        clock=unused,
    )
    assert lookup.next_owner(moved_to, former) == address
    assert book.put_in == ([(address, address, framed)] if address else [])
