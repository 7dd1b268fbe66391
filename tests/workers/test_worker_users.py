"""Users' samplers in a worker: whatever they do, it is a typed error for that batch alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.graph import Graph
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import CustomSpec
from penstock.wire.messages import Begun, Done
from penstock.workers.exits import EXIT_SAMPLER
from tests.sampling.graphs import made, maker_for, web
from tests.workers.benches import FEED, Bench, bench, custom

pytestmark = pytest.mark.usefixtures("no_leaks")

SOURCE = """
import os
import sys
import threading
import numpy as np
import helper_of_the_user
from penstock.errors import SamplingError
from penstock.kernels import batch_key

class Walks:
    def __init__(self, graph, *, length=3):
        self.csc, self.length = graph.csc(), length

    def sample(self, seeds, *, seed, epoch, index):
        rng = np.random.default_rng(batch_key(seed, epoch, index))
        steps = rng.integers(0, 200, (len(seeds), self.length))
        return {"n_id": seeds, "walks": steps}

class Odd:
    def __init__(self, graph, *, how):
        self.how = how

    def sample(self, seeds, *, seed, epoch, index):
        if index == 1:
            return getattr(self, self.how)(seeds)
        return {"n_id": seeds}

    def raises(self, seeds):
        raise LookupError("my own mistake")

    def leaves(self, seeds):
        sys.exit(0)

    def interrupts(self, seeds):
        raise KeyboardInterrupt

    def prints(self, seeds):
        print("a word on stdout")
        sys.stdout.write("x" * (8 << 20))
        sys.stderr.write("y" * (8 << 20))
        return {"n_id": seeds}

    def returns_nothing(self, seeds):
        pass

    def returns_ids_out_of_range(self, seeds):
        return {"n_id": seeds + 10**6}

    def returns_too_much(self, seeds):
        return {"n_id": seeds, "x": np.zeros(1 << 20)}

    def raises_half_a_character(self, seeds):
        raise SamplingError("no such file: \\udcff")

    def raises_an_epic(self, seeds):
        raise SamplingError("once upon a time " + "x" * (20 << 20))

    def returns_half_a_character(self, seeds):
        return {"n_id": seeds, "\\udcff": seeds}

    def returns_any_number_of_arrays(self, seeds):
        return {f"x{number}": seeds for number in range(5000)}

    def returns_many_dimensions(self, seeds):
        return {"x": np.zeros((1,) * 33)}

    def asks_for_the_impossible(self, seeds):
        return {"x": np.ones(1 << 60, np.int8)}

class Busy:
    def __init__(self, graph):
        threading.Thread(target=threading.Event().wait).start()

    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds}

class Unmakeable:
    def __init__(self, graph):
        raise RuntimeError("cannot be made")
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return web()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "samplers.py").write_text(SOURCE)
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "helper_of_the_user.py").write_text("")
    return tmp_path / "samplers.py"


def three_batches(worker: Bench, spec: CustomSpec, **options: Any) -> None:
    worker.open(spec, FEED, **options)
    for index in range(3):
        worker.ask(index)


def test_a_sampler_in_the_users_own_file_runs_in_a_worker(
    graph: Graph, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 5: users' batches too are the same in a worker and inline."""
    spec = custom(file, "Walks", length=5)
    with bench(graph, search_path=(str(file.parent / "helpers"),)) as worker:
        worker.open(spec, FEED)
        worker.ask(2, epoch=1)
        done = worker.done()
        digest, shape = worker.digest(done), worker.arrays(done)["walks"].shape
    monkeypatch.syspath_prepend(file.parent / "helpers")
    assert digest == batch_digest(made(maker_for(graph, spec, FEED), 1, 2, 1 << 20)[1])
    assert shape == (32, 5)


def test_a_sampler_in_a_module_is_found_where_the_user_would_find_it(
    graph: Graph, file: Path
) -> None:
    folders = (str(file.parent), str(file.parent / "helpers"), "")
    with bench(graph, search_path=folders) as worker:
        worker.open(CustomSpec(sampler="samplers:Walks"), FEED)
        worker.ask(0)
        worker.done()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", ["samplers.py", "in raises", "LookupError: my own mistake"]),
        ("leaves", ["in leaves", "SystemExit: 0"]),
        ("interrupts", ["in interrupts", "KeyboardInterrupt"]),
        ("returns_nothing", ["no batch: it is None, not a mapping"]),
        ("returns_ids_out_of_range", ["no batch: n_id[0] is 1000", "expected 0 <= id < 200"]),
        ("raises_half_a_character", [r"no such file: \udcff"]),
        ("raises_an_epic", ["once upon a time", "characters left out"]),
        ("returns_half_a_character", [r"no batch: '\udcff' is no name for an array"]),
        ("returns_any_number_of_arrays", ["no batch: it has 5000 arrays"]),
        ("returns_many_dimensions", ["'x' has 33 dimensions: at most 32"]),
        ("asks_for_the_impossible", ["in asks_for_the_impossible", "MemoryError"]),
    ],
)
def test_a_sampler_that_goes_wrong_fails_that_batch_alone(
    graph: Graph, file: Path, how: str, words: list[str]
) -> None:
    """CONTRACT 20: with its traceback; the worker lives."""
    with bench(graph, search_path=(str(file.parent / "helpers"),)) as worker:
        three_batches(worker, custom(file, "Odd", how=how))
        worker.done()
        report = worker.failed().report
        worker.done()
    assert report.kind == "SamplingError"
    assert [word for word in words if word not in report.message] == []
    assert "penstock/workers" not in report.message


