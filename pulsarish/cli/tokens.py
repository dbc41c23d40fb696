"""``pulsarish tokens``: keys and tokens, with the names of Apache Pulsar's ``pulsar tokens``."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pulsarish.cli.groups import Group
from pulsarish.cli.output import print_json, print_line, say
from pulsarish.cli.secret_files import check_absent, key_reference, read_stdin, write_file
from pulsarish.cli.values import properties
from pulsarish.model.units import format_instant, parse_duration

if TYPE_CHECKING:
    from pulsarish.security.keys import SigningKey, VerificationKey

__all__ = ["tokens"]

F = TypeVar("F", bound=Callable[..., Any])

# Named here, so that help imports no cryptography; a test compares them.
_SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_PAIR_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_YEARS: Final = re.compile(r"(\d+)y")
_CLAIMS_OF_OPTIONS: Final = ("aud", "exp", "iat", "jti", "nbf", "sub")


@click.group(cls=Group)
def tokens() -> None:
    """Make keys and tokens with which clients say who they are, and look at tokens.

    A server gets the secret key as token_secret_key, or the public key of a pair as
    token_public_key. A client gets a token.

    \b
    Example:
      pulsarish tokens create --secret-key secret.key --subject orders --expiry-time 30d
    """


def _force_option(command: F) -> F:
    return click.option("--force", is_flag=True, help="Replace a file that is there.")(command)


def _output_option(command: F) -> F:
    return click.option(
        "-o", "--output", "path", metavar="FILE", help="Write the token here, for you only."
    )(command)


def _token_options(command: F) -> F:
    for decorate in (
        click.argument("token", required=False),
        click.option(
            "-i", "--stdin", "from_stdin", is_flag=True, help="Read the token from stdin."
        ),
        click.option(
            "-f",
            "--token-file",
            metavar="FILE",
            help="Read the token from a file.",
        ),
    )[::-1]:
        command = decorate(command)
    return command


def _limit_options(command: F) -> F:
    for decorate in (
        click.option(
            "--topic",
            "topics",
            metavar="NAME",
            multiple=True,
            help="Only this topic, by its full name; * at the end for any rest (repeatable).",
        ),
        click.option(
            "--action",
            "actions",
            metavar="NAME",
            multiple=True,
            callback=_check_actions,
            help="Only this permission, such as produce or consume (repeatable).",
        ),
        click.option(
            "--network",
            "networks",
            metavar="CIDR",
            multiple=True,
            help="Only from this network, such as 10.0.0.0/8 (repeatable).",
        ),
    )[::-1]:
        command = decorate(command)
    return command


def _check_actions(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    if values:
        from pulsarish.broker.clients.authorization import LIMITABLE

        for value in values:
            if value not in LIMITABLE:
                raise click.BadParameter(
                    f"{value!r} is no permission; known are {', '.join(sorted(LIMITABLE))}"
                )
    return values


@tokens.command("create-secret-key")
@click.option(
    "-a",
    "--signature-algorithm",
    type=click.Choice(list(_SECRET_BYTES)),
    default="HS256",
    show_default=True,
    help="The algorithm that the key must be long enough for.",
)
@click.option("-o", "--output", "path", metavar="FILE", help="Write the key here, for you only.")
@click.option("-b", "--base64", "as_base64", is_flag=True, help="Write it as text, in base64.")
@_force_option
def create_secret_key(
    signature_algorithm: str, path: str | None, as_base64: bool, force: bool
) -> None:
    """Make a secret that signs and checks tokens.

    Everyone who has it can make tokens of any role: it belongs on the servers, and where tokens
    are made. Servers read the file as it is, so write it without --base64 for them.

    \b
    Examples, for a file, and for an environment variable:
      pulsarish tokens create-secret-key --output secret.key
      pulsarish tokens create-secret-key --base64
    """
    if path is None and not as_base64:
        raise click.UsageError(
            "the key is binary: write it to a file with --output FILE, or print it with --base64"
        )
    secret = os.urandom(_SECRET_BYTES[signature_algorithm])
    content = base64.b64encode(secret) if as_base64 else secret
    if path is None:
        print_line(content.decode())
    else:
        write_file(path, content, force=force)
        say(f"the secret key is in {path}")


@tokens.command("create-key-pair")
@click.option(
    "-a",
    "--signature-algorithm",
    type=click.Choice(_PAIR_ALGORITHMS),
    default="RS256",
    show_default=True,
    help="The algorithm that the pair is for; ES256 makes short tokens.",
)
@click.option(
    "--output-private-key",
    "private_path",
    metavar="FILE",
    required=True,
    help="Write the key that signs here, for you only.",
)
@click.option(
    "--output-public-key",
    "public_path",
    metavar="FILE",
    required=True,
    help="Write the key that checks here.",
)
@_force_option
def create_key_pair(
    signature_algorithm: str, private_path: str, public_path: str, force: bool
) -> None:
    """Make a private key that signs tokens, and a public key with which servers check them.

    Both are in DER, as Apache Pulsar reads and writes them.

    \b
    Example:
      pulsarish tokens create-key-pair --output-private-key my.key --output-public-key my.pub
    """
    from pulsarish.security.token_maker import make_key_pair

    if Path(private_path).absolute() == Path(public_path).absolute():
        raise click.UsageError("both keys have the same file; give each one of its own")
    # Before either is written: a private key without its public key is of no use.
    for path in (private_path, public_path):
        check_absent(path, force=force)
    private, public = make_key_pair(signature_algorithm)
    write_file(private_path, private, force=force)
    write_file(public_path, public, force=force, mode=0o644)
    say(f"the private key is in {private_path}, the public key in {public_path}")


@tokens.command()
@click.option("-s", "--subject", required=True, help="The role of the token's bearer.")
@click.option(
    "-sk",
    "--secret-key",
    metavar="KEY",
    help="The secret that signs: a file, file:///path, env:NAME, or - for stdin.",
)
@click.option(
    "-pk",
    "--private-key",
    metavar="KEY",
    help="The private key that signs, written like --secret-key.",
)
@click.option(
    "-a",
    "--signature-algorithm",
    type=click.Choice([*_SECRET_BYTES, *_PAIR_ALGORITHMS]),
    help="The algorithm; without it, the first that fits the key.",
)
@click.option(
    "-e",
    "--expiry-time",
    metavar="DURATION",
    help="How long the token may be used: 90s, 12h, 30d, 1y; without it, forever.",
)
@click.option("--kid", default="", help="The id under which servers have the key.")
@click.option("--audience", default="", help="The servers' token_audience.")
@click.option(
    "--claim",
    "claims",
    metavar="NAME=VALUE",
    multiple=True,
    callback=properties,
    help="One more claim, such as the one of token_auth_claim (repeatable).",
)
@_limit_options
@_output_option
@_force_option
def create(
    subject: str,
    secret_key: str | None,
    private_key: str | None,
    signature_algorithm: str | None,
    expiry_time: str | None,
    kid: str,
    audience: str,
    claims: dict[str, str],
    topics: tuple[str, ...],
    actions: tuple[str, ...],
    networks: tuple[str, ...],
    path: str | None,
    force: bool,
) -> None:
    """Make a token for a role, signed with a key of the servers.

    It gets a random id (jti), by which revocation_file can revoke it. With --topic, --action and
    --network it permits only that, whatever else its role may do.

    \b
    Examples:
      pulsarish tokens create --secret-key secret.key --subject orders --expiry-time 30d
      pulsarish tokens create --private-key my.key --kid 2026 --subject orders --output orders.token
    """
    from pulsarish.security.limits import LIMITS_CLAIM, limits_claim
    from pulsarish.security.roles import role_fault
    from pulsarish.security.token_maker import sign_token

    if fault := role_fault(subject):
        raise click.UsageError(f"--subject: the role {fault}")
    for name in claims:
        if name in _CLAIMS_OF_OPTIONS:
            raise click.UsageError(f"--claim {name}=: this claim is set by an option of its own")
    now_seconds = int(time.time())
    body: dict[str, object] = {
        **claims,
        "sub": subject,
        "iat": now_seconds,
        "jti": os.urandom(16).hex(),
    }
    if audience:
        body["aud"] = audience
    if limits := limits_claim(topics, actions, networks):
        body[LIMITS_CLAIM] = limits
    if expiry_time is not None:
        body["exp"] = now_seconds + _expiry_seconds(expiry_time)
    if path is not None:
        check_absent(path, force=force)
    key = _signing_key(secret_key, private_key)
    token = sign_token(body, key, algorithm=signature_algorithm or "", kid=kid)
    _give_out(token, path, force, f"the token of {subject}")


@tokens.command()
@_token_options
@_limit_options
@click.option(
    "-e",
    "--expiry-time",
    metavar="DURATION",
    help="How long it may be used: 90s, 12h, 30d; never longer than the token that it is made of.",
)
@_output_option
@_force_option
def narrow(
    token: str | None,
    from_stdin: bool,
    token_file: str | None,
    topics: tuple[str, ...],
    actions: tuple[str, ...],
    networks: tuple[str, ...],
    expiry_time: str | None,
    path: str | None,
    force: bool,
) -> None:
    """Make a token with less rights out of one that you have, without a key of the servers.

    It has the same role, and permits only what the options name and the first one permits. Who
    gets it cannot undo that, and can narrow it further. Revoking the first one revokes it, too.
    The first one must be signed with a secret key. TOKEN is as in pulsarish tokens show.

    \b
    Examples:
      pulsarish tokens narrow -f a.token --action consume --expiry-time 1h --output b.token
      pulsarish tokens narrow -f a.token --topic 'persistent://acme/orders/eu-*'
    """
    from pulsarish.security.limits import LIMITS_CLAIM, limits_claim
    from pulsarish.security.narrowed_token import narrow_token

    claims: dict[str, object] = {"jti": os.urandom(16).hex()}
    if limits := limits_claim(topics, actions, networks):
        claims[LIMITS_CLAIM] = limits
    if expiry_time is not None:
        claims["exp"] = int(time.time()) + _expiry_seconds(expiry_time)
    if len(claims) == 1:
        raise click.UsageError("give a limit: --topic, --action, --network or --expiry-time")
    if path is not None:
        check_absent(path, force=force)
    made = narrow_token(_read_token(token, from_stdin, token_file), claims)
    _give_out(made, path, force, "the narrowed token")


@tokens.command()
@_token_options
def show(token: str | None, from_stdin: bool, token_file: str | None) -> None:
    """Print the header and the claims of a token, without checking its signature.

    TOKEN is file:PATH or env:NAME. A token itself does not belong on a command line, where other
    users of the machine can see it. Without TOKEN, --stdin and --token-file, stdin is read.

    \b
    Examples:
      pulsarish tokens show --token-file orders.token
      pulsarish tokens show env:ORDERS_TOKEN
    """
    from pulsarish.security.narrowed_token import WIDER, read_wider_claims
    from pulsarish.security.signed_token import read_header, read_unverified_claims

    content = _read_token(token, from_stdin, token_file)
    header = read_header(content)
    claims, *wider = [
        {name: value for name, value in each.items() if name != WIDER or not header.is_narrowed}
        for each in (read_unverified_claims(content), *read_wider_claims(content))
    ]
    print_json(
        {
            "header": {"alg": header.algorithm} | ({"kid": header.kid} if header.kid else {}),
            "claims": claims,
        }
        | ({"narrowed_from": wider} if wider else {})
    )
    say("this was not checked; pulsarish tokens validate does")


@tokens.command()
@_token_options
@click.option(
    "-sk",
    "--secret-key",
    metavar="KEY",
    help="The secret that has signed it: a file, file:///path, env:NAME, or - for stdin.",
)
@click.option(
    "-pk",
    "--public-key",
    metavar="KEY",
    help="The public key of the pair that has signed it, written like --secret-key.",
)
@click.option(
    "-a",
    "--signature-algorithm",
    type=click.Choice(_PAIR_ALGORITHMS),
    help="The only algorithm to accept with --public-key.",
)
@click.option("--audience", default="", help="The audience that the token must name.")
@click.option(
    "--auth-claim", default="sub", show_default=True, help="The claim that names the role."
)
def validate(
    token: str | None,
    from_stdin: bool,
    token_file: str | None,
    secret_key: str | None,
    public_key: str | None,
    signature_algorithm: str | None,
    audience: str,
    auth_claim: str,
) -> None:
    """Check a token as a server does, and print its role, id and expiry. Status 1: it is refused.

    TOKEN is as in pulsarish tokens show.

    \b
    Examples:
      pulsarish tokens validate --secret-key secret.key --token-file orders.token
      pulsarish tokens validate --public-key my.pub env:ORDERS_TOKEN
    """
    from pulsarish.security.config import AuthenticationConfig
    from pulsarish.security.token_provider import TokenProvider

    if "-" in (secret_key, public_key) and token is None and token_file is None:
        raise click.UsageError("stdin cannot have both the key and the token; name a file for one")
    key = _verification_key(secret_key, public_key, signature_algorithm or "")
    config = AuthenticationConfig(token_audience=audience, token_auth_claim=auth_claim)
    provider = TokenProvider(config, lambda: time.time_ns() // 1_000_000, [key])
    identity = provider.check(_read_token(token, from_stdin, token_file))
    print_json(
        {
            "role": identity.role,
            "token_id": identity.credential_id or None,
            "expires": format_instant(identity.expires_at_ms) if identity.expires_at_ms else None,
        }
        | ({"limits": [limits.shown() for limits in identity.limits]} if identity.limits else {})
    )


def _give_out(token: bytes, path: str | None, force: bool, what: str) -> None:
    if path is None:
        print_line(token.decode())
    else:
        # Without a line end, which some clients would send.
        write_file(path, token, force=force)
        say(f"{what} is in {path}")


def _expiry_seconds(text: str) -> int:
    years = _YEARS.fullmatch(text.strip().lower())
    try:
        seconds = parse_duration(f"{int(years[1]) * 365}d" if years else text)
    except ValueError as error:
        raise click.UsageError(f"--expiry-time: {error}") from None
    if not 0 < seconds <= 1_000 * 365 * 86_400:
        raise click.UsageError("--expiry-time: it must be from 1s to 1000y")
    return seconds


def _signing_key(secret_key: str | None, private_key: str | None) -> SigningKey:
    from pulsarish.security.keys import SigningKey, load_secret_key, load_signing_key

    if (secret_key is None) == (private_key is None):
        raise click.UsageError("give one of --secret-key and --private-key")
    if private_key is not None:
        return load_signing_key("--private-key", key_reference("--private-key", private_key))
    assert secret_key is not None
    found = load_secret_key("--secret-key", key_reference("--secret-key", secret_key))
    return SigningKey(found.key, found.algorithms)


def _verification_key(
    secret_key: str | None, public_key: str | None, algorithm: str
) -> VerificationKey:
    from pulsarish.security.keys import load_public_key, load_secret_key

    if (secret_key is None) == (public_key is None):
        raise click.UsageError("give one of --secret-key and --public-key")
    if public_key is not None:
        reference = key_reference("--public-key", public_key)
        return load_public_key(
            "--public-key",
            reference,
            algorithm=algorithm,
            algorithm_option="--signature-algorithm",
        )
    if algorithm:
        raise click.UsageError("--signature-algorithm is for --public-key")
    assert secret_key is not None
    return load_secret_key("--secret-key", key_reference("--secret-key", secret_key))


def _read_token(token: str | None, from_stdin: bool, token_file: str | None) -> bytes:
    if (token is not None) + from_stdin + (token_file is not None) > 1:
        raise click.UsageError("give one of TOKEN, --stdin and --token-file")
    if token_file is not None:
        return Path(token_file).read_bytes().strip()
    if token is None or token == "-":  # noqa: S105  # stdin
        return read_stdin().strip()
    if token.startswith("env:"):
        name = token.removeprefix("env:")
        if not os.environ.get(name):
            raise click.UsageError(f"the environment variable {name} is not set or empty")
        return os.environ[name].strip().encode()
    if token.startswith("file:"):
        return Path(token.removeprefix("file:").removeprefix("//")).read_bytes().strip()
    raise click.UsageError(
        "a token on the command line can be seen by others; give file:PATH, env:NAME, "
        "--token-file or --stdin"
    )
