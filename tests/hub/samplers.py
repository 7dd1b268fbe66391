"""Samplers as users might write them, most of them badly. They run in workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from penstock.graph import Graph
from penstock.wire import framing
from penstock.wire.messages import BatchId, Begun, Done


def hub_socket() -> int:
    """The descriptor by which the worker this runs in speaks to its hub."""
    return int(sys.argv[sys.argv.index("--socket") + 1])


class Seeds:
    """The seeds, and nothing else."""

    def __init__(self, graph: Graph, **options: Any) -> None:
        self.options = options

    def sample(self, seeds: Any, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        self.misbehave(index)
        return {"n_id": seeds}

    def misbehave(self, index: int) -> None:
        """Nothing, in this one."""


class Unloadable(Seeds):
    """Cannot be made."""

    def __init__(self, graph: Graph, **options: Any) -> None:
        raise RuntimeError("this sampler wants a licence")


class LoadableLater(Seeds):
    """Cannot be made before the file `path` is there."""

    def __init__(self, graph: Graph, *, path: str) -> None:
        if not Path(path).exists():
            raise RuntimeError("not yet")
        super().__init__(graph)


class RaisesAtThree(Seeds):
    """Fails batch 3."""

    def misbehave(self, index: int) -> None:
        if index == 3:
            raise ZeroDivisionError("three is a crowd")


class RaisesAlways(Seeds):
    """Fails every batch, at length."""

    def misbehave(self, index: int) -> None:
        raise RuntimeError("no " * 1000)


class DiesAtThree(Seeds):
    """Kills its worker at batch 3, every time."""

    def misbehave(self, index: int) -> None:
        if index == 3:
            print("last words of the sampler", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)


class SleepsAtThree(Seeds):
    """Never comes back from batch 3."""

    def misbehave(self, index: int) -> None:
        if index == 3:
            threading.Event().wait()


class _Once(Seeds):
    """Does something in the first process that manages to make the file `once`."""

    def misbehave(self, index: int) -> None:
        try:
            os.close(os.open(self.options["once"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self.act(index)

    def act(self, index: int) -> None:
        raise NotImplementedError


class Garbles(_Once):
    """Says to its hub what is no message."""

    def act(self, index: int) -> None:
        os.write(hub_socket(), b"\xff" * 64)


class ClaimsAnother(_Once):
    """Claims to have made a batch that nobody asked for."""

    def act(self, index: int) -> None:
        done = Done(batch=BatchId(99, 0, 0), cost=0.1, layouts=(), nbytes=0)
        os.write(hub_socket(), framing.frame(done))


class BeginsTwice(_Once):
    """Claims to begin what it has begun."""

    def act(self, index: int) -> None:
        os.write(hub_socket(), framing.frame(Begun(batch=BatchId(1, 0, index))))


class LateForItsEnd(_Once):
    """Ends its first batch when it is asked for its stacks, shows none, and hangs in the next."""

    late = False

    def misbehave(self, index: int) -> None:
        if self.late:
            threading.Event().wait()
        super().misbehave(index)

    def act(self, index: int) -> None:
        asked = threading.Event()
        signal.signal(signal.SIGUSR1, lambda *_: asked.set())
        asked.wait()
        self.late = True


class Large(Seeds):
    """More than any slot is likely to have."""

    def sample(self, seeds: Any, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        return {"n_id": seeds, "weights": np.zeros(1 << 20)}
