"""`penstock replay`, run as people run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec, Spec
from penstock.workers.recipe import Recipe
from tests.hub.raw import running_hub
from tests.sampling.graphs import Array, made, maker_for, web

pytestmark = pytest.mark.usefixtures("no_leaks")

COMMAND = Path(sys.executable).with_name("penstock")
SPEC = NeighborSpec(num_neighbors=(4, 3))
FEED = Feed(num_inputs=200, batch_size=32, shuffle=True, seed=5)

SAMPLERS = """
import ctypes

class Fine:
    def __init__(self, graph): pass
    def sample(self, seeds, *, seed, epoch, index):
        return {"n_id": seeds[::-1]}

class Faulty(Fine):
    def sample(self, seeds, *, seed, epoch, index):
        raise LookupError(f"in batch {index}")

class Greedy(Fine):
    def sample(self, seeds, *, seed, epoch, index):
        raise MemoryError("all of it")

class Fatal(Fine):
    def sample(self, seeds, *, seed, epoch, index):
        ctypes.string_at(0)
"""


def run_replay(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "replay", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def graph_path(tmp_path: Path) -> Path:
    with web() as graph:
        graph.save(tmp_path / "web.graph")
    return tmp_path / "web.graph"


def write(folder: Path, spec: Spec = SPEC, **more: Any) -> str:
    recipe = {"spec": spec, "feed": FEED, "epoch": 1, "index": 2, "job": "train"} | more
    return Recipe(**recipe).write(folder)


def expected(spec: Spec = SPEC, ids: Array | None = None) -> str:
    with web() as graph:
        feed = FEED if ids is None else Feed(num_inputs=len(ids), batch_size=32)
        return batch_digest(made(maker_for(graph, spec, feed, ids), 1, 2, 1 << 20)[1])


def test_it_makes_the_same_batch_and_says_what_is_in_it(tmp_path: Path, graph_path: Path) -> None:
    """CONTRACT 50: one batch, again, in the foreground."""
    done = run_replay(write(tmp_path, path=str(graph_path)))
    assert (done.returncode, done.stderr) == (0, "")
    told = " ".join(done.stdout.split())
    assert told.startswith("train: batch 2 of epoch 1 ")
    assert "edge_attr float32 [" in told
    assert "batch_size: 32" in told
    assert told.endswith(f"digest: {expected()}")


def test_json_is_for_programs(tmp_path: Path, graph_path: Path) -> None:
    done = run_replay(write(tmp_path, path=str(graph_path)), "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert said["digest"] == expected()
    assert {"name": "input_id", "dtype": "int64", "shape": [32]} in said["arrays"]
    assert said["facts"]["batch_size"] == 32
    assert said["nbytes"] > 0
    assert said["seconds"] > 0


def test_seeds_in_the_recipe_are_as_good_as_the_inputs(tmp_path: Path, graph_path: Path) -> None:
    """CONTRACT 50: the inputs themselves may be gone, and more than the graph has nodes."""
    ids = np.tile(np.arange(199, -1, -1), 3)
    feed = Feed(num_inputs=600, batch_size=32)
    seeds = tuple(ids[64:96].tolist())
    path = write(tmp_path, path=str(graph_path), feed=feed, seeds=seeds)
    assert json.loads(run_replay(path, "--json").stdout)["digest"] == expected(ids=ids)


def test_a_graph_can_be_given_in_place_of_one_that_is_gone(
    tmp_path: Path, graph_path: Path
) -> None:
    recipe = write(tmp_path, address="unix://@penstock-nobody")
    done = run_replay(recipe)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no hub answers at unix://@penstock-nobody" in done.stderr
    assert done.stderr.rstrip().endswith("name a saved one with --graph PATH")
    assert run_replay(recipe, "--graph", graph_path).returncode == 0


def test_the_graph_may_be_in_the_memory_of_a_running_hub(tmp_path: Path) -> None:
    """CONTRACT 50: no folder is needed while the hub lives."""
    with web() as graph, running_hub(graph) as hub:
        done = run_replay(write(tmp_path, address=hub.address), "--json")
    assert json.loads(done.stdout)["digest"] == expected()


def test_a_users_sampler_runs_in_the_foreground(tmp_path: Path, graph_path: Path) -> None:
    (tmp_path / "samplers.py").write_text(SAMPLERS)
    spec = CustomSpec(sampler="samplers:Fine")
    path = write(tmp_path, spec, path=str(graph_path), search_path=(str(tmp_path),))
    said = json.loads(run_replay(path, "--json").stdout)
    assert [array["name"] for array in said["arrays"]] == ["input_id", "n_id"]


def test_a_sampler_that_fails_again_shows_its_lines_and_exits_3(
    tmp_path: Path, graph_path: Path
) -> None:
    (tmp_path / "samplers.py").write_text(SAMPLERS)
    spec = CustomSpec(sampler=f"{tmp_path}/samplers.py:Faulty")
    done = run_replay(write(tmp_path, spec, path=str(graph_path)))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("sampling batch 2 of epoch 1 failed\nTraceback")
    assert done.stderr.endswith("LookupError: in batch 2\n")


def test_a_lack_of_memory_is_a_failure_like_any(tmp_path: Path, graph_path: Path) -> None:
    (tmp_path / "samplers.py").write_text(SAMPLERS)
    spec = CustomSpec(sampler=f"{tmp_path}/samplers.py:Greedy")
    done = run_replay(write(tmp_path, spec, path=str(graph_path)))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("MemoryError: all of it\n")


def test_inputs_that_are_no_nodes_fail_again_and_exit_3(tmp_path: Path, graph_path: Path) -> None:
    """CONTRACT 50: what happened to the batch happens here, by the same words."""
    done = run_replay(write(tmp_path, path=str(graph_path), seeds=(999,) * 32))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "seeds[0][0] is 999; expected 0 <= id < 200\n"


def test_a_recipe_that_has_lost_some_of_its_seeds_is_refused(
    tmp_path: Path, graph_path: Path
) -> None:
    done = run_replay(write(tmp_path, path=str(graph_path), seeds=(1, 2, 3)))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: the recipe has 3 seeds; its batch has 32\n"


def test_a_sampler_that_crashes_again_shows_its_stack(tmp_path: Path, graph_path: Path) -> None:
    """CONTRACT 49: the Python stack, here in sight."""
    (tmp_path / "samplers.py").write_text(SAMPLERS)
    spec = CustomSpec(sampler=f"{tmp_path}/samplers.py:Fatal")
    done = run_replay(write(tmp_path, spec, path=str(graph_path)))
    assert done.returncode == -signal.SIGSEGV
    assert "samplers.py" in done.stderr


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"spec": 3}'])
def test_what_is_no_recipe_is_told_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "recipe.json"
    if content is not None:
        path.write_bytes(content)
    done = run_replay(path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert str(path) in done.stderr


def test_a_recipe_for_another_graph_is_told_in_one_line(tmp_path: Path) -> None:
    with Graph.from_coo([[0], [1]]) as graph:
        graph.save(tmp_path / "tiny.graph")
    done = run_replay(write(tmp_path, path=str(tmp_path / "tiny.graph")))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: num_inputs is 200; there are 2 nodes\n"


def test_its_help_has_examples_and_exit_codes() -> None:
    told = run_replay("--help").stdout
    assert "--graph products.graph" in told
    assert "exit status is 3" in told
