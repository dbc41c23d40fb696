"""What the admin client shows to brokers, and to which: credentials, certificates, redirects."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from pulsarish.admin import Admin
from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectError,
    InvalidArgument,
    InvalidConfiguration,
    PulsarishError,
)
from pulsarish.runtime.client_authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
)
from tests.support.admin_server import AdminServer, admin_server

TOKEN = AuthenticationToken("a.b.c")
UNLOAD = "/admin/v2/persistent/public/default/t/unload"


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as found:
        yield found


class Tls:
    """An authority, its files, and the contexts of servers."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.trust_file = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.trust_file)
        mine = self.authority.issue_cert("me")
        self.certificate_file, self.key_file = str(folder / "me.pem"), str(folder / "me.key")
        mine.cert_chain_pems[0].write_to_path(self.certificate_file)
        mine.private_key_pem.write_to_path(self.key_file)

    def context(self, *, host: str = "localhost", asks: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(host).configure_cert(context)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            self.authority.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    ("authentication", "header"),
    [
        (None, None),
        (TOKEN, "Bearer a.b.c"),
        (AuthenticationToken(lambda: "x"), "Bearer x"),
        (AuthenticationBasic("u", "p:ü"), "Basic dTpwOsO8"),
        (AuthenticationBasic("u", "p", "other"), "Basic dTpw"),
    ],
)
def test_the_header_of_each_request(
    server: AdminServer, authentication: Authentication | None, header: str | None
) -> None:
    admin = Admin(server.url, authentication=authentication)
    admin.tenants.delete("t")
    admin.with_timeout(5).tenants.delete("t")
    assert server.authorizations == [header, header]


def test_a_token_file_is_read_for_each_request(server: AdminServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    admin = Admin(server.url, authentication=Authentication("token", f"file://{path}"))
    admin.tenants.delete("t")
    path.write_text("second\n")
    admin.tenants.delete("t")
    assert server.authorizations == ["Bearer first", "Bearer second"]
    path.unlink()
    with pytest.raises(AuthenticationError, match="token cannot be read"):
        admin.tenants.delete("t")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthenticationError), (403, AuthorizationError)]
)
def test_refusals(server: AdminServer, status: int, error: type[PulsarishError]) -> None:
    server.answer("DELETE /admin/v2/tenants/t", status, {"reason": "no such role"})
    with pytest.raises(error, match="no such role") as raised:
        Admin(server.url, authentication=TOKEN).tenants.delete("t")
    assert type(raised.value) is error


def test_credentials_follow_to_the_owner(server: AdminServer) -> None:
    with admin_server() as owner:
        server.answer(f"PUT {UNLOAD}", 307, None, {"Location": owner.url + UNLOAD})
        Admin(server.url, authentication=TOKEN).topics.unload("t")
        assert owner.authorizations == ["Bearer a.b.c"]


def test_no_redirect_leads_from_tls_to_plain_http(server: AdminServer, tls: Tls) -> None:
    with admin_server(tls.context()) as first:
        first.answer(f"PUT {UNLOAD}", 307, None, {"Location": server.url + UNLOAD})
        admin = Admin(first.url, authentication=TOKEN, tls_trust_certs_file_path=tls.trust_file)
        with pytest.raises(ConnectError, match=r"redirects PUT .* to http, which"):
            admin.topics.unload("t")
        assert not server.requests
        server.answer(f"PUT {UNLOAD}", 307, None, {"Location": first.url + UNLOAD})
        with pytest.raises(ConnectError, match=r"redirects PUT .* to https, which"):
            Admin(server.url, authentication=TOKEN).topics.unload("t")


def test_redirects_with_tls(tls: Tls) -> None:
    with admin_server(tls.context()) as first, admin_server(tls.context()) as owner:
        first.answer(f"PUT {UNLOAD}", 307, None, {"Location": owner.url + UNLOAD})
        admin = Admin(first.url, authentication=TOKEN, tls_trust_certs_file_path=tls.trust_file)
        admin.topics.unload("t")
        assert owner.authorizations == ["Bearer a.b.c"]


def test_a_certificate_that_is_not_trusted_gets_no_request(tls: Tls) -> None:
    with admin_server(tls.context()) as server, admin_server(tls.context(host="b1")) as other:
        with pytest.raises(ConnectError, match=r"certificate of https://localhost:.* is refused"):
            Admin(server.url, authentication=TOKEN).tenants.delete("t")
        with pytest.raises(ConnectError, match="is refused: Hostname mismatch"):
            Admin(
                other.url, authentication=TOKEN, tls_trust_certs_file_path=tls.trust_file
            ).tenants.delete("t")
        assert not server.requests + other.requests
        Admin(
            other.url, tls_trust_certs_file_path=tls.trust_file, tls_validate_hostname=False
        ).tenants.delete("t")
        Admin(other.url, tls_allow_insecure_connection=True).tenants.delete("t")
        assert len(other.requests) == 2


def test_a_client_certificate(tls: Tls) -> None:
    with admin_server(tls.context(asks=True)) as server:
        trust = tls.trust_file
        Admin(
            server.url,
            authentication=AuthenticationTLS(tls.certificate_file, tls.key_file),
            tls_trust_certs_file_path=trust,
        ).tenants.delete("t")
        Admin(
            server.url,
            tls_certificate_file_path=tls.certificate_file,
            tls_private_key_file_path=tls.key_file,
            tls_trust_certs_file_path=trust,
        ).tenants.delete("t")
        assert server.authorizations == [None, None]
        with pytest.raises(PulsarishError):
            Admin(server.url, tls_trust_certs_file_path=trust).tenants.delete("t")
        assert len(server.requests) == 2


def _swapped(tls: Tls) -> Admin:
    return Admin("https://h", authentication=AuthenticationTLS(tls.key_file, tls.certificate_file))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda tls: Admin("http://h", tls_trust_certs_file_path="c"), "begins with https://"),
        (lambda tls: Admin("http://h", authentication=AuthenticationTLS("c", "k")), "needs TLS"),
        (lambda tls: Admin("http://h", authentication="hunter2"), "authentication is of type str"),
        (lambda tls: Admin("http://u:hunter2@h"), "admin url must look like"),
        (lambda tls: Admin("https://h", tls_trust_certs_file_path="/none"), "'/none' .*No such"),
        (lambda tls: Admin("https://h", tls_trust_certs_file_path=tls.key_file), "no certificate"),
        (_swapped, "cannot be used together"),
    ],
)
def test_bad_options(tls: Tls, make: Callable[[Tls], Admin], words: str) -> None:
    with pytest.raises((InvalidArgument, InvalidConfiguration), match=words) as raised:
        make(tls).tenants.delete("t")
    assert "hunter2" not in str(raised.value)
