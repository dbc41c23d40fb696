"""What an operator reads when a metadata server refuses a process."""

from __future__ import annotations

from pulsarish.metadata.access import MetadataAccess
from pulsarish.metadata.zookeeper.connect_failure import Refusal
from pulsarish.metadata.zookeeper.kazoo_requests import is_denied, is_unknown_access_list
from pulsarish.security.tls import TlsClientConfig

__all__ = ["what_to_change", "why_denied"]


def what_to_change(refusal: Refusal, access: MetadataAccess) -> str:
    """Return the option and the file that an operator has to change."""
    tls = TlsClientConfig() if access.tls is None else access.tls
    trust, certificate = (
        f"{option} = {path!r}" if path else f"{option}, which is empty,"
        for option, path in (
            (tls.options.trust, tls.trust_file),
            (tls.options.certificate, tls.certificate_file),
        )
    )
    match refusal:
        case Refusal.LOGIN:
            return (
                f"{access.auth_option} = {access.auth_file!r} needs a user:password that the "
                "server has"
            )
        case Refusal.AUTHORITY:
            return f"{trust} has to name the authority of the server's certificate"
        case Refusal.SERVER_CERTIFICATE:
            return (
                "metadata_url has to name the server as its certificate does, and the certificate "
                "has to be valid now"
            )
        case Refusal.CERTIFICATE:
            return f"{certificate} has to name a certificate that the server accepts"
        case Refusal.NO_TLS:
            return (
                "metadata_url has to name the server's port for TLS, or begin with zk:// instead "
                "of zk+ssl://"
            )
        case Refusal.TLS:
            return f"check {trust} and {certificate}"


def why_denied(access: MetadataAccess, path: str, error: BaseException) -> str:
    """Return why the server lets this process not use ``path``, and what to do.

    Empty when ``error`` is another answer.
    """
    given = f"{access.auth_option} = {access.auth_file!r}"
    if is_unknown_access_list(error):
        return (
            f"{given}: the metadata server keeps no access lists, so the login protects nothing; "
            "set auth_file of the metadata daemon first"
        )
    if not is_denied(error):
        return ""
    if not access.auth_file:
        return (
            f"the metadata server asks for a login, or {path} belongs to one, and "
            f"{access.auth_option} is empty: set it to the file with user:password"
        )
    return (
        f"{given}: the metadata server gives this login no right to {path}; use the user and "
        "password that it was made with"
    )
