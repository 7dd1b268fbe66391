"""Building costs little beyond the result: measured in a fresh interpreter."""

from __future__ import annotations

import sys

import msgspec
import pytest

from tests.graph.shared_children import run_child

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

# Shared memory counts as resident like any other, so that the finished graph is part of the peak.
MEASURE = """
from penstock.graph import Graph

def resident(field):
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024

def peak_of(build):
    # Writing here sets the peak back to what is resident now.
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = resident("VmRSS")
    result = build()
    return resident("VmHWM") - before, result

num_nodes, num_edges = 200_000, 3_000_000
edges = np.random.default_rng(0).integers(num_nodes, size=(2, num_edges))
Graph.from_coo(edges[:, :10])  # whatever is loaded on first use is loaded
"""

REPORT = """
peak, graph = peak_of(build)
say([peak, graph.describe().memory.total])
"""


def peak_of(program: str) -> float:
    """The peak of memory beyond the arguments, in multiples of the finished graph.

    `program` prepares the arguments and defines `build()`.
    """
    peak, total = msgspec.convert(run_child(MEASURE + program + REPORT), tuple[int, int])
    return peak / total


def test_edges_in_no_order_are_sorted_where_they_stay() -> None:
    assert 0.9 < peak_of("build = lambda: Graph.from_coo(edges, num_nodes)") < 1.5


def test_edges_in_order_are_copied_once() -> None:
    program = """
edges = edges[:, np.argsort(edges[1])]
build = lambda: Graph.from_coo(edges, num_nodes)
"""
    assert 0.9 < peak_of(program) < 1.5


def test_edges_in_columns_are_not_turned_first() -> None:
    program = """
edges = np.ascontiguousarray(edges.T).T
build = lambda: Graph.from_coo(edges, num_nodes)
"""
    assert 0.9 < peak_of(program) < 1.5


def test_features_are_copied_once() -> None:
    program = """
features = np.ones((num_edges, 20), np.float32)
build = lambda: Graph.from_coo(edges, num_nodes, edge_attr=features)
"""
    assert 0.9 < peak_of(program) < 1.2


def test_weights_are_looked_at_without_a_copy() -> None:
    program = """
weights = np.ones(num_edges)
build = lambda: Graph.from_coo(edges, num_nodes, edge_weight=weights)
"""
    assert 0.9 < peak_of(program) < 1.2
