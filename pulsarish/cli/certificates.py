"""``pulsarish certificates``: make the certificates of a development cluster, and show any."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.output import output_option, print_table, say
from pulsarish.model.errors import AlreadyExists, InvalidArgument

if TYPE_CHECKING:
    from pulsarish.security.authority import Authority, Issued
from pulsarish.security.membership import member_uri

__all__ = ["certificates"]

_AUTHORITY: Final = "ca"
_SERVER: Final = "server"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_SERVER_KINDS: Final = ("broker", "bookie", "autorecovery")
_COLUMNS: Final = ("subject", "issuer", "names", "valid_from", "valid_until", "days_left", "kind")


@click.group(cls=Group)
def certificates() -> None:
    """Make certificates for development, and show certificates.

    \b
    Example:
      pulsarish certificates create --dir tls --role admin
    """


@certificates.command("create")
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the files are written. An authority that is there signs.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help=(
        "A name or address at which the servers are reached, without a port; repeatable. "
        "[default: localhost, 127.0.0.1 and ::1]"
    ),
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    help="Make a client's certificate with this role as its common name, too; repeatable.",
)
@click.option(
    "--cluster",
    default="standalone",
    show_default=True,
    help="The cluster's name in the server's certificate: tls_cluster_name of bookies.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long they are valid.",
)
@click.option(
    "--force", is_flag=True, help="Replace certificates that exist, except the authority."
)
def create(
    directory: Path,
    hosts: tuple[str, ...],
    roles: tuple[str, ...],
    cluster: str,
    days: int,
    force: bool,
) -> None:
    """Make an authority, a certificate for servers and one for each role.

    The directory gets ca.pem, server.pem and NAME.pem for each role, each with its key in a .key
    file that only you can read. Where it has an authority already, that one signs, so roles can be
    added later. The server's certificate is made with a new authority, and when --host is given.
    ca.key makes certificates for your cluster, so keep it secret: use your organisation's authority
    in production.

    \b
    Example:
      pulsarish certificates create --dir tls --host broker-1 --host localhost --role admin
    """
    from pulsarish.security.authority import Authority

    now_ms = time.time_ns() // 1_000_000
    authority_files = _files(directory, _AUTHORITY)
    is_new = not any(file.exists() for file in authority_files)
    makes_server = is_new or bool(hosts)
    names = [*([_SERVER] if makes_server else []), *dict.fromkeys(roles)]
    if not names:
        raise InvalidArgument(
            f"{directory} has an authority already and neither --role nor --host says what it "
            "shall sign: give one"
        )
    _check_names(roles)
    if not force:
        # Before anything is written.
        for file in (file for name in names for file in _files(directory, name)):
            if file.exists():
                raise AlreadyExists(f"{file} exists: choose another name, or replace it by --force")
    if is_new:
        authority = Authority.create("Pulsarish development", now_ms=now_ms, days=max(days, 3650))
    else:
        authority = _load(directory)
    issued = {
        name: authority.issue(name, now_ms=now_ms, days=days, is_server=False)
        for name in names
        if name != _SERVER
    }
    if makes_server:
        uris = [member_uri(cluster, kind) for kind in _SERVER_KINDS]
        issued[_SERVER] = authority.issue(
            _SERVER, now_ms=now_ms, days=days, hosts=hosts or _HOSTS, uris=uris
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_new:
        certificate, key = authority_files
        _write(key, authority.key.reveal(), 0o600)
        _write(certificate, authority.certificate, 0o644)
        say(f"made the authority {certificate}; keep {key} secret")
    for name, pair in issued.items():
        _write_pair(directory, name, pair)
        kind = "servers" if name == _SERVER else f"role {name}"
        say(f"made {_files(directory, name)[0]} for {kind}, valid for {days} days")


@certificates.command("show")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option
def show(files: tuple[Path, ...], output: str) -> None:
    """Show whose each certificate of a file is, who signed it, its names, and how long it is valid.

    \b
    Example:
      pulsarish certificates show tls/server.pem tls/ca.pem
    """
    print_table([row for file in files for row in _rows(file)], _COLUMNS, output)


def _rows(file: Path) -> list[dict[str, object]]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    from pulsarish.security.tls import is_authority, parse_certificate

    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}") from None
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise InvalidArgument(
            f"{file} has no certificate that can be read; give a file in PEM form, which begins "
            "with '-----BEGIN CERTIFICATE-----'"
        ) from None
    now = datetime.now(UTC)
    rows: list[dict[str, object]] = []
    for certificate in found:
        parsed = parse_certificate(certificate.public_bytes(serialization.Encoding.DER))
        rows.append(
            {
                "subject": certificate.subject.rfc4514_string(),
                "issuer": certificate.issuer.rfc4514_string(),
                "names": " ".join(parsed.names) if parsed is not None else "",
                "valid_from": f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M}",
                "valid_until": f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M}",
                "days_left": (certificate.not_valid_after_utc - now).days,
                "kind": "authority" if is_authority(certificate) else "certificate",
            }
        )
    return rows


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    """Return the files of a certificate and of its key."""
    return directory / f"{name}.pem", directory / f"{name}.key"


def _check_names(roles: tuple[str, ...]) -> None:
    for role in roles:
        if role in (_AUTHORITY, _SERVER):
            raise InvalidArgument(
                f"--role {role}: that is the name of another file; choose another"
            )
        if role != os.path.basename(role) or role in ("", ".", ".."):
            raise InvalidArgument(f"--role {role!r} cannot be the name of a file")


def _load(directory: Path) -> Authority:
    from pulsarish.security.authority import Authority
    from pulsarish.security.credentials import Secret

    certificate, key = _files(directory, _AUTHORITY)
    try:
        return Authority(certificate.read_bytes(), Secret(key.read_bytes()))
    except OSError as error:
        raise InvalidArgument(
            f"the authority of {directory} needs ca.pem and ca.key: {error.filename}: "
            f"{error.strerror}; restore the file, or use another --dir"
        ) from None
    except (ValueError, TypeError):
        raise InvalidArgument(
            f"the authority of {directory} cannot be read: restore ca.pem and ca.key, or use "
            "another --dir"
        ) from None


def _write_pair(directory: Path, name: str, issued: Issued) -> None:
    certificate, key = _files(directory, name)
    _write(key, issued.key.reveal(), 0o600)
    _write(certificate, issued.certificate, 0o644)


def _write(file: Path, content: bytes, mode: int) -> None:
    """Write a file at once: a process that follows it never reads a part."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
