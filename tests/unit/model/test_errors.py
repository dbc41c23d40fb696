"""What an error says of itself on the faces of a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsarish.model.errors import ProducerQueueIsFull, PulsarishError

ASK_AGAIN = (307, 429, 503, 504)


def _below(base: type[PulsarishError]) -> Iterator[type[PulsarishError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _below(kind)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in _below(PulsarishError) if kind.retryable],
    ids=lambda kind: kind.__name__,
)
def test_what_may_be_tried_again_is_no_internal_error_over_http(kind: type[PulsarishError]) -> None:
    """Rule 20. A full queue of a producer is the client's own and crosses no face."""
    assert kind.http_status in ASK_AGAIN or kind is ProducerQueueIsFull
