"""Simulate a large cluster by a virtual clock: who gets how much, and what one slow host does.

Hosts with ranks read a store of many servers (`simulation.py`). The scheduler of each host and the
rules by which its workers choose servers, ask twice and try again are the real ones; time, messages
and processes are simulated. So a thousand ranks take a minute or two on one core, and a seed gives
the same figures everywhere.

Each scenario has three periods: before something happens, while it lasts, and after it. The table
has, for the ranks that nothing was done to ("others") and for those that something was done to:

  rate      batches that a rank reads in a second: the least, the median and the most of all ranks
  Jain      Jain's index of these rates: 1 if all are equal, 1/n if one rank gets everything
  of before the mean of the rates, as a multiple of that before
  wait      seconds that a rank waits for its next batch: median, 99th percentile, the longest

Simulated seconds say nothing about a real machine; the ratios do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from simulation import Cluster, Rank, Size, Trouble

SETTLE_S = 10.0  # after which figures count
PERIODS = ("before", "while", "after")
# The server of the scenarios; it has the first part.
VICTIM = 0


@dataclass(frozen=True)
class Span:
    """When something happens. Half as much time before it and after it is looked at."""

    begin: float
    end: float

    @classmethod
    def of(cls, seconds: float) -> Span:
        begin = SETTLE_S + seconds / 2
        return cls(begin, begin + seconds)

    @property
    def periods(self) -> dict[str, tuple[float, float]]:
        half = (self.end - self.begin) / 2
        return {
            "before": (SETTLE_S, self.begin),
            "while": (self.begin, self.end),
            "after": (self.end, self.end + half),
        }


@dataclass(frozen=True)
class Scenario:
    """Something that happens to a cluster.

    Attributes:
        about: What happens, in a line.
        trouble: What happens to a server.
        act: Has something happen to ranks and hosts; returns the names of those ranks.
        cost: What the batches of a rank cost, as a multiple.
        alone: Each part has one server, whatever the size says.
    """

    about: str
    trouble: Callable[[Span], Trouble] | None = None
    act: Callable[[Cluster, Span], set[int]] = lambda cluster, span: set()
    cost: Callable[[int], float] = lambda name: 1.0
    alone: bool = False


def _rank_stops(cluster: Cluster, span: Span) -> set[int]:
    def stop() -> None:
        _named(cluster, 0).paused_until = span.end

    cluster.clock.at(span.begin, stop)
    return {0}


def _host_is_slow(cluster: Cluster, span: Span) -> set[int]:
    cluster.hubs[0].slow = span.begin, span.end, 10.0
    return set(range(0, cluster.size.ranks, cluster.size.hosts))


def _ranks_come_and_go(cluster: Cluster, span: Span) -> set[int]:
    """A tenth of the ranks leaves, one after the other; others take their places later."""
    leaving = list(range(0, cluster.size.ranks, 10))
    every = (span.end - span.begin) / (2 * len(leaving))
    for place, name in enumerate(leaving):
        cluster.clock.at(
            span.begin + place * every, lambda name=name: _replace(cluster, name, span)
        )
    return set(leaving)


def _replace(cluster: Cluster, name: int, span: Span) -> None:
    rank = _named(cluster, name)
    rank.hub.leave(rank)
    back = cluster.clock.now + (span.end - span.begin) / 4
    cluster.clock.at(back, lambda: cluster.add(rank.hub, name, lambda _: rank.cost) and None)


def _named(cluster: Cluster, name: int) -> Rank:
    return next(rank for rank in reversed(cluster.ranks) if rank.name == name)


SCENARIOS = {
    "steady": Scenario("nothing happens"),
    "mixed": Scenario(
        "batches of every other rank cost three times as much (rates: of work)",
        cost=lambda name: 1.0 + 2.0 * (name % 2),
    ),
    "slow-server": Scenario(
        "a server runs at a tenth of its speed",
        trouble=lambda span: Trouble(VICTIM, span.begin, span.end, speed=0.1),
    ),
    "stopped-server": Scenario(
        "a server stops and goes on later",
        trouble=lambda span: Trouble(VICTIM, span.begin, span.end),
    ),
    "dead-server": Scenario(
        "the host of a server dies; its part has other servers; it comes back",
        trouble=lambda span: Trouble(VICTIM, span.begin, span.end, dies=True, host=True),
    ),
    "dead-part": Scenario(
        "the host of the only server of a part dies; after a third of the time it is elsewhere",
        trouble=lambda span: Trouble(
            VICTIM, span.begin, span.begin + (span.end - span.begin) / 3, dies=True, host=True
        ),
        alone=True,
    ),
    "slow-part": Scenario(
        "the only server of a part runs at a tenth of its speed",
        trouble=lambda span: Trouble(VICTIM, span.begin, span.end, speed=0.1),
        alone=True,
    ),
    "slow-readers": Scenario("a host of ranks runs at a tenth of its speed", act=_host_is_slow),
    "stopped-rank": Scenario("a rank stops reading and goes on later", act=_rank_stops),
    "come-and-go": Scenario("a tenth of the ranks leaves, and comes back", act=_ranks_come_and_go),
}


def simulate(name: str, size: Size, seed: int, seconds: float) -> dict[str, Any]:
    """Run one scenario; return its figures."""
    scenario, span = SCENARIOS[name], Span.of(seconds)
    if scenario.alone:
        # As much work as before for each server: half of the rows, at twice as many parts.
        size = replace(
            size, replicas=1, draw=size.draw / size.replicas, rows=size.rows / size.replicas
        )
    began = time.process_time()
    trouble = () if scenario.trouble is None else (scenario.trouble(span),)
    cluster = Cluster(size, seed, trouble)
    cluster.join(scenario.cost)
    touched = scenario.act(cluster, span)
    periods = span.periods
    asked = {}
    for period in PERIODS:
        before = [server.asked for server in cluster.servers]
        cluster.run(periods[period][1])
        asked[period] = [
            server.asked - then for server, then in zip(cluster.servers, before, strict=True)
        ]
    return {
        "scenario": name,
        "about": scenario.about,
        "others": _figures(cluster, periods, set(range(size.ranks)) - touched),
        "touched": _figures(cluster, periods, touched) if touched else None,
        "servers": {period: _shares(counts) for period, counts in asked.items()},
        "hedged": _hedged(cluster),
        "idle_beside_work": cluster.idle_beside_work,
        "busy": _busy(cluster),
        "events": sum(hub.events for hub in cluster.hubs),
        "calls": sum(server.asked for server in cluster.servers),
        "cpu_seconds": time.process_time() - began,
    }


def _figures(
    cluster: Cluster, periods: dict[str, tuple[float, float]], names: set[int]
) -> dict[str, Any]:
    """Return rates and waits of some ranks in each period."""
    ranks = [rank for rank in cluster.ranks if rank.name in names]
    found: dict[str, Any] = {}
    for period, (begin, end) in periods.items():
        work = dict.fromkeys(sorted(names), 0.0)
        for rank in ranks:
            read = bisect_left(rank.read_at, end) - bisect_right(rank.read_at, begin)
            work[rank.name] += read * rank.cost
        rates = [done / (end - begin) for done in work.values()]
        waits = sorted(wait for rank in ranks for at, wait in rank.waits if begin < at <= end)
        found[period] = {
            "rate": [min(rates), statistics.median(rates), max(rates)],
            "jain": jain(rates),
            "wait": [_at(waits, 0.5), _at(waits, 0.99), waits[-1] if waits else None],
            "mean": statistics.fmean(rates),
        }
    for period in PERIODS:
        before = found["before"]["mean"]
        found[period]["of_before"] = found[period]["mean"] / before if before else None
    return found


def jain(rates: Sequence[float]) -> float:
    """Return Jain's index of fairness."""
    squares = len(rates) * sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / squares if squares else 0.0


