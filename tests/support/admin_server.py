"""A broker's HTTP face for tests of the admin client: it answers what it was told to, and keeps
what it was asked.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from click.testing import Result

from tests.support.commands import run_command

__all__ = ["NEW", "SPACE", "AdminServer", "admin_server", "run"]

SPACE = "/admin/v2/namespaces/acme/orders"
NEW = "/admin/v2/persistent/acme/orders/new"


_Answer = tuple[int, Any, Mapping[str, str]]


@dataclass
class AdminServer:
    url: str = ""
    answers: dict[str, Callable[[], _Answer]] = field(default_factory=dict)  # by "METHOD /path"
    otherwise: Callable[[str, str], _Answer] = lambda method, path: (204, None, {})
    # method, path with query, body
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)  # headers, one for each request

    def answer(
        self,
        request: str,
        status: int = 200,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``request``: as ``GET /admin/v2/tenants``, without a query.

        What was not told is answered by ``otherwise``.
        """
        self.answers[request] = lambda: (status, body, headers or {})

    def answer_each(self, request: str, answer: Callable[[], tuple[int, Any]]) -> None:
        """Asked again each time."""
        self.answers[request] = lambda: (*answer(), {})


@contextmanager
def admin_server(tls: ssl.SSLContext | None = None) -> Iterator[AdminServer]:
    """Serve on ``127.0.0.1``, or with TLS on ``localhost``."""
    found = AdminServer()

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(length)
            found.requests.append((self.command, self.path, json.loads(sent) if sent else None))
            found.authorizations.append(self.headers.get("Authorization"))
            path = self.path.partition("?")[0]
            answer = found.answers.get(f"{self.command} {path}")
            status, body, headers = (
                answer() if answer is not None else found.otherwise(self.command, path)
            )
            data = (
                b""
                if body is None
                else body
                if isinstance(body, bytes)
                else json.dumps(body).encode()
            )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = handle_one  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        # The handshake is done by the thread of the connection.
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        found.url = f"https://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(server: AdminServer, *arguments: str) -> Result:
    """Run a command against the server."""
    return run_command({"PULSARISH_ADMIN_URL": server.url}, *arguments)
