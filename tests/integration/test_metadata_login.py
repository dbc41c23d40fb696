"""TLS and logins between members and metadata servers: the daemon and the real ZooKeeper, each as a
process, and who is refused by them.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import OPEN_ACL_UNSAFE

from pulsarish.metadata.access import NO_ACCESS, MetadataAccess
from pulsarish.metadata.connect import connect
from pulsarish.model.errors import ConfigError, MetadataUnavailable
from pulsarish.runtime.seams import MetadataStore, Op
from pulsarish.security.tls import TlsClientConfig
from tests.support.certificates import Certificates
from tests.support.commands import run_command
from tests.support.metadata_servers import (
    LOGIN,
    STARTS,
    Server,
    daemon,
    login_file,
    plain_kazoo,
    zookeeper,
)
from tests.support.metadata_stores import production
from tests.support.until import until
from tests.support.worlds import run_in_production_loop

pytestmark = pytest.mark.xdist_group("metadata-login")

Work = Callable[[MetadataStore], Coroutine[Any, Any, None]]
_REFUSED = (NoAuthError, ConnectionLoss, ConnectionClosedError, SessionExpiredError)
"""What kazoo raises for a refusal, and when the server has closed the connection after one."""


@pytest.fixture(scope="module", params=list(STARTS))
def server(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp(request.param)
    with STARTS[request.param](directory, Certificates(directory)) as running:
        yield running


def in_store(
    url: str, access: MetadataAccess, work: Work | None = None, *, seconds: float = 60.0
) -> None:
    """Run ``work`` with a store, as a member of the cluster has it."""

    async def run() -> None:
        node = production()
        try:
            store = await connect(
                url,
                clock=node.clock,
                tasks=node.tasks,
                rng=node.random,
                files=node.files,
                open_index=node.open_index,
                connect_timeout_seconds=seconds,
                access=access,
            )
            if work is not None:
                await work(store)
            await store.close()
        finally:
            await node.close()

    run_in_production_loop(run)


def member(server: Server, login: str = LOGIN) -> MetadataAccess:
    path = login_file(server.made.directory / f"{hash(login)}.auth", login)
    return MetadataAccess(path, tls=server.made.client_config("member"))


def test_a_member_works_over_tls(server: Server) -> None:
    big = bytes(range(256)) * 2_000
    changed = asyncio.Event()

    async def work(store: MetadataStore) -> None:
        await store.commit([Op("create", "/work")])
        await store.commit([Op("create", "/work/big", big), Op("create", "/work/small", b"s")])
        found = await store.get_many(["/work/big"] * 8 + ["/work/small"])
        assert [None if each is None else each.data for each in found] == [big] * 8 + [b"s"]
        for start in range(0, 3_000, 1_000):
            ops = [Op("create", f"/work/{start + n:05}-{'x' * 40}") for n in range(1_000)]
            await store.commit(ops)
        assert len(await store.children("/work")) == 3_002
        await store.get_many(["/work/small"], watch=lambda _: changed.set())
        await store.commit([Op("put", "/work/small", b"t", 0)])
        await asyncio.wait_for(changed.wait(), 30)
        await asyncio.gather(*(store.get_many(["/work/small"]) for _ in range(2_000)))
        await store.sync("/")

    in_store(f"zk+ssl://{server.secured}/tls", member(server), work)


def test_a_stranger_gets_nothing(server: Server) -> None:
    async def work(store: MetadataStore) -> None:
        await store.commit([Op("create", "/secret", b"secret"), Op("create", "/other", b"x")])

    in_store(f"zk://{server.plain}/closed", member(server), work)
    attempts: list[Callable[[Any], object]] = [
        lambda client: client.get("/closed"),
        lambda client: client.get("/closed/secret"),
        lambda client: client.get_children("/closed"),
        lambda client: client.set("/closed/secret", b"mine"),
        lambda client: client.create("/closed/mine"),
        lambda client: client.delete("/closed/other"),
        lambda client: client.set_acls("/closed/secret", OPEN_ACL_UNSAFE),
        lambda client: client.get("/closed/secret", watch=print),
    ]
    for attempt in attempts:
        for logins in ((), ("pulsarish:wrong",)):
            try:
                with plain_kazoo(server.plain, *logins) as client, pytest.raises(_REFUSED):
                    attempt(client)
            except (AuthFailedError, KazooTimeoutError):
                assert logins  # a wrong login is refused by the daemon before any request

    async def unchanged(store: MetadataStore) -> None:
        assert await store.children("/") == ["other", "secret"]
        (found,) = await store.get_many(["/secret"])
        assert found is not None
        assert found.data == b"secret"
        assert found.version == 0

    in_store(f"zk://{server.plain}/closed", member(server), unchanged)


def test_zookeeper_keeps_the_access_lists(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    new = "pulsarish:another-correct-horse"
    with zookeeper(tmp_path, made) as running:
        url = f"zk://{running.plain}/listed"

        async def make(store: MetadataStore) -> None:
            await store.commit([Op("create", "/a"), Op("create_ephemeral", "/a/b")])
            (entry,) = await asyncio.to_thread(access_list, running, "/listed/a/b")
            assert entry.startswith("31 digest pulsarish:")
            assert "horse" not in entry

        def protect(path: str, *options: str) -> None:
            done = run_command(
                {}, "metadata", "protect", url, "--metadata-auth-file", path, *options
            )
            assert done.exit_code == 0, done.output
            assert "2 nodes" in done.output  # the root and /a: the ephemeral one has ended

        in_store(url, member(running), make)
        old = member(running).auth_file
        # Both, then the new one alone: the steps of docs/security.md.
        protect(login_file(tmp_path / "both.auth", LOGIN, new))
        assert len(access_list(running, "/listed/a")) == 2
        in_store(url, member(running))
        in_store(url, member(running, new))
        protect(login_file(tmp_path / "new.auth", new))
        assert len(access_list(running, "/listed/a", new)) == 1
        in_store(url, member(running, new))
        with pytest.raises(ConfigError, match=old):
            in_store(url, member(running))
        # And a tree that everyone may use, as it was made before there was a login.
        protect(str(tmp_path / "new.auth"), "--open")
        assert access_list(running, "/listed/a") == ["31 world anyone"]
        in_store(url, NO_ACCESS)
        protect(old)
        with plain_kazoo(running.plain) as client, pytest.raises(NoAuthError):
            client.get("/listed/a")
        made_open = MetadataAccess(old, makes_open_nodes=True)

        async def make_open(store: MetadataStore) -> None:
            await store.commit([Op("create", "/a/open")])

        in_store(url, made_open, make_open)
        assert access_list(running, "/listed/a/open") == ["31 world anyone"]


def access_list(running: Server, path: str, login: str = LOGIN) -> list[str]:
    with plain_kazoo(running.plain, login) as client:
        return [f"{e.perms} {e.id.scheme} {e.id.id}" for e in client.get_acls(path)[0]]


def test_what_is_refused_names_the_option_and_the_file(server: Server, tmp_path: Path) -> None:
    in_store(f"zk://{server.plain}/named", member(server))
    wrong = member(server, "pulsarish:wrong")
    for access, said in (
        (wrong, ("metadata_auth_file", wrong.auth_file)),
        (NO_ACCESS, ("metadata_auth_file", "empty")),
    ):
        with pytest.raises(ConfigError) as refused:
            in_store(f"zk://{server.plain}/named", access)
        assert all(word in str(refused.value) for word in said), refused.value
    (tmp_path / "other").mkdir()
    stranger = Certificates(tmp_path / "other", "another authority")
    good = member(server)
    for tls, said in (
        (stranger.client_config(""), ("tls_trust_certs_file_path", stranger.trust)),
        (
            TlsClientConfig(server.made.trust, *stranger.issue("stranger")),
            ("tls_certificate_file_path", str(tmp_path / "other" / "stranger.pem")),
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            in_store(f"zk+ssl://{server.secured}/named", MetadataAccess(good.auth_file, tls=tls))
        assert all(word in str(refused.value) for word in said), refused.value
    with pytest.raises(ConfigError, match="speaks no TLS at this port"):
        in_store(f"zk+ssl://{server.plain}/named", good)
    with pytest.raises(MetadataUnavailable, match="the last attempt"):
        in_store(f"zk://{server.secured}/named", good, seconds=3)


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    certificate, key = made.issue("elsewhere", hosts=("elsewhere.example",))
    settings = {"tls_certificate_file_path": certificate, "tls_key_file_path": key}
    with (
        daemon(tmp_path, made, **settings) as running,
        pytest.raises(ConfigError, match=r"127\.0\.0\.1.*metadata_url has to name"),
    ):
        in_store(f"zk+ssl://{running.secured}/", member(running))


def test_only_members_certificates_are_served(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    settings = {
        "listen_address": "",
        "auth_file": "",
        "tls_require_trusted_client_cert_on_connect": "true",
        "tls_cluster_name": "prod",
    }
    with daemon(tmp_path, made, **settings) as running:
        url = f"zk+ssl://{running.secured}/"
        ours = made.issue("b1", uris=("pulsarish://prod/bookie/b1",), is_server=False)
        in_store(url, MetadataAccess(tls=TlsClientConfig(made.trust, *ours)))
        for name in ("orders", ""):
            with pytest.raises(ConfigError, match="tls_certificate_file_path"):
                in_store(url, MetadataAccess(tls=made.client_config(name)))


def test_a_changed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    with daemon(tmp_path, made) as running:
        url = f"zk+ssl://{running.secured}/"
        in_store(url, member(running))
        (tmp_path / "new").mkdir()
        newer = Certificates(tmp_path / "new", "new authority")
        for new, old in zip(newer.issue("metadata"), ("metadata.pem", "metadata.key"), strict=True):
            (tmp_path / old).write_bytes(Path(new).read_bytes())

        def is_new() -> bool:
            try:
                in_store(
                    url, MetadataAccess(member(running).auth_file, tls=newer.client_config(""))
                )
            except ConfigError:
                return False
            return True

        until("the new certificate is shown", is_new)


def is_taken(url: str, path: str) -> bool:
    """Whether a process with this file of logins gets in."""
    code = (
        "import sys\n"
        "from tests.integration.test_metadata_login import in_store\n"
        "from pulsarish.metadata.access import MetadataAccess\n"
        "from pulsarish.model.errors import ConfigError\n"
        f"try: in_store({url!r}, MetadataAccess({path!r}))\n"
        "except ConfigError: sys.exit(3)\n"
    )
    status = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=120, stderr=subprocess.DEVNULL
    ).returncode
    assert status in (0, 3)
    return status == 0


def test_a_password_is_replaced_while_members_work(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    logins = tmp_path / "metadata.auth"
    new = "pulsarish:another-correct-horse"
    with daemon(tmp_path, made) as running:
        url = f"zk://{running.plain}/rotated"
        worked: list[int] = []

        async def work(store: MetadataStore) -> None:
            await store.commit([Op("create", "/count", b"0")])

            async def steps() -> None:
                def may_come(login: str) -> bool:
                    return is_taken(url, login_file(tmp_path / "newcomer.auth", login))

                assert not await asyncio.to_thread(may_come, new)
                login_file(logins, LOGIN, new)
                await asyncio.to_thread(until, "the new one is taken", lambda: may_come(new))
                assert await asyncio.to_thread(may_come, LOGIN)
                login_file(logins, new)
                await asyncio.to_thread(
                    until, "the old one is refused", lambda: not may_come(LOGIN)
                )
                assert await asyncio.to_thread(may_come, new)

            done = asyncio.ensure_future(steps())
            while not done.done():
                worked.extend(await store.commit([Op("put", "/count", b"1")]))  # type: ignore[arg-type]
                await asyncio.sleep(0.05)
            await done

        in_store(url, member(running), work)
        assert len(worked) > 10


def test_a_tree_without_logins_gets_them_step_by_step(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    login = MetadataAccess(login_file(tmp_path / "member.auth", LOGIN))

    async def look(store: MetadataStore) -> None:
        (found,) = await store.get_many(["/old"])
        assert found is not None
        assert found.data == b"old"

    async def make(store: MetadataStore) -> None:
        await store.commit([Op("create", "/old", b"old")])

    with daemon(tmp_path, made, auth_file="") as running:
        url = f"zk://{running.plain}/tree"
        in_store(url, NO_ACCESS, make)
        with pytest.raises(ConfigError, match="set auth_file of the metadata daemon"):
            in_store(url, login)
    with daemon(tmp_path, made, auth_optional="true") as running:
        url = f"zk://{running.plain}/tree"
        in_store(url, NO_ACCESS, look)
        in_store(url, login, look)
        with pytest.raises(ConfigError, match="does not accept this login"):
            in_store(url, member(running, "pulsarish:wrong"))
    with daemon(tmp_path, made) as running:
        url = f"zk://{running.plain}/tree"
        in_store(url, login, look)
        with pytest.raises(ConfigError, match="metadata_auth_file is empty"):
            in_store(url, NO_ACCESS)


def bookie(home: Path, url: str, **settings: str) -> subprocess.Popen[str]:
    options = {
        "bookie_id": "b1",
        "metadata_url": url,
        "listen_address": "127.0.0.1:0",
        "http_address": "127.0.0.1:0",
        "data_directory": f"{home}/bookie",
        **settings,
    }
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    return subprocess.Popen(
        [sys.executable, "-m", "pulsarish", "bookie", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_bookie_logs_in_over_tls_or_says_why_not(server: Server, tmp_path: Path) -> None:
    url = f"zk+ssl://{server.secured}/bookies"
    certificate, key = server.made.issue("b1")
    good = {
        "metadata_auth_file": member(server).auth_file,
        "metadata_tls_certificate_file_path": certificate,
        "metadata_tls_key_file_path": key,
        "metadata_tls_trust_certs_file_path": server.made.trust,
    }
    process = bookie(tmp_path, url, **good)
    try:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    wrong = login_file(tmp_path / "wrong.auth", "pulsarish:wrong")
    readable = tmp_path / "readable.auth"
    readable.write_text(LOGIN)
    readable.chmod(0o644)
    for settings, said in (
        ({"metadata_auth_file": wrong}, ("metadata_auth_file", wrong)),
        ({"metadata_auth_file": ""}, ("metadata_auth_file", "empty")),
        ({"metadata_auth_file": str(readable)}, ("metadata_auth_file", "chmod 600")),
        ({"metadata_auth_file": "/none"}, ("metadata_auth_file", "/none")),
        ({"metadata_tls_key_file_path": "/none"}, ("metadata_tls_key_file_path", "/none")),
        ({"metadata_url": f"zk://{server.plain}/bookies"}, ("metadata_tls_", "zk+ssl://")),
    ):
        process = bookie(tmp_path, url, **{**good, **settings})
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1, errors
        assert all(word in errors.splitlines()[-1] for word in said), errors
        assert "correct-horse" not in errors
        assert "Traceback" not in errors


def test_commands_log_in(server: Server, tmp_path: Path) -> None:
    url = f"zk+ssl://{server.secured}/commands"

    async def make(store: MetadataStore) -> None:
        await store.commit([Op("create", "/saved", b"{}")])

    in_store(url, member(server), make)
    certificate, key = server.made.issue("operator")
    environment = {
        "PULSARISH_METADATA_AUTH_FILE": member(server).auth_file,
        "PULSARISH_METADATA_TRUST_CERTS_FILE": server.made.trust,
        "PULSARISH_METADATA_CERT_FILE": certificate,
        "PULSARISH_METADATA_KEY_FILE": key,
    }
    saved = str(tmp_path / "saved.gz")
    done = run_command(environment, "metadata", "backup", url, saved)
    assert done.exit_code == 0, done.output
    assert "1 nodes" in done.output
    done = run_command(environment, "metadata", "diff", saved, url)
    assert (done.exit_code, "the trees are equal" in done.output) == (0, True), done.output
    del environment["PULSARISH_METADATA_AUTH_FILE"]
    done = run_command(environment, "metadata", "backup", url, saved + "2")
    assert done.exit_code != 0
    assert "--metadata-auth-file is empty" in done.output
