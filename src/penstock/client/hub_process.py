"""A hub of one's own: a child process that ends with this one, and is replaced when it dies."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Literal, Self, TypedDict, Unpack

from penstock.client.deadline import Deadline, positive_seconds
from penstock.client.hub import PATIENCE_S, Hub
from penstock.client.keeper import Keeper, Phase
from penstock.client.naming import search_path
from penstock.client.sizes import parse_bytes
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.graph.handles import MemfdHandle
from penstock.graph.sharing import segments_of
from penstock.hub.address import socket_address
from penstock.wire.messages import Found
from penstock.workers.limits import auto_workers

# How often in a row a hub may die, without a batch in between, before it is given up.
RESTARTS: Final = 5
START_TIMEOUT_S: Final = 60.0

_Size = Literal["soft_memory", "hard_memory", "max_arena_bytes"]
_SIZES: Final[tuple[_Size, ...]] = ("soft_memory", "hard_memory", "max_arena_bytes")


class PoolOptions(TypedDict, total=False):
    """How the pool of a hub is run; see `Found`. Memory in bytes, or as "512MB"."""

    worker_concurrency: int
    beat_every: float
    silence: float
    start_limit: float
    max_batches: int | None
    max_age: float | None
    soft_memory: int | str | None
    hard_memory: int | str | None
    max_channels: int
    max_arena_bytes: int | str | None
    max_connections: int
    slow_step: float


class HubProcess(Hub):
    """A hub for `graph`, with a pool of workers. Nothing runs before `start()`.

    `address` is where other processes can join it (`penstock.connect`); without one it gets a name
    that nobody else has, and no file.
    """

    def __init__(
        self,
        graph: Graph,
        num_workers: int | Literal["auto"] = "auto",
        *,
        address: str | None = None,
        restarts: int = RESTARTS,
        start_timeout: float = START_TIMEOUT_S,
        patience: float = PATIENCE_S,
        **options: Unpack[PoolOptions],
    ) -> None:
        check_handed_on(graph)
        self.graph = graph
        self.num_workers = _workers(num_workers)
        self.address = address or f"unix://@penstock-{uuid.uuid4().hex}"
        socket_address(self.address)  # complains of one that is none
        self.patience = positive_seconds(patience, "patience")
        self._restarts = restarts
        self._start_timeout = positive_seconds(start_timeout, "start_timeout")
        self._options = _settled(options)
        self._owner = os.getpid()
        self._starting = threading.Lock()
        self._keeper: Keeper | None = None
        self._closed = False

    def start(self) -> None:
        """Starts the hub; returns when it can be joined. Idempotent. `HubGone` with the cause."""
        self._check_process()
        with self._starting:
            if self._closed:
                raise HubGone("the hub was closed")
            keeper = self._keeper = self._keeper or self._kept()
        keeper.wait_for(lambda now: now.phase is not Phase.STARTING, Deadline(None))
        self.check_hope()

    def _kept(self) -> Keeper:
        keeper = Keeper(
            _foundation(self.graph, self.address, self.num_workers, self._options),
            restarts=self._restarts,
            start_timeout=self._start_timeout,
        )
        # At exit keepers see to it themselves, and wait. From the garbage collector, which may be
        # called anywhere, waiting could be for ever.
        weakref.finalize(self, keeper.ask_to_stop).atexit = False
        return keeper

    def check_hope(self) -> None:
        """`HubGone` once the keeper has given up, or was asked to end."""
        self._check_process()
        keeper = self._keeper
        if keeper is None:
            raise HubGone("the hub was closed" if self._closed else "the hub was not started")
        state = keeper.state
        if state.phase is Phase.GONE:
            raise HubGone(f"the hub is gone: {state.cause}")
        if state.phase is Phase.STOPPED:
            raise HubGone("the hub was closed")

    @property
    def coming(self) -> bool:
        """Whether the keeper is starting another one."""
        return self._keeper is not None and self._keeper.state.phase is Phase.STARTING

    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Until another hub is up; so many seconds, if the keeper thinks that this one is."""
        if (keeper := self._keeper) is None:
            return
        before = keeper.state
        if before.phase is not Phase.STARTING:
            keeper.wait_for(lambda now: now is not before, Deadline(seconds).or_sooner(deadline))
        keeper.wait_for(lambda now: now.phase is not Phase.STARTING, deadline)

    def note_progress(self) -> None:
        """Deaths from now on count anew."""
        if (keeper := self._keeper) is not None:
            keeper.served = True

    @property
    def pid(self) -> int | None:
        """The process id of the hub that is up now, if one is."""
        return None if self._keeper is None else self._keeper.state.pid

    def close(self) -> None:
        """Ends the hub and its workers: asks, then kills. Idempotent, within a bound."""
        if os.getpid() != self._owner:
            return  # it is the parent's
        with self._starting:
            self._closed = True
            keeper = self._keeper
        if keeper is not None:
            keeper.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        phase = "not started" if self._keeper is None else self._keeper.state.phase.value
        return f"<HubProcess at {self.address}, {self.num_workers} workers, {phase}>"

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this hub belongs to process {self._owner}, and does not survive a fork: "
                "call penstock.connect(hub.address) here, or start processes by 'spawn'"
            )


def check_handed_on(graph: Graph) -> None:
    """ValueError if this process cannot hand the graph's memory on to others."""
    for segment in segments_of(graph.arrays):
        if isinstance(segment.handle, MemfdHandle) and not segment.descriptors:
            raise ValueError(
                "graph was attached here, and its memory belongs to another process: only that one "
                "can start a hub for it. Join its hub by penstock.connect(address), or save() the "
                "graph and open() it here"
            )


def _foundation(
    graph: Graph, address: str, workers: int, options: PoolOptions
) -> Callable[[], tuple[Found, Sequence[int]]]:
    """What a new hub is told; anew each time, since out-edges may have been made meanwhile."""
    path = search_path()

    def found() -> tuple[Found, Sequence[int]]:
        handle, fds = graph.handle(), graph.descriptors
        told = Found(
            address=address,
            graph=handle,
            workers=workers,
            search_path=path,
            **options,  # type: ignore[arg-type]
        )
        return told, fds

    return found


def _settled(options: PoolOptions) -> PoolOptions:
    settled = options.copy()
    for name in _SIZES:
        if (size := options.get(name)) is not None:
            settled[name] = parse_bytes(size, name)
    unknown = sorted(set(options) - set(PoolOptions.__annotations__))
    if unknown:
        raise TypeError(
            f"unknown option {unknown[0]!r}; there are {', '.join(PoolOptions.__annotations__)}"
        )
    return settled


def _workers(number: int | Literal["auto"]) -> int:
    if number == "auto":
        return auto_workers()
    if type(number) is not int or number < 1:
        raise ValueError(f"num_workers is {number!r}; expected 'auto', or at least 1")
    return number
