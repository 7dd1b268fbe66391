"""The graph: in shared memory or in files, read by many processes without a copy."""

from __future__ import annotations

from penstock.graph.graph import Graph
from penstock.graph.schema import EdgeType
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Topology

__all__ = ["EdgeType", "Graph", "SharedArray", "Topology"]
