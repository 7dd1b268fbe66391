"""Measure a server against an embedded hub and bare sockets, and how its ranks share it.

The graph and the batches are those of kernels.py: 1024 seeds, fan-outs [15, 10, 5], edge ids, and
the rows of all nodes. Everything is on loopback; servers, bare peers and ranks are processes of
their own. The consumer only drops batches. Ratios are of two things measured in turn, in one run;
printed are the median of the pairs and their quartiles.

  same host     a rank that connected by TCP and was moved to the unix socket, over one with a hub
                of its own, two workers each
  moving        batches that were sampled beforehand, from a server to a rank over TCP, over a bare
                loop of send and recv_into with the same sizes and as many of them in transit
  beside zmq    the same, over bare ZeroMQ with frames of two megabytes (where pyzmq is installed)
  moving tls    the same with TLS, over a bare loop of Python's ssl
  together      sampling with two workers and moving, over what the cores allow: their number over
                the processor time of sampling a batch (embedded) plus that of moving one (sampled
                beforehand), both measured in this run
  many ranks    64 ranks together over one alone, small batches; Jain's index of what they got. The
                scheduler shares measured cost: in a short time, numbers of batches vary by chance
  light rank    what a rank got that wants half of its share, beside 63 that want all they can get,
                over what it wanted
  request       an empty call that the server answers itself, over a bare blocking round trip; the
                caller on one core and its peers on another, as on two hosts. Also with all of them
                on one core, and where the system puts them: it may let the bare ones share a core
  channels      what a thousand more channels cost the server, its hub and its workers, in MB
  idle          what a thousand idle ranks with TLS cost the server: MB, and the share of a core
  ends          seconds from SIGKILL of a rank until its channel is free; and, beyond the lease,
                from the moment when nothing reaches a rank any more

Absolute times mean little on a shared machine; the ratios are the result.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent))
from canned_hub import run_canned_server
from kernels import FANOUTS, SEEDS, SIZES, WIDTH
from pool import Readers, pairs, told
from rmat import benchmark_graph

from penstock import Graph, SharedDistSamplingBackend
from penstock.client.channel.channel import Channel
from penstock.client.channel.inputs import inputs_of
from penstock.client.channel.readiness import wait_any
from penstock.client.channel.registration import Registration
from penstock.client.hub.hub import Provider
from penstock.client.remote.hub import RemoteHub
from penstock.client.remote.same_host import hub_on_this_host
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.sampling.kinds import InputKind
from penstock.sampling.spec import NeighborSpec
from penstock.wire.transport.tcp import NEAR_UNSENT

SPEC = NeighborSpec(num_neighbors=tuple(FANOUTS))
SMALL = NeighborSpec(num_neighbors=(10, 5))
SMALL_SEEDS, RANKS, PROCESSES, CHANNELS = 128, 64, 4, 1000
CREDITS = 6  # batches in transit, as many as two workers' channels have slots
IDLE_S = 20.0
PIECE = 2 << 20  # bytes of a ZeroMQ frame, the best size for it
WAIT_S = 120


# --- servers and ranks -----------------------------------------------------------------------


class Child:
    """This script as another process; prints a line when it is up, and ends with its input."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, __file__, *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())

    def say(self, word: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(word)}\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)


@contextmanager
def serving(folder: Path, workers: int = 2, *more: object) -> Iterator[Child]:
    """Run a server as `penstock serve` does."""
    child = Child("--serve", folder, "--workers", workers, *more)
    try:
        yield child
    finally:
        child.close()


