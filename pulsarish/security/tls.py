"""TLS: its options, the contexts made of certificate files, and what a peer's certificate says.

Every error of a file is a ``ConfigError`` that names the option, the file, the reason and the
remedy. TLS 1.2 is the oldest version, and sessions are not resumed: a resumed one would not look at
the peer's certificate again.

``cryptography`` is imported inside the functions, so that only processes with TLS load it.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from pulsarish.model.errors import ConfigError
from pulsarish.security.credentials import Certificate, Secret

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "ClientCertificate",
    "TlsClientConfig",
    "TlsMaterial",
    "TlsOptions",
    "TlsServerConfig",
    "certificate_of",
    "client_context",
    "earliest_expiry_ms",
    "is_authority",
    "is_not_tls",
    "parse_certificate",
    "read_client_material",
    "read_server_material",
    "server_context",
    "tls_reason",
]

ClientCertificate = Literal["none", "optional", "required"]
"""Whether a server asks its clients for a certificate, and whether it refuses those without."""

_FILE_BYTES_MAX: Final = 4 << 20
_MAKE_ONE: Final = "make a new one"
_NO_TLS: Final = "the peer does not speak TLS here; check its address and whether it uses TLS"
_NO_TLS_ERRORS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_REASONS: Final = {
    **dict.fromkeys(_NO_TLS_ERRORS, _NO_TLS),
    "UNSUPPORTED_PROTOCOL": "the peer speaks only TLS older than 1.2",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "the client shows no certificate and this listener requires one; give the client one"
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "the server requires a certificate of this client; give it one"
    ),
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the authority of this certificate",
}
"""What the words of OpenSSL mean to an operator."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The names of the options, for errors."""

    certificate: str = "tls_certificate_file_path"
    key: str = "tls_key_file_path"
    trust: str = "tls_trust_certs_file_path"


_OPTIONS: Final = TlsOptions()


@dataclass(frozen=True, slots=True)
class TlsServerConfig:
    """How a listener speaks TLS. Files are in PEM form."""

    certificate_file: str
    """The server's certificate, then those that lead to its authority."""
    key_file: str
    trust_file: str = ""
    """The authorities of client certificates."""
    client_certificate: ClientCertificate = "none"
    options: TlsOptions = _OPTIONS


@dataclass(frozen=True, slots=True)
class TlsClientConfig:
    """How connections to addresses with TLS are made. Files are in PEM form."""

    trust_file: str = ""
    """The authorities of server certificates; empty: those of the system."""
    certificate_file: str = ""
    """The client's own certificate; empty: it shows none."""
    key_file: str = ""
    validates_host_name: bool = True
    """Whether a server's certificate has to name the host of its address."""
    allows_insecure: bool = False
    """Whether a server's certificate is not checked at all."""
    is_required: bool = False
    """Whether addresses without TLS are refused."""
    options: TlsOptions = _OPTIONS

    @property
    def is_strict(self) -> bool:
        """Whether servers are checked in full: their authority and their host name."""
        return self.validates_host_name and not self.allows_insecure


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What the files of a server or client hold, checked. Empty where no file is given."""

    chain: bytes = b""
    key: Secret = Secret(b"")  # noqa: RUF009  # never changed
    trust: bytes = b""


def read_server_material(config: TlsServerConfig, now_ms: int) -> TlsMaterial:
    """Read and check the files of a server. Raises ``ConfigError``."""
    options = config.options
    if not config.certificate_file or not config.key_file:
        missing = options.key if config.certificate_file else options.certificate
        raise ConfigError(f"{missing} is empty: TLS needs a certificate and its key; set it")
    if config.client_certificate != "none" and not config.trust_file:
        raise ConfigError(
            f"{options.trust} is empty: client certificates are checked with it; set it"
        )
    chain, key = _read_pair(
        options.certificate, config.certificate_file, options.key, config.key_file, now_ms
    )
    trust = config.client_certificate != "none"
    return TlsMaterial(
        chain, key, _read_trust(options.trust, config.trust_file, now_ms) if trust else b""
    )


def read_client_material(config: TlsClientConfig, now_ms: int) -> TlsMaterial:
    """Read and check the files of a client. Raises ``ConfigError``."""
    options = config.options
    if bool(config.certificate_file) != bool(config.key_file):
        given, missing = (
            (options.certificate, options.key)
            if config.certificate_file
            else (options.key, options.certificate)
        )
        raise ConfigError(f"{given} is set and {missing} is not: set both or none")
    chain, key = b"", Secret(b"")
    if config.certificate_file:
        chain, key = _read_pair(
            options.certificate, config.certificate_file, options.key, config.key_file, now_ms
        )
    trust = b""
    if config.trust_file and not config.allows_insecure:
        trust = _read_trust(options.trust, config.trust_file, now_ms)
    return TlsMaterial(chain, key, trust)


def server_context(config: TlsServerConfig, material: TlsMaterial) -> ssl.SSLContext:
    """Return the context of a listener. Raises ``ConfigError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    _load_pair(context, config.options, config.certificate_file, config.key_file)
    if config.client_certificate != "none":
        context.load_verify_locations(cadata=material.trust.decode())
        context.verify_mode = (
            ssl.CERT_REQUIRED if config.client_certificate == "required" else ssl.CERT_OPTIONAL
        )
    return context


