"""Mutated frames at the socket of a real server, and very many connections that say nothing.

What is sent begins as a valid conversation, and is changed by chance: bits, lengths, order, ends.
Everything follows from a seed, so that a conversation that does harm can be had again:
`python -c "from tests.server.transport.test_fuzz import replay; replay('tcp://…', 7, 123)"`.
"""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.sampling.spec import Feed
from penstock.server.transport.authority import Authority
from penstock.wire import values
from penstock.wire.framing import CHUNK, HEADER, PREAMBLE, encode
from penstock.wire.messages import (
    Call,
    Goodbye,
    Heartbeat,
    Message,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Unregister,
)
from penstock.wire.payload import pack
from penstock.wire.transport.tls import client_context
from tests.cli.servers import Running
from tests.client.graphs import PATIENCE_S, SPEC, small_graph
from tests.client.ranks import ROOT
from tests.processes import until
from tests.server.bystanders import Bystander, answers_at_once, listened_to, unharmed
from tests.server.ranks import BareRank, hello
from tests.server.transport.strangers import Stranger, frame, place_of
from tests.wishes import register

SEED = 7
MILLION = 1_000_000
# Connections of the attacker's that are open at once.
AT_ONCE = 8
# What a server calls its messages, and those that are heard of in any attack.
KINDS = (b"Welcome", b"Registered", b"BatchReady", b"EpochDone", b"Answer", b"Refused")
OFTEN = ("Welcome", "Registered", "Answer", "Refused")


# --- conversations ------------------------------------------------------------------------------


def _with_payload(message: Message, lane: int, data: bytes) -> bytes:
    chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    more = [HEADER.pack(0, 0, lane, len(chunk)) + chunk for chunk in chunks[1:]]
    return frame(encode(message), lane, len(data)) + chunks[0] + b"".join(more)


def _register(arrays: dict[str, Any], **fields: Any) -> bytes:
    packed = pack(arrays)
    feed = Feed(num_inputs=0, batch_size=16, shuffle=True, seed=7)
    asked = register(request=1, spec=SPEC, feed=feed, slots=2, arrays=packed.arrays, **fields)
    if not arrays:
        return frame(encode(asked))
    return _with_payload(asked, 0, b"".join(packed.views))


def _call(request: int, verb: str, lane: int, **arguments: Any) -> bytes:
    plain, arrays = values.pack(arguments)
    packed = pack(arrays)
    call = Call(request=request, verb=verb, arguments=plain, arrays=packed.arrays)
    if not arrays:
        return frame(encode(call), lane)
    return _with_payload(call, lane, b"".join(packed.views))


