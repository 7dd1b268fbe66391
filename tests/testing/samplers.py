"""Samplers as users write them: some that keep the rules, and one for each way not to."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph
from penstock.kernels import batch_key
from penstock.testing.fresh import HASHES

Ids = npt.NDArray[np.int64]
Arrays = dict[str, Any]

# Whether this is the interpreter that the check starts.
IS_FRESH = os.environ.get("PYTHONHASHSEED") == HASHES


class Good:
    """Draws a few neighbours, from the batch's name alone."""

    def __init__(self, graph: Graph, *, fanout: int = 2) -> None:
        self.rows, self.fanout = graph.csc(), fanout

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> Arrays:
        random = np.random.default_rng(batch_key(seed, epoch, index))
        found = [self._some(node, random) for node in seeds.tolist()]
        nodes, places = np.unique(np.concatenate([seeds, *found]), return_inverse=True)
        owners = np.repeat(np.arange(len(seeds)), [len(some) for some in found])
        return {
            "n_id": nodes,
            "edge_index": np.stack([places[len(seeds) :], places[owners]]),
            "scores": random.random(len(seeds)).astype(np.float32),
            "none": np.full(2, np.nan),
        }

    def _some(self, node: int, random: np.random.Generator) -> Ids:
        row = self.rows.indices[self.rows.indptr[node] : self.rows.indptr[node + 1]]
        return random.permutation(row)[: self.fanout].astype(np.int64)


class Unpicklable(Good):
    """Holds what cannot be pickled: nobody does."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.lock = threading.Lock()
        self.doubled = lambda ids: ids * 2

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        with self.lock:
            return {"n_id": seeds, "doubled": self.doubled(seeds)}


class OneBuffer:
    """Returns the same memory every time, and the seeds themselves: both are copied at once."""

    def __init__(self, graph: Graph) -> None:
        self.buffer = np.zeros(4, np.int64)

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> Arrays:
        self.buffer[:] = index
        return {"n_id": seeds, "marks": self.buffer}


class Authors:
    """Of a heterogeneous graph; seeds are authors."""

    def __init__(self, graph: Graph) -> None:
        pass

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        return {"author/n_id": seeds}


# --- those that keep them not --------------------------------------------------------------------


class Stateful:
    """Goes on drawing where the batch before has stopped."""

    def __init__(self, graph: Graph) -> None:
        self.random = np.random.default_rng(1)

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        return {"n_id": seeds, "draws": self.random.integers(0, 10**9, 3)}


class Numbered:
    """Every object differs from the one before."""

    count = itertools.count()

    def __init__(self, graph: Graph) -> None:
        self.number = next(self.count)

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        return {"n_id": seeds, "number": np.array([[0, self.number]])}


class InOrder:
    """Depends on which batches were made before, from the first on."""

    def __init__(self, graph: Graph) -> None:
        self.first: int | None = None

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> Arrays:
        self.first = index if self.first is None else self.first
        return {"n_id": seeds, "first": np.array([self.first])}


class PerProcess:
    """The same in this process, and in no other."""

    def __init__(self, graph: Graph) -> None:
        pass

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        return {"n_id": seeds, "pid": np.array([os.getpid()])}


class Hashing:
    """In the order of a set of words, which every interpreter has its own of."""

    def __init__(self, graph: Graph) -> None:
        pass

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        words = {f"word {number}" for number in range(40)}
        return {"n_id": seeds, "lengths": np.array([int(word[5:]) for word in words])}


class Shaping:
    """An array more than before, or of another type, in another process."""

    def __init__(self, graph: Graph, *, what: str) -> None:
        self.what = what

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        if self.what == "more":
            return {"n_id": seeds, **({"extra": seeds} if IS_FRESH else {})}
        return {"n_id": seeds, "some": np.zeros(3, np.int8 if IS_FRESH else np.int16)}


class Caching:
    """Keeps the seeds it was given, which are not its own."""

    def __init__(self, graph: Graph) -> None:
        self.seen: dict[int, Ids] = {}

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> Arrays:
        return {"n_id": np.abs(self.seen.setdefault(index, seeds))}


class Sorting:
    def __init__(self, graph: Graph) -> None:
        pass

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        seeds[::-1].sort()
        return {"n_id": seeds}


class Outside:
    def __init__(self, graph: Graph) -> None:
        self.num_nodes = graph.num_nodes()

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        return {"n_id": seeds + self.num_nodes}


class Listing(Outside):
    def sample(self, seeds: Ids, **name: int) -> Arrays:
        return {"n_id": seeds.tolist()}


class Failing(Outside):
    def sample(self, seeds: Ids, **name: int) -> Arrays:
        raise LookupError("over my own feet")


class Refusing:
    def __init__(self, graph: Graph, *, needed: int) -> None:
        pass


class Mute:
    def __init__(self, graph: Graph) -> None:
        pass


class Torchy(Outside):
    """Where nobody else has imported it."""

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        if IS_FRESH:
            import torch

            return {"n_id": torch.from_numpy(seeds).numpy()}
        return {"n_id": seeds}


class Ending(Outside):
    """Takes its process with it, where that is another than the one it was first seen in."""

    def sample(self, seeds: Ids, **name: int) -> Arrays:
        if IS_FRESH:
            os._exit(9)
        return {"n_id": seeds}


class Outer:
    class Inner(Good):
        pass


class TimedLinks:
    """Links with the times that come with them."""

    input_kind = "link"
    columns = ("time",)

    def __init__(self, graph: Graph) -> None:
        pass

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int, columns: Arrays) -> Arrays:
        return {"n_id": seeds.reshape(-1), "late": columns["time"] > 5}


class WritesToColumns(TimedLinks):
    def sample(self, seeds: Ids, *, columns: Arrays, **name: int) -> Arrays:
        columns["time"][0] += 1
        return {"n_id": seeds[0]}


class Looking:
    """Looks something up in an array that it is made with."""

    def __init__(self, graph: Graph, *, table: Ids) -> None:
        self.table = table

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> Arrays:
        return {"n_id": seeds, "found": self.table[seeds]}
