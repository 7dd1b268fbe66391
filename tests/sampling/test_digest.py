"""The digest of a batch: all of it counts, but not where it lies."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels.arrays import Array
from penstock.sampling.digest import batch_digest

BATCH = {"n_id": np.array([1, 2, 3]), "x": np.zeros((3, 2), np.float32)}


def test_it_is_the_same_for_the_same_batch_in_any_memory_and_order() -> None:
    apart = np.array([1, 0, 2, 0, 3, 0])[::2]
    assert batch_digest({"x": BATCH["x"].copy(), "n_id": apart}) == batch_digest(BATCH)


@pytest.mark.parametrize(
    "other",
    [
        {"n_id": np.array([1, 2, 4]), "x": BATCH["x"]},
        {"n_id": np.array([1, 2, 3], np.int32), "x": BATCH["x"]},
        {"n_id": BATCH["n_id"], "x": BATCH["x"].reshape(2, 3)},
        {"n_id": BATCH["n_id"], "y": BATCH["x"]},
        {"n_id": BATCH["n_id"]},
    ],
)
def test_another_batch_has_another(other: dict[str, Array]) -> None:
    assert batch_digest(other) != batch_digest(BATCH)
