"""A worker's hard memory limit: met as an error, told with the last of its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.graph import Graph
from penstock.wire.messages import Begun, OutOfMemory, Ready
from penstock.workers.exits import EXIT_MEMORY
from tests.sampling.graphs import web
from tests.workers.benches import FEED, SPEC, bench, custom

pytestmark = pytest.mark.usefixtures("no_leaks")

LIMIT = 200 << 20

GREEDY = """
import numpy as np

class Greedy:
    def __init__(self, graph, *, how):
        self.how = how

    def sample(self, seeds, *, seed, epoch, index):
        return getattr(self, self.how)()

    def at_once(self):
        np.ones(1 << 30, np.uint8)

    def bit_by_bit(self):
        hoard = []
        while True:
            hoard.append([object() for _ in range(1000)])

    def recklessly(self):
        hoard = []
        while True:
            try:
                hoard.append(np.ones(1 << 20, np.uint8))
            except MemoryError:
                raise
            except Exception:
                pass
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return web()


@pytest.mark.parametrize("how", ["at_once", "bit_by_bit", "recklessly"])
def test_a_sampler_that_explodes_meets_the_limit_and_the_worker_says_so(
    graph: Graph, tmp_path: Path, how: str
) -> None:
    """CONTRACT 52: over the hard limit it ends, and its batch is known."""
    (tmp_path / "greedy.py").write_text(GREEDY)
    with bench(graph, hard_memory=LIMIT) as worker:
        worker.open(custom(tmp_path / "greedy.py", "Greedy", how=how), FEED)
        batch = worker.ask(0)
        assert worker.ended() == EXIT_MEMORY
        begun, struck = worker.last_words()
        assert begun == Begun(batch=batch)
        assert isinstance(struck, OutOfMemory)
        assert (struck.batch, struck.limit) == (batch, LIMIT)
        assert struck.private <= LIMIT + (8 << 20)
        assert f"in {how}" in worker.printed()


def test_memory_that_is_shared_does_not_count(graph: Graph) -> None:
    """CONTRACT 52: the limit is on what a worker has of its own."""
    limit = 128 << 20
    with bench(graph, hard_memory=limit) as worker:
        worker.open(SPEC, FEED, slots=4, slot_bytes=limit)
        for index in range(4):
            worker.ask(index, slot=index)
            worker.done()
            worker.arenas[1].memory(index)[:].fill(1)
        worker.ask(5)
        worker.done()


def test_most_of_the_limit_can_be_used(graph: Graph) -> None:
    """CONTRACT 52: what is only reserved does not count as used."""
    fault = {"stage": "sampling", "action": f"leak:{LIMIT // 2}", "match": {"index": 0}}
    with bench(graph, hard_memory=LIMIT, faults=[fault]) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.done()
        assert LIMIT // 2 < worker.until_beat(1).private < LIMIT


def test_a_limit_below_what_a_worker_needs_to_start_is_told_at_once(graph: Graph) -> None:
    """CONTRACT 53: a death before ready, with its cause."""
    with bench(graph, ready=False, hard_memory=1 << 20) as worker:
        assert worker.ended() == EXIT_MEMORY
        [struck] = worker.last_words()
        assert isinstance(struck, OutOfMemory)
        assert struck.batch is None
        assert "hard_memory is 1048576 bytes; a worker has" in worker.printed()


@pytest.mark.parametrize("spare", [0, 192 << 10, 448 << 10])
def test_a_worker_that_says_it_is_ready_has_a_beating_heart(graph: Graph, spare: int) -> None:
    """CONTRACT 53: one that cannot start its thread dies before it is ready, not after."""
    with bench(graph) as usual:
        private = usual.until_beat().private
    with bench(graph, ready=False, hard_memory=private + spare) as worker:
        said, _ = worker.hear()
        if isinstance(said, Ready):
            worker.until_beat()
        else:
            assert isinstance(said, OutOfMemory)
            assert worker.ended() == EXIT_MEMORY
