"""Samplers as users write them, some of them badly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph

Ids = npt.NDArray[np.int64]


class Stars:
    """The seeds and nobody else; `fails` names batches that cannot be made."""

    def __init__(self, graph: Graph, *, fails: tuple[int, ...] = ()) -> None:
        self._fails = set(fails)

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        if index in self._fails:
            raise ZeroDivisionError(f"there is no batch {index}")
        return {"n_id": seeds, "marks": np.full(4, epoch * 1000 + index)}


class Nested:
    class Inner(Stars):
        pass