def conversation(chance: random.Random, channel: int) -> list[bytes]:
    """The frames of a rank that does nothing wrong, but that it may know no channel."""
    inputs: list[tuple[dict[str, Any], str | None]] = [
        ({"ids": np.arange(40)}, None),
        ({}, "train"),
        ({"ids": np.arange(9), "columns/x": np.ones(9)}, None),
    ]
    arrays, split = chance.choice(inputs)
    of_a_channel = [
        frame(encode(StartEpoch(channel=channel, epoch=chance.randrange(4)))),
        frame(encode(ReturnSlot(channel=channel, slot=chance.randrange(3)))),
        frame(encode(Reweigh(channel=channel, weight=2.0))),
        frame(encode(Unregister(channel=channel))),
    ]
    calls = [
        _call(2, "get_node_label", 2, index=np.arange(50)),
        _call(3, "get_node_feature", 3, index=np.zeros(CHUNK // 8 + 100, np.int64)),
        _call(4, "get_node_ids", 0, split="train"),
        _call(5, "ping", 1),
        frame(encode(Heartbeat(reply=chance.random() < 0.5))),
    ]
    first = [frame(encode(hello(name="fuzz"))), _register(arrays, split=split)]
    frames = [*first, *of_a_channel]
    for call in chance.sample(calls, chance.randint(0, 3)):
        frames.insert(chance.randint(1, len(frames)), call)
    return [*frames, frame(encode(Goodbye()))]


# --- mutations ----------------------------------------------------------------------------------

LENGTHS = (0, 1, 7, 15, 16, 17, 255, 8192, 8193, CHUNK, CHUNK + 1, 2**31, 2**32 - 1)
PAYLOADS = (0, 1, 63, 64, CHUNK - 1, CHUNK, CHUNK + 1, 2**40, 2**63, 2**64 - 1)


def _flip(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    # Mostly near the beginning, where the header and the message are.
    end = len(data) if chance.random() < 0.2 else min(len(data), 200)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(end)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(min(len(data), 300))]


def _double(chance: random.Random, data: bytes) -> bytes:
    return data * chance.randint(2, 3)


def _lie(chance: random.Random, data: bytes) -> bytes:
    """Another header before the same bytes."""
    length, descriptors, lane, payload = HEADER.unpack_from(data)
    match chance.randrange(4):
        case 0:
            length = chance.choice((*LENGTHS, length - 1, length + 1))
        case 1:
            descriptors = chance.choice((1, 2, 253, 2**16 - 1))
        case 2:
            lane = chance.choice((0, 1, 2, 3, 2**16 - 1))
        case _:
            payload = chance.choice((*PAYLOADS, payload - 1, payload + 1))
    return HEADER.pack(length % 2**32, descriptors, lane, payload % 2**64) + data[HEADER.size :]


def _splice(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(min(len(data), 300))
    noise = chance.randbytes(chance.choice((1, 2, 16, 300, 70_000)))
    return data[:at] + noise + data[at + chance.choice((0, 0, len(noise))) :]


def _drop(chance: random.Random, data: bytes) -> bytes:
    return b""


MUTATIONS = (_flip, _flip, _cut, _double, _lie, _lie, _splice, _drop)


def mutated(chance: random.Random, frames: list[bytes]) -> int:
    """Changes some frames of a conversation, in place; how many."""
    count = chance.choice((1, 1, 1, 2, 3))
    for _ in range(count):
        at = chance.randrange(len(frames))
        if chance.random() < 0.1:
            other = chance.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        elif len(frames[at]) >= HEADER.size:
            frames[at] = chance.choice(MUTATIONS)(chance, frames[at])
    return count


# --- the attacker, in a process of its own ------------------------------------------------------


class Attacker:
    """One connection: it says what it was given, listens a little, and goes."""

    def __init__(
        self, address: str, seed: int, number: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self._chance = chance = random.Random(f"{seed}/{number}")
        self._socket = socket.create_connection(place_of(address), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self.heard = bytearray()
        frames = conversation(chance, chance.randrange(1, 4))
        informed = chance.random() < 0.2
        if informed:  # it waits until it is told its channel, and then lies
            frames = self._informed(frames)
        self.mutated = mutated(chance, frames)
        if not informed:
            frames.insert(0, PREAMBLE)
            if chance.random() < 0.02:
                self.mutated += mutated(chance, frames[:1])
        self._say(b"".join(frames))

    def _informed(self, frames: list[bytes]) -> list[bytes]:
        self._say(PREAMBLE + frames[0] + _register({}, split="train"))
        with suppress(OSError):
            while b"Registered" not in self.heard and b"Refused" not in self.heard:
                data = self._socket.recv(1 << 16)
                if not data:
                    break
                self.heard += data
        found = self.heard.rfind(b"\xa7channel")
        channel = self.heard[found + 8] if 0 <= found < len(self.heard) - 8 else 1
        if channel in (0xCC, 0xCD):  # a number of one byte, or of two
            size = 1 if channel == 0xCC else 2
            channel = int.from_bytes(self.heard[found + 9 : found + 9 + size])
        return conversation(self._chance, channel)[2:]

    def _say(self, data: bytes) -> None:
        """In pieces, as a network might cut it."""
        with suppress(OSError):
            at = 0
            while at < len(data):
                size = self._chance.choice((1, 10, 100, 1000, 1 << 16, 1 << 20))
                self._socket.sendall(data[at : at + size])
                at += size

    def end(self) -> None:
        """Listens to what has come, and goes: with a farewell, or without."""
        with suppress(OSError):
            self._socket.setblocking(False)
            while data := self._socket.recv(1 << 16):
                self.heard += data
        if self._chance.random() < 0.5:
            with suppress(OSError):
                now = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        self._socket.close()


def attack(address: str, frames: int, seed: int, ca: str = "") -> None:
    """Sends so many mutated frames, and prints what came of it. `ca`: they are encrypted."""
    if frames >= MILLION:
        os.nice(19)  # speed is compared, and what it takes itself is not the server's doing
    tls = client_context(ca) if ca else None
    sent, heard, number = 0, Counter[str](), 0
    there: deque[Attacker] = deque()
    while sent < frames or there:
        if sent < frames and len(there) < AT_ONCE:
            number += 1
            try:
                there.append(Attacker(address, seed, number, tls))
            except OSError as error:
                print(json.dumps({"failed": f"{error}, seed {seed}, conversation {number}"}))
                sys.exit(1)
            sent += there[-1].mutated
            continue
        gone = there.popleft()
        gone.end()
        heard.update(kind.decode() for kind in KINDS if kind in gone.heard)
    print(json.dumps({"frames": sent, "conversations": number, **heard}))


def replay(address: str, seed: int, number: int) -> None:
    """One conversation again."""
    Attacker(address, seed, number).end()


PROGRAM = """
import sys
from tests.server.transport.test_fuzz import attack
attack(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
"""


def attacked(address: str, frames: int, ca: Path | None = None) -> dict[str, int]:
    """What came of an attack."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address, str(frames), str(SEED), str(ca or "")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


# --- what the others notice ---------------------------------------------------------------------


class Reader(Bystander):
    """Reads the same three epochs again and again, so that each batch is compared."""

    def __init__(self, address: str, graph: Graph) -> None:
        super().__init__(address, graph)
        self.batches = 0

    def run(self) -> None:
        try:
            while not self._over.is_set():
                with BareRank(self._address) as rank:
                    self._read_three(rank)
        except BaseException as error:
            self.failure = error
        self.has_begun.set()

    def _read_three(self, rank: BareRank) -> None:
        rank.greet(name="reader")
        rank.register(split="train", slots=2)
        for epoch, wanted in enumerate(self._expected):
            rank.start(epoch)
            seen = rank.read()
            assert seen == wanted
            self.batches += len(seen)
            self.epochs += 1
            self.has_begun.set()
        rank.goodbye()

    def rate(self, seconds: float) -> float:
        """Batches a second, from now on for so long."""
        before, began = self.batches, time.monotonic()
        until(lambda: time.monotonic() - began > seconds, "they were counted")
        return (self.batches - before) / (time.monotonic() - began)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("served") / "graph"
    with small_graph() as graph:
        graph.save(path)
    return path


@pytest.fixture(scope="module")
def graph(folder: Path) -> Iterator[Graph]:
    with Graph.open(folder) as opened:
        yield opened


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    with listened_to(folder, "--workers", 1, "--lease", PATIENCE_S) as running:
        yield running


@contextmanager
def reading(running: Running, graph: Graph) -> Iterator[Reader]:
    """Somebody who reads all the time, and compares."""
    made = Reader(running.address, graph)
    made.start()
    try:
        assert made.has_begun.wait(PATIENCE_S)
        yield made
    finally:
        made.ended()


@pytest.mark.parametrize(
    "frames",
    [3000, pytest.param(MILLION, marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)])],
)
def test_mutated_frames_harm_nobody(
    server: Running, graph: Graph, frames: int, record_property: Any
) -> None:
    """CONTRACT 73: the server lives, keeps nothing, and others read the same bytes, as fast."""
    with unharmed(server, graph), reading(server, graph) as reader:
        before = reader.rate(1.0)
        began, batches = time.monotonic(), reader.batches
        came_of_it = attacked(server.address, frames)
        during = (reader.batches - batches) / (time.monotonic() - began)
    assert came_of_it["frames"] >= frames
    # Not all of them were stopped at the first frame.
    assert all(came_of_it.get(kind, 0) > 0 for kind in OFTEN), came_of_it
    record_property("batches a second before and in the attack", f"{before:.0f}, {during:.0f}")
    print(f"{came_of_it}; batches a second: {before:.0f}, and {during:.0f} in the attack")
    if frames >= MILLION:
        assert during >= before / 2


@pytest.mark.parametrize(
    "frames",
    [300, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)])],
)
def test_mutated_frames_harm_nobody_when_they_are_encrypted(
    folder: Path, graph: Graph, tmp_path: Path, frames: int
) -> None:
    """CONTRACT 73: what is encrypted for those who must go is encrypted by other threads."""
    Authority(tmp_path).issue_server()
    ca = tmp_path / "ca.pem"
    tls = client_context(ca)
    options = ("--certificate", tmp_path / "server.pem", "--key", tmp_path / "server.key")
    with (
        listened_to(folder, "--workers", 1, "--lease", PATIENCE_S, *options, tls=tls) as running,
        unharmed(running, graph, tls),
    ):
        came_of_it = attacked(running.address, frames, ca)
    assert all(came_of_it.get(kind, 0) > 0 for kind in OFTEN), came_of_it


# --- those who say nothing ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connections", "most"),
    [
        (500, 256),
        pytest.param(10_000, 512, marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_ten_thousand_connections_that_say_nothing(
    folder: Path, graph: Graph, connections: int, most: int
) -> None:
    """CONTRACT 73: those who speak get in, and nothing stays."""
    _take_descriptors(connections + 500)
    options = ("--workers", 1, "--lease", PATIENCE_S, "--limit", f"max_strangers={most}")
    with listened_to(folder, *options) as running, unharmed(running, graph):
        with ExitStack() as stack:
            silent = deque(
                stack.enter_context(Stranger(running.address)) for _ in range(connections)
            )
            answers_at_once(running.address)
            until(lambda: _gone(silent) <= most, "those who came first are hung up on")
            answers_at_once(running.address)


def _gone(silent: deque[Stranger]) -> int:
    """How many are left, counted from the last; those before are let go of."""
    while silent and silent[0].is_closed:
        silent.popleft().close()
    return len(silent)


def _take_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"this process may have {hard} descriptors, and {count} are wanted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
