"""Which address of a bookie is tried next."""

from __future__ import annotations

from pulsarish.runtime.network.address_book import AddressBook, Transport

GRPC, FRAMED = "10.0.0.1:3181", "framed:10.0.0.1:3182"


def book(transport: Transport = "auto", framed: str = FRAMED) -> AddressBook:
    made = AddressBook(transport)
    made.put("b1", GRPC, framed)
    return made


def test_frames_are_used_where_a_bookie_offers_them() -> None:
    assert book().route("b1") == FRAMED
    assert book(framed="").route("b1") == GRPC
    assert book().route("b2") is None


def test_a_bookie_is_known_by_its_registered_address() -> None:
    """A replaced machine has the address of its predecessor, and any framed port (rule 3)."""
    known = book()
    known.put("b2", GRPC, "framed:10.0.0.1:4000")
    assert known.get("b1") == known.get("b2") == GRPC
    assert known.get("b3") is None


def test_the_option_decides() -> None:
    assert book("grpc").route("b1") == GRPC
    assert book("framed").route("b1") == FRAMED
    assert book("framed", framed="").route("b1") is None


def test_grpc_is_tried_after_two_failures_and_frames_after_it() -> None:
    known = book()
    tried = []
    for _ in range(6):
        address = known.route("b1")
        assert address is not None
        tried.append(address)
        known.on_failed("b1", address)
    assert tried == [FRAMED, FRAMED, GRPC] * 2


def test_a_port_that_a_firewall_closes_is_left_alone_while_grpc_works() -> None:
    known = book()
    for _ in range(2):
        known.on_failed("b1", FRAMED)
    for _ in range(3):
        assert known.route("b1") == GRPC
        known.on_reached("b1", GRPC)


def test_one_failure_between_successes_changes_nothing() -> None:
    known = book()
    for _ in range(3):
        known.on_failed("b1", FRAMED)
        known.on_reached("b1", FRAMED)
    assert known.route("b1") == FRAMED


def test_a_bookie_that_registers_another_address_begins_again() -> None:
    known = book()
    for _ in range(2):
        known.on_failed("b1", FRAMED)
    known.put("b1", GRPC, FRAMED)  # the same registration, read again
    assert known.route("b1") == GRPC
    known.put("b1", GRPC, "framed:10.0.0.1:4000")
    assert known.route("b1") == "framed:10.0.0.1:4000"


def test_with_frames_only_grpc_is_never_tried() -> None:
    known = book("framed")
    for _ in range(5):
        known.on_failed("b1", FRAMED)
    assert known.route("b1") == FRAMED
