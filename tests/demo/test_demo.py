"""The demonstration runs, learns, and tells the same in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from penstock import Graph
from penstock.cli import main
from penstock.demo.sbm import BlockModel, block_model

PENSTOCK = Path(sys.executable).with_name("penstock")


def run_demo(*options: object) -> Result:
    """Runs it in this process, which imports torch only once."""
    return CliRunner().invoke(main, ["demo", *map(str, options)])


def test_a_block_model_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    spec = BlockModel(num_nodes=500)
    same, again = block_model(spec).version, block_model(spec).version
    other = block_model(BlockModel(num_nodes=500, seed=1)).version
    assert same == again != other


def test_edges_of_a_block_model_mostly_stay_in_their_class() -> None:
    graph = block_model(BlockModel(num_nodes=5000))
    y = graph.node_attribute("y")
    source, target = graph.edge_index()
    assert 0.55 < np.mean(y[source] == y[target]) < 0.75


def test_splits_of_a_block_model_are_disjoint_and_cover_all_nodes() -> None:
    graph = block_model(BlockModel(num_nodes=1000))
    parts = [graph.split(name) for name in ("train", "val", "test")]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))


def test_a_block_model_too_small_for_its_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="num_nodes is 20"):
        BlockModel(num_nodes=20)


def test_the_demo_learns_and_reports_in_json(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    kept = tmp_path / "sbm.graph"
    command = [PENSTOCK, "demo", "--nodes", "20000", "--json", "--keep", kept]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    report = json.loads(done.stdout)
    assert report["accuracy"] > 4 * report["chance"]
    assert report["losses"][-1] < report["losses"][0]
    assert set(report["training_seconds"]) >= {"sampling", "gathering features", "training"}
    with Graph.open(kept) as graph:
        assert graph.num_nodes() == 20000


def test_the_demo_prints_accuracy_rate_and_where_the_time_went() -> None:
    pytest.importorskip("torch_geometric")
    command = [PENSTOCK, "demo", "--nodes", "5000", "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    words = " ".join(done.stdout.split())
    for expected in ("test accuracy", "per second", "where the time went", "sampling"):
        assert expected in words


def test_the_demo_keeps_a_graph_whose_path_looks_like_markup(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    kept = tmp_path / "x[" / "y].graph"
    kept.parent.mkdir()
    done = run_demo("--nodes", 2000, "--epochs", 1, "--keep", kept)
    assert (done.exit_code, done.stderr) == (0, ""), done.exception
    with Graph.open(kept) as graph:
        assert graph.num_nodes() == 2000


def test_the_demo_takes_the_largest_seed() -> None:
    pytest.importorskip("torch_geometric")
    done = run_demo("--nodes", 2000, "--epochs", 1, "--seed", 2**64 - 1)
    assert (done.exit_code, done.stderr) == (0, ""), done.exception


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_a_usage_error(seed: int) -> None:
    done = run_demo("--seed", seed)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"'--seed': {seed} is not in the range 0<=x<={2**64 - 1}" in " ".join(
        done.stderr.split()
    )


@pytest.mark.parametrize("missing", ["torch", "torch_geometric"])
def test_without_pyg_the_demo_says_so_before_it_makes_a_graph(missing: str, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    kept = tmp_path / "sbm.graph"
    script = (
        f"import sys; sys.modules[{missing!r}] = None;"
        f"from penstock.cli import main; main(['demo', '--keep', {str(kept)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, kept.exists()) == (1, "", False)
    assert done.stderr == (
        f"Error: the demo trains with PyTorch and PyG (no module named {missing}): "
        "pip install 'penstock[pyg]'\n"
    )
