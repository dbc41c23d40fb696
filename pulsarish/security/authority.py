"""An authority that signs certificates, for development and tests.

Its key makes certificates that everything which trusts it accepts. In production an
organisation's own authority signs.

Loads ``cryptography``, so it is imported only by what makes certificates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pulsarish.model.errors import InvalidArgument
from pulsarish.security.credentials import Secret

__all__ = ["Authority", "Issued"]

_PEM: Final = serialization.Encoding.PEM
_CLOCK_SKEW: Final = timedelta(minutes=5)
"""How far the clock of a machine that checks a new certificate may be behind."""
_NAME_CHARS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM form."""

    certificate: bytes
    key: Secret


class Authority:
    """An authority with its key.

    Args:
        certificate: its own, in PEM form.
        key: in PEM form.
    """

    def __init__(self, certificate: bytes, key: Secret) -> None:
        self.certificate = certificate
        self.key = key
        self._certificate = x509.load_pem_x509_certificate(certificate)
        loaded = serialization.load_pem_private_key(key.reveal(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise InvalidArgument("the authority's key is none of an elliptic curve")
        self._key = loaded

    @classmethod
    def create(cls, name: str, *, now_ms: int, days: int) -> Authority:
        """Return a new authority, whose certificate is valid for ``days``."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        certificate = (
            _builder(subject, key.public_key(), now_ms, days)
            .issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate.public_bytes(_PEM), _key_pem(key))

    def issue(
        self,
        name: str,
        *,
        now_ms: int,
        days: int,
        hosts: Sequence[str] = (),
        uris: Sequence[str] = (),
        is_server: bool = True,
    ) -> Issued:
        """Return a new certificate.

        Args:
            name: the common name, which authentication takes as the role.
            hosts: names and addresses of the machine.
            is_server: whether it is one of a server, too. All may be used by clients.

        Raises:
            InvalidArgument: a name or host that a certificate cannot have.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if is_server:
            usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_subject(name), key.public_key(), now_ms, days)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        names = [_host_name(host) for host in hosts]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(certificate.public_bytes(_PEM), _key_pem(key))


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(name: str) -> x509.Name:
    if not 0 < len(name) <= _NAME_CHARS_MAX or not name.isprintable():
        raise InvalidArgument(
            f"{name!r} cannot be the name in a certificate: it has 1 to {_NAME_CHARS_MAX} "
            "printable characters"
        )
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise InvalidArgument(
            f"{host!r} is no host name in ASCII and no IP address; give one without scheme and port"
        ) from None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> Secret:
    return Secret(
        key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
