"""Rows that are fetched: all are asked for first, and given up together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.sampling.attributes import Chosen, Column, gather
from penstock.wire.frames import BatchWriter, SlotTooSmall, private_memory

IDS = np.arange(4)


class Elsewhere:
    """A source of rows of one number, which notes what becomes of them."""

    dtype, row_shape, num_rows = "float32", (1,), 4

    def __init__(self, error: Exception | None = None) -> None:
        self.story: list[str] = []
        self._error = error

    def gather(self, ids: Any, out: Any = None) -> Any:
        raise AssertionError("rows are asked for")

    def begin_gather(self, ids: Any, out: Any, ends: Any = None) -> Elsewhere:
        self.story.append("begun")
        self._out = out
        return self

    def finish(self) -> None:
        if self._error is not None:
            raise self._error
        self._out[:] = 1
        self.story.append("finished")

    def abandon(self) -> None:
        self.story.append("abandoned")


def chosen(*sources: Elsewhere) -> list[Chosen]:
    return [
        Chosen(Column(f"x{number}", 0, source, source.dtype, source.row_shape), IDS)
        for number, source in enumerate(sources)
    ]


def test_all_rows_are_asked_for_before_any_is_waited_for() -> None:
    story: list[str] = []
    sources = [Elsewhere(), Elsewhere()]
    for source in sources:
        source.story = story
    with BatchWriter(private_memory(4096)) as writer:
        gather(chosen(*sources), writer)
    assert story == ["begun", "begun", "finished", "finished"]


def test_what_was_asked_for_is_given_up_if_other_rows_fail() -> None:
    """The memory is for another batch next: nothing may be written into it."""
    sources = [Elsewhere(), Elsewhere(ValueError("no such row")), Elsewhere()]
    with (
        BatchWriter(private_memory(4096)) as writer,
        pytest.raises(ValueError, match="no such row"),
    ):
        gather(chosen(*sources), writer)
    assert [source.story[-1] for source in sources] == ["abandoned"] * 3


def test_what_was_asked_for_is_given_up_if_other_rows_find_no_room() -> None:
    sources = [Elsewhere() for _ in range(3)]
    with BatchWriter(private_memory(100)) as writer, pytest.raises(SlotTooSmall):
        gather(chosen(*sources), writer)
    assert [source.story for source in sources] == [["begun", "abandoned"]] * 2 + [[]]
