"""The tokens that open the metrics of processes without an admin API."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta

from pulsarish.model.errors import ConfigError
from pulsarish.security.watched_file import WatchedFile, check_private

__all__ = ["MetricsTokenFile", "MetricsTokens"]

MetricsTokenFile = Annotated[
    str,
    Meta(
        description=(
            "File with a token in each line: /metrics answers only requests that show one of them "
            "(Authorization: Bearer TOKEN); /health stays open. Read again when it changes. Empty: "
            "everyone gets metrics."
        )
    ),
]

_OPTION: Final = "metrics_token_file"
_CHARACTERS_MIN: Final = 32
_TOKENS_MAX: Final = 16
_SCHEME: Final = "bearer "


class MetricsTokens:
    """The tokens of ``metrics_token_file``, read again when the file changes.

    Args:
        on_problem: gets a sentence when a changed file cannot be taken.

    Raises ``ConfigError`` when the file is wrong at the start.
    """

    def __init__(
        self, path: str, wall_ms: Callable[[], int], on_problem: Callable[[str], None]
    ) -> None:
        self._file = WatchedFile(_OPTION, path, _parse, wall_ms, on_problem)

    def accept(self, authorization: str) -> bool:
        """Return whether a header ``Authorization`` shows one of the tokens."""
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return False
        shown = authorization[len(_SCHEME) :].strip().encode()
        same = [hmac.compare_digest(shown, token) for token in self._file.read()]
        return any(same)


def _parse(content: bytes, path: str) -> tuple[bytes, ...]:
    check_private(_OPTION, path)
    tokens = tuple(line.strip() for line in content.split(b"\n") if line.strip())
    if not tokens or min(map(len, tokens)) < _CHARACTERS_MIN or not content.isascii():
        raise ConfigError(
            f"{_OPTION}: each line of {path} has to be a token of {_CHARACTERS_MIN} characters of "
            "ASCII or more, and there has to be one: make it with pulsarish tokens "
            f"create-secret-key --base64 --output {path}"
        )
    if len(tokens) > _TOKENS_MAX:
        raise ConfigError(
            f"{_OPTION}: {path} has {len(tokens)} lines; at most {_TOKENS_MAX} are taken"
        )
    return tokens
