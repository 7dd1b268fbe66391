"""The example of a sampler of one's own: it runs, conforms, and takes the blame for its errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock import CustomSpec, Graph, SamplingError, SharedDistSamplingBackend
from penstock.sampling.custom import load
from penstock.testing import check_sampler

pytestmark = pytest.mark.usefixtures("no_leaks")

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_sampler.py"
NAME = f"{EXAMPLE}:Visited"


@pytest.fixture
def graph() -> Iterator[Graph]:
    """Two nodes that lead to each other, and one that nothing leads to."""
    with Graph.from_coo([[0, 1], [1, 0]], 3) as made:
        yield made


@pytest.fixture(autouse=True)
def path_as_it_was() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def test_the_example_makes_the_same_batches_inline_and_in_a_pool(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    *batches, verdict = done.stdout.splitlines()
    assert len(batches) == 16
    assert verdict == "the same digests"


def test_the_example_conforms() -> None:
    edges = np.random.default_rng(3).integers(0, 100, (2, 700))
    with Graph.from_coo(edges, 100) as graph:
        check_sampler(NAME, graph, options={"walks": 4, "keep": 3})


def test_the_example_finds_what_walks_meet(graph: Graph) -> None:
    sampler = load(CustomSpec(sampler=NAME, options={"length": 3, "keep": 1}), graph)
    batch = sampler.sample(np.array([2, 0]), seed=0, epoch=0, index=0)
    # From 0 a walk meets 1, 0, 1; from 2 it cannot leave.
    assert batch["n_id"].tolist() == [2, 0, 1]
    assert batch["edge_index"].tolist() == [[0, 2], [0, 1]]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_it_points_at_its_line(graph: Graph, workers: int, tmp_path: Path) -> None:
    """CONTRACT 20: the line that is wrong, and the file that it is in."""
    wrong = "met.appendix(here.copy())"
    source = EXAMPLE.read_text()
    assert "met.append(here.copy())" in source
    file = tmp_path / "wrong_sampler.py"
    file.write_text(source.replace("met.append(here.copy())", wrong))
    line = 1 + source[: source.index("met.append(here.copy())")].count("\n")
    spec = CustomSpec(sampler=f"{file}:Visited")
    with SharedDistSamplingBackend(graph, spec, num_workers=workers) as backend:
        backend.register_input("a", None, batch_size=2)
        backend.start_new_epoch_sampling("a", 0)
        with pytest.raises(SamplingError) as caught:
            backend.next_batch("a", timeout=60)
    lines = str(caught.value).splitlines()
    place = lines.index(f'  File "{file}", line {line}, in sample')
    assert lines[place + 1].strip() == wrong
    assert "AttributeError: 'list' object has no attribute 'appendix'" in str(caught.value)
    # Nothing of ours stands before the user's first line.
    assert [text for text in lines[:place] if text.startswith("  File")] == []
