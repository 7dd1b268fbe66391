"""The process of a hub: `python -m penstock.hub.process --control FD`, started by a rank.

The control socket is the connection of that rank, the founder. Its first message is HubConfig; when
it closes, the hub ends. As a second safeguard the kernel sends SIGKILL when the thread that started
the hub dies: another process may hold the socket open by mistake, and a stopped hub would handle no
other signal. The hub ignores Ctrl-C: its rank decides what that means. After SIGTERM, workers
finish their batches, then the hub ends.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.errors import PenstockError, ProtocolError
from penstock.hub.listener import HubListener
from penstock.hub.loop import DRAIN_S, Loop
from penstock.hub.reports import report_of
from penstock.hub.state import HubState
from penstock.wire.messages import FromRankToHub, HubConfig, Refused
from penstock.wire.stream import Stream

log = logging.getLogger("penstock.hub")

LOG_VARIABLE: Final = "PENSTOCK_LOG"

# The exit status.
EXIT_OK: Final = 0
EXIT_REFUSED: Final = 3  # it could not start with the HubConfig it got
EXIT_INTERNAL: Final = 4  # its own state may be wrong

_PR_SET_PDEATHSIG: Final = 1
# Thresholds of the garbage collector. Cycles are rare here, and the channels' stories are long.
_GARBAGE: Final = (20_000, 20, 20)
# Closing takes a few seconds at most. If it hangs, an alarm ends the process.
_PATIENCE_S: Final = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a hub to its end, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m penstock.hub.process", description=__doc__)
    parser.add_argument("--control", type=int, required=True, metavar="FD")
    control = socket.socket(fileno=parser.parse_args(arguments).control)
    control.set_inheritable(False)
    _set_up_process()
    _set_up_logging()
    stream: Stream[FromRankToHub] = Stream(control, FromRankToHub)
    try:
        return _serve(stream)
    finally:
        stream.close()


def _serve(stream: Stream[FromRankToHub]) -> int:
    with contextlib.ExitStack() as stack:
        try:
            first = _first_words(stream)
            if first is None:
                return EXIT_OK  # the founder has closed the socket
            (config, fds), more = first
            if not fds:
                raise ProtocolError("HubConfig came without a socket that listens")
            listener = HubListener(fds[0], config.address)
            stack.callback(listener.close)
            state = HubState(config, fds[1:])
            stack.callback(state.close)
        except (PenstockError, ValueError, OSError, MemoryError) as error:
            log.error("the hub cannot be started: %s", error)
            stream.send(Refused(request=0, report=report_of(error)))
            stream.flush(1.0)
            return EXIT_REFUSED
        return _run(state, listener, stream, more)


_Said = tuple[FromRankToHub, list[int]]


def _first_words(
    stream: Stream[FromRankToHub],
) -> tuple[tuple[HubConfig, list[int]], list[_Said]] | None:
    """Return HubConfig and the messages received with it; None if the socket was closed."""
    received: list[_Said] = []
    while not received and not stream.ended:
        stream.wait()
        received = stream.receive()
    if not received:
        return None
    (config, fds), *more = received
    if not isinstance(config, HubConfig):
        raise ProtocolError(f"the first message must be HubConfig, not {type(config).__name__}")
    return (config, fds), more


def _run(
    state: HubState, listener: HubListener, stream: Stream[FromRankToHub], more: list[_Said]
) -> int:
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        loop = Loop(state, listener, reader)
        founder = loop.add_founder(stream)
        founder.backlog.extend(more)
        state.backlogged.add(founder)
        # Loaded modules stay for ever. The collector need not scan them again and again, as the
        # loop makes hardly any garbage.
        gc.freeze()
        gc.set_threshold(*_GARBAGE)
        with _terminable(loop, writer):
            try:
                loop.run()
            except Exception as error:
                # With a wrong state the hub could lose batches or deliver them twice. The founder
                # starts another hub, and the ranks resume there with what they have.
                log.critical(
                    "the hub ends, for something impossible has happened: %s", error, exc_info=True
                )
                return EXIT_INTERNAL
    return EXIT_OK


@contextlib.contextmanager
def _terminable(loop: Loop, writer: socket.socket) -> Iterator[None]:
    def drain(*_: object) -> None:
        signal.alarm(int(DRAIN_S) + _PATIENCE_S)
        loop.drain()

    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    handler = signal.signal(signal.SIGTERM, drain)
    try:
        yield
    finally:
        # The hub is ending already, so SIGTERM has nothing more to do.
        signal.signal(signal.SIGTERM, signal.SIG_IGN if handler == signal.SIG_DFL else handler)
        signal.set_wakeup_fd(before)
        signal.alarm(_PATIENCE_S)


def _set_up_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # If a launcher has made SIGCHLD ignored, the kernel would discard the workers' exit statuses.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _end_with_founder()
    # Every channel costs three descriptors, and so does every worker.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _end_with_founder() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _set_up_logging() -> None:
    level = os.environ.get(LOG_VARIABLE, "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        level = "WARNING"
    logging.basicConfig(
        level=level, format=f"penstock hub {os.getpid()}: %(message)s", stream=sys.stderr
    )
    # The rank gets the same warnings about its options. Here nobody would see them, and a user's
    # filter could turn them into errors.
    warnings.simplefilter("ignore", UserWarning)


if __name__ == "__main__":
    sys.exit(main())
