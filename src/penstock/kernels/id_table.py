"""Finds the positions of users' ids, which are numbers of 64 bits or text.

The table is an array of positions beside the keys, and both may be files that are mapped:
`docs/id-table.md` says where a key's position stands. Nothing here knows what is numbered.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer

_FEWEST_SLOTS: Final = 2
# Taking a key needs eight bytes for each of its own: not of all keys at a time.
_TAKEN_AT_ONCE: Final = 1 << 16
_DAMAGE: Final = "damaged text: key {0} begins at {1} and ends at {2} of {3} bytes"


@dataclass(frozen=True)
class Text:
    """Keys that are text, as Arrow lays out a `large_string`.

    Attributes:
        offsets: int64 [n + 1]. Key i is the bytes from `offsets[i]` to `offsets[i + 1]`.
        data: uint8 [bytes]. The keys in UTF-8, one after the other.
    """

    offsets: Ids
    data: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        for name, array, dtype in (
            ("offsets", self.offsets, np.int64),
            ("data", self.data, np.uint8),
        ):
            if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name} must be {np.dtype(dtype)}, contiguous and of one dimension; they are "
                    f"{array.dtype} {list(array.shape)}"
                )
        if not (len(self.offsets) and self.offsets.flags.aligned):
            raise ValueError("offsets must be aligned, and have one entry more than there are keys")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, strings: Sequence[str], label: str = "strings") -> Text:
        """Lay out strings.

        Args:
            strings: The strings.
            label: How errors call them.

        Raises:
            ValueError: One is not a string, or is no text that UTF-8 can say; it is named.
        """
        encoded = [_encoded(string, label, at) for at, string in enumerate(strings)]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(string) for string in encoded], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(encoded), np.uint8))

    def take(self, positions: Array) -> Text:
        """Return the keys at some positions, in their order.

        Raises:
            ValueError: A position is outside.
            GraphFormatError: The offsets of one of these keys are damaged.
        """
        at = _inside(positions, len(self))
        begins, ends = self.offsets[at], self.offsets[at + 1]
        bad = np.flatnonzero((begins < 0) | (begins > ends) | (ends > len(self.data)))
        if len(bad):
            key = int(at[bad[0]])
            raise GraphFormatError(
                _DAMAGE.format(key, begins[bad[0]], ends[bad[0]], len(self.data))
            )
        offsets = np.zeros(len(at) + 1, np.int64)
        np.cumsum(ends - begins, out=offsets[1:])
        data = np.empty(offsets[-1], np.uint8)
        for first in range(0, len(at), _TAKEN_AT_ONCE):
            some = slice(first, first + _TAKEN_AT_ONCE)
            here, lengths = offsets[first : first + _TAKEN_AT_ONCE + 1], (ends - begins)[some]
            places = np.arange(here[0], here[-1])
            data[places] = self.data[places + np.repeat(begins[some] - here[:-1], lengths)]
        return Text(offsets, data)

    def strings(self) -> list[str]:
        """Return all keys as strings.

        Raises:
            GraphFormatError: The offsets are damaged, or a key is not UTF-8.
        """
        self.check()
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        try:
            return [data[a:b].decode() for a, b in itertools.pairwise(offsets)]
        except UnicodeDecodeError as error:
            raise GraphFormatError(f"damaged text: a key is not UTF-8 ({error})") from None

    def check(self) -> None:
        """Raise an error if offsets fall or lead outside of the text."""
        bad = _native.first_unsound_text(self.offsets, self.data)
        if bad >= 0:
            begin, end = self.offsets[bad : bad + 2].tolist()
            raise GraphFormatError(_DAMAGE.format(bad, begin, end, len(self.data)))


Keys: TypeAlias = npt.NDArray[np.int64] | Text


def slots_needed(count: int) -> int:
    """Return the size of the table of so many keys: a power of two; at most half is in use."""
    wanted = 2 * check_integer(count, "count", 0, 2**61 + 1)
    return max(_FEWEST_SLOTS, 1 << max(wanted - 1, 0).bit_length())


def slot_dtype(count: int) -> np.dtype[Any]:
    """Return the type of the slots of so many keys: int32 as long as it holds every position."""
    checked = check_integer(count, "count", 0, 2**61 + 1)
    return np.dtype(np.int32 if checked <= 2**31 - 1 else np.int64)


def fill_slots(keys: Keys, slots: Array) -> int:
    """Write the table of `keys`, and return the position of the first that stood before, or -1.

    Of equal keys, the first has the slot; the others find it.

    Args:
        keys: What will be looked up.
        slots: Where to write: int32 or int64, a power of two of them, more than there are keys.
            `slots_needed` and `slot_dtype` say what is best. What is in it counts for nothing.

    Raises:
        ValueError: `slots` has another form, or cannot be written to.
        GraphFormatError: The offsets of text are damaged.
    """
    _check_room(keys, slots)
    if isinstance(keys, Text):
        keys.check()
        return _native.fill_text_slots(keys.offsets, keys.data, slots)
    return _native.fill_number_slots(_numbers(keys, "keys"), slots)


def extend_slots(keys: Keys, slots: Array, first: int) -> int:
    """Enter the keys from `first` on in a table that has those before; return as `fill_slots`.

    The table is then the one that `fill_slots` makes of all keys, if it has as many slots.

    Args:
        keys: All keys.
        slots: The table of the first ones.
        first: How many it has.

    Raises:
        ValueError: `slots` has another form, or cannot be written to.
        GraphFormatError: The offsets of text are damaged.
    """
    _check_room(keys, slots)
    first = check_integer(first, "first", 0, len(keys) + 1)
    if isinstance(keys, Text):
        Text(keys.offsets[first:], keys.data).check()
        return _native.extend_text_slots(keys.offsets, keys.data, slots, first)
    return _native.extend_number_slots(_numbers(keys, "keys"), slots, first)


def hash_keys(keys: Keys) -> npt.NDArray[np.uint64]:
    """Return the hash of each key, as `docs/id-table.md` has it.

    Raises:
        GraphFormatError: The offsets of text are damaged.
    """
    hashes = np.empty(len(keys), np.int64)
    if isinstance(keys, Text):
        keys.check()
        _native.hash_text(keys.offsets, keys.data, hashes)
    else:
        _native.hash_numbers(_numbers(keys, "keys"), hashes)
    return hashes.view(np.uint64)


def look_up(keys: Keys, slots: Array, wanted: Keys) -> Ids:
    """Return the position of each wanted key, -1 where there is none.

    Args:
        keys: The keys that the table was made of.
        slots: The table.
        wanted: Which to look for; of the kind of `keys`.

    Raises:
        ValueError: One is text and the other is not, or `slots` has another form.
    """
    if isinstance(keys, Text) != isinstance(wanted, Text):
        kinds = ["text" if isinstance(some, Text) else "numbers" for some in (keys, wanted)]
        raise ValueError(f"the keys are {kinds[0]} and the wanted ones are {kinds[1]}")
    _check_slots(slots)
    positions = np.empty(len(wanted), np.int64)
    if isinstance(keys, Text) and isinstance(wanted, Text):
        wanted.check()
        _native.look_up_text(keys.offsets, keys.data, slots, wanted.offsets, wanted.data, positions)
    else:
        _native.look_up_numbers(
            _numbers(keys, "keys"), slots, _numbers(wanted, "wanted"), positions
        )
    return positions


def _numbers(keys: Keys, name: str) -> Ids:
    assert not isinstance(keys, Text)
    return np.ascontiguousarray(as_ids(keys, name))


def _check_room(keys: Keys, slots: Array) -> None:
    _check_slots(slots)
    if len(keys) >= len(slots):
        raise ValueError(f"there are {len(slots)} slots for {len(keys)} keys; expected more")
    if not slots.flags.writeable:
        raise ValueError("slots must be writeable")


def _check_slots(slots: Array) -> None:
    count = len(slots) if slots.ndim == 1 else 0
    if count < _FEWEST_SLOTS or count & (count - 1) or slots.dtype not in (np.int32, np.int64):
        raise ValueError(
            f"slots are {slots.dtype} {list(slots.shape)}; expected int32 or int64, a power of two "
            "of them"
        )
    if not (slots.flags.c_contiguous and slots.flags.aligned):
        raise ValueError("slots must be contiguous and aligned")


def _inside(positions: Array, count: int) -> Ids:
    at = as_ids(positions, "positions")
    bad = _native.first_outside(at, count)
    if bad >= 0:
        raise ValueError(f"positions[{bad}] is {at[bad]}; expected 0 <= position < {count}")
    return at


def _encoded(string: object, label: str, at: int) -> bytes:
    if not isinstance(string, str):
        raise ValueError(f"{label}[{at}] is {string!r:.60}; expected a string")
    try:
        return string.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{label}[{at}] is {string!r:.60}, which is no text: it has half of a pair of "
            "surrogates"
        ) from None
