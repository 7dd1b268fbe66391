"""The results of a demonstration, drawn from its chronicle, as plain data and in words."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.filesize import decimal

from penstock.demo.chronicle import Chronicle, KillStory, RankStory, ServerStory
from penstock.demo.fairness import Span, common, jain
from penstock.demo.telling import Stage


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. `share`: its batches while all ranks were reading at their own pace."""

    rank: int
    batches: int
    batches_per_second: float
    waited_seconds: float
    share: int
    batch_seconds: list[float]  # when each was trained on, since the start of training


class KillReport(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that was killed, and what the hub reported about it."""

    worker: int
    pid: int
    at_seconds: float
    signal: str = "SIGKILL"
    verdict: str
    batch: str | None  # that it was making
    successor: int | None
    replaced_after_seconds: float | None


class ServerKillReport(msgspec.Struct, frozen=True, kw_only=True):
    """The server that was killed.

    `silent_seconds`: for how long nobody got a batch, at most, in the seconds after the kill;
    `silent_before_seconds`: likewise in all the time before it.
    """

    part: int
    address: str
    pid: int
    at_seconds: float
    signal: str = "SIGKILL"
    others: list[str]  # the servers that had the same part
    silent_seconds: float
    silent_before_seconds: float


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """The store that the batches came from; `moved_bytes` came from servers, for all batches."""

    parts: int
    servers: int
    edges_cut: int
    calls: int
    moved_bytes: int
    killed_server: ServerKillReport


class PauseReport(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that paused, and what the others did meanwhile."""

    rank: int
    at_seconds: float
    seconds: float
    batches_of_others: int


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """How many batches are, byte for byte, those of an undisturbed run, made in one process."""

    batches: int
    equal: int
    differing: list[str]  # the first few, in words

    @property
    def holds(self) -> bool:
        """Return whether there are any batches, and all are equal."""
        return 0 < self.batches == self.equal


class DemoReport(msgspec.Struct, frozen=True, kw_only=True):
    """All results. Times count from the moment when all ranks were training."""

    accuracy: float
    chance: float
    losses: list[float]
    batches: int
    seconds: float
    batches_per_second: float
    jain: float | None
    workers_lost: int
    ranks: list[RankReport]
    killed_worker: KillReport | None = None  # unless it was a server
    store: StoreReport | None = None  # None: the graph was on this host
    pause: PauseReport
    proof: Proof
    nodes: int
    edges: int
    workers: int
    total_seconds: float = 0.0
    plot: str | None = None
    no_plot: str | None = None  # why there is none


_SHOWN = 5
# How long after a kill it may have an effect.
_AFTERMATH_S = 10.0


def report_of(story: Chronicle, chance: float, nodes: int, edges: int) -> DemoReport:
    """Make the report, once all ranks are done."""
    training, shares = story.training, shares_of(story)
    tested = [rank.tested for rank in story.ranks if rank.tested is not None]
    return DemoReport(
        accuracy=sum(t.right for t in tested) / sum(t.total for t in tested),
        chance=chance,
        losses=story.losses(),
        batches=story.batches,
        seconds=training.seconds,
        batches_per_second=story.batches / training.seconds,
        jain=jain(shares),
        workers_lost=story.lost,
        ranks=[
            _rank(number, rank, shares[number], training) for number, rank in enumerate(story.ranks)
        ],
        killed_worker=None if story.killed is None else _killed(story.killed, training),
        store=_store(story, training) if story.servers else None,
        pause=_pause(story, training),
        proof=proof_of(story.ranks),
        nodes=nodes,
        edges=edges,
        workers=story.plan.workers,
    )


def shares_of(story: Chronicle) -> list[int]:
    """Return each rank's batches in the time in which all read at their own pace.

    If there is only one epoch, in which all go in step, return the shares in that.
    """
    stage = Stage.ALONE if story.plan.epochs > 1 else Stage.TOGETHER
    times = common([rank.spans(stage) for rank in story.ranks])
    return [sum(rank.read_within(span) for span in times) for rank in story.ranks]


def _rank(number: int, rank: RankStory, share: int, training: Span) -> RankReport:
    return RankReport(
        rank=number,
        batches=len(rank.times),
        batches_per_second=len(rank.times) / training.seconds,
        waited_seconds=rank.waited,
        share=share,
        batch_seconds=[round(at - training.begin, 4) for at in rank.times],
    )


def _killed(killed: KillStory, training: Span) -> KillReport:
    return KillReport(
        worker=killed.worker,
        pid=killed.pid,
        at_seconds=killed.at - training.begin,
        verdict=killed.verdict,
        batch=killed.batch,
        successor=killed.successor,
        replaced_after_seconds=None if killed.replaced is None else killed.replaced - killed.at,
    )


def _store(story: Chronicle, training: Span) -> StoreReport:
    killed, moved = story.killed_server, story.numbers.get("moved") or {}
    assert killed is not None
    return StoreReport(
        parts=story.plan.servers,
        servers=len(story.servers),
        edges_cut=story.edges_cut,
        calls=moved.get("calls", 0),
        moved_bytes=moved.get("bytes_in", 0),
        killed_server=_killed_server(killed, story, training),
    )


def _killed_server(killed: ServerStory, story: Chronicle, training: Span) -> ServerKillReport:
    at = killed.killed_at
    assert at is not None
    first = min(rank.times[0] for rank in story.ranks)
    others = [each for each in story.servers if each is not killed and each.part == killed.part]
    return ServerKillReport(
        part=killed.part,
        address=killed.address,
        pid=killed.pid,
        at_seconds=at - training.begin,
        others=[each.address for each in others],
        silent_seconds=story.silence(Span(at, min(at + _AFTERMATH_S, training.end))),
        silent_before_seconds=story.silence(Span(first, at)),
    )


def _pause(story: Chronicle, training: Span) -> PauseReport:
    span, rank = story.paused, story.plan.pausing_rank
    assert span is not None
    others = [other for number, other in enumerate(story.ranks) if number != rank]
    return PauseReport(
        rank=rank,
        at_seconds=span.begin - training.begin,
        seconds=span.seconds,
        batches_of_others=sum(other.read_within(span) for other in others),
    )


def proof_of(ranks: list[RankStory]) -> Proof:
    """Compare what each rank read with what another rank made of the same list."""
    pairs: list[tuple[str, str, str]] = []
    for rank in ranks:
        assert rank.proved is not None
        read = ranks[rank.proved.other].proved
        assert read is not None
        if len(read.read) != len(rank.proved.made):
            pairs.append((f"rank {rank.proved.other}: the number of batches", "", "another"))
        pairs.extend(
            (f"rank {rank.proved.other}, batch {number}", one, other)
            for number, (one, other) in enumerate(zip(read.read, rank.proved.made, strict=False))
        )
    differing = [where for where, one, other in pairs if one != other]
    return Proof(
        batches=len(pairs), equal=len(pairs) - len(differing), differing=differing[:_SHOWN]
    )


# --- in words --------------------------------------------------------------------------------


def in_words(report: DemoReport) -> Iterator[tuple[str, str]]:
    """Yield the report as lines, each with its heading."""
    losses = " -> ".join(f"{loss:.3f}" for loss in report.losses)
    yield (
        "accuracy",
        f"{report.accuracy:.1%} of test nodes (chance {report.chance:.1%}); loss {losses}",
    )
    yield (
        "speed",
        f"{report.batches} batches in {report.seconds:.1f} s: {report.batches_per_second:.1f} per "
        f"second, by {report.workers} workers for {len(report.ranks)} ranks",
    )
    yield "fairness", _fairness(report)
    if report.store is not None:
        yield "store", _parts(report.store, report.edges)
        yield "killed server", _loss(report.store.killed_server)
    if report.killed_worker is not None:
        yield "killed worker", _death(report.killed_worker)
    yield (
        "paused rank",
        f"rank {report.pause.rank}, for {report.pause.seconds:.1f} s; the others read "
        f"{report.pause.batches_of_others} batches meanwhile",
    )
    yield "proof", _proof(report.proof, in_parts=report.store is not None)
    yield "plot", report.plot or f"none: {report.no_plot}"


def _fairness(report: DemoReport) -> str:
    shares = ", ".join(str(rank.share) for rank in report.ranks)
    index = "unknown" if report.jain is None else f"{report.jain:.4f}"
    return f"Jain's index {index}: ranks got {shares} batches while all of them were reading"


def _parts(store: StoreReport, edges: int) -> str:
    return (
        f"{store.parts} parts at {store.servers} servers; {store.edges_cut:,} of {edges:,} edges "
        f"lead from one part to another; {decimal(store.moved_bytes)} came in {store.calls:,} calls"
    )


def _loss(killed: ServerKillReport) -> str:
    return (
        f"that of part {killed.part} at {killed.address} (pid {killed.pid}), by {killed.signal} "
        f"after {killed.at_seconds:.1f} s; {' and '.join(killed.others)} has the part, too: nobody "
        f"got a batch for {killed.silent_seconds:.2f} s then (before: "
        f"{killed.silent_before_seconds:.2f} s at most)"
    )


def _death(killed: KillReport) -> str:
    held = "" if killed.batch is None else f"; it was making {killed.batch}, which was made again"
    after = killed.replaced_after_seconds
    then = (
        "" if after is None else f"; worker {killed.successor} took its place {after:.1f} s later"
    )
    return f"worker {killed.worker} (pid {killed.pid}) is lost: {killed.verdict}{held}{then}"


def _proof(proof: Proof, *, in_parts: bool) -> str:
    those = "those of the whole graph" if in_parts else "those of an undisturbed run"
    without = "servers, hub and workers" if in_parts else "hub and workers"
    if proof.holds:
        return (
            f"all {proof.batches} batches equal {those}, byte for byte (made again in one process, "
            f"without {without})"
        )
    return (
        f"{proof.batches - proof.equal} of {proof.batches} batches differ from {those}: "
        f"{'; '.join(proof.differing)}"
    )
