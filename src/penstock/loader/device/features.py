"""Rows of nodes that are kept on a GPU: all of them, or those that are read most often.

Workers leave these rows out of batches. Where a batch is to have them, it has `RowsLater` at first,
which know whose rows are wanted. Once the batch is being moved, the GPU takes them from its tables,
in the stream that copies; rows that it does not have are gathered here, and moved.

Tables of all rows are shared by the loaders of a graph. Which rows are worth keeping depends on
what a loader samples, so each has a cache of its own; they are chosen as those that a host keeps of
a store (`store.cache`), before the first batch, and never change.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from penstock.client.sizes import written_bytes
from penstock.graph.codec import Codec
from penstock.graph.dtypes import storage_dtype
from penstock.graph.features import FeatureSource
from penstock.graph.progress import shown
from penstock.graph.view import GraphView
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.members import Members
from penstock.loader.device.decoding import Decoder
from penstock.loader.device.gpu import Gpu
from penstock.loader.device.staging import Staging
from penstock.loader.pyg.tensors import tensor_over

# A node type and an attribute of it.
Column: TypeAlias = tuple[str, str]
# Returns the nodes whose rows are worth so many bytes, by type: rising ids.
Choose: TypeAlias = Callable[[Mapping[str, int], int], Mapping[str, Ids]]

_INT32: Final = 2**31 - 1
# The share of the device's free memory that is left to the model.
_LEFT: Final = 0.1


class RowsLater(Tensor):
    """Stands for rows that the GPU will take from its tables: their shape and dtype, and no memory.

    Attributes:
        column: Whose rows of what.
        ids: Of these nodes, in this order.
    """

    column: Column
    ids: Tensor

    @classmethod
    def of(cls, column: Column, ids: Tensor, row: Tensor) -> RowsLater:
        """Make one for rows like this one."""
        shape = (len(ids), *row.shape)
        made = torch.empty(shape, dtype=row.dtype, device="meta").as_subclass(cls)
        made.column, made.ids = column, ids
        return made


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of one attribute on the device; `members` says whose they are, None: all nodes'."""

    rows: Tensor
    members: Members | None


