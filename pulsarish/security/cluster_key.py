"""The secret that the members of a cluster share, and the short-lived tokens that they show each
other.

A bookie with a key serves members only, so a client's credentials, however they were come by, open
no ledger. A token names the role of its member and ends after minutes. It is a JSON Web Token with
an audience of its own, so a token for clients is none for bookies even when it was made with the
same key.

The key file has one key in each line, in base64. The first one signs, all are accepted: a key is
replaced without a pause by adding the new one at the end of every member's file, then moving it to
the front, then removing the old one, with a rolling restart after each step.
"""

from __future__ import annotations

import stat
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from pulsarish.model.errors import AuthenticationError, ConfigError
from pulsarish.security.credentials import Credentials, CredentialsSource, Secret, no_credentials
from pulsarish.security.identity import Identity
from pulsarish.security.membership import MemberKind

__all__ = ["CLUSTER_METHOD", "ClusterKey", "ClusterKeyFile", "member_credentials"]

ClusterKeyFile = Annotated[
    str,
    Meta(
        description=(
            "File with the secret that the members of the cluster share: brokers, bookies and "
            "auto-recovery show tokens made with it, and a bookie that has it serves no one else. "
            "Empty: none."
        )
    ),
]

CLUSTER_METHOD: Final = "cluster"
_AUDIENCE: Final = "pulsarish-cluster"
_LIFE_MS: Final = 600_000
_SKEW_MS: Final = 900_000
"""By how much the clocks of two machines may differ."""
_KEY_BYTES_MIN: Final = 32
_TOKEN_BYTES_MAX: Final = 1_024
_ALGORITHM: Final = "HS256"


class ClusterKey:
    """Makes and checks the tokens of members.

    Args:
        keys: the first one signs, all are accepted.
        wall_ms: the time, in milliseconds since the epoch.
    """

    def __init__(self, keys: Sequence[Secret], wall_ms: Callable[[], int]) -> None:
        assert keys, "a cluster key file has at least one key"
        self._keys = tuple(keys)
        self._wall_ms = wall_ms

    @classmethod
    def read(cls, path: str, wall_ms: Callable[[], int]) -> ClusterKey:
        """Read a key file. Raises ``ConfigError``."""
        keys: list[Secret] = []
        try:
            mode = Path(path).stat().st_mode
            lines = Path(path).read_bytes().split(b"\n")
        except OSError as error:
            raise ConfigError(f"cluster_key_file: {path}: {error.strerror}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                f"cluster_key_file: {path} can be read by other users: chmod 600 {path}"
            )
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                key = b64decode(line.strip(), validate=True)
            except ValueError:
                raise ConfigError(
                    f"cluster_key_file: line {number} of {path} is not base64"
                ) from None
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
        return cls(keys, wall_ms)

    def credentials_of(self, role: MemberKind) -> CredentialsSource:
        """Return what a member of this kind shows.

        A token is made again at half of its life.
        """
        made = no_credentials()
        renew_ms = 0

        def current() -> Credentials:
            nonlocal made, renew_ms
            now_ms = self._wall_ms()
            # also when the clock was set back: a token from the future is not accepted
            if not renew_ms - _LIFE_MS < now_ms < renew_ms:
                made = Credentials(CLUSTER_METHOD, self._token(role, now_ms))
                renew_ms = now_ms + _LIFE_MS // 2
            return made

        return current

    def identify(self, credentials: Credentials) -> Identity:
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
        for key in self._keys:
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
            late_ms = self._wall_ms() - end * 1_000
            if late_ms > _SKEW_MS:
                raise AuthenticationError(
                    f"the token of {role} ended {late_ms // 1_000} s ago; are the clocks of both "
                    "machines right?"
                )
            if -late_ms > _LIFE_MS + _SKEW_MS:
                raise AuthenticationError(
                    f"the token of {role} ends in {-late_ms // 1_000} s, so it lasts longer than a "
                    "member makes it; are the clocks of both machines right?"
                )
            return Identity(role, CLUSTER_METHOD, end * 1_000)
        raise AuthenticationError(
            "the token of the caller was made with another key; cluster_key_file must have a key "
            "in common on both sides"
        )

    def _token(self, role: str, now_ms: int) -> Secret:
        import jwt

        claims = {"sub": role, "aud": _AUDIENCE, "exp": (now_ms + _LIFE_MS) // 1_000}
        return Secret(jwt.encode(claims, self._keys[0].reveal(), algorithm=_ALGORITHM))


def member_credentials(
    path: str, role: MemberKind, wall_ms: Callable[[], int]
) -> CredentialsSource:
    """Return what a member shows whose option ``cluster_key_file`` is ``path``; empty: nothing.

    Raises ``ConfigError``.
    """
    return ClusterKey.read(path, wall_ms).credentials_of(role) if path else no_credentials