class Rank:
    """One remote channel, read to the end of each epoch."""

    def __init__(
        self, address: str, batches: int, *, same_host: bool = False, ca: Path | None = None
    ) -> None:
        self._store = RemoteServer(Endpoint.at(address, ca=ca))
        self._store.connect(Deadline(WAIT_S))
        near = hub_on_this_host(self._store, Deadline(WAIT_S)) if same_host else None
        hub: Provider | None = near
        self.hub = hub or RemoteHub(self._store)
        self.channel = channel_of(self.hub, SPEC, batches * SEEDS, SEEDS)
        self._epoch = -1

    def rate(self, batches: int) -> float:
        self._epoch += 1
        start = time.perf_counter()
        self.channel.start(self._epoch)
        got = sum(1 for _ in self.channel)
        assert got == batches, f"{got} batches came; expected {batches}"
        return batches / (time.perf_counter() - start)

    def close(self) -> None:
        self.channel.close()
        self.hub.close()
        self._store.close()


def channel_of(
    hub: Provider, spec: NeighborSpec, num_inputs: int, batch_size: int, name: str = "rank"
) -> Channel:
    """Open a channel with random inputs."""
    ids = np.random.default_rng(len(name)).integers(0, hub.graph.num_nodes(), num_inputs)
    inputs = inputs_of(hub.graph, ids, InputKind.NODE)
    terms: Any = {"batch_size": batch_size, "shuffle": True, "seed": 1}
    return Channel(hub, Registration.make(hub.graph, spec, inputs, terms).named(name))


def processor_time() -> float:
    """Return the CPU seconds of this process and all its descendants."""
    process, total = psutil.Process(), 0.0
    for each in [process, *process.children(recursive=True)]:
        times = each.cpu_times()
        total += times.user + times.system
    return total


# --- figures ---------------------------------------------------------------------------------


