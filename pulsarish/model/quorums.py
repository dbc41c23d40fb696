"""Quorums that are allowed but risky. Imports nothing, because admin commands use it too."""

from __future__ import annotations

__all__ = ["weak_quorum"]


def weak_quorum(write_quorum: int, ack_quorum: int) -> str:
    """Return what allowed quorums put at risk; empty when they keep all that quorums promise."""
    if ack_quorum > 1 and 2 * ack_quorum >= write_quorum + 1:
        return ""
    if ack_quorum == 1:
        risk = (
            "an acknowledged entry may lie on one bookie alone, and the loss of that bookie "
            "loses it, which cannot be repaired afterwards"
        )
    else:
        risk = (
            "less than half of the copies are confirmed: two clients cut off from each other "
            "cannot be told apart by a majority, and that"
            " cannot be repaired afterwards"
        )
    return (
        f"write_quorum {write_quorum} with ack_quorum {ack_quorum}: {risk}; "
        f"{_what_dead_bookies_stop(ack_quorum)}"
    )


def _what_dead_bookies_stop(ack_quorum: int) -> str:
    dead = (
        "one dead bookie stops writes"
        if ack_quorum == 1
        else f"{ack_quorum} dead bookies stop writes"
    )
    return (
        f"{dead} once another broker has to take a topic over, because too few members can "
        "confirm where its ledger ends"
    )