def client_context(
    config: TlsClientConfig, material: TlsMaterial, *, protocols: Sequence[str] = ()
) -> ssl.SSLContext:
    """Return the context of a client. Raises ``ConfigError``.

    Args:
        protocols: the application protocols that the client speaks, as TLS names them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context)
    if not config.is_strict:
        context.check_hostname = False
    if config.allows_insecure:
        context.verify_mode = ssl.CERT_NONE
    elif material.trust:
        context.load_verify_locations(cadata=material.trust.decode())
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if config.certificate_file:
        _load_pair(context, config.options, config.certificate_file, config.key_file)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def certificate_of(ssl_object: ssl.SSLObject | ssl.SSLSocket | None) -> Certificate | None:
    """Return the peer's certificate; ``None`` without TLS, and when it was not verified."""
    if ssl_object is None or ssl_object.context.verify_mode is ssl.CERT_NONE:
        return None
    encoded = ssl_object.getpeercert(binary_form=True)
    return None if encoded is None else parse_certificate(encoded)


def parse_certificate(encoded: bytes) -> Certificate | None:
    """Return what a verified certificate says, in DER or PEM form.

    ``None`` for one that cannot be read: its owner counts as one that shows none.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        found = (
            x509.load_pem_x509_certificate(encoded)
            if encoded.startswith(b"-----")
            else x509.load_der_x509_certificate(encoded)
        )
        common_names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        names = _alternative_names(found)
    except ValueError:
        return None
    # Of several common names none says who this is.
    name = common_names[0].value if len(common_names) == 1 else ""
    return Certificate(
        name if isinstance(name, str) else "",
        names,
        int(found.not_valid_after_utc.timestamp() * 1_000),
    )


def earliest_expiry_ms(content: bytes, path: str) -> int:
    """Return when the first certificate of a file in PEM form expires, in ms since the epoch.

    Raises ``ConfigError``.
    """
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ConfigError(f"{path} has no certificate that can be read") from None
    return int(min(each.not_valid_after_utc for each in found).timestamp() * 1_000)


def is_not_tls(error: ssl.SSLError) -> bool:
    """Return whether the peer answered a handshake with something else."""
    return error.reason in _NO_TLS_ERRORS


def tls_reason(error: ssl.SSLError) -> str:
    """Return in words why a handshake failed, and what helps where it is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return _REASONS.get(error.reason or "", reason)


def _alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    names: list[str] = []
    for name in extension.value:
        match name:
            case x509.DNSName():
                names.append(f"DNS:{name.value}")
            case x509.UniformResourceIdentifier():
                names.append(f"URI:{name.value}")
            case x509.IPAddress():
                names.append(f"IP:{name.value}")
            case x509.RFC822Name():
                names.append(f"email:{name.value}")
            case _:
                continue
    return tuple(names)


