"""The table of users' ids, in plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.kernels.arrays import Array, Ids
from penstock.kernels.reference import DIGEST_FACTOR, GAMMA, WORD, mix

ID_DOMAIN = 0x6964746162000001


def hash_number(key: int) -> int:
    """Return the hash of a number."""
    return int(mix((key + ID_DOMAIN) & WORD)[0])


def hash_text(key: bytes) -> int:
    """Return the hash of text."""
    state = (ID_DOMAIN + len(key) * GAMMA) & WORD
    for start in range(0, len(key), 8):
        product = (state ^ int.from_bytes(key[start : start + 8], "little")) * DIGEST_FACTOR
        state = product & WORD ^ product >> 64
    return int(mix(state)[0])


def fill(keys: Sequence[int | bytes], num_slots: int, dtype: npt.DTypeLike) -> tuple[Array, int]:
    """Return the slots, and the position of the first key that stood before, or -1."""
    slots, repeated = np.full(num_slots, -1, dtype), -1
    for at, key in enumerate(keys):
        slot = _probe(keys, slots, key)
        if slots[slot] < 0:
            slots[slot] = at
        elif repeated < 0:
            repeated = at
    return slots, repeated


def look_up(keys: Sequence[int | bytes], slots: Array, wanted: Sequence[int | bytes]) -> Ids:
    """Return the position of each wanted key, -1 where there is none."""
    return np.array([slots[_probe(keys, slots, key)] for key in wanted], np.int64)


def _probe(keys: Sequence[int | bytes], slots: Array, key: int | bytes) -> int:
    """Return the slot that has `key`, or the vacant one where it would be."""
    hashed = hash_number(key) if isinstance(key, int) else hash_text(key)
    slot = hashed >> (64 - (len(slots).bit_length() - 1))
    while slots[slot] >= 0 and keys[slots[slot]] != key:
        slot = (slot + 1) % len(slots)
    return slot
