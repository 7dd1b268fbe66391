"""Read-only HTTP pages: one for people, the others for programs.

    /healthz    200 while the server's threads live
    /readyz     200 when ranks can be served: the workers are up, and it is not leaving
    /metrics    every statistic, in Prometheus format
    /statistics the same as JSON
    /           the same as a page

It has threads of its own, so a slow reader delays nothing else. Nothing can be changed from here.
"""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, SHUT_RDWR, socket
from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.server.ops.metrics import metrics_of
from penstock.wire.transport.tcp import is_loopback

log = logging.getLogger(__name__)

MOST_READERS: Final = 32
_SLOWEST_S: Final = 5.0  # seconds a client may take for a request
_TEXT: Final = "text/plain; charset=utf-8"
_STYLE: Final = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;margin:0 0 1.5rem}"
    "td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}"
    "th{font-weight:600}h2{font-size:1rem;margin:1.2rem 0 .2rem}"
)


@dataclass(frozen=True)
class PageSource:
    """Where the pages get their content. `healthy` and `ready` return None, or what is wrong."""

    statistics: Callable[[], Mapping[str, Any]]
    healthy: Callable[[], str | None]
    ready: Callable[[], str | None]
    title: str = "Penstock"


@dataclass(frozen=True)
class Page:
    """One response."""

    body: str
    kind: str = _TEXT
    status: HTTPStatus = HTTPStatus.OK


class Pages:
    """Serves the pages at `address` ("127.0.0.1:7071"; port 0: any) until it is closed."""

    def __init__(
        self,
        address: str,
        source: PageSource,
        *,
        public: bool = False,
        patience: float = _SLOWEST_S,
    ) -> None:
        host, port = _apart(address)
        if not public and not is_loopback(host):
            raise ValueError(
                f"http is {address!r}, which other hosts can reach and read statistics from: "
                "allow it by name (http_public=True), or bind to 127.0.0.1"
            )
        self._server = _Server((host, port), source, patience)
        self._open = True
        self._thread = threading.Thread(target=self._serve, name="penstock-http", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Return the address with the real port, http://host:port."""
        host, port = self._server.server_address[:2]
        named = host.decode() if isinstance(host, bytes) else host
        return f"http://[{named}]:{port}" if ":" in named else f"http://{named}:{port}"

    def close(self) -> None:
        """Stop serving. Idempotent."""
        self._open = False
        with suppress(OSError):  # it has ended already
            self._server.socket.shutdown(SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        # `serve_forever` would poll twice a second for the end.
        while self._open:
            self._server.handle_request()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], source: PageSource, patience: float) -> None:
        self.source = source
        self.patience = patience
        self._room = threading.BoundedSemaphore(MOST_READERS)
        if ":" in address[0]:
            self.address_family = AF_INET6
        super().__init__(address, _Reader)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the request in a thread, unless there are too many."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle the request, and free its place afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Ignore clients that disconnected or were too slow."""
        log.debug("an HTTP client was lost", exc_info=True)


class _Reader(BaseHTTPRequestHandler):
    server: _Server
    server_version = f"penstock/{__version__}"
    sys_version = ""

    def setup(self) -> None:
        """Set the timeout for slow clients."""
        super().setup()
        self.connection.settimeout(self.server.patience)

    def do_GET(self) -> None:
        self._send(self._page(), with_body=True)

    def do_HEAD(self) -> None:
        self._send(self._page(), with_body=False)

    def _page(self) -> Page:
        source = self.server.source
        try:
            match self.path.partition("?")[0]:
                case "/healthz":
                    return _word(source.healthy())
                case "/readyz":
                    return _word(source.ready())
                case "/metrics":
                    kind = "text/plain; version=0.0.4; charset=utf-8"
                    return Page(metrics_of(source.statistics()), kind)
                case "/statistics":
                    text = msgspec.json.format(msgspec.json.encode(source.statistics())).decode()
                    return Page(text, "application/json")
                case "/":
                    return Page(page_of(source), "text/html; charset=utf-8")
        except Exception as error:
            log.warning("making page %s failed", self.path, exc_info=True)
            return Page(f"{error}\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        there = "/, /healthz, /readyz, /metrics, /statistics"
        return Page(f"there is no such page; there are {there}\n", status=HTTPStatus.NOT_FOUND)

    def _send(self, page: Page, *, with_body: bool) -> None:
        body = page.body.encode()
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def page_of(source: PageSource) -> str:
    """Return the statistics as an HTML page."""
    wrong = source.healthy() or source.ready()
    state = html.escape(wrong or "ready")
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>",
        f"<title>{html.escape(source.title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(source.title)}</h1><p>{state}</p>",
    ]
    for name, value in source.statistics().items():
        parts.append(f"<h2>{html.escape(str(name))}</h2>{_shown(value)}")
    return "".join(parts)


def _shown(value: Any) -> str:
    match value:
        case Mapping():
            rows = (
                f"<tr><th>{html.escape(str(key))}<td>{_shown(each)}" for key, each in value.items()
            )
            return f"<table>{''.join(rows)}</table>"
        case list() | tuple() if value and all(isinstance(each, Mapping) for each in value):
            return _rows(value)
        case list() | tuple():
            return html.escape(", ".join(map(str, value))) or "none"
        case float():
            return f"{value:.6g}"
    return html.escape(str(value))


def _rows(things: Any) -> str:
    """Return a table with a row for each of several mappings."""
    columns = list(dict.fromkeys(key for thing in things for key in thing))
    head = "".join(f"<th>{html.escape(str(column))}" for column in columns)
    rows = (
        "<tr>" + "".join(f"<td>{_shown(thing.get(column, ''))}" for column in columns)
        for thing in things
    )
    return f"<table><tr>{head}{''.join(rows)}</table>"


def _word(wrong: str | None) -> Page:
    if wrong is None:
        return Page("ok\n")
    return Page(f"{wrong}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)


def _apart(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("http://").rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"http is {address!r}; expected host:port (port 0: any)")
    return host.strip("[]"), int(port)
