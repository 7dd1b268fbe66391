"""A rank's process: `python -m penstock.demo.rank FD`, started by the demonstration.

It receives what to do on its socket, and reports progress there. It ends with the process that
started it: the kernel ensures that, and elsewhere it notices the end of the socket at the next
batch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from contextlib import ExitStack
from datetime import timedelta
from typing import Final

from penstock.demo.telling import Brief, Entered, FromRank, GoOn, RankFailed, Stage, ToRank
from penstock.wire.stream import Stream

EXIT_FAILED: Final = 1
EXIT_ALONE: Final = 2  # the parent is gone
_PR_SET_PDEATHSIG: Final = 1
# Ranks may wait for one that pauses, or is stopped in a debugger. One that died is noticed at once.
_PATIENCE: Final = timedelta(hours=1)
_FLUSH_S: Final = 30.0


class ParentConnection:
    """The socket to the process that started this rank."""

    def __init__(self, fd: int) -> None:
        self._stream: Stream[ToRank] = Stream(socket.socket(fileno=fd), ToRank)
        self._heard: deque[ToRank] = deque()

    def tell(self, message: FromRank) -> None:
        """Send a message. Exit if the parent is gone."""
        self._stream.send(message)
        if self._stream.wait(0):
            self._listen()

    def hear(self) -> ToRank:
        """Return the next message; wait for it."""
        while not self._heard:
            self._stream.wait()
            self._listen()
        return self._heard.popleft()

    def _listen(self) -> None:
        self._heard.extend(message for message, _ in self._stream.receive())
        if self._stream.ended:
            sys.exit(EXIT_ALONE)

    def pause(self) -> None:
        """Wait until told to go on."""
        while not isinstance(self.hear(), GoOn):
            pass

    def flush(self) -> None:
        """Return when everything has been sent."""
        self._stream.flush(_FLUSH_S)


def main(fd: int) -> int:
    """Run a rank to its end; return its exit status."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    line = ParentConnection(fd)
    brief = line.hear()
    assert isinstance(brief, Brief)
    try:
        _train(brief, line)
    except Exception as error:
        traceback.print_exc()
        line.tell(RankFailed(at=time.monotonic(), what=f"{type(error).__name__}: {error}"))
        line.flush()
        return EXIT_FAILED
    line.tell(Entered(stage=Stage.DONE, at=time.monotonic()))
    line.flush()
    return 0


def _train(brief: Brief, line: ParentConnection) -> None:
    # Imported here, so that failures are reported to the parent: it takes seconds, and torch may be
    # missing.
    import torch
    import torch.distributed as dist

    from penstock.client.hub.joined import connect
    from penstock.demo.trainer import Trainer
    from penstock.graph import Graph

    torch.set_num_threads(1)  # one core per rank, at most
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(brief.rendezvous, brief.plan.ranks),  # type: ignore[attr-defined]
        rank=brief.rank,
        world_size=brief.plan.ranks,
        timeout=_PATIENCE,
    )
    with ExitStack() as ends:
        hub = ends.enter_context(connect(brief.address))
        whole = hub.graph if brief.whole is None else ends.enter_context(Graph.open(brief.whole))
        Trainer(brief.plan, brief.rank, hub, whole, line.tell, line.pause).run()
    dist.destroy_process_group()  # not after an error: there may be nobody left to agree with


if __name__ == "__main__":
    status = main(int(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is sent and closed; an orderly exit of torch would take another second.
    os._exit(status)
