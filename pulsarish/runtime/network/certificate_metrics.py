"""When the certificates of a process expire, as a metric."""

from __future__ import annotations

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

    A file is read again when it has changed. One that cannot be read has no series: listeners and
    connections say what is wrong with it.

    Args:
        files: paths by the options that name them; an empty path has no series.
    """
    watched: dict[str, WatchedFile[int]] = {}

    def collect(page: Page) -> Iterator[None]:
        for option, path in files.items():
            if not path:
                continue
            try:
                if option not in watched:
                    watched[option] = WatchedFile(
                        option, path, _parse, wall_ms, lambda _problem: None
                    )
            except ConfigError:
                continue
            days = (watched[option].read() - wall_ms()) / _DAY_MS
            page.put(_NAME, page.labels({"option": option}), round(days, 3))
        return iter(())

    meaning = "Days until the first certificate of a file expires; below 0: since then."
    metrics.source([Family(_NAME, "gauge", meaning, ("option",))], collect)


def _parse(content: bytes, path: str) -> int:
    return earliest_expiry_ms(content, path)
