"""What a client of the metadata daemon may do before it has logged in: shake hands, ping, log in
and leave, for as long as any peer is waited for.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pulsarish.metadata.access import MetadataAccess
from pulsarish.metadata.connect import connect
from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.metadata.daemon.zkwire import ErrorCode, OpCode
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.seams import MetadataStore
from pulsarish.security.credentials import Secret
from pulsarish.security.metadata_login import identity_of
from tests.support.metadata_daemons import with_daemon
from tests.support.metadata_servers import LOGIN, login_file
from tests.support.metadata_stores import production
from tests.support.zk_client import Gone, RawClient, acl, create, multi_body, text

LONG_SECONDS = 20.0
NEED_NO_LOGIN = (OpCode.PING, OpCode.AUTH, OpCode.CLOSE)
VERSION = struct.pack(">i", -1)
BODIES = {
    OpCode.CREATE: create("/mine"),
    OpCode.CREATE2: create("/mine"),
    OpCode.DELETE: text("/kept") + VERSION,
    OpCode.EXISTS: text("/kept") + b"\1",
    OpCode.GET_DATA: text("/kept") + b"\1",
    OpCode.SET_DATA: text("/kept") + text("x") + VERSION,
    OpCode.GET_ACL: text("/kept"),
    OpCode.SET_ACL: text("/kept") + acl() + VERSION,
    OpCode.GET_CHILDREN: text("/") + b"\1",
    OpCode.GET_CHILDREN2: text("/") + b"\1",
    OpCode.SYNC: text("/"),
    OpCode.CHECK: text("/kept") + VERSION,
    OpCode.MULTI: multi_body([(OpCode.CREATE, create("/mine"))]),
    OpCode.SET_WATCHES: struct.pack(">q", 0) + (struct.pack(">i", 1) + text("/kept")) * 3,
    OpCode.SET_WATCHES2: struct.pack(">q", 0) + (struct.pack(">i", 1) + text("/kept")) * 5,
}


def with_login(
    tmp_path: Path, scenario: Callable[[MetadataDaemon, str], Awaitable[None]], **options: object
) -> None:
    path = login_file(tmp_path / "metadata.auth", LOGIN)
    with_daemon(scenario, **{"auth_file": path, **options})


def login(value: str = LOGIN, scheme: str = "digest") -> bytes:
    return struct.pack(">i", 0) + text(scheme) + text(value)


def test_every_operation_is_known_here() -> None:
    assert set(BODIES) | set(NEED_NO_LOGIN) == set(OpCode)


def test_only_a_client_that_has_logged_in_is_served(tmp_path: Path) -> None:
    async def scenario(_: MetadataDaemon, address: str) -> None:
        owner = RawClient(address)
        await owner.connect()
        assert (await owner.request(OpCode.AUTH, login(), xid=-4)).error == ErrorCode.OK
        assert (await owner.request(OpCode.CREATE, create("/kept", b"kept"))).error == ErrorCode.OK
        for kind, body in BODIES.items():
            stranger = RawClient(address)
            await stranger.connect()
            assert (await stranger.request(OpCode.PING, xid=-2)).error == ErrorCode.OK
            refused = await stranger.request(kind, body)
            assert (refused.error, refused.body) == (ErrorCode.NO_AUTH, b""), kind
            with pytest.raises(Gone):
                await stranger.request(OpCode.PING, xid=-2)
            stranger.abort()
        for wrong in (login("pulsarish:wrong"), login(LOGIN[:-1]), login(""), login(LOGIN, "ip")):
            stranger = RawClient(address)
            await stranger.connect()
            refused = await stranger.request(OpCode.AUTH, wrong, xid=-4)
            assert refused.error == ErrorCode.AUTH_FAILED
            with pytest.raises(Gone):
                await stranger.request(OpCode.GET_DATA, text("/kept") + b"\0")
            stranger.abort()
        # A session that comes back on another connection must log in there again.
        assert await owner.reattach()
        refused = await owner.request(OpCode.GET_DATA, text("/kept") + b"\0")
        assert refused.error == ErrorCode.NO_AUTH
        assert await owner.reattach()
        assert (await owner.request(OpCode.AUTH, login(), xid=-4)).error == ErrorCode.OK
        found = await owner.request(OpCode.GET_CHILDREN, text("/") + b"\0")
        assert b"kept" in found.body
        assert b"mine" not in found.body
        ours, other = identity_of(Secret(LOGIN)), identity_of(Secret("pulsarish:wrong"))
        for who, perms, answer in (
            (ours, 31, ErrorCode.OK),
            (ours, 1, ErrorCode.INVALID_ACL),
            (other, 31, ErrorCode.INVALID_ACL),
        ):
            head = create("/listed")[: -len(acl()) - 4]
            listed = head + acl(perms, "digest", who) + struct.pack(">i", 0)
            assert (await owner.request(OpCode.CREATE, listed)).error == answer
        owner.abort()

    with_login(tmp_path, scenario)


def test_a_client_that_does_not_log_in_is_not_kept(tmp_path: Path) -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        loop = asyncio.get_running_loop()
        stranger, owner = RawClient(address), RawClient(address)
        await owner.connect()
        assert (await owner.request(OpCode.AUTH, login(), xid=-4)).error == ErrorCode.OK
        await stranger.connect()
        began = loop.time()
        with pytest.raises(Gone):
            while loop.time() - began < LONG_SECONDS:
                await stranger.request(OpCode.PING, xid=-2)
                await asyncio.sleep(0.02)
        stranger.abort()
        assert daemon.limits.deadlines.late_count == 1
        assert (await owner.request(OpCode.PING, xid=-2)).error == ErrorCode.OK
        owner.abort()

    with_login(tmp_path, scenario, peer_timeout_ms=500)


def test_clients_without_login_make_room_for_members(tmp_path: Path) -> None:
    async def scenario(_: MetadataDaemon, address: str) -> None:
        owner = RawClient(address)
        await owner.connect()
        assert (await owner.request(OpCode.AUTH, login(), xid=-4)).error == ErrorCode.OK
        strangers = [RawClient(address) for _ in range(4)]
        for stranger in strangers:
            await stranger.connect()
        assert (await owner.request(OpCode.PING, xid=-2)).error == ErrorCode.OK
        with pytest.raises(Gone):
            await strangers[0].request(OpCode.PING, xid=-2)
        for client in (owner, *strangers):
            client.abort()

    with_login(tmp_path, scenario, connections_max=3)


async def speak(address: str, word: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(word)
    try:
        return await reader.read()
    finally:
        writer.close()


def test_words_that_tell_something_are_for_this_machine(tmp_path: Path) -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        for word, told in ((b"ruok", b"imok"), (b"srvr", b"Mode:"), (b"mntr", b"zk_znode_count")):
            assert told in await speak(address, word)
        remote = "192.0.2.1"
        for word in (b"srvr", b"mntr", b"envi"):
            refused = f"{word.decode()} is not executed because it is not in the whitelist.\n"
            assert daemon.answer_word(word, remote) == refused
            assert "whitelist" not in (daemon.answer_word(word, "::ffff:127.0.0.1") or "")
        assert daemon.answer_word(b"ruok", remote) == "imok"
        assert daemon.answer_word(b"none", remote) is None

    async def open_to_all(daemon: MetadataDaemon, _: str) -> None:
        assert "Mode:" in (daemon.answer_word(b"srvr", "192.0.2.1") or "")

    with_login(tmp_path, scenario)
    with_daemon(open_to_all)


def test_an_address_that_guesses_is_not_listened_to_for_a_while(tmp_path: Path) -> None:
    async def shown(address: str, login_body: bytes) -> int | None:
        """Return the answer to a login, or None when there is none."""
        client = RawClient(address)
        try:
            await client.connect()
            return (await client.request(OpCode.AUTH, login_body, xid=-4)).error
        except Gone:
            return None
        finally:
            client.abort()

    async def scenario(_: MetadataDaemon, address: str) -> None:
        assert await shown(address, login()) == ErrorCode.OK
        for number in range(3):
            guess = login(f"pulsarish:guess{number}")
            assert await shown(address, guess) == ErrorCode.AUTH_FAILED
        # The fourth is not checked. What was good lately still is: members share the address.
        assert await shown(address, login("pulsarish:guess4")) is None
        assert await shown(address, login("other:right")) is None
        assert await shown(address, login()) == ErrorCode.OK
        assert await speak(address, b"ruok") == b"imok"

    path = login_file(tmp_path / "metadata.auth", LOGIN, "other:right")
    with_daemon(scenario, auth_file=path, authentication_failures_max=3)


def test_a_member_waits_until_its_login_is_checked(tmp_path: Path) -> None:
    async def scenario(_: MetadataDaemon, address: str) -> None:
        async def start(line: str) -> MetadataStore:
            path = login_file(tmp_path / "member.auth", line)
            return await connect(
                f"zk://{address}",
                clock=node.clock,
                tasks=node.tasks,
                rng=node.random,
                files=node.files,
                open_index=node.open_index,
                access=MetadataAccess(path),
            )

        node = production()
        try:
            with pytest.raises(ConfigError, match="does not accept this login"):
                await start("pulsarish:wrong")
            await (await start(LOGIN)).close()
        finally:
            await node.close()

    limits = {"authentication_failures_max": 1, "authentication_failures_window_seconds": 1.0}
    with_login(tmp_path, scenario, **limits)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"listen_address": ""}, "needs one of them"),
        ({"listen_address_tls": "127.0.0.1:0"}, "set tls_certificate_file_path"),
        ({"tls_certificate_file_path": "a", "tls_key_file_path": "b"}, "set listen_address_tls"),
        ({"tls_cluster_name": "prod"}, "needs the certificates of clients"),
        ({"auth_optional": True}, "nothing without auth_file"),
        (
            {
                "listen_address_tls": "127.0.0.1:0",
                "tls_certificate_file_path": "a",
                "tls_key_file_path": "b",
                "tls_require_trusted_client_cert_on_connect": True,
            },
            "neither certificate nor login",
        ),
    ],
)
def test_options_that_would_protect_nothing_are_refused(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        MetadataConfig(**options).validate()  # type: ignore[arg-type]
