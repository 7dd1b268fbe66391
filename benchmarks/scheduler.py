"""Measure what a scheduling decision costs, with few channels and with many.

Whole lives of batches go through the scheduler. A batch has three events (begun, done, slot
returned) and two instructions (assign, deliver). There is no process and no socket: simulated
workers and ranks answer at once, on one thread. Two ratios:

  growth  the time of a batch with 1,000 and 10,000 channels, to that with 10; all of them take
          turns in one run. A scheduler that looked at every channel would show 100 and 1,000.
  floor   the same time, to that of making those five records and nothing else

Time is this process's CPU time: nothing here waits. Rates still mean little on a shared machine;
the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import deque
from random import Random
from typing import Any

from penstock.core.events import (
    Assign,
    BatchBegun,
    BatchDone,
    BatchKey,
    ChannelRegistered,
    Deliver,
    EpochStarted,
    GroupSized,
    Instruction,
    SlotReturned,
    StartWorker,
    WorkerReady,
)
from penstock.core.scheduler import Scheduler
from penstock.options import ChannelOptions

CHANNELS, WORKERS, SLOTS = (10, 1_000, 10_000), 8, 4
ENDLESS = range(10**12)


class Surroundings:
    """Simulated workers and ranks that do what they are told, at once, in turn."""

    def __init__(self, channels: int) -> None:
        dice = Random(channels)
        self.scheduler = Scheduler()
        self.costs = [dice.uniform(0.001, 0.1) for _ in range(channels)]
        self.now = 0.0
        self._given: deque[Assign] = deque()
        starts = self.scheduler.handle(GroupSized(0.0, "", WORKERS))
        for channel in range(channels):
            self.scheduler.handle(
                ChannelRegistered(0.0, channel, "", SLOTS, ChannelOptions(deadline=60.0))
            )
            self.scheduler.handle(EpochStarted(0.0, channel, 0, ENDLESS))
        for order in starts:
            assert isinstance(order, StartWorker)
            self._note(self.scheduler.handle(WorkerReady(0.0, order.worker)))

    def _note(self, answer: list[Instruction]) -> None:
        for order in answer:
            if isinstance(order, Assign):
                self._given.append(order)

    def make(self, batches: int) -> float:
        """Run this many batches from beginning to end; return the seconds of CPU time."""
        handle, note, given, costs = self.scheduler.handle, self._note, self._given, self.costs
        start = time.process_time()
        for _ in range(batches):
            order = given.popleft()
            cost = costs[order.batch.channel]
            handle(BatchBegun(self.now, order.worker, order.batch))
            self.now += cost / WORKERS
            answer = handle(BatchDone(self.now, order.worker, order.batch, cost))
            note(answer)
            delivered = answer[0]
            assert isinstance(delivered, Deliver)
            note(handle(SlotReturned(self.now, delivered.batch.channel, delivered.slot)))
        return time.process_time() - start


def records(batches: int) -> float:
    """Measure the floor: make the records about a batch, and decide nothing."""
    start = time.process_time()
    for step in range(batches):
        batch = BatchKey(1, 0, step)
        Assign(1, batch, 0, step, 1)
        BatchBegun(0.0, 1, batch)
        BatchDone(0.0, 1, batch, 1.0)
        Deliver(batch, 0, step, 1)
        SlotReturned(0.0, 1, 0)
    return time.process_time() - start


def measure(batches: int, rounds: int) -> dict[str, Any]:
    """Measure each size and the floor in turn, in rotating order; skip the first round."""
    subjects = {str(channels): Surroundings(channels).make for channels in CHANNELS}
    subjects["floor"] = records
    times: dict[str, list[float]] = {name: [] for name in subjects}
    names = list(subjects)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seconds = subjects[name](batches)
            if number:
                times[name].append(seconds / batches)
    return {str(channels): figures(times, str(channels)) for channels in CHANNELS}


def figures(times: dict[str, list[float]], name: str) -> dict[str, float]:
    """Return the ratios within each round: their median and their spread."""

    def ratios(to: str) -> list[float]:
        return [mine / theirs for mine, theirs in zip(times[name], times[to], strict=True)]

    growth = ratios(str(CHANNELS[0]))
    return {
        "batches_per_second": 1 / statistics.median(times[name]),
        "growth": statistics.median(growth),
        "growth_least": min(growth),
        "growth_most": max(growth),
        "ratio_to_floor": statistics.median(ratios("floor")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--batches", type=int, default=20_000, help="per round (default 20,000)")
    parser.add_argument("--rounds", type=int, default=9, help="measured (default 9)")
    arguments = parser.parse_args()
    result = measure(arguments.batches, arguments.rounds)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{WORKERS} workers; {arguments.rounds} rounds of {arguments.batches:,} batches each")
    for channels in CHANNELS:
        row = result[str(channels)]
        print(
            f"{channels:>7,} channels: {row['batches_per_second']:>9,.0f} batches/s, "
            f"{row['growth']:.2f} x the time with {CHANNELS[0]} "
            f"({row['growth_least']:.2f} to {row['growth_most']:.2f}), "
            f"{row['ratio_to_floor']:.1f} x the floor"
        )


if __name__ == "__main__":
    main()
