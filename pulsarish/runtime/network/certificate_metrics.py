"""When the certificates of a process expire, as a metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.metrics import Family, Metrics, Page
from pulsarish.security.tls import earliest_expiry_ms
from pulsarish.security.watched_file import WatchedFile

__all__ = ["export_certificates"]

_NAME: Final = "pulsarish_certificate_expires_in_days"
_DAY_MS: Final = 86_400_000


def export_certificates(
    metrics: Metrics, files: Mapping[str, str], wall_ms: Callable[[], int]
) -> None:
    """Register the days until the certificates in some files expire.

    A file is read again when it has changed. Listeners and connections say what is wrong with one
    that cannot be read.

    Args:
        files: paths by the options that name them; an empty path: none.
    """
    watched: dict[str, WatchedFile[int]] = {}

    def collect(page: Page) -> Iterator[None]:
        for option, path in files.items():
            page.put(_NAME, page.labels({"option": option}), days_left(option, path))
        return iter(())

    def days_left(option: str, path: str) -> float:
        if not path:
            return math.inf
        try:
            if option not in watched:
                watched[option] = WatchedFile(option, path, _parse, wall_ms, lambda _problem: None)
        except ConfigError:
            return math.nan
        return round((watched[option].read() - wall_ms()) / _DAY_MS, 3)

    meaning = (
        "Days until the first certificate of a file expires; below 0: since then. Inf: there is "
        "none, NaN: it cannot be read."
    )
    metrics.source([Family(_NAME, "gauge", meaning, ("option",))], collect)


def _parse(content: bytes, path: str) -> int:
    return earliest_expiry_ms(content, path)
