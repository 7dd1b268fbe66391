"""Samplers as users write them, some of them badly."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
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


class Dropped(Exception):
    """An error of a user's own library."""


class Flaky:
    """The seeds and nobody else. The first `times` attempts at each batch of `fails` raise.

    Who tried is written down in a file, since an attempt may be any process's.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        folder: str,
        fails: tuple[int, ...] = (1,),
        times: int = 2,
        error: str = "ConnectionResetError",
    ) -> None:
        self._folder, self._fails, self._times = Path(folder), fails, times
        self._error = Dropped if error == "Dropped" else getattr(builtins, error)

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        if index in self._fails:
            tries = self._folder / f"{epoch}-{index}"
            with tries.open("a") as file:
                file.write(f"{os.getpid()}\n")
            if len(tries.read_text().splitlines()) <= self._times:
                raise self._error(f"batch {index} was reset")
        return {"n_id": seeds, "marks": np.full(4, epoch * 1000 + index)}


class Nested:
    class Inner(Stars):
        pass


class Ends:
    """The ends of links, and when these were made."""

    input_kind = "link"
    columns = ("time", "label")
    node_attributes = ("x",)

    def __init__(self, graph: Graph) -> None:
        pass

    def sample(
        self, seeds: Ids, *, seed: int, epoch: int, index: int, columns: dict[str, Any]
    ) -> dict[str, Any]:
        nodes, places = np.unique(seeds, return_inverse=True)
        found = {"n_id": nodes, "edge_label_index": places.reshape(2, -1), "when": columns["time"]}
        columns["label"] += 1  # what is handed out is the sampler's own
        return {**found, "above": columns["label"]}


class TypedEnds:
    """The ends of links between authors and papers."""

    input_kind = "link"
    node_attributes = None

    def __init__(self, graph: Graph) -> None:
        pass

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        return {"author/n_id": seeds[0], "paper/n_id": seeds[1]}


class FirstEdges:
    """The first in-edge of each seed that has one, in memory that is used again."""

    def __init__(self, graph: Graph) -> None:
        self._rows = graph.csc()
        self._ids = np.empty(1000, np.int32)

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        rows = self._rows
        first = rows.indptr[seeds]
        there = first < rows.indptr[seeds + 1]
        ids = self._ids[: there.sum()]
        ids[...] = rows.edge_ids[first[there]]
        return {"n_id": seeds, "e_id": ids}
