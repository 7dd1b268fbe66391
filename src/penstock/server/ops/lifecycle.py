"""The one server of a process: made once, found by everyone, ended in three phases.

Loaders destroy their channels; each compute process leaves; the server ends when somebody has
called `exit`. It does not count clients and waits for none, except a short time for channels that
are still open: a crashed client cannot delay its end. The exit status tells whether clients left
something behind.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, Final, Protocol

from penstock.graph import Graph
from penstock.server.dist.dist_server import DistServer, LeftBehind
from penstock.server.ops.statistics import ServerStatistics

log = logging.getLogger(__name__)

GRACE_S: Final = 5.0
_MOMENT_S: Final = 1.0
CLEAN: Final = 0
# Not 1 and 2, which Python and the shell use themselves.
LEFT_BEHIND: Final = 3
NEVER_ASKED: Final = 4


# Options of `DistServer` that `serve` takes as `store_options`; it has the others itself.
_OWN_OPTIONS: Final = frozenset(
    each.name
    for each in signature(DistServer).parameters.values()
    if each.kind is Parameter.KEYWORD_ONLY
) - {"num_workers", "samplers", "input_folders", "limits"}


class RunningServer(Protocol):
    """What serves a `DistServer` at an address: the interface of `serving.Server` used here."""

    @property
    def address(self) -> str:
        """Return the address that ranks connect to."""

    @property
    def store(self) -> DistServer:
        """Return the `DistServer` that is served."""

    def drain(self, grace: float) -> bool:
        """Give connected ranks `grace` seconds to leave; return whether all have left."""

    def statistics(self) -> ServerStatistics:
        """Return a snapshot, with the sessions."""

    def close(self) -> Any:
        """End it, with everything it serves."""


_lock: Final = threading.Lock()
_server: DistServer | None = None
_running: RunningServer | None = None


def init_server(data: Graph, address: str | None = None, **options: Any) -> DistServer:
    """Make and start the server of this process; there is one at a time.

    Args:
        data: The graph, or a part of one.
        address: Where to serve it; `server.address` then has the real port. Without an address only
            this process can use it.
        **options: Options of `DistServer` and, with an address, of `serve`.

    Returns:
        The server.

    Raises:
        RuntimeError: This process has a server already.
        ValueError: An argument is not valid; the error names it.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> server = ps.init_server(graph, num_workers=0)
        >>> server.get_node_ids("train").tolist()
        [0, 2]
        >>> server.exit()
        True
        >>> ps.wait_and_shutdown_server()
        0
    """
    global _server, _running
    with _lock:
        if _server is not None:
            raise RuntimeError("this process has a server: end it by wait_and_shutdown_server()")
        if address is None:
            server, running = _started(DistServer(data, **options)), None
        else:
            running = _opened(data, address, options)
            server = running.store
            server.address = running.address
        _server, _running = server, running
    return server


def get_server() -> DistServer:
    """Return the server of this process.

    Raises:
        RuntimeError: There is none.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> server = ps.init_server(graph, num_workers=0)
        >>> ps.get_server() is server
        True
        >>> server.exit(), ps.wait_and_shutdown_server()
        (True, 0)
    """
    if (server := _server) is None:
        raise RuntimeError("this process has no server: make one by init_server()")
    return server


def wait_and_shutdown_server(timeout: float | None = None, grace: float = GRACE_S) -> int:
    """Wait until somebody calls `exit`, then end the server; does nothing without a server.

    Args:
        timeout: Seconds to wait for `exit`.
        grace: Seconds for ranks to destroy their open channels and to leave.

    Returns:
        An exit status for the process: 0; 3 if clients had left channels or backends behind; 4 if
            nobody called `exit` in time.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> server = ps.init_server(graph, num_workers=0)
        >>> ps.wait_and_shutdown_server(timeout=0)  # nobody has called exit
        4
    """
    global _server, _running
    server, running = _server, _running
    if server is None:
        return CLEAN
    asked = server.wait_for_exit(timeout)
    if asked and running is not None:
        running.drain(grace)
        # What a session held is released a moment after it has left.
        grace = min(grace, _MOMENT_S)
    if asked:
        server.drain(grace)
    status = ended(server, running, asked=asked)
    if running is not None:
        running.close()
    with _lock:
        if _server is server:
            _server = _running = None
    return status


def ended(server: DistServer, running: RunningServer | None, *, asked: bool = True) -> int:
    """End a server; return the exit status, by what its clients had left behind."""
    still_there = () if running is None else _channels_of(running)
    left = server.close()
    return _status_of(replace(left, channels=(*left.channels, *still_there)), asked=asked)


def _status_of(left: LeftBehind, *, asked: bool) -> int:
    if left:
        log.warning("the server ended; clients left open: %s", left)
        return LEFT_BEHIND
    return CLEAN if asked else NEVER_ASKED


def _channels_of(running: RunningServer) -> tuple[str, ...]:
    """Return the names of the channels that loaders have open."""
    sessions = running.statistics().sessions
    return tuple(each.job or each.name or each.peer for each in sessions if each.channel)


def _started(server: DistServer) -> DistServer:
    try:
        server.start()
    except BaseException:
        server.close()
        raise
    return server


def _opened(data: Graph, address: str, options: dict[str, Any]) -> RunningServer:
    from penstock.server.serving import serve

    own = {name: options.pop(name) for name in _OWN_OPTIONS & options.keys()}
    files = options.pop("input_folders", ())
    running: RunningServer = serve(data, address, files=files, store_options=own, **options)
    return running
