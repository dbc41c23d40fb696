"""A client sees errors of its topic, never of the ledgers below it."""

from __future__ import annotations

from collections import deque

import pytest

from pulsarish.broker.clients.client_errors import to_client_error
from pulsarish.broker.clients.commands import Outcome
from pulsarish.broker.sessions.grpc_codec import encode_publish
from pulsarish.model.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
    NotAllowedError,
    PulsarishError,
    ServiceNotReady,
    TopicFenced,
)
from pulsarish.wire._pb import broker_pb2 as pb


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        (LedgerFenced("ledger 7"), TopicFenced),
        (LedgerClosed("ledger 7"), TopicFenced),
        (NoSuchLedger("ledger 7"), ServiceNotReady),
    ],
)
def test_what_may_pass_is_tried_again(error: PulsarishError, heard: type[PulsarishError]) -> None:
    known = to_client_error(error)
    assert type(known) is heard
    assert known.retryable
    assert "ledger 7" in str(known)
    message = pb.PublishResponse.FromString(
        encode_publish(deque([Outcome(3, error)]), 0, heartbeat=False)
    )
    assert [outcome.code for outcome in message.outcomes] == [heard.code]


def test_everything_else_is_told_as_it_is() -> None:
    error = NotAllowedError("no")
    assert to_client_error(error) is error
