"""Arrays that are made while they are written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.partition import sources


@given(st.integers(0, 50), st.integers(0, 40), st.integers(1, 64))
def test_rows_of_any_size_come_in_pieces_of_one_size(rows: int, width: int, piece: int) -> None:
    whole = (np.arange(rows * width) % 251).astype(np.uint8).reshape(rows, width)

    def fill(out: np.ndarray, first: int, count: int) -> None:
        assert len(out) == count * width
        out[...] = whole[first : first + count].reshape(-1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PIECE_NBYTES", piece)
        found = [each.tobytes() for each in sources.in_pieces(rows, width, fill)]
    assert b"".join(found) == whole.tobytes()
    assert all(len(each) == piece for each in found[:-1])
    assert len(found[-1]) <= piece
    assert found[-1] or not whole.size
