"""TLS of gRPC's C core, from certificate files that may change.

The core differs from Python's TLS in three things. A server cannot ask for a certificate without
requiring one, so a listener for which it is optional does not ask. A client cannot leave out the
check of host names or of authorities: ``runtime/connections.py`` uses grpclib for that. And the
core gives no reason for a failed handshake: ``network/dialing.py`` makes another one to find it.
"""

from __future__ import annotations

import ssl

import grpc

from pulsarish.runtime.network.tls_contexts import ClientTls, ServerTls

__all__ = ["channel_credentials", "server_credentials"]


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Return what a server shows and requires. Each handshake uses the files as they are then."""
    requires_certificate = tls.config.client_certificate == "required"
    used = tls.material

    def configuration() -> grpc.ServerCertificateConfiguration:
        trust = used.trust if requires_certificate else None
        return grpc.ssl_server_certificate_configuration([(used.key.reveal(), used.chain)], trust)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # In a thread of the core, for each handshake. Each answer but ``None`` makes the core free
        # what handshakes in other threads begin with at that moment, and it may crash for it.
        nonlocal used
        tls.follow()
        if tls.material is used:
            return None
        used = tls.material
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), changed, requires_certificate)


def channel_credentials(tls: ClientTls) -> grpc.ChannelCredentials:
    """Return how a new channel checks its server, and what it shows."""
    tls.follow()
    material = tls.material
    return grpc.ssl_channel_credentials(
        material.trust or _system_authorities(),
        material.key.reveal() or None,
        material.chain or None,
    )


def _system_authorities() -> bytes | None:
    """Return the authorities that Python's TLS trusts; ``None``: those that come with gRPC."""
    path = ssl.get_default_verify_paths().cafile
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()
