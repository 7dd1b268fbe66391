"""Edges that do not fit in memory, sorted by destination: `Graph.from_coo` out of core.

`edges` has `ExternalEdges`, which takes edges in order of their ids and shares them out to
`buckets`, in memory and in a folder of temporary files (`scratch`). `sorted_edges` sorts one bucket
after the other while the graph is written, `duplicates` finds edges that repeat earlier ones.
`work` has what both need, and shares out again buckets that are too large to be sorted in memory.

None of it knows where edges come from.
"""

from __future__ import annotations

from penstock.graph.external.edges import KEEP, LEAST_MEMORY, ExternalEdges, Keep
from penstock.graph.external.sorted_edges import SortedEdges, SortedRows

__all__ = ["KEEP", "LEAST_MEMORY", "ExternalEdges", "Keep", "SortedEdges", "SortedRows"]
