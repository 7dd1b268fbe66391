"""The other end of a channel's connection, played by the test: it says what no hub should say.

Over real sockets, with real memory; only who decides what is said differs.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Any

import numpy as np

from penstock.client.channel.inputs import inputs_of
from penstock.client.channel.registration import Registration
from penstock.client.hub.connection import HubConnection
from penstock.client.hub.hub import Hub
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.rpc.deadline import Deadline
from penstock.wire.frames import BatchWriter
from penstock.wire.messages import (
    PROTOCOL,
    ArrayLayout,
    BackendCreated,
    BatchId,
    BatchReady,
    FromHubToRank,
    FromRankToHub,
    Refused,
    Registered,
    Report,
    Welcome,
)
from penstock.wire.stream import Stream
from penstock.workers.arena import Arena
from tests.client.graphs import SPEC, TERMS

CHANNEL = 7
SLOTS = 4


class Script:
    """One boot of a hub that has answered everything before it was asked."""

    def __init__(
        self, *, protocol: int = PROTOCOL, refusal: Report | None = None, mute: bool = False
    ) -> None:
        self.ours, theirs = socket.socketpair()
        self.stream: Stream[FromRankToHub] = Stream(theirs, FromRankToHub)
        self.arena = Arena.create(SLOTS, 4096, 4096)
        self.say(Welcome(protocol=protocol, boot="b", pid=1, address="unix://@scripted"))
        if mute:
            return
        self.say(BackendCreated(request=1, backend=1))
        if refusal is not None:
            self.say(Refused(request=2, report=refusal))
            return
        registered = Registered(request=2, channel=CHANNEL, arena=self.arena.plan)
        self.stream.send(registered, self.arena.descriptors)

    def say(self, message: FromHubToRank) -> None:
        self.stream.send(message)

    def hear(self) -> list[FromRankToHub]:
        """What the rank has said since it was last asked, but the registration."""
        heard = [message for message, _ in self._receive()]
        return [m for m in heard if type(m).__name__ not in ("Hello", "CreateBackend", "Register")]

    def _receive(self) -> list[tuple[Any, list[int]]]:
        received = self.stream.receive()
        for _, fds in received:
            for fd in fds:
                socket.close(fd)
        return received

    def ready(self, step: int, *, epoch: int = 0, slot: int = 0, **changes: Any) -> BatchReady:
        """A batch in a slot: one array, which says what it is."""
        writer = BatchWriter(self.arena.memory(slot))
        writer.array("mark", "int64", 1)[:] = 100 * epoch + step
        layouts = writer.commit()
        batch = BatchId(changes.pop("channel", CHANNEL), epoch, step)
        told: dict[str, Any] = {"batch": batch, "index": step, "slot": slot, "layouts": layouts}
        return BatchReady(**{**told, "nbytes": writer.nbytes, **changes})

    def close(self) -> None:
        self.stream.close()
        self.arena.close()


class ScriptedHub(Hub):
    """Boots follow each other as they are written."""

    address = "unix://@scripted"
    patience = 1.0

    def __init__(self, graph: Graph, *scripts: Script) -> None:
        self.graph = graph
        self._scripts = deque(scripts)
        self.all = scripts

    def reach(self, deadline: Deadline, patience: Deadline | None = None) -> HubConnection:
        if not self._scripts:
            raise HubGone("the play is over")
        connection = HubConnection(self._scripts.popleft().ours)
        try:
            connection.greet(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def check_hope(self) -> None:
        pass

    def pause(self, seconds: float, deadline: Deadline) -> None:
        pass

    def close(self) -> None:
        for script in self.all:
            script.close()


def registration(graph: Graph) -> Registration:
    """What the channel asks for: 15 batches."""
    return Registration.make(graph, SPEC, inputs_of(graph, "train"), {**TERMS, "job": "play"})


def bad_layout() -> tuple[ArrayLayout, ...]:
    return (ArrayLayout("mark", "int64", (4096,), 0),)


def mark(batch: Any) -> int:
    return int(np.asarray(batch["mark"])[0])
