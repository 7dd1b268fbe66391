"""Kinds of sampling: specs as plain data, and how batches are made from them.

`spec` has the specs, `kinds` the class that each kind implements; `neighbor`, `links`, `ablp`,
`subgraph`, `ppr`, `walks`, `hgt` and `custom` are the kinds. `collate` and `buffered` write
batches.
"""

from penstock.sampling.khop import NeighborSampler

__all__ = ["NeighborSampler"]
