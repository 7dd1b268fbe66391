"""A real graph: Cora, with the public split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.testing as npt
import pytest

from penstock.graph import Graph
from tests.graph.shapes import sorted_by

CORA = Path(__file__).parents[2].parent / "shared" / "data" / "cora.npz"

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(not CORA.exists(), reason="cora.npz is not in ../shared/data"),
]


def test_cora_is_built_saved_and_opened(tmp_path: Path) -> None:
    with np.load(CORA) as cora:
        edges, y, x = cora["edge_index"], cora["y"], _dense(cora)
        splits = {name: cora[f"{name}_idx"] for name in ("train", "val", "test")}
    with Graph.from_coo(edges, x=x, y=y, **splits) as graph:
        graph.csr()
        graph.validate()
        graph.save(tmp_path / "cora")
    with Graph.open(tmp_path / "cora") as opened:
        opened.validate()
        assert (opened.num_nodes(), opened.num_edges()) == (2708, edges.shape[1])
        npt.assert_array_equal(opened.edge_index(), edges)
        npt.assert_array_equal(opened.node_attribute("x"), x)
        indptr, neighbors, edge_ids = sorted_by(edges[1], edges[0], len(y))
        npt.assert_array_equal(opened.csc().indptr, indptr)
        npt.assert_array_equal(opened.csc().indices, neighbors)
        npt.assert_array_equal(opened.csc().edge_ids, edge_ids)
        for name, ids in splits.items():
            npt.assert_array_equal(opened.split(name), ids)


def _dense(cora: np.lib.npyio.NpzFile) -> np.ndarray:
    x = np.zeros(cora["x_shape"], np.float32)
    rows = np.repeat(np.arange(len(x)), np.diff(cora["x_indptr"]))
    x[rows, cora["x_indices"]] = cora["x_data"]
    return x
