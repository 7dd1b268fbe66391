"""The demonstration as a whole: a hub, ranks that train from it, trouble, and what came of it.

Torch is in the ranks alone; this process starts them, watches, and adds up.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.client.hub import restart_log
from penstock.client.hub.hub_process import HubProcess
from penstock.demo.chronicle import Chronicle
from penstock.demo.mischief import Mischief
from penstock.demo.plan import Plan
from penstock.demo.ranks import RankProcesses
from penstock.demo.report import DemoReport, report_of
from penstock.demo.subject import Subject
from penstock.demo.telling import Entered, FromRank, Learned, Stage
from penstock.demo.view import DemoView
from penstock.hub.process import LOG_VARIABLE

PREFIX: Final = "penstock-demo-"
# How often the hub is asked for its numbers.
_LOOK_EVERY_S: Final = 0.1
# When looking for the right moment, what goes by between two looks.
_MOMENT_S: Final = 0.002
# For a successor that is on its way when the ranks are done.
_PATIENCE_S: Final = 60.0
_WORDS: Final = {
    Stage.TOGETHER: "all ranks train, in step: gradients are averaged at every batch",
    Stage.TESTING: "training is over: each rank tests its share of the test nodes",
    Stage.PROVING: "each rank makes another one's batches again, by itself, to compare them",
}


def run(subject: Subject, plan: Plan, view: DemoView) -> DemoReport:
    """Trains, with all the trouble; leaves nothing behind, however it ends.

    `RankDied` if a rank does, `HubGone` if the hub cannot be had.
    """
    story = Chronicle(plan, time.monotonic())
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX) as scratch,
        _quiet_hub(),
        HubProcess(subject.graph, plan.workers) as hub,
        RankProcesses(plan, Path(scratch)) as ranks,
        view,
    ):
        ranks.start(hub.address)
        hub.resize(plan.workers)  # has them started, in less time than ranks take
        Performance(plan, hub, ranks, story, view).play()
        ranks.join()
    graph = subject.graph
    return report_of(story, subject.chance, graph.num_nodes(), graph.num_edges())


class Performance:
    """Listens to ranks, looks at the hub, makes trouble, and lets it be seen."""

    def __init__(
        self, plan: Plan, hub: HubProcess, ranks: RankProcesses, story: Chronicle, view: DemoView
    ) -> None:
        self._plan = plan
        self._hub = hub
        self._ranks = ranks
        self._story = story
        self._view = view
        self._mischief = Mischief(plan, ranks, story)
        self._looked = 0.0
        self._told: set[Stage] = set()

    def play(self) -> None:
        """Returns when all ranks are done, and the killed worker has a successor."""
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
        """Once: of the first epoch, when all are at it; of what comes later, when one is."""
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
def _quiet_hub() -> Iterator[None]:
    """It is left to the view to tell of the worker, unless the user wants to hear it too."""
    if LOG_VARIABLE in os.environ:
        yield
        return
    os.environ[LOG_VARIABLE] = "ERROR"
    before, restart_log.log.disabled = restart_log.log.disabled, True
    try:
        yield
    finally:
        restart_log.log.disabled = before
        os.environ.pop(LOG_VARIABLE, None)