def _restrict(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _load_pair(
    context: ssl.SSLContext, options: TlsOptions, certificate_file: str, key_file: str
) -> None:
    try:
        # A password is never asked for at a terminal.
        context.load_cert_chain(certificate_file, key_file, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{options.certificate} = {certificate_file!r} and {options.key} = {key_file!r} cannot "
            f"be used together: {error}"
        ) from None


def _read(option: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{option} = {path!r}: there is no such file; correct the path, or make one with "
            "'pulsarish certificates create'"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{option} = {path!r} cannot be read: {error.strerror}; let the user of this process "
            "read it"
        ) from None
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(f"{option} = {path!r} is larger than {_FILE_BYTES_MAX} bytes")
    return content


def _read_certificates(option: str, path: str) -> tuple[bytes, list[x509.Certificate]]:
    """Return the content of a file and its certificates. Raises ``ConfigError``."""
    from cryptography import x509

    content = _read(option, path)
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ConfigError(
            f"{option} = {path!r} has no certificate that can be read; give a file in PEM form, "
            "which begins with '-----BEGIN CERTIFICATE-----'"
        ) from None
    return content, found


def _check_time(option: str, path: str, certificate: x509.Certificate, now_ms: int) -> None:
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    subject = certificate.subject.rfc4514_string()
    if now > end:
        raise ConfigError(
            f"{option} = {path!r}: the certificate {subject!r} has expired, on "
            f"{end:%Y-%m-%d %H:%M} UTC; {_MAKE_ONE}"
        )
    if now < begin:
        raise ConfigError(
            f"{option} = {path!r}: the certificate {subject!r} is valid only from "
            f"{begin:%Y-%m-%d %H:%M} UTC; check the clock of this machine, or {_MAKE_ONE}"
        )


def _read_pair(
    certificate_option: str, certificate_file: str, key_option: str, key_file: str, now_ms: int
) -> tuple[bytes, Secret]:
    """Return a certificate with its chain, and its key. Raises ``ConfigError``."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    chain, found = _read_certificates(certificate_option, certificate_file)
    for certificate in found:
        _check_time(certificate_option, certificate_file, certificate, now_ms)
    content = _read(key_option, key_file)
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise ConfigError(
            f"{key_option} = {key_file!r}: the key is encrypted; give it without a password, in a "
            "file that only the user of this process can read"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        # Not the error's text, which may show a part of the file.
        raise ConfigError(
            f"{key_option} = {key_file!r} has no private key that can be read; give a file in PEM "
            "form, which begins with '-----BEGIN PRIVATE KEY-----'"
        ) from None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != found[0].public_key().public_bytes(*form):
        raise ConfigError(
            f"{key_option} = {key_file!r}: the key does not belong to the certificate of "
            f"{certificate_option} = {certificate_file!r}, {found[0].subject.rfc4514_string()!r}; "
            "give the two files that were made together"
        )
    return chain, Secret(content)


def _read_trust(option: str, path: str, now_ms: int) -> bytes:
    """Return the authorities of a file. Raises ``ConfigError``."""
    from cryptography.hazmat.primitives import serialization

    _, found = _read_certificates(option, path)
    for certificate in found:
        if not is_authority(certificate):
            raise ConfigError(
                f"{option} = {path!r}: the certificate {certificate.subject.rfc4514_string()!r} is "
                "that of no authority; give the certificate of the authority that signed it, "
                f"{certificate.issuer.rfc4514_string()!r}"
            )
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    if not any(each.not_valid_before_utc <= now <= each.not_valid_after_utc for each in found):
        # An old authority among others does no harm: nothing is verified with it.
        _check_time(option, path, found[0], now_ms)
    # Without the comments between the certificates, which need not be ASCII.
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether other certificates may be checked with this one, or it signed itself."""
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return certificate.subject == certificate.issuer
    return extension.value.ca or certificate.subject == certificate.issuer
