"""Samplers that wait to be told, for tests that come in between."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph

Ids = npt.NDArray[np.int64]


class Gated:
    """The seeds and nobody else. Makes a file when it begins a batch, and waits while another one
    is there; `fails` names batches that cannot be made."""

    def __init__(self, graph: Graph, *, folder: str = "", fails: tuple[int, ...] = ()) -> None:
        self._folder = folder
        self._fails = set(fails)

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        if index in self._fails:
            raise ZeroDivisionError(f"there is no batch {index}")
        if self._folder:
            with open(os.path.join(self._folder, "begun"), "w"):
                pass
            while os.path.exists(os.path.join(self._folder, "gate")):
                time.sleep(0.005)  # in another process: nothing else tells it of the file
        return {"n_id": seeds}
