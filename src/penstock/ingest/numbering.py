"""Numbers the users' ids: from an id to the number of a node.

Ids and the table that finds them are in files, which the system keeps in memory as far as there is
room: the table counts against `memory` only as long as it takes less than half of it. Ids that are
0, 1, 2, … in order need neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.external.scratch import mapped_array
from penstock.graph.schema import KEYS, OFFSETS, TEXT
from penstock.ingest.columns import as_text, id_values, keys
from penstock.ingest.states import KEPT, States
from penstock.ingest.tables import MOST_ROWS, Mask, Rows, Table
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels.id_table import (
    Keys,
    Text,
    extend_slots,
    fill_slots,
    look_up,
    slot_dtype,
    slots_needed,
)

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

NOWHERE: Final = -1


class Numbering(Protocol):
    """The nodes of a type, and how their ids become numbers."""

    @property
    def count(self) -> int:
        """How many nodes there are."""
        ...

    @property
    def is_text(self) -> bool: ...
    @property
    def told(self) -> str:
        """What an id has to be, in words."""
        ...

    def find(self, ids: Keys) -> Ids:
        """Return the number of each id, -1 where there is no such node."""
        ...

    def key_spools(self) -> dict[str, Spool]:
        """Return the ids as arrays by name; none if they are the numbers themselves."""
        ...

    def slots(self) -> Array | None:
        """Return the table that finds them."""
        ...


@dataclass(frozen=True)
class RowNumbers:
    """Ids that are the numbers of nodes."""

    label: str
    count: int
    is_text: bool = False

    @property
    def told(self) -> str:
        return f"the number of a row of {self.label}, 0 <= number < {self.count}"

    def find(self, ids: Keys) -> Ids:
        assert not isinstance(ids, Text)
        return np.where((ids >= 0) & (ids < self.count), ids, NOWHERE)

    def key_spools(self) -> dict[str, Spool]:
        return {}

    def slots(self) -> None:
        return None


class KeySpool:
    """Ids in files, in the order of their numbers."""

    def __init__(self, workspace: Workspace, *, text: bool) -> None:
        self.is_text = text
        self.count = 0
        self._nbytes = 0
        self._keys = workspace.spool(np.uint8 if text else np.int64)
        self._offsets = workspace.spool(np.int64) if text else None
        if self._offsets is not None:
            self._offsets.append(np.zeros(1, np.int64))

    def append(self, ids: Keys) -> None:
        """Add ids at the end."""
        if isinstance(ids, Text):
            assert self._offsets is not None
            self._keys.append(ids.data[ids.offsets[0] : ids.offsets[-1]])
            self._offsets.append(ids.offsets[1:] - ids.offsets[0] + self._nbytes)
            self._nbytes += int(ids.offsets[-1] - ids.offsets[0])
        else:
            self._keys.append(ids)
        self.count += len(ids)

    def mapped(self) -> Keys:
        """Return all ids, mapped from the files; more may be added, and it be called again."""
        if self._offsets is None:
            return self._keys.mapped()
        return Text(self._offsets.mapped(), self._keys.mapped())

    def spools(self) -> dict[str, Spool]:
        """Return the files by the names of their arrays."""
        if self._offsets is None:
            return {KEYS: self._keys}
        return {OFFSETS: self._offsets, TEXT: self._keys}

    def remove(self) -> None:
        """Remove the files."""
        for spool in self.spools().values():
            spool.remove()


class KeyNumbers:
    """Ids of users, and the table that finds them."""

    def __init__(self, label: str, ids: KeySpool, slots: Array) -> None:
        self._label = label
        self._spool = ids
        self._ids = ids.mapped()
        self._slots = slots
        self.count = ids.count
        self.is_text = ids.is_text

    @property
    def told(self) -> str:
        return f"an id of {self._label}"

    def find(self, ids: Keys) -> Ids:
        return look_up(self._ids, self._slots, ids)

    @property
    def ids(self) -> KeySpool:
        """The ids."""
        return self._spool

    def key_spools(self) -> dict[str, Spool]:
        return self._spool.spools()

    def slots(self) -> Array:
        return self._slots


@dataclass(frozen=True)
class Numbered:
    """The nodes of a table.

    Attributes:
        numbering: Their numbers.
        mask: Which rows are nodes; None: all.
        left_out: How many rows are not, by the reason.
    """

    numbering: Numbering
    mask: Mask | None
    left_out: dict[str, int]


# --- ids of a table ------------------------------------------------------------------------------


def numbered(
    table: Table, column: str, *, text: bool, skip: bool, workspace: Workspace, memory: int
) -> Numbered:
    """Number the rows of a table by the ids in a column.

    Args:
        table: The table.
        column: The column.
        text: Whether ids are text.
        skip: Whether rows without an id, and those whose id is there already, are left out.
        workspace: For the files.
        memory: What may be used, in bytes.

    Raises:
        ValueError: An id is missing, or is there twice; it is named with file and row.
    """
    ids, states = _collected(table, column, text=text, skip=skip, workspace=workspace)
    if ids is None:
        return Numbered(RowNumbers(table.label, table.num_rows), None, {})
    slots = _slots_for(ids.count, workspace, memory)
    repeated = fill_slots(ids.mapped(), slots)
    left_out = {"missing": table.num_rows - ids.count} if ids.count < table.num_rows else {}
    if repeated >= 0:
        if not skip:
            _refuse_duplicate(table, column, ids.mapped(), slots, repeated)
        is_first = _firsts(ids.mapped(), slots, workspace)
        left_out["duplicate"] = ids.count - int(np.count_nonzero(is_first))
        states = states.narrowed(is_first)
        ids = _some(ids, is_first, workspace)
        slots = _slots_for(ids.count, workspace, memory)
        fill_slots(ids.mapped(), slots)
    return Numbered(KeyNumbers(table.label, ids, slots), states.mask(KEPT), left_out)


def _collected(
    table: Table, column: str, *, text: bool, skip: bool, workspace: Workspace
) -> tuple[KeySpool | None, States]:
    """Write the ids to files, and which rows have one; no ids if they are 0, 1, 2, … in order."""
    found: KeySpool | None = KeySpool(workspace, text=True) if text else None
    states = States(workspace)
    for rows in table.rows([column]):
        ids, valid = keys(rows, column, text=text)
        if valid is not None and not skip:
            advice = 'an id (on_missing = "skip" leaves such rows out)'
            rows.refuse(int((~valid).argmax()), column, advice)
        if found is None and (valid is not None or not _continues(ids, rows.begin)):
            found = _counted(rows.begin, workspace)
        states.append(len(rows), valid)
        if found is not None:
            found.append(ids)
    return found, states


def _continues(ids: Keys, begin: int) -> bool:
    if isinstance(ids, Text) or not len(ids) or ids[0] != begin or ids[-1] != begin + len(ids) - 1:
        return False
    return bool((np.diff(ids) == 1).all())


def _counted(end: int, workspace: Workspace) -> KeySpool:
    """Return the ids 0, 1, 2, … as they are written once others follow."""
    found = KeySpool(workspace, text=False)
    for begin in range(0, end, MOST_ROWS):
        found.append(np.arange(begin, min(end, begin + MOST_ROWS)))
    return found


def _slots_for(count: int, workspace: Workspace, memory: int) -> Array:
    """Return room for the table of so many ids: in memory, or else in a file."""
    size, dtype = slots_needed(count), slot_dtype(count)
    if workspace.held + size * dtype.itemsize <= memory // 2:
        workspace.held += size * dtype.itemsize
        return np.empty(size, dtype)
    return mapped_array(workspace.path("slots"), dtype, [size])


def _refuse_duplicate(table: Table, column: str, ids: Keys, slots: Array, repeated: int) -> None:
    one = ids.take(np.array([repeated])) if isinstance(ids, Text) else ids[repeated : repeated + 1]
    (first,) = look_up(ids, slots, one).tolist()
    value = one.strings()[0] if isinstance(one, Text) else int(one[0])
    raise ValueError(
        f"{table.where(repeated)}: column {column!r} of {table.label} is {value!r}, an id that "
        f'{table.where(first)} has already; on_missing = "skip" keeps the first of them'
    )


def _firsts(ids: Keys, slots: Array, workspace: Workspace) -> Array:
    """Return which ids have not been there before."""
    found = workspace.spool(np.uint8)
    for begin, piece in pieces_of(ids):
        places = look_up(ids, slots, piece)
        found.append(places == np.arange(begin, begin + len(piece)))
    return found.mapped()


def pieces_of(ids: Keys) -> Iterator[tuple[int, Keys]]:
    """Yield ids some at a time, each time with the number of the first."""
    for begin in range(0, len(ids), MOST_ROWS):
        end = min(len(ids), begin + MOST_ROWS)
        if isinstance(ids, Text):
            yield begin, ids.take(np.arange(begin, end))
        else:
            yield begin, ids[begin:end]


def _some(ids: KeySpool, chosen: Array, workspace: Workspace) -> KeySpool:
    found = KeySpool(workspace, text=ids.is_text)
    for begin, piece in pieces_of(ids.mapped()):
        at = np.flatnonzero(chosen[begin : begin + len(piece)])
        found.append(piece.take(at) if isinstance(piece, Text) else piece[at])
    ids.remove()
    return found


# --- ids that only edges name --------------------------------------------------------------------


class Discovered:
    """Numbers ids in the order in which edges name them first."""

    def __init__(self, label: str, workspace: Workspace, memory: int, *, text: bool) -> None:
        self._label = label
        self._workspace = workspace
        self._memory = memory
        self._ids = KeySpool(workspace, text=text)
        self._slots = _slots_for(MOST_ROWS, workspace, memory)
        fill_slots(self._ids.mapped(), self._slots)

    def add(self, rows: Rows, columns: Iterable[str]) -> None:
        """Number the ids in one or two columns, row by row; rows that lack one are left out."""
        values = [id_values(rows, column, text=self._ids.is_text) for column in columns]
        valid = np.logical_and.reduce(
            [each.is_valid().to_numpy(zero_copy_only=False) for each in values]
        )
        if not valid.all():
            values = [each.filter(pa.array(valid)) for each in values]
        self._add(_interleaved(values))

    def _add(self, values: pa.Array) -> None:
        distinct = values.dictionary_encode().dictionary  # in the order of first appearance
        self.extend(
            as_text(distinct) if self._ids.is_text else distinct.to_numpy(zero_copy_only=False)
        )

    def extend(self, found: Keys) -> None:
        """Number those of different ids that have no number yet, in their order."""
        missing = np.flatnonzero(look_up(self._ids.mapped(), self._slots, found) == NOWHERE)
        if not len(missing):
            return
        before = self._ids.count
        self._ids.append(found.take(missing) if isinstance(found, Text) else found[missing])
        if slots_needed(self._ids.count) <= len(self._slots):
            extend_slots(self._ids.mapped(), self._slots, before)
        else:
            self._slots = _slots_for(2 * self._ids.count, self._workspace, self._memory)
            fill_slots(self._ids.mapped(), self._slots)

    @property
    def ids(self) -> KeySpool:
        """The ids, in the order of their numbers."""
        return self._ids

    def numbering(self) -> Numbering:
        """Return the numbers of all that were added."""
        pieces = pieces_of(self._ids.mapped())
        if not self._ids.is_text and all(_continues(piece, at) for at, piece in pieces):
            return RowNumbers(self._label, self._ids.count)
        size = slots_needed(self._ids.count)
        if len(self._slots) != size or self._slots.dtype != slot_dtype(self._ids.count):
            self._slots = _slots_for(self._ids.count, self._workspace, self._memory)
            fill_slots(self._ids.mapped(), self._slots)
        return KeyNumbers(self._label, self._ids, self._slots)


def _interleaved(values: list[pa.Array]) -> pa.Array:
    """Return the values of two columns row by row."""
    if len(values) == 1:
        return values[0]
    count = len(values[0])
    order = np.arange(2 * count).reshape(2, count).T.reshape(-1)
    return pa.concat_arrays(values).take(pa.array(order))
