"""The demonstration as a whole: a hub, ranks that train from it, faults, and the report.

The hub's graph is on this host, or in parts at servers of a store.

Only the ranks use torch; this process starts them, watches, and sums up.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from penstock.client.hub import restart_log
from penstock.client.hub.hub_process import HubProcess
from penstock.demo.chronicle import Chronicle, ServerStory
from penstock.demo.mischief import Mischief, ServerMischief
from penstock.demo.plan import Plan
from penstock.demo.ranks import RankProcesses
from penstock.demo.report import DemoReport, report_of
from penstock.demo.servers import StoreProcesses
from penstock.demo.subject import Subject
from penstock.demo.telling import Entered, FromRank, Learned, Stage
from penstock.demo.view import DemoView
from penstock.graph import Graph
from penstock.hub.process import LOG_VARIABLE
from penstock.store import servers

PREFIX: Final = "penstock-demo-"
# How often the hub is asked for its statistics.
_LOOK_EVERY_S: Final = 0.1
# Time between two looks while looking for the right moment to kill.
_MOMENT_S: Final = 0.002
# Time for a successor that is still starting when the ranks are done.
_PATIENCE_S: Final = 60.0
_WORDS: Final = {
    Stage.TOGETHER: "all ranks train, in step: gradients are averaged at every batch",
    Stage.TESTING: "training is over: each rank tests its share of the test nodes",
    Stage.PROVING: "each rank makes another one's batches again, by itself, to compare them",
}


def run(subject: Subject, plan: Plan, view: DemoView) -> DemoReport:
    """Run the demonstration with all its faults; clean up however it ends.

    Raises:
        RankDied: a rank died.
        HubGone: the hub could not be started.
        ServerDied: a server of the store could not be started.
    """
    story = Chronicle(plan, time.monotonic())
    graph = subject.graph
    with ExitStack() as ends:
        scratch = ends.enter_context(_scratch_folder())
        ends.enter_context(_quiet())
        store = _store(graph, plan, scratch, story, view, ends) if plan.servers else None
        sampled = graph if store is None else ends.enter_context(store.opened())
        hub = ends.enter_context(HubProcess(sampled, plan.workers))
        ranks = ends.enter_context(RankProcesses(plan, scratch))
        ends.enter_context(view)
        ranks.start(hub.address, None if store is None else _saved(graph, scratch))
        hub.resize(plan.workers)  # starts the workers, in less time than ranks take
        Performance(plan, hub, ranks, story, view, store).play()
        ranks.join()
    return report_of(story, subject.chance, graph.num_nodes(), graph.num_edges())


def _store(
    graph: Graph, plan: Plan, scratch: Path, story: Chronicle, view: DemoView, ends: ExitStack
) -> StoreProcesses:
    """Cut the graph into parts, and start a server for each."""
    store = ends.enter_context(StoreProcesses(graph, plan, scratch))
    story.edges_cut = store.edges_cut
    story.servers = [ServerStory(each.part, each.address, each.pid) for each in store.servers]
    view.event(
        time.monotonic() - story.began,
        f"{plan.servers} parts, each at a server, part {plan.killed_part} at two: "
        f"{store.edges_cut:,} edges lead from one part to another",
    )
    return store


def _saved(graph: Graph, scratch: Path) -> Path:
    """Save the whole graph, for ranks to compare with."""
    folder = scratch / "whole"
    graph.save(folder)
    return folder


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder that is removed at the end, also if Ctrl-C strikes while it is made.

    `tempfile.TemporaryDirectory` knows the folder's name only after making it.
    """
    folder = Path(tempfile.gettempdir(), PREFIX + secrets.token_hex(8))
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Performance:
    """Listens to ranks, looks at the hub, injects faults, and updates the view."""

    def __init__(
        self,
        plan: Plan,
        hub: HubProcess,
        ranks: RankProcesses,
        story: Chronicle,
        view: DemoView,
        store: StoreProcesses | None = None,
    ) -> None:
        self._plan = plan
        self._hub = hub
        self._ranks = ranks
        self._story = story
        self._view = view
        self._mischief = (
            Mischief(plan, ranks, story)
            if store is None
            else ServerMischief(plan, ranks, story, store)
        )
        self._looked = 0.0
        self._told: set[Stage] = set()

    def play(self) -> None:
        """Return when all ranks are done and what was killed has been made up for."""
        while not self._ranks.done:
            choosing = self._mischief.is_choosing
            for rank, message in self._ranks.listen(_MOMENT_S if choosing else _LOOK_EVERY_S):
                self._hear(rank, message)
            self._look()
        deadline = time.monotonic() + _PATIENCE_S
        while not self._mischief.is_over and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
            self._look()

    def _hear(self, rank: int, message: FromRank) -> None:
        self._story.ranks[rank].hear(message)
        match message:
            case Entered(stage=Stage.PAUSED):
                self._event(f"rank {rank} pauses")
            case Entered(stage=stage):
                self._tell_stage(stage)
            case Learned(epoch=epoch) if len(losses := self._story.losses()) > epoch:
                self._event(f"epoch {epoch + 1} of {self._plan.epochs}: loss {losses[epoch]:.3f}")

    def _tell_stage(self, stage: Stage) -> None:
        """Report a stage once: the first epoch when all ranks are in it, others when one is."""
        at = [rank.stage for rank in self._story.ranks].count(stage)
        wanted = self._plan.ranks if stage is Stage.TOGETHER else 1
        if stage in _WORDS and stage not in self._told and at >= wanted:
            self._told.add(stage)
            self._event(_WORDS[stage])

    def _look(self) -> None:
        if (now := time.monotonic()) - self._looked >= _LOOK_EVERY_S:
            self._looked = now
            self._story.numbers = self._hub.statistics()
        for words in self._mischief.act():
            self._event(words)
        self._view.show(self._story)

    def _event(self, words: str) -> None:
        self._view.event(time.monotonic() - self._story.began, words)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave reports about what was killed to the view, unless the user set a log level."""
    if LOG_VARIABLE in os.environ:
        yield
        return
    os.environ[LOG_VARIABLE] = "ERROR"
    before = {log: log.disabled for log in (restart_log.log, servers.log)}
    for log in before:
        log.disabled = True
    try:
        yield
    finally:
        for log, disabled in before.items():
            log.disabled = disabled
        os.environ.pop(LOG_VARIABLE, None)
