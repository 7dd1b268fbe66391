"""Statistics of a loader: a frozen snapshot, and the counters it is taken from."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from penstock.client.channel.batch import Batch
from penstock.loader.device.statistics import DeviceStatistics
from penstock.loader.watch.verdict import verdict_of

Stage: TypeAlias = Literal["sampling", "transfer", "transform"]


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds, by what was waited for.

    The rank waited for `sampling` (a batch that was not ready), `transfer` (tensors made over its
    memory, and pinned if wanted) and `transform` (the user's). The pool waited with this loader's
    batches for `credit` (all slots taken: the rank is the slower one) and for their `turn` (workers
    busy with other channels).
    """

    sampling: float = 0.0
    transfer: float = 0.0
    transform: float = 0.0
    credit: float = 0.0
    turn: float = 0.0


@dataclass(frozen=True, slots=True)
class LoaderStatistics:
    """A loader's statistics. Rates are per second of iterating, the user's time included."""

    epoch: int
    step: int  # batches of the epoch that were delivered
    steps: int  # batches of the epoch
    batches: int  # delivered, in all epochs
    inputs: int
    failed: int
    substitutes: int
    retries: int  # attempts that raised before a batch came (`retry_errors`)
    copied: int  # batches copied out of their slots, since the rank held too many
    bytes: int
    seconds: float  # spent iterating
    batches_per_second: float
    inputs_per_second: float
    time_to_first_batch: float | None  # from the first `iter()`
    sampling_cost: float  # seconds it took to make the batches, in any process
    waits: Waits
    restarts_of_workers: int
    restarts_of_hub: int
    num_workers: int
    device: DeviceStatistics | None = None  # what was moved to `device`, and what that waited for
    hub: dict[str, Any] = field(default_factory=dict)  # the hub's statistics, for all its channels

    @property
    def verdict(self) -> str:
        """What the GPU waits for, or the program where there is no GPU, in plain words.

        It tells of the whole run, without the wait for the first batch.
        """
        return verdict_of(self)


class _Stopwatch:
    """Adds up the time inside its context. Not a generator, which would take longer than a step."""

    __slots__ = ("_began", "seconds")

    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


@dataclass(slots=True, eq=False)
class Meter:
    """A loader's counters. Only one thread at a time may write."""

    batches: int = 0
    inputs: int = 0
    failed: int = 0
    substitutes: int = 0
    retries: int = 0
    copied: int = 0
    bytes: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    first: float | None = None
    _watches: dict[Stage, _Stopwatch] = field(
        default_factory=lambda: {stage: _Stopwatch() for stage in get_args(Stage)}
    )
    _began: float | None = None  # time of the first `iter()`
    _since: float | None = None  # last update of `seconds` in this epoch

    def begin(self) -> None:
        """Note that an epoch is asked for."""
        self._since = time.perf_counter()
        self._began = self._since if self._began is None else self._began

    def at(self, stage: Stage) -> _Stopwatch:
        """Return a context: the time inside it counts as spent on the stage."""
        return self._watches[stage]

    @property
    def spent(self) -> dict[str, float]:
        """The seconds spent on each stage."""
        return {stage: watch.seconds for stage, watch in self._watches.items()}

    def count(self, batch: Batch, nbytes: int) -> None:
        """Count a delivered batch of so many bytes."""
        self.batches += 1
        self.inputs += int(batch.facts.get("batch_size", 0))
        self.substitutes += batch.substitute
        self.retries += batch.retries
        self.copied += batch.copied
        self.bytes += nbytes
        self.cost += batch.cost
        self.tick()
        if self.first is None and self._began is not None:
            self.first = time.perf_counter() - self._began

    def tick(self) -> None:
        """Add the time since the last call to `seconds`, if an epoch is being read."""
        if self._since is not None:
            now = time.perf_counter()
            self.seconds += now - self._since
            self._since = now

    def elapsed(self) -> float:
        """Return `seconds` until now. Changes nothing: any thread may call it during an epoch."""
        seconds, since = self.seconds, self._since
        return seconds if since is None else seconds + time.perf_counter() - since

    def pause(self) -> None:
        """Note that the epoch is over: the user's time from here on is not counted."""
        self.tick()
        self._since = None

    def waits(self, hub: dict[str, Any], job: str, pid: int) -> Waits:
        """Return the waits by cause; the pool's are those of the channel that is open now."""
        number = next(
            (
                int(key)
                for key, channel in hub.get("channels", {}).items()
                if (channel["job"], channel["pid"]) == (job, pid)
            ),
            None,
        )
        for channel in hub.get("scheduler", {}).get("channels", ()):
            if channel["id"] == number:
                credit, turn = channel["waited_for_credit"], channel["waited_for_turn"]
                return Waits(**self.spent, credit=credit, turn=turn)
        return Waits(**self.spent)


def lost_workers(hub: dict[str, Any]) -> int:
    """Return how many workers died and were replaced."""
    return sum(group["lost"] for group in hub.get("scheduler", {}).get("groups", ()))
