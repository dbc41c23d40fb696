"""Ctrl-C while the blocking client waits."""

from __future__ import annotations

import signal
import threading

import pytest

from pulsarish import ConsumerBatchReceivePolicy, InitialPosition
from pulsarish.testing import LocalServer


def test_an_interrupted_batch_comes_with_the_next_call() -> None:
    with LocalServer() as server, server.client() as client:
        producer = client.create_producer("interrupted")
        for number in range(3):
            producer.send(b"%d" % number)
        consumer = client.subscribe(
            "interrupted",
            "s",
            initial_position=InitialPosition.Earliest,
            batch_receive_policy=ConsumerBatchReceivePolicy(10, -1, -1),
        )
        first = consumer.receive(60_000)  # the others are there, too
        taken = threading.Event()
        take = consumer._inbox.take

        def counted() -> object:
            found = take()
            if found is None:
                taken.set()  # the batch has all and waits for more
            return found

        consumer._inbox.take = counted  # type: ignore[method-assign,assignment]

        def interrupt() -> None:
            assert taken.wait(60)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        # Processes that run tests side by side ignore the signal.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                consumer.batch_receive()
        finally:
            signal.signal(signal.SIGINT, before)
        assert first.data() == b"0"
        assert [consumer.receive(60_000).data() for _ in range(2)] == [b"1", b"2"]
