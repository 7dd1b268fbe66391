"""The server of a process: made once, found by all, ended in three phases.

Loaders destroy their channels; each compute process leaves; the server ends when somebody has
called `exit`. It counts nobody and waits for nobody but, for a moment, for channels that are still
open: a client that crashed cannot hold it up. Whether something was left behind is told by the exit
status.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, Final, Protocol

from penstock.graph import Graph
from penstock.graph.partition.partition import Partition
from penstock.server.dist.dist_server import DistServer, LeftBehind
from penstock.server.ops.statistics import ServerStatistics

log = logging.getLogger(__name__)

GRACE_S: Final = 5.0
_MOMENT_S: Final = 1.0
CLEAN: Final = 0
# Not 1 and 2, which are Python's and the shell's own.
LEFT_BEHIND: Final = 3
NEVER_ASKED: Final = 4


# Those of `DistServer`'s options that `serve` hands on as they are; the others are its own, too.
_OWN_OPTIONS: Final = frozenset(
    each.name
    for each in signature(DistServer).parameters.values()
    if each.kind is Parameter.KEYWORD_ONLY
) - {"num_workers", "samplers", "input_folders", "limits"}


class Door(Protocol):
    """What serves a `DistServer` at an address."""

    @property
    def address(self) -> str:
        """Where it is found."""

    @property
    def store(self) -> DistServer:
        """The server behind it."""

    def drain(self, grace: float) -> bool:
        """Gives those who are there so many seconds; whether all have left."""

    def statistics(self) -> ServerStatistics:
        """Who is there."""

    def close(self) -> Any:
        """Ends everything behind the door, too."""


_lock: Final = threading.Lock()
_server: DistServer | None = None
_door: Door | None = None


def init_server(data: Graph | Partition, address: str | None = None, **options: Any) -> DistServer:
    """Makes the server of this process, and starts it; at an address, if it is given one (then it
    is `server.address`, with the real port).

    For the options see `DistServer` and, with an address, `serve`. There is one at a time.
    """
    global _server, _door
    with _lock:
        if _server is not None:
            raise RuntimeError("this process has a server: end it by wait_and_shutdown_server()")
        if address is None:
            server, door = _started(DistServer(data, **options)), None
        else:
            door = _opened(data, address, options)
            server = door.store
            server.address = door.address
        _server, _door = server, door
    return server


def get_server() -> DistServer:
    """The server of this process."""
    if (server := _server) is None:
        raise RuntimeError("this process has no server: make one by init_server()")
    return server


def wait_and_shutdown_server(timeout: float | None = None, grace: float = GRACE_S) -> int:
    """Waits until somebody calls `exit`, then ends the server; an exit status for the process.

    0; 3 if clients had left channels or backends behind; 4 if nobody called `exit` within `timeout`
    seconds. `grace`: seconds for channels that are open to be destroyed by their ranks, and for
    ranks to take leave. Without a server there is nothing to end.
    """
    global _server, _door
    server, door = _server, _door
    if server is None:
        return CLEAN
    asked = server.wait_for_exit(timeout)
    if asked and door is not None:
        door.drain(grace)
        # What a session had is let go of a moment after it has left.
        grace = min(grace, _MOMENT_S)
    if asked:
        server.drain(grace)
    status = ended(server, door, asked=asked)
    if door is not None:
        door.close()
    with _lock:
        if _server is server:
            _server = _door = None
    return status


def ended(server: DistServer, door: Door | None, *, asked: bool = True) -> int:
    """Ends a server; how its process is to end, by what clients had left behind at its door."""
    still_there = () if door is None else _channels_of(door)
    left = server.close()
    return _status_of(replace(left, channels=(*left.channels, *still_there)), asked=asked)


def _status_of(left: LeftBehind, *, asked: bool) -> int:
    if left:
        log.warning("the server ended, and clients had left behind: %s", left)
        return LEFT_BEHIND
    return CLEAN if asked else NEVER_ASKED


def _channels_of(door: Door) -> tuple[str, ...]:
    """The channels of loaders that came through the door."""
    sessions = door.statistics().sessions
    return tuple(each.job or each.name or each.peer for each in sessions if each.channel)


def _started(server: DistServer) -> DistServer:
    try:
        server.start()
    except BaseException:
        server.close()
        raise
    return server


def _opened(data: Graph | Partition, address: str, options: dict[str, Any]) -> Door:
    from penstock.server.serving import serve

    own = {name: options.pop(name) for name in _OWN_OPTIONS & options.keys()}
    files = options.pop("input_folders", ())
    door: Door = serve(data, address, files=files, store_options=own, **options)
    return door
