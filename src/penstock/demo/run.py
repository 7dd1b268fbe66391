"""The demonstration as a whole: a hub, ranks that train from it, faults, and the report.

Only the ranks use torch; this process starts them, watches, and sums up.
"""

from __future__ import annotations

import os
import secrets
import shutil
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
    """
    story = Chronicle(plan, time.monotonic())
    with (
        _scratch_folder() as scratch,
        _quiet_hub(),
        HubProcess(subject.graph, plan.workers) as hub,
        RankProcesses(plan, scratch) as ranks,
        view,
    ):
        ranks.start(hub.address)
        hub.resize(plan.workers)  # starts the workers, in less time than ranks take
        Performance(plan, hub, ranks, story, view).play()
        ranks.join()
    graph = subject.graph
    return report_of(story, subject.chance, graph.num_nodes(), graph.num_edges())


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
        """Return when all ranks are done and the killed worker has a successor."""
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
def _quiet_hub() -> Iterator[None]:
    """Leave reports about the killed worker to the view, unless the user set a log level."""
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
