"""Assigns nodes to parts by KaMinPar, in a process of its own.

KaMinPar reads a graph from a file and keeps Python from running while it computes. In a process of
its own it can be interrupted, progress is shown meanwhile, and its memory is given back. One thread
and a fixed seed: the same graph has the same parts, always.

    python -P -m penstock.graph.partition.kaminpar GRAPH OUT PARTS      GRAPH and OUT: descriptors
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.graph.partition.book import part_dtype
from penstock.graph.partition.index_space import IndexSpace
from penstock.kernels.undirected import Undirected, undirected

SEED: Final = 1
# The largest part has at most so much more than the mean.
IMBALANCE: Final = 0.03
# KaMinPar counts nodes and ends of edges in 32 bits.
_MOST: Final = 2**31 - 1
# The flags in the header of its files: what is left out, and what takes 32 bits.
_NO_EDGE_WEIGHTS: Final = 1
_NO_NODE_WEIGHTS: Final = 2
_NARROW_IDS: Final = 8
_NARROW_EDGE_WEIGHTS: Final = 32
_PR_SET_PDEATHSIG: Final = 1


def check_installed() -> None:
    """Raise an error that says what to install, if KaMinPar is missing."""
    if importlib.util.find_spec("kaminpar") is None:
        raise PenstockError(
            "method='locality' needs the package kaminpar: pip install 'penstock-gnn[locality]'; "
            "method='streaming' needs nothing more"
        )


def by_locality(
    space: IndexSpace, num_parts: int, beside: Path | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return the part of each node, by node type.

    Args:
        space: The nodes and their in-edges.
        num_parts: How many parts there are.
        beside: The folder for a temporary file with the edges; None for the system's.

    Raises:
        PenstockError: KaMinPar is not installed, or failed.
        ValueError: The graph has too many nodes or edges for it.
    """
    check_installed()
    dtype = np.dtype(part_dtype(num_parts))
    if num_parts == 1 or space.size == 0:
        return space.by_type(np.zeros(space.size, dtype))
    _check_size("nodes", space.size)
    with tempfile.TemporaryFile(dir=beside) as graph, tempfile.TemporaryFile(dir=beside) as out:
        _write(undirected(space.rows, space.size), graph)
        _run(graph, out, num_parts)
        out.seek(0)
        parts = np.frombuffer(out.read(), dtype)
    return space.by_type(parts)


def _check_size(what: str, count: int) -> None:
    if count > _MOST:
        raise ValueError(
            f"the graph has {count:,} {what}; method='locality' takes at most {_MOST:,}: use "
            "method='streaming'"
        )


def _write(graph: Undirected, file: BinaryIO) -> None:
    """Write a graph in KaMinPar's binary format, that of ParHIP."""
    indptr, ends, weights = graph
    _check_size("ends of edges", len(ends))
    is_plain = bool((weights == 1).all())
    flags = _NO_NODE_WEIGHTS | _NARROW_IDS | _NARROW_EDGE_WEIGHTS
    header = [flags | (_NO_EDGE_WEIGHTS if is_plain else 0), len(indptr) - 1, len(ends)]
    first = 8 * (len(header) + len(indptr))  # where the ends begin in the file
    for array in (
        np.array(header, np.uint64),
        first + ends.itemsize * indptr,
        ends,
        *(() if is_plain else (weights,)),
    ):
        file.write(memoryview(array).cast("B"))
    file.flush()


def _run(graph: BinaryIO, out: BinaryIO, num_parts: int) -> None:
    if not sys.executable:
        raise PenstockError("sys.executable is empty: there is no interpreter to start")
    descriptors = graph.fileno(), out.fileno()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *map(str, (*descriptors, num_parts))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=descriptors,
        process_group=0,
    )
    with process:
        try:
            _, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise PenstockError(_failure(process.returncode, said))


def _failure(status: int, said: str) -> str:
    """Return in words how KaMinPar ended."""
    if status == -signal.SIGKILL:
        return (
            "KaMinPar was killed, probably because memory ran out: method='streaming' needs much "
            "less"
        )
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"KaMinPar failed ({how}): {last}"


def _main(graph: int, out: int, num_parts: int) -> None:
    import kaminpar

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    found = kaminpar.load_graph(f"/proc/self/fd/{graph}", kaminpar.GraphFileFormat.PARHIP)
    kaminpar.reseed(SEED)
    partitioner = kaminpar.KaMinPar(1, kaminpar.default_context())
    parts = partitioner.compute_partition(found, num_parts, IMBALANCE)
    with os.fdopen(out, "wb") as file:
        file.write(np.array(parts, part_dtype(num_parts)).tobytes())


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