def test_a_sampler_may_print_what_it_likes(graph: Graph, file: Path) -> None:
    """CONTRACT 20: megabytes of output are nobody's error."""
    with bench(graph, search_path=(str(file.parent / "helpers"),)) as worker:
        three_batches(worker, custom(file, "Odd", how="prints"))
        for _ in range(3):
            worker.done()
        assert "a word on stdout" in worker.printed()


def test_a_users_batch_that_is_too_big_gets_memory_of_its_own_up_to_the_limit(
    graph: Graph, file: Path
) -> None:
    """CONTRACT 21: as for any batch."""
    with bench(graph, search_path=(str(file.parent / "helpers"),)) as worker:
        three_batches(worker, custom(file, "Odd", how="returns_too_much"), most_bytes=1 << 22)
        worker.done()
        assert worker.failed().report.kind == "BatchTooLarge"
        worker.done()


def test_a_thread_of_a_sampler_does_not_keep_a_worker_that_is_to_go(
    graph: Graph, file: Path
) -> None:
    """CONTRACT 52: replaced means gone."""
    with bench(graph, search_path=(str(file.parent / "helpers"),)) as worker:
        worker.open(custom(file, "Busy"), FEED)
        worker.ask(0)
        worker.done()
        assert worker.retire() == 0


def test_a_thread_of_a_sampler_does_not_keep_a_worker_that_fails(graph: Graph, file: Path) -> None:
    """CONTRACT 18: one that goes on beating without making batches would hold them for ever."""
    with bench(
        graph,
        search_path=(str(file.parent / "helpers"),),
        faults=[{"stage": "after-message", "action": "raise"}],
    ) as worker:
        worker.open(custom(file, "Busy"), FEED)
        worker.ask(0)
        assert worker.ended() == 1
        assert "RuntimeError: a fault on order" in worker.printed()


def test_the_sampler_a_worker_is_for_is_loaded_before_it_is_ready(graph: Graph, file: Path) -> None:
    """CONTRACT 53: one that cannot be loaded is a death before ready, with its cause."""
    with bench(
        graph,
        ready=False,
        sampler=custom(file, "Unmakeable"),
        search_path=(str(file.parent / "helpers"),),
    ) as worker:
        assert worker.ended() == EXIT_SAMPLER
        assert worker.last_words() == []
        assert "RuntimeError: cannot be made" in worker.printed()


def test_the_sampler_a_worker_is_for_is_made_once(graph: Graph, file: Path) -> None:
    file.write_text(SOURCE + "\nprint('loaded', flush=True)\n")
    spec = custom(file, "Walks")
    with bench(graph, sampler=spec, search_path=(str(file.parent / "helpers"),)) as worker:
        assert worker.printed() == "loaded\n"
        worker.open(spec, FEED)
        worker.ask(0)
        worker.done()
        assert worker.printed() == "loaded\n"


def test_a_script_that_is_loaded_can_know_that_it_is_in_a_worker(graph: Graph, file: Path) -> None:
    file.write_text(SOURCE + "\nprint(os.environ['PENSTOCK_WORKER'], flush=True)\n")
    with bench(graph, worker=7, search_path=(str(file.parent / "helpers"),)) as worker:
        worker.open(custom(file, "Walks"), FEED)
        worker.ask(0)
        worker.next(Begun)
        worker.next(Done)
        assert worker.printed() == "7\n"