def _shares(counts: Sequence[int]) -> dict[str, float]:
    """Return how often the servers were asked, over the mean: the first, the least, the most."""
    mean = statistics.fmean(counts) or 1.0
    return {
        "victim": counts[VICTIM] / mean,
        "least": min(counts[1:] or counts) / mean,
        "most": max(counts[1:] or counts) / mean,
    }


def _hedged(cluster: Cluster) -> float:
    workers = [worker for hub in cluster.hubs for worker in hub.workers.values()]
    return sum(each.hedges for each in workers) / max(1, sum(each.calls for each in workers))


def _busy(cluster: Cluster) -> float:
    workers = [worker for hub in cluster.hubs for worker in hub.workers.values()]
    return statistics.fmean(each.busy_for for each in workers) / cluster.clock.now


def _at(values: Sequence[float], share: float) -> float | None:
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


# --- for people ------------------------------------------------------------------------------


def table(report: dict[str, Any]) -> str:
    """Return the figures of a scenario as people read them."""
    lines = [
        f"{report['scenario']}: {report['about']}",
        f"  {'':<17}{'rate':>20}{'Jain':>9}{'of before':>11}{'wait':>25}",
    ]
    for who in ("others", "touched"):
        for period in PERIODS if report[who] else ():
            row = report[who][period]
            rates = " / ".join(f"{rate:.2f}" for rate in row["rate"])
            waits = " / ".join("-" if wait is None else f"{wait:.2f}" for wait in row["wait"])
            ratio = "-" if row["of_before"] is None else f"{row['of_before']:.3f}"
            lines.append(
                f"  {who + ' ' + period:<17}{rates:>20}{row['jain']:>9.4f}{ratio:>11}{waits:>25}"
            )
    shares = report["servers"]["while"]
    lines.append(
        f"  calls of a server, over the mean: {shares['least']:.2f} to {shares['most']:.2f}, the "
        f"first {shares['victim']:.2f}; asked twice: {report['hedged']:.1%}; workers busy: "
        f"{report['busy']:.0%}"
    )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Size()
    parser.add_argument("--ranks", type=_positive, default=usual.ranks)
    parser.add_argument("--servers", type=_positive, default=usual.servers)
    parser.add_argument("--replicas", type=_positive, default=usual.replicas, help="of each part")
    parser.add_argument("--workers", type=_positive, default=usual.workers, help="of each host")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=_positive, default=60, help="that it lasts (default 60)")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, action="append", help="again for more (default: all)"
    )
    parser.add_argument("--at-once", type=_positive, default=2, help="scenarios (default 2)")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    given = parser.parse_args()
    if given.servers % given.replicas:
        parser.error(f"--servers {given.servers} is no multiple of --replicas {given.replicas}")
    if given.replicas < 2:
        parser.error("--replicas must be at least 2: scenarios without replicas are among the rest")
    return given


def _positive(word: str) -> int:
    if (number := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above zero")
    return number


def main() -> None:
    given = _arguments()
    size = Size(
        ranks=given.ranks, servers=given.servers, replicas=given.replicas, workers=given.workers
    )
    if not given.json:
        print(
            f"{size.ranks:,} ranks on {size.hosts} hosts, "
            f"{size.servers} servers of {size.parts} parts, seed {given.seed}; before, "
            f"{given.seconds} s, and after"
        )
    reports = []
    with ProcessPoolExecutor(given.at_once, mp_context=get_context("spawn")) as pool:
        running = [
            pool.submit(simulate, name, size, given.seed, float(given.seconds))
            for name in given.scenario or SCENARIOS
        ]
        for each in running:
            reports.append(each.result())
            if not given.json:
                print(f"\n{table(reports[-1])}", flush=True)
    if given.json:
        print(json.dumps({"size": asdict(size), "seed": given.seed, "runs": reports}, indent=2))


if __name__ == "__main__":
    main()
