"""``pulsarish health``: whether the servers on this machine can serve, for health checks of
containers and for scripts.

It runs every few seconds for each server, so it imports only sockets: an HTTP library would cost
more than the answer.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

import click

from pulsarish.cli.output import fail, say
from pulsarish.cli.values import FiniteRange

__all__ = ["health"]

# broker, bookie, metadata
_DEFAULT_URLS: Final = tuple(f"http://127.0.0.1:{port}/health" for port in (8080, 8000, 8100))
_PROFILE_VARIABLES: Final = ("PULSARISH_PROFILES_FILE", "PULSARISH_PROFILE")
_ANSWER_BYTES_MAX: Final = 64 << 10


def _probe(url: str, timeout_seconds: float) -> tuple[int, str]:
    """Return the status, and the reason that the body gives when it is not 200. Raises ``OSError``,
    ``ValueError``.
    """
    parts = urlsplit(url)
    uses_tls = parts.scheme == "https"
    port = parts.port or (443 if uses_tls else 80)
    with ExitStack() as opened:
        connection = opened.enter_context(
            socket.create_connection((parts.hostname, port), timeout=timeout_seconds)
        )
        if uses_tls:
            connection = opened.enter_context(_with_tls(connection, url, parts.hostname or ""))
        request = (
            f"GET {parts.path or '/health'} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: "
            "close\r\n\r\n"
        )
        connection.sendall(request.encode())
        answer = b""
        while len(answer) < _ANSWER_BYTES_MAX and (chunk := connection.recv(4096)):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    protocol, _, rest = head.partition(b" ")
    if not protocol.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise ValueError("the answer is not HTTP")
    return int(rest[:3]), body.decode(errors="replace").strip()


def _with_tls(connection: socket.socket, url: str, host: str) -> socket.socket:
    """Return the connection with TLS, which trusts and shows a certificate as the other commands.

    Raises ``OSError`` for a certificate that is refused.
    """
    # Not needed without TLS, and slow to import.
    import ssl

    from pulsarish.cli.connections import connection_arguments

    given = connection_arguments(url)
    context = ssl.create_default_context(cafile=given.get("tls_trust_certs_file_path"))
    context.check_hostname = (
        given["tls_validate_hostname"] and not given["tls_allow_insecure_connection"]
    )
    if given["tls_allow_insecure_connection"]:
        context.verify_mode = ssl.CERT_NONE
    own = getattr(given.get("authentication"), "certificate", None)
    certificate = given.get("tls_certificate_file_path")
    key = given.get("tls_private_key_file_path")
    if own is not None:
        certificate, key = own.certificate_file, own.key_file
    if certificate:
        context.load_cert_chain(certificate, key, lambda: b"")
    return context.wrap_socket(connection, server_hostname=host)


def _admin_url_of_profile() -> str:
    """Return the address that a profile of the environment has; empty: there is none.

    Raises the errors of ``find_profile``.
    """
    if not any(os.environ.get(name) for name in _PROFILE_VARIABLES):
        return ""
    from pulsarish.runtime.profiles import find_profile  # slow to import

    _, profile = find_profile()
    return profile.admin_url


def _health_routes(admin_url: str) -> tuple[str, ...]:
    """Return the health routes of the addresses that a URL names, separated by commas.

    An address without a scheme has that of the one before it.
    """
    scheme, found = "http", []
    for part in admin_url.split(","):
        given, _, address = part.strip().rstrip("/").rpartition("://")
        scheme = given or scheme
        if address:
            found.append(f"{scheme}://{address}/health")
    return tuple(found)


def _warnings(body: str) -> list[str]:
    try:
        found = json.loads(body)
    except ValueError:  # another health route
        return []
    warnings = found.get("warnings", []) if isinstance(found, dict) else []
    return [str(warning) for warning in warnings] if isinstance(warnings, list) else []


def _addresses(
    _context: click.Context, _parameter: click.Parameter, urls: tuple[str, ...]
) -> tuple[str, ...]:
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.UsageError(
                f"{url!r} is not the address of a health route; use http://host:port/health, or "
                "https://"
            )
    return urls


@click.command()
@click.option(
    "--timeout",
    "timeout_seconds",
    default=3.0,
    show_default=True,
    type=FiniteRange(0.1, 60),
    help="Seconds for each answer.",
)
@click.argument("urls", nargs=-1, metavar="[URL]...", callback=_addresses)
def health(urls: tuple[str, ...], timeout_seconds: float) -> None:
    """Check whether servers can serve. Exit status: 0 all can, 1 one cannot.

    Without a URL it checks the brokers of PULSARISH_ADMIN_URL, or of the profile that
    PULSARISH_PROFILES_FILE or PULSARISH_PROFILE names, if one of them is set. Otherwise it checks
    the broker, bookie and metadata daemon on this machine's well-known ports; at least one must
    listen.

    \b
    Examples:
      pulsarish health
      pulsarish health http://broker-1:8080/health
    """
    found, failed = 0, False
    configured = os.environ.get("PULSARISH_ADMIN_URL") or _admin_url_of_profile()
    urls = urls or _health_routes(configured)
    for url in urls or _DEFAULT_URLS:
        try:
            status, reason = _probe(url, timeout_seconds)
        except ConnectionRefusedError as error:
            if not urls:
                continue
            status, reason = 0, str(error)
        except (OSError, ValueError) as error:
            status, reason = 0, str(error)
        found += 1
        if status == 200:
            click.echo(f"{url} ok")
            for warning in _warnings(reason):
                say(f"{url} warning: {warning}")
        else:
            failed = True
            say(f"{url} cannot serve: {reason}")
    if not found:
        fail(
            f"nothing listens at {', '.join(_DEFAULT_URLS)}; give the addresses of servers that "
            "listen elsewhere"
        )
    if failed:
        raise SystemExit(1)
