"""What tests of arenas have in common: kinds of memory, second mappings, loans that are counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from penstock.wire.frames import BatchWriter
from penstock.wire.messages import ArrayLayout
from penstock.workers.arena import Arena
from tests.graph.shared_children import PREAMBLE as _PREAMBLE

# The fallback is for other systems, but its tests run on this one.
kinds = pytest.mark.parametrize("kind", ["memfd", "named"])

SLOT = 1 << 16

# What a child knows from the start. Arguments are a plan in JSON, then a descriptor.
PREAMBLE = (
    _PREAMBLE
    + """
import ctypes
from penstock.wire.messages import SlotPlan
from penstock.workers.arena import Arena

def given_arena():
    return Arena.attach(msgspec.json.decode(sys.argv[1], type=SlotPlan), given_fd())
"""
)


def attached(arena: Arena) -> Arena:
    """A second mapping of `arena`, as another process would have it."""
    return Arena.attach(arena.plan, os.dup(*arena.descriptors))


@contextmanager
def two_mappings(slots: int = 2, kind: str | None = None) -> Iterator[tuple[Arena, Arena]]:
    """The creator's arena, and one that attached."""
    with Arena.create(slots, SLOT, SLOT, kind=kind) as arena, attached(arena) as other:
        yield arena, other


def written(memory: np.ndarray, **arrays: np.ndarray) -> tuple[ArrayLayout, ...]:
    """Writes a batch as a worker does; how it lies."""
    writer = BatchWriter(memory)
    for name, values in arrays.items():
        writer.array(name, values.dtype, values.shape)[...] = values
    return writer.commit()
