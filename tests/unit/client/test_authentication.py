"""What a client shows to brokers, and what it makes of a refusal, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import AuthenticationError
from pulsarish.runtime.client_authentication import Authentication, AuthenticationToken
from pulsarish.security.client_security import HttpScheme
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials, Secret
from tests.support.client_world import Cast, play

GOOD = Credentials("token", Secret("good"))


def only(good: Credentials) -> Callable[[Credentials, str], str]:
    return lambda shown, method: "" if shown == good else "this token is not valid; renew it"


class Renewed(Authentication):
    """Credentials that the scenario changes."""

    is_immediate = True
    http_scheme: HttpScheme = "Bearer"

    def __init__(self, token: str) -> None:
        self.provider = self
        self.token = token

    def credentials(self) -> Credentials:
        if not self.token:
            raise AuthenticationError("the token file is empty")
        return Credentials("token", Secret(self.token))


def test_every_lookup_and_stream_shows_the_credentials() -> None:
    async def scenario(cast: Cast) -> None:
        cast.broker.refusal = only(GOOD)
        client = cast.client(authentication=AuthenticationToken("good"))
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        producer = await client.create_producer("t")
        await producer.send(b"x")
        assert (await consumer.receive()).data() == b"x"
        assert set(cast.broker.shown) == {GOOD}
        plain = cast.client()
        with pytest.raises(AuthenticationError):
            await plain.create_producer("t")
        assert cast.broker.shown[-1] == NO_CREDENTIALS

    play(scenario)


def test_a_refusal_reaches_the_program_at_once() -> None:
    async def scenario(cast: Cast) -> None:
        for each in cast.brokers:
            each.refusal = only(GOOD)
        client = cast.client(authentication=AuthenticationToken("bad"))
        began = cast.world.clock.monotonic()
        with pytest.raises(AuthenticationError, match="not valid; renew it"):
            await client.create_producer("t")
        with pytest.raises(AuthenticationError, match="not valid; renew it"):
            await client.get_topic_partitions("t")
        assert cast.world.clock.monotonic() - began < 1

    play(scenario)


def test_a_refused_stream_reaches_the_program_at_once() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client(authentication=AuthenticationToken("bad"))
        cast.broker.refusal = lambda shown, method: "" if method == "broker.lookup" else "expired"
        began = cast.world.clock.monotonic()
        reason = r"broker broker1:6660 refuses the credentials: expired"
        with pytest.raises(AuthenticationError, match=reason):
            await client.create_producer("t")
        with pytest.raises(AuthenticationError, match=reason):
            await client.subscribe("t", "s")
        with pytest.raises(AuthenticationError, match=reason):
            await client.create_reader("t", MessageId.earliest)
        assert cast.world.clock.monotonic() - began < 1

    play(scenario)


def test_credentials_that_expire_are_renewed_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cast: Cast) -> None:
        for each in cast.brokers:
            each.refusal = only(GOOD)
        shown = Renewed("good")
        client = cast.client(authentication=shown)
        producer = await client.create_producer("t", batching_enabled=False, producer_name="p")
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        await producer.send(b"1")
        assert (await consumer.receive()).data() == b"1"

        caplog.clear()
        for each in cast.brokers:
            each.refusal = only(Credentials("token", Secret("new")))
        for session in list(cast.broker.sessions):
            session.stream.abort("AuthenticationError: the token has expired")
        sent = producer.send_soon(b"2")
        await cast.sleep(5)
        assert not sent.done()
        shown.token = "new"
        await sent
        assert [(await consumer.receive()).data() for _ in range(2)] == [b"1", b"2"]
        # The producer's and the consumer's, once each.
        warned = [each for each in caplog.records if each.levelname == "WARNING"]
        assert [each.getMessage().count("this token is not valid") for each in warned] == [1, 1]
        assert cast.broker.shown[-1].data == Secret("new")

    play(scenario, deduplication=True)


def test_a_provider_that_fails_is_named_at_once() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client(authentication=Renewed(""))
        for open_one in (client.create_producer("t"), client.subscribe("t", "s")):
            with pytest.raises(AuthenticationError, match="the token file is empty"):
                await open_one
        assert not cast.broker.shown

    play(scenario)


def test_a_provider_that_fails_for_a_ping_breaks_no_stream() -> None:
    async def scenario(cast: Cast) -> None:
        shown = Renewed("good")
        client = cast.client(authentication=shown)
        producer = await client.create_producer("t")
        sessions = list(cast.broker.sessions)
        cast.broker.hold_receipts = True
        sent = producer.send_soon(b"x")
        shown.token = ""
        await cast.sleep(10)
        assert cast.broker.sessions == sessions
        assert not sent.done()
        shown.token = "good"
        cast.broker.hold_receipts = False
        cast.broker.break_streams()
        await sent

    play(scenario, deduplication=False)
