"""The security of a client's connections, from the options that the program gives."""

from __future__ import annotations

from dataclasses import replace

from pulsarish.client.checks import check_flag, check_text, check_type
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.security.client_security import ClientSecurity
from pulsarish.security.tls import TlsClientConfig

__all__ = ["security_of"]


def security_of(
    authentication: object,
    *,
    is_tls: bool,
    tls_url: str,
    use_tls: bool = False,
    trust_file: str | None = None,
    allows_insecure: bool = False,
    validates_host_name: bool = True,
    certificate_file: str | None = None,
    key_file: str | None = None,
) -> ClientSecurity:
    """Return the security of a client's connections.

    Args:
        tls_url: the argument that asks for TLS and how it begins then, for errors.

    An option of TLS without a URL of TLS is refused: its program believes that it is protected.

    Raises ``InvalidArgument`` naming the argument; ``authentication`` is not shown.
    """
    if authentication is not None:
        what = "a pulsarish.Authentication, such as pulsarish.AuthenticationToken"
        check_type("authentication", authentication, Authentication, what, is_secret=True)
        assert isinstance(authentication, Authentication)
    files = {
        "tls_trust_certs_file_path": trust_file,
        "tls_certificate_file_path": certificate_file,
        "tls_private_key_file_path": key_file,
    }
    for name, path in files.items():
        if path is not None and not check_text(name, path):
            raise InvalidArgument(f"{name} is empty: pass a path, or leave it out")
    if bool(certificate_file) != bool(key_file):
        raise InvalidArgument(
            "tls_certificate_file_path and tls_private_key_file_path belong together: pass both "
            "or none"
        )
    check_flag("tls_validate_hostname", validates_host_name)
    flags = {"use_tls": use_tls, "tls_allow_insecure_connection": allows_insecure}
    asked = [name for name, flag in flags.items() if check_flag(name, flag)]
    asked += [name for name, path in files.items() if path is not None]
    provider = certificate = None
    if authentication is not None:
        provider, certificate = authentication.provider, authentication.certificate
    if not is_tls:
        if asked or certificate is not None:
            raise InvalidArgument(
                f"{(asked or ['this authentication'])[0]} needs TLS: pass a {tls_url}"
            )
        return ClientSecurity(provider)
    if certificate is not None and certificate_file:
        raise InvalidArgument(
            "tls_certificate_file_path and the authentication both name a certificate: pass one"
        )
    tls = TlsClientConfig(
        trust_file=trust_file or "",
        certificate_file=certificate_file or "",
        key_file=key_file or "",
        validates_host_name=validates_host_name,
        allows_insecure=allows_insecure,
        is_required=True,
    )
    if certificate is not None:
        tls = replace(
            tls, certificate_file=certificate.certificate_file, key_file=certificate.key_file
        )
    return ClientSecurity(provider, tls)
