"""Types come in one order, the graph's: in every process, from every source, in every batch.

`to_hetero` makes a model's parameters in the order of `metadata()`; where ranks disagree on it, DDP
pairs parameters of different types.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from tests.loader import type_order
from tests.loader.type_order import EDGE_TYPES, NODE_TYPES

pytestmark = pytest.mark.usefixtures("no_leaks")


def orders(hash_seed: int, *places: str) -> dict[str, list[list[object]]]:
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.loader.type_order", *places],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    result: dict[str, list[list[object]]] = json.loads(found.stdout)
    return result


def test_types_come_in_the_graphs_order_in_every_process_and_from_every_source(
    tmp_path: Path,
) -> None:
    expected = [NODE_TYPES, [list(kind) for kind in EDGE_TYPES]]
    with type_order.graph() as graph:
        graph.save(tmp_path / "saved.graph")
        for name in NODE_TYPES:
            np.save(tmp_path / f"{name}.npy", np.ones((type_order.SIZE, 3), np.float32))
        with ps.HubProcess(graph, num_workers=1) as hub:
            with ps.serve(graph, "tcp://127.0.0.1:0", num_workers=1) as server:
                places = str(tmp_path), hub.address, server.address
                found = [orders(seed, *places) for seed in (1, 2)]
    for each in found:
        assert each.pop("files") == NODE_TYPES
        assert each == dict.fromkeys(each, expected)
        assert len(each) == 19