class DeviceFeatures:
    """The rows of nodes' attributes that one loader has on its device.

    Args:
        graph: The graph.
        columns: The attributes. Tables have them as they are stored, also if in a smaller type.
        budget: Bytes of the device for rows that are read most often; None: all rows are kept.
        choose: Chooses them.
    """

    def __init__(
        self,
        graph: GraphView,
        columns: Iterable[Column],
        budget: int | None = None,
        choose: Choose | None = None,
    ) -> None:
        self._graph = graph
        self._sources: dict[Column, FeatureSource] = {}
        self._codecs: dict[Column, Codec] = {}
        self._likes: dict[Column, Tensor] = {}
        for owner, name in columns:
            source = graph.node_features(name, owner or None, stored=True)
            like, codec = _row_like(source), graph.node_codec(name, owner or None)
            if codec is not None:
                self._codecs[owner, name], like = codec, like.to(torch.float32)
            self._sources[owner, name], self._likes[owner, name] = source, like
        self._budget = budget
        self._choose = choose
        self._tables: dict[Column, Table] = {}
        self.is_ready = False  # the tables are on the device
        self.nbytes = 0  # of them
        self.row_bytes = 0  # of all rows that batches had from here
        self.moved = 0  # of those that were not on the device

    def later(self, column: Column, ids: Tensor) -> RowsLater | None:
        """Return what stands for rows until the batch is moved; None if they are not kept here."""
        like = self._likes.get(column)
        return None if like is None else RowsLater.of(column, ids, like)

    # --- tables --------------------------------------------------------------------------------

    def load(self, gpu: Gpu, staging: Staging) -> None:
        """Bring the tables to the device, unless they are there.

        Raises:
            ValueError: The device has too little memory.
        """
        if self.is_ready:
            return
        if self._budget is None:
            self._check_room(gpu, self._missing_bytes(gpu), "features")
            tables = self._whole_tables(gpu, staging)
        else:
            self._check_room(gpu, min(self._budget, self._all_bytes()), "feature_cache")
            tables = self._hot_tables(gpu, staging)
        self._tables = tables
        self.nbytes = sum(table.rows.nbytes for table in tables.values())
        self.is_ready = True

    def _check_room(self, gpu: Gpu, nbytes: int, option: str) -> None:
        room = int(gpu.free_bytes() * (1 - _LEFT))
        if nbytes <= room:
            return
        advice = "give less"
        if option == "features":
            half = written_bytes(room // 2)
            advice = f"give feature_cache={half!r} instead, to keep the rows that are read most"
        raise ValueError(
            f"{option} takes {written_bytes(nbytes)} of {gpu.device}, which has "
            f"{written_bytes(room)} to spare: {advice}"
        )

    def _all_bytes(self) -> int:
        return sum(_row_bytes(source) * source.num_rows for source in self._sources.values())

    def _missing_bytes(self, gpu: Gpu) -> int:
        """Return the bytes of rows of which no other loader has a table there."""
        there = _shared_by(self._graph, gpu)
        return sum(
            _row_bytes(source) * source.num_rows
            for column, source in self._sources.items()
            if column not in there
        )

    def _whole_tables(self, gpu: Gpu, staging: Staging) -> dict[Column, Table]:
        with _loading, _Load(gpu, staging, self._missing_bytes(gpu)) as load:
            there, tables = _shared_by(self._graph, gpu), {}
            for column, source in self._sources.items():
                rows = there.get(column)
                if rows is None:
                    rows = load.all_rows(source)
                tables[column] = Table(rows, None)
            there.update({column: table.rows for column, table in tables.items()})
        return tables

    def _hot_tables(self, gpu: Gpu, staging: Staging) -> dict[Column, Table]:
        assert self._choose is not None
        assert self._budget is not None
        sizes: dict[str, int] = {}
        for (owner, _), source in self._sources.items():
            sizes[owner] = sizes.get(owner, 0) + _row_bytes(source)
        chosen = self._choose(sizes, self._budget)
        nobody = np.empty(0, np.int64)
        total = sum(sizes[owner] * len(ids) for owner, ids in chosen.items())
        tables, members = {}, dict[str, Members]()
        with _Load(gpu, staging, total) as load:
            for (owner, name), source in self._sources.items():
                ids = chosen.get(owner, nobody)
                if owner not in members:
                    members[owner] = Members.of(ids, source.num_rows)
                tables[owner, name] = Table(load.rows(source, ids), members[owner])
        return tables

    def release(self) -> None:
        """Let go of the tables; they are made again when they are needed. Idempotent."""
        self._tables, self.nbytes, self.is_ready = {}, 0, False

    # --- rows of a batch -----------------------------------------------------------------------

    def batch(self, gpu: Gpu, staging: Staging, decoder: Decoder) -> BatchRows:
        """Return what takes the rows of one batch.

        Args:
            gpu: The device; the stream for copies is the current one.
            staging: Moves what lies in no page-locked memory.
            decoder: Decodes rows on the device.
        """
        return BatchRows(self, gpu, staging, decoder)


class BatchRows:
    """Takes the rows of one batch from tables; which nodes have rows there is looked up once."""

    def __init__(
        self, features: DeviceFeatures, gpu: Gpu, staging: Staging, decoder: Decoder
    ) -> None:
        self._features = features
        self._gpu = gpu
        self._staging = staging
        self._decoder = decoder
        self._splits: dict[int, _Split] = {}

    def take(self, later: RowsLater, move: Callable[[Tensor], Tensor]) -> Tensor:
        """Ask for the rows on the device, in the current stream; `move` moves ids of the batch.

        Nothing of a batch stays in a cycle of references: its slot is to be free at once.
        """
        codec = self._features._codecs.get(later.column)
        rows = self._stored(later, move)
        return rows if codec is None else self._decoder.decode(rows, codec)

    def _stored(self, later: RowsLater, move: Callable[[Tensor], Tensor]) -> Tensor:
        """Ask for the rows as they are stored."""
        features, gpu = self._features, self._gpu
        table = features._tables[later.column]
        out = gpu.empty(later.shape, table.rows.dtype)
        features.row_bytes += out.nbytes
        if table.members is None:
            gpu.run(_take, out, table.rows, move(later.ids))
            return out
        split = self._split(table.members, later.ids)
        if split.is_some_here:
            gpu.run(_take, out, table.rows, split.rows)
        if len(split.missing):
            source = features._sources[later.column]
            rows = _fetched(gpu, self._staging, source, split.missing)
            features.moved += rows.nbytes
            gpu.run(_put, out, split.places, rows)
        return out

    def _split(self, members: Members, ids: Tensor) -> _Split:
        # The tensor is part of the batch, which outlives this object.
        found = self._splits.get(id(ids))
        if found is None:
            found = self._splits[id(ids)] = _split(members, ids, self._staging)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """Nodes of a batch: where the rows of those that have one on the device are, and the others.

    `rows` has a row of the table for every node, and any row for those that have none.
    """

    rows: Tensor
    places: Tensor
    missing: Ids
    is_some_here: bool


def _split(members: Members, ids: Tensor, staging: Staging) -> _Split:
    wanted: Array = ids.numpy()
    rows = members.rows(wanted)
    places = np.flatnonzero(rows < 0)
    is_narrow = members.count <= _INT32
    index = np.maximum(rows, 0).astype(np.int32 if is_narrow else np.int64)
    return _Split(
        staging.copy(torch.from_numpy(index)),
        staging.copy(torch.from_numpy(places)),
        wanted[places].astype(np.int64),
        len(places) < len(rows),
    )


def _take(out: Tensor, table: Tensor, index: Tensor) -> None:
    torch.index_select(table, 0, index, out=out)


def _put(out: Tensor, places: Tensor, rows: Tensor) -> None:
    out.index_copy_(0, places, rows)


# --- moving rows ---------------------------------------------------------------------------------


def _fetched(gpu: Gpu, staging: Staging, source: FeatureSource, ids: Ids) -> Tensor:
    """Ask for rows on the device: they are gathered into page-locked memory, and copied."""
    out = gpu.empty((len(ids), *source.row_shape), _row_like(source).dtype)
    _fill(staging, out, source, ids)
    return out


def _fill(staging: Staging, out: Tensor, source: FeatureSource, ids: Ids) -> None:
    storage = np.dtype(storage_dtype(source.dtype))

    def write(room: Tensor, first: int, last: int) -> None:
        memory: Array = room.numpy().view(storage).reshape(last - first, *source.row_shape)
        source.gather(ids[first:last], memory)

    staging.fill(out, write)


class _Load:
    """Brings tables to the device, shows how far it is, and waits in the end."""

    def __init__(self, gpu: Gpu, staging: Staging, total: int) -> None:
        self._gpu, self._staging, self._total = gpu, staging, total
        self._shown = shown(f"keeping features on {gpu.device}", None)
        self._done = 0

    def __enter__(self) -> _Load:
        self._report = self._shown.__enter__()
        self._copying = self._gpu.copying()
        self._copying.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            # Other loaders read the tables in streams of their own.
            self._gpu.mark().wait()
        finally:
            self._copying.__exit__(*error)
            self._shown.__exit__(*error)

    def all_rows(self, source: FeatureSource) -> Tensor:
        """Return a table of all rows."""
        return self.rows(source, range(source.num_rows))

    def rows(self, source: FeatureSource, ids: Ids | range) -> Tensor:
        """Return a table of some rows."""
        out = self._gpu.empty((len(ids), *source.row_shape), _row_like(source).dtype)
        at_once = max(1, _AT_ONCE // max(1, _row_bytes(source)))
        for first in range(0, len(ids), at_once):
            some = np.asarray(ids[first : first + at_once], np.int64)
            _fill(self._staging, out[first : first + len(some)], source, some)
            self._done += len(some) * _row_bytes(source)
            if self._report is not None:
                self._report(self._done, self._total)
        return out


# Bytes that are loaded between two reports.
_AT_ONCE: Final = 64 << 20

# Tables of all rows, by graph, then by device and column: as long as a loader has them.
_Shared: TypeAlias = "weakref.WeakValueDictionary[Column, Tensor]"
_shared: Final[weakref.WeakKeyDictionary[GraphView, dict[torch.device, _Shared]]] = (
    weakref.WeakKeyDictionary()
)
# Held while such tables are made, so that two threads do not make the same.
_loading: Final = threading.RLock()


def _shared_by(graph: GraphView, gpu: Gpu) -> _Shared:
    with _loading:
        by_device = _shared.setdefault(graph, {})
        return by_device.setdefault(gpu.device, weakref.WeakValueDictionary())


def _row_like(source: FeatureSource) -> Tensor:
    """Return a row of no values: its shape and its dtype."""
    empty = np.empty((1, *source.row_shape), storage_dtype(source.dtype))
    return tensor_over(empty, source.dtype)[0]


def _row_bytes(source: FeatureSource) -> int:
    return np.dtype(storage_dtype(source.dtype)).itemsize * math.prod(source.row_shape)
