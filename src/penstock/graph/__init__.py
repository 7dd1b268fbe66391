"""The graph store: arrays in shared memory or files, read by many processes without a copy.

`graph` has `Graph`; `view` its interface, which remote graphs share. `schema`, `shared` and
`segment` hold arrays; `coo`, `pyg`, `draft` and `build` make a graph; `format` saves it; `derived`
adds arrays computed from it; `partition` splits it into parts; `external` sorts edges that do not
fit in memory.
"""

from __future__ import annotations

from penstock.graph.graph import Graph
from penstock.graph.schema import EdgeType
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Topology

__all__ = ["EdgeType", "Graph", "SharedArray", "Topology"]
