"""The generated graph: the same for the same seed, and one from which something can be learned."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.demo.sbm import BlockModel, block_model


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
