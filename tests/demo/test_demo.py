"""The demonstration runs, learns, and tells the same in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock import Graph
from penstock.demo.sbm import BlockModel, block_model

PENSTOCK = Path(sys.executable).with_name("penstock")


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
