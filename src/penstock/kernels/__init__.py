"""The Python interface of the native kernels: NumPy in, NumPy out, the GIL released in between.

Each module checks arguments and turns the results of one kernel into arrays and errors. `reference`
and `twins` are the same in plain NumPy: the oracle, byte for byte.
"""

from penstock.kernels.gather import copy_bytes, gather_rows, scatter_rows
from penstock.kernels.hops import Drawn, HopAssembly, draw_hop, edges_within
from penstock.kernels.instruction_sets import Simd, choose_simd, simd
from penstock.kernels.khop import (
    Buffers,
    Exclusion,
    KHop,
    Relabeler,
    Relation,
    Sample,
)
from penstock.kernels.members import Members
from penstock.kernels.random import batch_key, hop_key, name_hash, permutation
from penstock.kernels.topology import (
    Adjacency,
    digest,
    fill_adjacency,
    first_outside,
    is_sorted,
    transpose,
)

__all__ = [
    "Adjacency",
    "Buffers",
    "Drawn",
    "Exclusion",
    "HopAssembly",
    "KHop",
    "Members",
    "Relabeler",
    "Relation",
    "Sample",
    "Simd",
    "batch_key",
    "copy_bytes",
    "digest",
    "draw_hop",
    "edges_within",
    "fill_adjacency",
    "first_outside",
    "gather_rows",
    "hop_key",
    "is_sorted",
    "name_hash",
    "permutation",
    "scatter_rows",
    "simd",
    "transpose",
]

choose_simd()
