"""Map, of nodes: gives out the attributes, ids and splits of a node type by parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph.dtypes import dtype_name
from penstock.graph.schema import KEYS, OFFSETS, TEXT, ArrayKey
from penstock.graph.topology import id_dtype
from penstock.ingest.cutting.edges import share_rows
from penstock.ingest.cutting.owners import NodeOwners
from penstock.ingest.cutting.segments import Segments
from penstock.ingest.cutting.sums import Sum, Summed
from penstock.ingest.features import Streamed
from penstock.ingest.nodes import MadeNodes
from penstock.ingest.numbering import Numbering
from penstock.ingest.tables import MOST_ROWS
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels.id_table import Text

Array = npt.NDArray[Any]


@dataclass
class SharedSplit:
    """A split, given out.

    Attributes:
        size: How many nodes it has.
        nodes: The nodes.
        positions: Where in the whole split they stand.
    """

    size: int
    nodes: Segments
    positions: Segments


@dataclass
class SharedNodes:
    """The nodes of a type, given out.

    Attributes:
        name: The type.
        owners: The part of each node.
        counts: How many nodes each part has.
        columns: The attributes, by name.
        keys: The users' ids, if they are numbers.
        lengths: The lengths of the users' ids, if they are text.
        text: That text.
        splits: The splits, by name.
    """

    name: str
    owners: NodeOwners
    counts: list[int]
    columns: dict[str, Segments] = field(default_factory=dict)
    keys: Segments | None = None
    lengths: Segments | None = None
    text: Segments | None = None
    splits: dict[str, SharedSplit] = field(default_factory=dict)


class NodeSharer:
    """Gives out the nodes of a type."""

    def __init__(self, name: str, owners: NodeOwners, workspace: Workspace, room: int) -> None:
        self._owners = owners
        self._workspace = workspace
        self._room = room
        self._shared = SharedNodes(name, owners, owners.counts())

    def share(self, made: MadeNodes, numbering: Numbering) -> tuple[SharedNodes, Wholes]:
        """Give out all there is of the nodes; return it, and what the whole graph would have."""
        wholes: Wholes = {}
        for key, _ in made.columns:
            wholes[key] = self._column(key.name, made.arrays[key])
        for key, source in made.arrays.items():
            if key.group == "split":
                wholes[key] = self._split(key.name, source)
        wholes.update(self._ids(numbering.key_spools()))
        return self._shared, wholes

    def _segments(self, dtype: str, shape: tuple[int, ...] = ()) -> Segments:
        folder, num_parts = self._workspace.path("segments"), self._owners.book.num_partitions
        return Segments(folder, num_parts, dtype, shape, self._room)

    def _column(self, name: str, source: Any) -> Summed:
        assert isinstance(source, Streamed)
        segments = self._segments(source.dtype, source.shape[1:])
        self._shared.columns[name] = segments
        return share_rows(source, self._owners, segments)

    def _split(self, name: str, source: Any) -> Summed:
        assert isinstance(source, Streamed)
        size = source.shape[0]
        split = SharedSplit(size, self._segments(source.dtype), self._segments(id_dtype(size)))
        self._shared.splits[name] = split
        total, done = Sum(), 0
        for nodes in source.rows():
            total.add(nodes.view(np.uint8))
            parts = self._owners.of(nodes)
            split.nodes.share(nodes, parts)
            positions = np.arange(done, done + len(nodes), dtype=split.positions.dtype)
            split.positions.share(positions, parts)
            done += len(nodes)
        split.nodes.flush()
        split.positions.flush()
        return Summed(source.dtype, source.shape, total.checksum())

    # --- ids ---

    def _ids(self, spools: dict[str, Spool]) -> Iterator[tuple[ArrayKey, Summed]]:
        for name, spool in spools.items():
            yield ArrayKey("ids", self._shared.name, name), _summed(spool)
        if KEYS in spools:
            self._keys(spools[KEYS])
        elif spools:
            self._text(Text(spools[OFFSETS].mapped(), spools[TEXT].mapped()))

    def _keys(self, spool: Spool) -> None:
        self._shared.keys = segments = self._segments("int64")
        done = 0
        for keys in spool.pieces(MOST_ROWS):
            segments.share(keys, self._owners.parts(done, done + len(keys)))
            done += len(keys)
        segments.flush()

    def _text(self, whole: Text) -> None:
        self._shared.lengths = lengths = self._segments("int64")
        self._shared.text = text = self._segments("uint8")
        for begin in range(0, len(whole), MOST_ROWS):
            end = min(len(whole), begin + MOST_ROWS)
            parts = self._owners.parts(begin, end)
            order = np.argsort(parts, kind="stable")
            own, some = np.diff(whole.offsets[begin : end + 1])[order], whole.take(begin + order)
            lengths.append(own, np.bincount(parts, minlength=len(text.num_rows)))
            nbytes = np.zeros(len(text.num_rows), np.int64)
            np.add.at(nbytes, parts[order], own)
            text.append(some.data, nbytes)
        lengths.flush()
        text.flush()


Wholes = dict[ArrayKey, Summed]


def _summed(spool: Spool) -> Summed:
    total = Sum()
    for piece in spool.pieces(MOST_ROWS):
        total.add(piece.reshape(-1).view(np.uint8))
    return Summed(dtype_name(spool.dtype), spool.mapped().shape, total.checksum())