def same_host(folder: Path, graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    with serving(folder) as server, pool_of(graph) as pool:
        embedded = Readers(pool, ["here"], batches)
        rank = Rank(server.told["address"], batches, same_host=True)
        try:
            return pairs(rank.rate, embedded.rate, batches, repeats)
        finally:
            rank.close()


def pool_of(graph: Graph) -> SharedDistSamplingBackend:
    return SharedDistSamplingBackend(graph, SPEC, num_workers=2)


def moving(
    folder: Path, batches: int, repeats: int, bare: str = "tcp", *, tls: bool = False
) -> dict[str, Any]:
    with certificates() as keys:
        secured = ["--keys", keys] if tls else []
        canned = Child("--canned", folder, "--batches", batches, *secured)
        nbytes = canned.told["nbytes"]
        sender = Child("--bare-sender", nbytes, "--bare", bare, *secured)
        rank = Rank(canned.told["address"], batches, ca=keys / "ca.pem" if tls else None)
        receiver = RECEIVERS[bare](sender.told["address"], nbytes)
        try:
            spent = []

            def ours(batches: int) -> float:
                before = processor_time()
                rate = rank.rate(batches)
                spent.append((processor_time() - before) / batches)
                return rate

            measured = pairs(ours, receiver.rate, batches, repeats)
            moved = {"gigabytes_per_second": measured["batches_per_second"] * nbytes / 1e9}
            return {**measured, **moved, "processor_seconds": statistics.median(spent)}
        finally:
            rank.close()
            receiver.close()
            canned.close()
            sender.close()


@contextmanager
def certificates() -> Iterator[Path]:
    """Yield a folder with an authority and a server's certificate."""
    from penstock.server.transport.authority import Authority

    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        authority.issue_server()
        yield Path(folder)


def together(folder: Path, graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    moved_in = moving(folder, batches, 3)["processor_seconds"]
    sampled_in = sampling_cost(graph, batches)
    cores = len(os.sched_getaffinity(0))
    allowed = cores / (sampled_in + moved_in)
    with serving(folder) as server:
        rank = Rank(server.told["address"], batches)
        try:
            rates = [rank.rate(batches) for _ in range(repeats + 2)][2:]
        finally:
            rank.close()
    low, middle, high = statistics.quantiles([rate / allowed for rate in rates], n=4)
    return {
        "ratio": middle,
        "quartiles": [low, high],
        "batches_per_second": statistics.median(rates),
        "against": allowed,
    }


def sampling_cost(graph: Graph, batches: int) -> float:
    """Return the CPU seconds that a batch takes, embedded, everything included."""
    with pool_of(graph) as pool:
        reader = Readers(pool, ["cost"], batches)
        for _ in range(3):
            reader.rate(batches)
        before = processor_time()
        for _ in range(3):
            reader.rate(batches)
        return (processor_time() - before) / (3 * batches)


def many_ranks(folder: Path, number: int, seconds: float, repeats: int) -> dict[str, Any]:
    """Measure all ranks together over one alone, and how evenly they are served."""
    with serving(folder) as server, ExitStack() as stack:
        crowd = [
            Child("--ranks", server.told["address"], "--channels", share)
            for share in shares_of(number)
        ]
        alone = Child("--ranks", server.told["address"], "--channels", 1)
        for child in (*crowd, alone):
            stack.callback(child.close)
        rates, indices = [], []
        for turn in range(repeats + 1):
            one = counted([alone], seconds)
            many = counted(crowd, seconds)
            if turn:  # the first is for warm-up
                rates.append((sum(many) / seconds, sum(one) / seconds))
                indices.append(jain(many))
    low, middle, high = statistics.quantiles([all_ / one for all_, one in rates], n=4)
    return {
        "ratio": middle,
        "quartiles": [low, high],
        "batches_per_second": statistics.median(many for many, _ in rates),
        "against": statistics.median(one for _, one in rates),
        "jain": min(indices),
    }


def light_rank(folder: Path, number: int, seconds: float, repeats: int) -> dict[str, Any]:
    with serving(folder) as server, ExitStack() as stack:
        shares = [RANKS // PROCESSES - (number == 0) for number in range(PROCESSES)]
        crowd = [Child("--ranks", server.told["address"], "--channels", share) for share in shares]
        light = Child("--ranks", server.told["address"], "--channels", 1)
        for child in (*crowd, light):
            stack.callback(child.close)
        total = sum(counted(crowd, seconds)) / seconds
        period = 2 * number / total  # half of its share
        got = []
        for _ in range(repeats):
            for child in crowd:
                child.say({"seconds": seconds + 1})
            light.say({"seconds": seconds, "period": period})
            (batches,) = light.hear()
            got.append(batches / (seconds / period))
            for child in crowd:
                child.hear()
    low, middle, high = statistics.quantiles(got, n=4)
    wanted = {"batches_per_second": middle / period, "against": 1 / period}
    return {"ratio": middle, "quartiles": [low, high], **wanted}


def shares_of(number: int) -> list[int]:
    """Return how many ranks each process has."""
    return [number // PROCESSES + (place < number % PROCESSES) for place in range(PROCESSES)]


def counted(children: Sequence[Child], seconds: float) -> list[int]:
    """Return the batches of each channel, while all children read at once for this long."""
    for child in children:
        child.say({"seconds": seconds})
    return [count for child in children for count in child.hear()]


def jain(counts: Sequence[int]) -> float:
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts))


def request(folder: Path, repeats: int) -> dict[str, Any]:
    with serving(folder, 1) as server:
        echo = Child("--bare-echo")
        store = RemoteServer(Endpoint(server.told["address"]))
        store.connect(Deadline(WAIT_S))
        connected = connected_to(echo.told["address"])

        def bare() -> None:
            connected.sendall(b"x" * 50)
            connected.recv(100)

        def measured() -> dict[str, Any]:
            found = [(timed(lambda: store.call("ping")), timed(bare)) for _ in range(repeats + 1)]
            low, middle, high = statistics.quantiles([one / other for one, other in found[1:]], n=4)
            ours, theirs = (statistics.median(column) for column in zip(*found[1:], strict=True))
            told = {"ratio": middle, "quartiles": [low, high]}
            return {**told, "seconds": ours, "against": theirs}

        cores = sorted(os.sched_getaffinity(0))
        peers = (server.process.pid, echo.process.pid)
        try:
            anywhere = measured()
            place((os.getpid(), *peers), cores[:1])
            together = measured()
            place(peers, cores[-1:])
            apart = measured()
        finally:
            place((os.getpid(),), cores)
            store.close()
            connected.close()
            echo.close()
    return {**apart, "one_core": together["ratio"], "anywhere": anywhere["ratio"]}


def place(processes: Sequence[int], cores: Sequence[int]) -> None:
    """Pin all threads of some processes to these cores."""
    for pid in processes:
        for thread in psutil.Process(pid).threads():
            os.sched_setaffinity(thread.id, cores)


def timed(work: Callable[[], object], times: int = 300) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def channels(folder: Path, count: int) -> dict[str, Any]:
    with serving(folder) as server:
        process = psutil.Process(server.process.pid)
        rank = Child("--register", server.told["address"])
        before = settled_bytes(process)
        rank.say({"channels": count})
        rank.hear()
        after = settled_bytes(process)
        rank.close()
    return {"megabytes": (after - before) / 1e6, "channels": count}


def idle(folder: Path, count: int) -> dict[str, Any]:
    """Measure ranks that are connected, and send nothing but heartbeats."""
    with certificates() as keys, serving(folder, 1, "--keys", keys) as server:
        process = psutil.Process(server.process.pid)
        ranks = Child("--idle", server.told["address"], "--keys", keys)
        before = settled_bytes(process)
        ranks.say({"connections": count})
        ranks.hear()
        after = settled_bytes(process)
        spent = processor_time_of(process)
        time.sleep(IDLE_S)
        share = (processor_time_of(process) - spent) / IDLE_S
        ranks.close()
    return {"megabytes": (after - before) / 1e6, "core": share, "connections": count}


def processor_time_of(process: psutil.Process) -> float:
    """Return the CPU seconds of a process, without its children."""
    times = process.cpu_times()
    return times.user + times.system


def ends(folder: Path, repeats: int) -> dict[str, Any]:
    """Measure how soon a server notices that a rank has gone."""
    lease = 5.0
    killed, cut = [], []
    with serving(folder, 1, "--lease", lease) as server:
        store = RemoteServer(Endpoint(server.told["address"]))
        store.connect(Deadline(WAIT_S))

        def is_free() -> bool:
            return not any(one["channel"] for one in store.call("server_statistics")[0]["sessions"])

        for seconds, mode in ((killed, "kill"), (cut, "cut")):
            for _ in range(repeats):
                rank = Child("--one-rank", server.told["address"])
                begin = time.perf_counter()
                if mode == "kill":
                    rank.process.send_signal(signal.SIGKILL)
                else:
                    rank.say({"cut": True})
                while not is_free():
                    pass
                seconds.append(time.perf_counter() - begin - (lease if mode == "cut" else 0.0))
                rank.process.kill()
                rank.close()
        store.close()
    return {"killed_seconds": max(killed), "cut_seconds_beyond_lease": max(cut)}


def settled_bytes(process: psutil.Process) -> int:
    """Return `own_bytes` once it is stable: all workers are up, and all are idle."""
    before, now = 0, own_bytes(process)
    while abs(now - before) > 1 << 20:
        time.sleep(1.0)
        before, now = now, own_bytes(process)
    return now


def own_bytes(process: psutil.Process) -> int:
    """Return the memory of a process and its children; what they share is counted once."""
    family = [process, *process.children(recursive=True)]
    return sum(each.memory_full_info().pss for each in family)


# --- the other processes ---------------------------------------------------------------------


class ZmqReceiver:
    """A DEALER that takes frames as they come and gives credit for each batch."""

    def __init__(self, address: str, nbytes: int) -> None:
        import zmq

        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.setsockopt(zmq.RCVHWM, 0)
        self._dealer.connect(address)
        self._pieces = -(-nbytes // PIECE)

    def rate(self, batches: int) -> float:
        start = time.perf_counter()
        self._dealer.send(str(batches).encode())
        for _ in range(batches):
            for _ in range(self._pieces):
                self._dealer.recv(copy=False)  # the header of a frame
                self._dealer.recv(copy=False)
            self._dealer.send(b"credit")
        return batches / (time.perf_counter() - start)

    def close(self) -> None:
        self._context.destroy(linger=0)


def zmq_sender(nbytes: int) -> None:
    """Send batches from one piece of memory with a ROUTER, as many as there is credit for."""
    import zmq

    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.SNDHWM, 0)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    memory = memoryview(np.ones((CREDITS, nbytes), np.uint8).reshape(-1))
    stop_with_input()
    tell({"address": f"tcp://127.0.0.1:{port}"})
    head = b"x" * 200
    while True:
        peer, word = router.recv_multipart()
        left, out = int(word), 0
        while left or out:
            if left and out < CREDITS:
                begin = left % CREDITS * nbytes
                for at in range(begin, begin + nbytes, PIECE):
                    piece = memory[at : min(at + PIECE, begin + nbytes)]
                    router.send_multipart([peer, head, piece], copy=False)
                left, out = left - 1, out + 1
            else:
                router.recv_multipart()
                out -= 1


_WORD = struct.Struct("<Q")


class SocketReceiver:
    """A plain socket: receives into reused memory, and gives credit for each batch."""

    def __init__(self, address: str, nbytes: int) -> None:
        self._socket = connected_to(address)
        self._memory = [memoryview(np.ones(nbytes, np.uint8)) for _ in range(CREDITS)]

    def rate(self, batches: int) -> float:
        start = time.perf_counter()
        self._socket.sendall(_WORD.pack(batches))
        for number in range(batches):
            memory, have = self._memory[number % CREDITS], 0
            while have < memory.nbytes:
                have += self._socket.recv_into(memory[have:])
            self._socket.sendall(_WORD.pack(1))
        return batches / (time.perf_counter() - start)

    def close(self) -> None:
        self._socket.close()


class TlsReceiver(SocketReceiver):
    """The same, encrypted."""

    def __init__(self, address: str, nbytes: int) -> None:
        super().__init__(address, nbytes)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket = context.wrap_socket(self._socket)


RECEIVERS: dict[str, Any] = {"tcp": SocketReceiver, "tls": TlsReceiver, "zmq": ZmqReceiver}


def socket_sender(nbytes: int, keys: Path | None) -> None:
    """Send batches from one piece of memory, as many as there is credit for."""
    listening = socket.create_server(("127.0.0.1", 0))
    memory = [memoryview(np.ones(nbytes, np.uint8)) for _ in range(CREDITS)]
    stop_with_input()
    tell({"address": f"tcp://127.0.0.1:{listening.getsockname()[1]}"})
    rank: Any = listening.accept()[0]
    rank.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_UNSENT)
    rank.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if keys is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(keys / "server.pem", keys / "server.key")
        rank = context.wrap_socket(rank, server_side=True)
    while word := rank.recv(_WORD.size):
        left, out = _WORD.unpack(word)[0], 0
        while left or out:
            if left and out < CREDITS:
                rank.sendall(memory[left % CREDITS])
                left, out = left - 1, out + 1
            else:
                rank.recv(_WORD.size)
                out -= 1


def bare_echo() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    stop_with_input()
    tell({"address": f"tcp://127.0.0.1:{listening.getsockname()[1]}"})
    connected, _ = listening.accept()
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while word := connected.recv(100):
        connected.sendall(word)


def connected_to(address: str) -> Any:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    connected = socket.create_connection((host, int(port)))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def serve(folder: Path, arguments: argparse.Namespace) -> None:
    from penstock.server.serving import serve as start

    options = {"num_workers": arguments.workers, "lease": arguments.lease}
    with start(folder, **options, **secured_by(arguments.keys)) as server:
        tell({"address": server.address})
        sys.stdin.read()


def secured_by(keys: Path | None) -> dict[str, Any]:
    return {} if keys is None else {"certificate": keys / "server.pem", "key": keys / "server.key"}


def idle_ranks(address: str, keys: Path) -> None:
    """Open connections as ranks do, with the thread that sends heartbeats."""
    from penstock.rpc.connection import RemoteConnection

    endpoint = Endpoint.at(address, ca=keys / "ca.pem")
    tell({})
    wish = json.loads(sys.stdin.readline())
    kept = []
    for _ in range(wish["connections"]):
        kept.append(RemoteConnection.open(endpoint, Deadline(WAIT_S)))
    tell(len(kept))
    sys.stdin.read()


def one_rank(address: str) -> None:
    """Open a channel in the middle of an epoch; when told to, stop receiving on its socket."""
    store = RemoteServer(Endpoint(address))
    store.connect(Deadline(WAIT_S))
    channel = channel_of(RemoteHub(store), SMALL, 100 * SMALL_SEEDS, SMALL_SEEDS)
    channel.start(0)
    channel.next()
    tell({})
    if sys.stdin.readline():
        cut_all_sockets()
        sys.stdin.read()


def cut_all_sockets() -> None:
    """Let the kernel drop everything that arrives on this process's TCP connections.

    Then nothing that the server sends is acknowledged any more, though this process lives and its
    heartbeats go out.
    """
    program = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF: return 0, drop everything
    held = ctypes.create_string_buffer(program)
    attached = struct.pack("HL", 1, ctypes.addressof(held))
    for connection in psutil.Process().net_connections("tcp"):
        with socket.socket(fileno=os.dup(connection.fd)) as found:
            found.setsockopt(socket.SOL_SOCKET, 26, attached)  # SO_ATTACH_FILTER


def ranks(address: str, count: int) -> None:
    """Open channels with small batches, and read them together for as long as told."""
    store = RemoteServer(Endpoint(address))
    store.connect(Deadline(WAIT_S))
    hub = RemoteHub(store)
    names = [f"rank {number} of {os.getpid()}" for number in range(count)]
    readers = {
        name: channel_of(hub, SMALL, 10_000 * SMALL_SEEDS, SMALL_SEEDS, name) for name in names
    }
    tell({})
    for epoch, line in enumerate(sys.stdin):
        wish = json.loads(line)
        for channel in readers.values():
            channel.start(epoch)
        if "period" in wish:
            tell([paced(readers[names[0]], wish["seconds"], wish["period"])])
        else:
            tell(list(read_for(readers, wish["seconds"]).values()))


def read_for(readers: dict[str, Channel], seconds: float) -> dict[str, int]:
    counts, end = dict.fromkeys(readers, 0), time.monotonic() + seconds
    while time.monotonic() < end:
        for name in wait_any(readers, Deadline(max(0.0, end - time.monotonic()))):
            if readers[name].next() is not None:
                counts[name] += 1
    return counts


def paced(channel: Channel, seconds: float, period: float) -> int:
    """Read a batch each period, if it comes in time."""
    begin, got = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        channel.next()
        got += 1
        time.sleep(max(0.0, begin + got * period - time.monotonic()))
    return got


def register(address: str) -> None:
    store = RemoteServer(Endpoint(address))
    store.connect(Deadline(WAIT_S))
    hub = RemoteHub(store)
    first = channel_of(hub, SMALL, 1024, 128, "first")
    first.start(0)
    first.next()  # workers are started for the first channel
    tell({})
    wish = json.loads(sys.stdin.readline())
    kept = [channel_of(hub, SMALL, 1024, 128, str(number)) for number in range(wish["channels"])]
    tell(len(kept))
    sys.stdin.read()


def stop_with_input() -> None:
    """End this process when the benchmark has gone, or closes its input."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)  # another thread is blocked on a socket

    threading.Thread(target=wait, daemon=True).start()


def tell(word: object) -> None:
    print(json.dumps(word), flush=True)


# --- the whole -------------------------------------------------------------------------------


def measure(
    folder: Path, graph: Graph, arguments: argparse.Namespace, say: Callable[[str], None]
) -> Any:
    batches, repeats, seconds = arguments.batches, arguments.repeats, arguments.seconds
    figures: dict[str, Callable[[], dict[str, Any]]] = {
        "same host": lambda: same_host(folder, graph, batches, repeats),
        "moving": lambda: moving(folder, batches, repeats),
        "beside zmq": lambda: moving(folder, batches, repeats, "zmq"),
        "moving tls": lambda: moving(folder, batches, repeats, "tls", tls=True),
        "together": lambda: together(folder, graph, batches, repeats),
        "many ranks": lambda: many_ranks(folder, arguments.ranks_at_once, seconds, repeats),
        "light rank": lambda: light_rank(folder, arguments.ranks_at_once, seconds, repeats),
        "request": lambda: request(folder, repeats),
        "channels": lambda: channels(folder, arguments.open),
        "idle": lambda: idle(folder, arguments.open),
        "ends": lambda: ends(folder, repeats),
    }
    only = [name for name in arguments.only.split(",") if name]
    if unknown := [name for name in only if name not in figures]:
        raise SystemExit(f"no figure is called {unknown[0]!r}; there are: {', '.join(figures)}")
    result = {}
    for name in only or figures:
        if name == "beside zmq" and find_spec("zmq") is None:
            say(f"{name:>12}: pyzmq is not installed (pip install pyzmq)")
            continue
        result[name] = figures[name]()
        extra = "".join(
            f"; {key.replace('_', ' ')} {result[name][key]:.4g}"
            for key in ("jain", "one_core", "anywhere", "gigabytes_per_second")
            if key in result[name]
        )
        say(f"{name:>12}: {told(result[name])}{extra}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--batches", type=int, default=192, help="batches per measurement")
    parser.add_argument("--repeats", type=int, default=7, help="pairs measured")
    parser.add_argument("--seconds", type=float, default=10.0, help="that many ranks read for")
    parser.add_argument("--ranks-at-once", type=int, default=RANKS, help="that read together")
    parser.add_argument("--open", type=int, default=CHANNELS, help="channels that are opened")
    parser.add_argument("--only", default="", help="some figures, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    for name in (
        "--serve",
        "--canned",
        "--bare-sender",
        "--bare",
        "--ranks",
        "--register",
        "--idle",
        "--one-rank",
    ):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--lease", type=float, default=5.0, help=argparse.SUPPRESS)
    parser.add_argument("--bare-echo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--channels", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if is_other(arguments):
        return

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    num_nodes, num_edges = SIZES[arguments.small]
    say(f"RMAT graph: {num_nodes:,} nodes, {num_edges:,} edges, {WIDTH} x float32 (made once)")
    folder = saved(arguments.folder, num_nodes, num_edges)
    with Graph.open(folder) as graph:
        result = measure(folder, graph, arguments, say)
    if arguments.json:
        print(json.dumps(result, indent=2))


def saved(folder: Path, num_nodes: int, num_edges: int) -> Path:
    """Save the graph where the servers, and what they are compared with, open it."""
    path = folder / f"rmat-{num_nodes}-{num_edges}-{WIDTH}.graph"
    if not path.exists():
        with benchmark_graph(folder, num_nodes, num_edges, WIDTH) as graph:
            graph.save(path)
    return path


def is_other(arguments: argparse.Namespace) -> bool:
    """Do the work of another process, if this is one; return whether it is."""
    if arguments.serve:
        serve(Path(arguments.serve), arguments)
    elif arguments.canned:
        folder, secured = Path(arguments.canned), secured_by(arguments.keys)
        run_canned_server(folder, SPEC, SEEDS, CREDITS, **secured)
    elif arguments.bare_sender and arguments.bare == "zmq":
        zmq_sender(int(arguments.bare_sender))
    elif arguments.bare_sender:
        socket_sender(int(arguments.bare_sender), arguments.keys)
    elif arguments.bare_echo:
        bare_echo()
    elif arguments.ranks:
        ranks(arguments.ranks, arguments.channels)
    elif arguments.register:
        register(arguments.register)
    elif arguments.idle:
        idle_ranks(arguments.idle, arguments.keys)
    elif arguments.one_rank:
        one_rank(arguments.one_rank)
    else:
        return False
    return True


if __name__ == "__main__":
    main()
