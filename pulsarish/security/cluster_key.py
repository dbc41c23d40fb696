"""The secret that the members of a cluster share, and the short-lived tokens that they show each
other.

A bookie with a key serves members only, so a client's credentials, however they were come by, open
no ledger. A token names the role of its member and ends after minutes. That of a reader names the
ledgers that it opens, too. A token is a JSON Web Token with an audience of its own, so a token for
clients is none for bookies even when it was made with the same key.

The key file has one key in each line, in base64. The first one signs, all are accepted. The file is
read again when it changes, so a key is replaced without a restart: add the new one at the end of
every member's file, then move it to the front, then remove the old one.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta

from pulsarish.model.errors import AuthenticationError, ConfigError, InvalidArgument
from pulsarish.model.position import ID_MAX
from pulsarish.security.credentials import Credentials, CredentialsSource, Secret, no_credentials
from pulsarish.security.membership import MemberKind
from pulsarish.security.watched_file import WatchedFile, check_private

__all__ = [
    "CLUSTER_METHOD",
    "READER_LEDGERS_MAX",
    "READER_LIFE_MS_MAX",
    "ClusterKey",
    "ClusterKeyFile",
    "Member",
    "ReaderKind",
]

ClusterKeyFile = Annotated[
    str,
    Meta(
        description=(
            "File with the secret that the members of the cluster share: brokers, bookies and "
            "auto-recovery show tokens made with it, and a bookie that has it serves no one else. "
            "Read again when it changes. Empty: none."
        )
    ),
]

ReaderKind = Literal["auditor", "reader"]
"""Who only reads: an auditor every ledger, a reader those that its token names."""

CLUSTER_METHOD: Final = "cluster"
_AUDIENCE: Final = "pulsarish-cluster"
_LIFE_MS: Final = 600_000
_SKEW_MS: Final = 900_000
"""By how much the clocks of two machines may differ."""
_KEY_BYTES_MIN: Final = 32
READER_LEDGERS_MAX: Final = 128
"""How many ledgers the token of one reader names at most."""
READER_LIFE_MS_MAX: Final = 7 * 24 * 3_600_000
_TOKEN_BYTES_MAX: Final = 4_096
"""Enough for the largest ids of ``READER_LEDGERS_MAX`` ledgers."""
_ALGORITHM: Final = "HS256"


@dataclass(frozen=True, slots=True)
class Member:
    """A caller whose token was checked."""

    role: str
    expires_at_ms: int
    """When the token ends, in milliseconds since the epoch."""
    key: Secret = field(repr=False)
    """The key that the token was made with."""
    ledgers: frozenset[int] | None = None
    """The only ledgers that it may use; ``None``: the role alone says what it may do."""


class ClusterKey:
    """Makes and checks the tokens of members.

    Args:
        keys: returns the keys in force; the first one signs, all are accepted.
        wall_ms: the time, in milliseconds since the epoch.
    """

    def __init__(self, keys: Callable[[], Sequence[Secret]], wall_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._wall_ms = wall_ms

    @classmethod
    def read(
        cls, path: str, wall_ms: Callable[[], int], on_problem: Callable[[str], None]
    ) -> ClusterKey:
        """Read a key file, now and whenever it changes.

        Args:
            on_problem: gets a sentence when a changed file cannot be taken; the keys before stay.

        Raises ``ConfigError`` when the file is wrong at the start.
        """
        return cls(WatchedFile("cluster_key_file", path, _parse, wall_ms, on_problem).read, wall_ms)

    def credentials_of(self, role: MemberKind) -> CredentialsSource:
        """Return what a member of this kind shows.

        A token is made again at half of its life, and when another key signs.
        """
        made = no_credentials()
        renew_ms = 0
        signed_by: Secret | None = None

        def current() -> Credentials:
            nonlocal made, renew_ms, signed_by
            now_ms = self._wall_ms()
            key = self._keys()[0]
            # also when the clock was set back: a token from the future is not accepted
            if key != signed_by or not renew_ms - _LIFE_MS < now_ms < renew_ms:
                made = Credentials(CLUSTER_METHOD, _token(key, role, now_ms + _LIFE_MS))
                renew_ms = now_ms + _LIFE_MS // 2
                signed_by = key
            return made

        return current

    def reader_token(self, life_ms: int, ledger_ids: Iterable[int] | None) -> Secret:
        """Return a token that opens ledgers for reading alone.

        Args:
            life_ms: from now on, at most ``READER_LIFE_MS_MAX``.
            ledger_ids: at most ``READER_LEDGERS_MAX``; ``None``: every ledger, and their lists.

        Raises ``InvalidArgument``.
        """
        if not 0 < life_ms <= READER_LIFE_MS_MAX:
            raise InvalidArgument(
                f"a token for reading lasts up to {READER_LIFE_MS_MAX // 1_000} s, not "
                f"{life_ms / 1_000:g} s"
            )
        end_ms = self._wall_ms() + life_ms
        if ledger_ids is None:
            return _token(self._keys()[0], "auditor", end_ms)
        ids = sorted(frozenset(ledger_ids))
        if not 0 < len(ids) <= READER_LEDGERS_MAX or ids[0] < 0 or ids[-1] > ID_MAX:
            raise InvalidArgument(
                f"a token for reading names 1 to {READER_LEDGERS_MAX} ledgers, not {len(ids)}"
            )
        # Each as its distance from the one before: ids that were given out together take two digits
        # instead of nineteen.
        steps = [after - before for before, after in zip([0, *ids], ids, strict=False)]
        return _token(self._keys()[0], "reader", end_ms, ledgers=steps)

    def end_of(self, member: Member) -> str:
        """Return why what a member has opened ends now; empty: it stays.

        A member's token is checked at openings only, and its key always. That of one that only
        reads ends what it has opened.
        """
        if member.key not in self._keys():
            return f"the key of {member.role} was removed from cluster_key_file"
        if member.role in get_args(ReaderKind):
            return self._lateness(member.role, member.expires_at_ms)
        return ""

    def identify(self, credentials: Credentials) -> Member:
        """Return the member that shows a token. Raises ``AuthenticationError``."""
        if credentials.method != CLUSTER_METHOD:
            shown = "no credentials" if not credentials.method else "those of a client"
            raise AuthenticationError(
                f"only members of the cluster are served here, and the caller shows {shown}; set "
                "cluster_key_file there"
            )
        import jwt  # only a process with a key needs it

        token = credentials.data.reveal()
        if len(token) > _TOKEN_BYTES_MAX:
            raise AuthenticationError(f"a token of a member has at most {_TOKEN_BYTES_MAX} bytes")
        for key in self._keys():
            try:
                claims = jwt.decode(
                    token,
                    key.reveal(),
                    algorithms=[_ALGORITHM],
                    audience=_AUDIENCE,
                    # The time is checked below: it is this process's clock that counts.
                    options={
                        "require": ["sub", "exp", "aud"],
                        "verify_exp": False,
                        "verify_iat": False,
                        "verify_nbf": False,
                    },
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError:
                raise AuthenticationError("what the caller shows is no token of a member") from None
            role, end = claims["sub"], claims["exp"]
            if not isinstance(role, str) or not isinstance(end, int):
                raise AuthenticationError("what the caller shows is no token of a member")
            # One that ends in a far future is taken: a member whose clock is ahead must be served.
            if late := self._lateness(role, end * 1_000):
                raise AuthenticationError(late)
            return Member(role, end * 1_000, key, _ledgers_of(role, claims))
        raise AuthenticationError(
            "the token of the caller was made with another key; cluster_key_file must have a key "
            "in common on both sides"
        )

    def _lateness(self, role: str, end_ms: int) -> str:
        """Return what to say of a token that has ended; empty: it has not."""
        late_ms = self._wall_ms() - end_ms
        if late_ms <= _SKEW_MS:
            return ""
        return (
            f"the token of {role} ended {late_ms // 1_000} s ago; are the clocks of both machines "
            "right?"
        )


def _parse(content: bytes, path: str) -> tuple[Secret, ...]:
    check_private("cluster_key_file", path)
    keys: list[Secret] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            key = b64decode(line.strip(), validate=True)
        except ValueError:
            raise ConfigError(f"cluster_key_file: line {number} of {path} is not base64") from None
        if len(key) < _KEY_BYTES_MIN:
            raise ConfigError(
                f"cluster_key_file: the key in line {number} of {path} has {len(key)} bytes; "
                f"{_KEY_BYTES_MIN} are needed"
            )
        keys.append(Secret(key))
    if not keys:
        raise ConfigError(
            f"cluster_key_file: {path} is empty: make it with pulsarish tokens "
            f"create-secret-key --base64 --output {path}"
        )
    return tuple(keys)


def _ledgers_of(role: str, claims: dict[str, Any]) -> frozenset[int] | None:
    """Return the ledgers that a token names. Raises ``AuthenticationError``.

    That of a reader names some, and where others do, they are held to them.
    """
    steps = claims.get("ledgers", [] if role == "reader" else None)
    if steps is None:
        return None
    if (
        not isinstance(steps, list)
        or not 0 < len(steps) <= READER_LEDGERS_MAX
        or not all(type(step) is int and step >= 0 for step in steps)
    ):
        raise AuthenticationError("the token of a reader does not say which ledgers it opens")
    return frozenset(accumulate(steps))


def _token(key: Secret, role: str, end_ms: int, **claims: object) -> Secret:
    import jwt

    all_claims = {"sub": role, "aud": _AUDIENCE, "exp": end_ms // 1_000, **claims}
    return Secret(jwt.encode(all_claims, key.reveal(), algorithm=_ALGORITHM))
