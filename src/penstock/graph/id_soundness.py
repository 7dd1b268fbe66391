"""Checks that the ids of a node type are sound: text that can be read, and each id once.

Everything is read in pieces. Errors are `GraphFormatError` and name the array and the position.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.graph.schema import KEYS, OFFSETS, SLOTS, TEXT, ArrayKey, Arrays
from penstock.graph.unsound import unsound
from penstock.graph.user_ids import as_array, keys_among, kind_among, piece_of, taken
from penstock.kernels.arrays import Array
from penstock.kernels.id_table import Keys, Text, fill_slots, look_up, slot_dtype, slots_needed

_PIECE: Final = 1 << 18


def check_ids_of_type(node_type: str, arrays: Arrays) -> None:
    """Raise `GraphFormatError` for the first thing that is wrong with the ids of a type."""
    if kind_among(arrays, node_type) is None:
        return
    keys, key = keys_among(arrays, node_type), ArrayKey("ids", node_type, SLOTS)
    if isinstance(keys, Text):
        _check_text(node_type, keys, arrays)
    if key in arrays:
        _check_slots(key, keys, arrays)
    else:
        slots = np.empty(slots_needed(len(keys)), slot_dtype(len(keys)))
        if (repeated := fill_slots(keys, slots)) >= 0:
            raise _repeated(node_type, keys, slots, repeated, arrays)


def _check_text(node_type: str, keys: Text, arrays: Arrays) -> None:
    key = ArrayKey("ids", node_type, OFFSETS)
    try:
        keys.check()
        for begin in range(0, len(keys), _PIECE):
            key = ArrayKey("ids", node_type, TEXT)
            keys.take(np.arange(begin, min(begin + _PIECE, len(keys)))).strings()
    except GraphFormatError as error:
        raise unsound(key, arrays[key], f": {error}") from None


def _check_slots(key: ArrayKey, keys: Keys, arrays: Arrays) -> None:
    """Check that every key is found at its own position, and that nothing else is in the table."""
    slots = arrays[key].array
    for begin in range(0, len(keys), _PIECE):
        found = look_up(keys, slots, piece_of(keys, begin, begin + _PIECE))
        wrong = np.flatnonzero(found != np.arange(begin, begin + len(found)))
        if len(wrong) and found[wrong[0]] >= 0:
            raise _repeated(str(key.type), keys, slots, begin + int(wrong[0]), arrays)
        if len(wrong):
            raise unsound(key, arrays[key], f" does not find id {begin + wrong[0]}")
    in_use = sum(
        int(np.count_nonzero(slots[begin : begin + _PIECE] != -1))
        for begin in range(0, len(slots), _PIECE)
    )
    if in_use != len(keys):
        raise unsound(key, arrays[key], f" has {in_use} positions; there are {len(keys)} ids")


def _repeated(
    node_type: str, keys: Keys, slots: Array, at: int, arrays: Arrays
) -> GraphFormatError:
    key = ArrayKey("ids", node_type, TEXT if isinstance(keys, Text) else KEYS)
    again = taken(keys, np.array([at]))
    (first,) = look_up(keys, slots, again).tolist()
    what = f": id {at} is {as_array(again).tolist()[0]!r}, as id {first} is; expected each once"
    return unsound(key, arrays[key], what)
