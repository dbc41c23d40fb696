"""The files of TLS: what is refused, and in which words."""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from pulsarish.model.errors import ConfigError
from pulsarish.security.authority import Issued
from pulsarish.security.credentials import Secret
from pulsarish.security.tls import (
    TlsClientConfig,
    TlsServerConfig,
    client_context,
    parse_certificate,
    read_client_material,
    read_server_material,
    server_context,
)
from tests.support.certificates import Certificates


def now_ms() -> int:
    """Not a constant: a run may come long after the tests were collected."""
    return time.time_ns() // 1_000_000


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def refusal(config: TlsServerConfig | TlsClientConfig, at_ms: int | None = None) -> str:
    at_ms = now_ms() if at_ms is None else at_ms
    with pytest.raises(ConfigError) as caught:
        if isinstance(config, TlsServerConfig):
            server_context(config, read_server_material(config, at_ms))
        else:
            client_context(config, read_client_material(config, at_ms))
    return str(caught.value)


def test_good_files_make_contexts_that_check_the_peer(made: Certificates) -> None:
    server = made.server_config()
    context = server_context(server, read_server_material(server, now_ms()))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.num_tickets == 0
    optional = replace(server, client_certificate="optional")
    context = server_context(optional, read_server_material(optional, now_ms()))
    assert context.verify_mode is ssl.CERT_OPTIONAL
    client = made.client_config()
    context = client_context(client, read_client_material(client, now_ms()))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_without_a_trust_file_the_authorities_of_the_system_count() -> None:
    config = TlsClientConfig()
    context = client_context(config, read_client_material(config, now_ms()))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_only_the_options_for_it_weaken_a_client(made: Certificates) -> None:
    config = replace(made.client_config(), validates_host_name=False)
    context = client_context(config, read_client_material(config, now_ms()))
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    config = replace(made.client_config(), allows_insecure=True)
    context = client_context(config, read_client_material(config, now_ms()))
    assert context.verify_mode is ssl.CERT_NONE


def test_a_missing_file_is_named_with_its_option(made: Certificates) -> None:
    config = replace(made.server_config(), certificate_file=f"{made.directory}/none.pem")
    assert refusal(config).startswith(
        f"tls_certificate_file_path = '{made.directory}/none.pem': there is no such file;"
    )
    config = replace(made.server_config(), key_file=f"{made.directory}/none.key")
    assert refusal(config).startswith("tls_key_file_path = ")
    config = replace(made.server_config(), trust_file=f"{made.directory}/none.pem")
    assert refusal(config).startswith("tls_trust_certs_file_path = ")
    client = replace(made.client_config(), trust_file=f"{made.directory}/none.pem")
    assert refusal(client).startswith("tls_trust_certs_file_path = ")


def test_an_option_without_its_partner_is_refused(made: Certificates) -> None:
    server, client = made.server_config(), made.client_config()
    assert "tls_key_file_path is empty" in refusal(replace(server, key_file=""))
    assert "tls_certificate_file_path is empty" in refusal(replace(server, certificate_file=""))
    assert "tls_trust_certs_file_path is empty" in refusal(replace(server, trust_file=""))
    assert "tls_key_file_path is not: set both" in refusal(replace(client, key_file=""))


def test_what_cannot_be_read_is_refused(made: Certificates) -> None:
    config = made.server_config()
    directory = replace(config, certificate_file=str(made.directory))
    assert "cannot be read: Is a directory" in refusal(directory)
    if os.geteuid() != 0:
        os.chmod(config.key_file, 0)
        assert "cannot be read: Permission denied; let the user" in refusal(config)


def test_junk_is_no_certificate_and_no_key(made: Certificates) -> None:
    config = made.server_config()
    junk = made.directory / "junk"
    junk.write_bytes(
        b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0IGNhbmFyeQ==\n-----END PRIVATE KEY-----"
    )
    assert "has no certificate that can be read" in refusal(
        replace(config, certificate_file=str(junk))
    )
    text = refusal(replace(config, key_file=str(junk)))
    assert "has no private key that can be read" in text
    assert "canary" not in text
    assert "c2Vj" not in text


def test_an_encrypted_key_is_refused_without_a_question(made: Certificates) -> None:
    config = made.server_config()
    key = serialization.load_pem_private_key(Path(config.key_file).read_bytes(), password=None)
    Path(config.key_file).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pass"),
        )
    )
    assert "the key is encrypted" in refusal(config)


def test_swapped_files_are_refused(made: Certificates) -> None:
    server, other = made.server_config(), made.issue("other")
    text = refusal(replace(server, key_file=other[1]))
    assert "the key does not belong to the certificate" in text
    assert "'CN=server'" in text
    assert "has no private key" in refusal(
        replace(server, key_file=server.certificate_file, certificate_file=server.certificate_file)
    )


def test_an_expired_or_future_certificate_is_refused(made: Certificates) -> None:
    certificate, key = made.issue("old", age_days=10, days=9)
    config = TlsServerConfig(certificate, key)
    assert "'CN=old' has expired, on " in refusal(config)
    # The clock decides: it was good nine days ago.
    assert read_server_material(config, now_ms() - 9 * 86_400_000).chain
    assert "is valid only from" in refusal(config, now_ms() - 20 * 86_400_000)


def test_a_certificate_that_is_no_authority_cannot_be_trusted(made: Certificates) -> None:
    leaf, _ = made.issue("leaf")
    text = refusal(replace(made.server_config(), trust_file=leaf))
    assert "'CN=leaf' is that of no authority" in text
    assert "'CN=test authority'" in text


def test_an_expired_authority_is_refused_unless_another_one_is_valid(made: Certificates) -> None:
    server = made.server_config()
    old = Certificates(made.directory).authority
    later_ms = now_ms() + 31 * 86_400_000
    trust = made.directory / "all.pem"
    trust.write_bytes(old.certificate)
    client = TlsClientConfig(str(trust))
    assert "has expired" in refusal(client, later_ms)
    new = old.create("new", now_ms=later_ms, days=30)
    trust.write_bytes("# Ümlaut\n".encode() + old.certificate + new.certificate)
    material = read_client_material(client, later_ms)
    assert client_context(client, material).cert_store_stats()["x509_ca"] == 2
    assert server.trust_file


def test_a_key_is_never_shown(made: Certificates) -> None:
    material = read_server_material(made.server_config(), now_ms())
    assert "PRIVATE" not in repr(material)
    assert b"PRIVATE" in material.key.reveal()


def test_what_a_certificate_says(made: Certificates) -> None:
    certificate, _ = made.issue(
        "b1", hosts=("b1.example", "10.0.0.1"), uris=("pulsarish://prod/bookie/b1",)
    )
    found = parse_certificate(Path(certificate).read_bytes())
    assert found is not None
    assert found.common_name == "b1"
    assert found.names == ("DNS:b1.example", "IP:10.0.0.1", "URI:pulsarish://prod/bookie/b1")
    assert abs(found.expires_at_ms - now_ms() - 30 * 86_400_000) < 3_600_000
    assert parse_certificate(b"\x30\x82junk") is None
    assert parse_certificate(b"-----BEGIN CERTIFICATE-----\n") is None


def test_an_issued_pair_has_its_own_key(made: Certificates) -> None:
    first, second = (made.authority.issue("a", now_ms=now_ms(), days=1) for _ in range(2))
    mixed = made.write("mixed", Issued(first.certificate, Secret(second.key.reveal())))
    assert "does not belong" in refusal(TlsServerConfig(*mixed))
