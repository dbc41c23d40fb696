"""The HTTP port of a server without an admin API: health and metrics."""

from __future__ import annotations

from collections.abc import Callable

from pulsarish.runtime.metrics import TEXT_TYPE, Metrics
from pulsarish.runtime.seams import HttpRequest, HttpResponse

__all__ = ["answer_watcher"]


async def answer_watcher(
    request: HttpRequest, health: Callable[[], HttpResponse], metrics: Metrics
) -> HttpResponse:
    """Answer GET of ``/health`` and ``/metrics``. Refuse every other request with a reason."""
    if request.method != "GET":
        return HttpResponse(405, b'{"reason": "only GET is served here"}')
    match request.path.strip("/"):
        case "health":
            return health()
        case "metrics":
            return HttpResponse(200, await metrics.scrape(), TEXT_TYPE)
        case _:
            return HttpResponse(404, b'{"reason": "there are /health and /metrics"}')
