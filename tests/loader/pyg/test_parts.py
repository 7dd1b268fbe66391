"""Loaders on one part of a graph: refused, unless the part alone is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.reading import torch

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES, EDGES = 60, 500
RNG = np.random.default_rng(7)
X = RNG.random((NODES, 4), dtype=np.float32)
ENDS = RNG.integers(0, NODES, (2, EDGES))
WEIGHTS = RNG.random(EDGES)
TIMES = RNG.integers(0, 9, EDGES)
BUYS = ("user", "buys", "item")


class Seeds:
    """A sampler of a user's: the seeds and their edges, from all rows of the graph."""

    def __init__(self, graph: Any) -> None:
        self._rows = graph.csc()

    def sample(self, seeds: Any, **_: Any) -> Any:
        rows = self._rows
        assert len(rows.indptr) == NODES + 1
        return {"n_id": seeds}


LOADERS: dict[str, Callable[..., Any]] = {
    "neighbors": lambda data, **own: ps.NeighborLoader(data, [3, 2], **own),
    "weighted": lambda data, **own: ps.NeighborLoader(data, [3], weight_attr="edge_weight", **own),
    "by time": lambda data, **own: ps.NeighborLoader(
        data, [3], time_attr="edge_time", input_time=np.full(NODES // 2, 5), **own
    ),
    "by times of nodes": lambda data, **own: ps.NeighborLoader(data, [3], time_attr="time", **own),
    "induced": lambda data, **own: ps.NeighborLoader(data, [3], subgraph_type="induced", **own),
    "links": lambda data, **own: ps.LinkNeighborLoader(
        data, [3], neg_sampling_ratio=2.0, strict=True, **own
    ),
    "pushes": lambda data, **own: ps.PPRLoader(data, max_ppr_nodes=5, **own),
    "custom": lambda data, **own: ps.CustomLoader(data, Seeds, **own),
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    with ps.Graph.from_coo(
        ENDS,
        NODES,
        x=X,
        node_time=np.arange(NODES) % 7,
        edge_weight=WEIGHTS,
        edge_time=TIMES,
        train=np.arange(0, NODES, 3),
    ) as graph:
        given = np.arange(NODES) % 2
        yield graph.partition(2, tmp_path_factory.mktemp("cut") / "parts", method=given)


@pytest.mark.parametrize("name", LOADERS)
def test_a_part_is_refused(parts: list[Path], name: str) -> None:
    """CONTRACT 69: it never gives fewer neighbours without a word."""
    words = "data is part 1 of 2 of a graph: neighbours in other parts would be missing.*part_only"
    with ps.Graph.open(parts[1]) as part:
        for data in (parts[1], str(parts[1]), part):
            with pytest.raises(ValueError, match=words):
                LOADERS[name](data)


@pytest.mark.parametrize("name", LOADERS)
def test_the_part_alone_is_sampled_by_the_ids_of_the_whole(parts: list[Path], name: str) -> None:
    """CONTRACT 69: its own nodes, and edges among them."""
    with LOADERS[name](parts[1], batch_size=16, seed=0, part_only=True) as loader:
        seen: set[int] = set()
        for batch in loader:
            assert (batch.n_id % 2 == 1).all()
            assert torch.equal(batch.x, torch.from_numpy(X)[batch.n_id])
            seen |= set(batch.n_id.tolist())
            if "e_id" in batch:
                ends = torch.from_numpy(ENDS)[:, batch.e_id]
                assert torch.equal(batch.n_id[batch.edge_index], ends)
        assert seen == set(range(1, NODES, 2))


def test_workers_give_the_same_batches(parts: list[Path]) -> None:
    own: dict[str, Any] = {"batch_size": 8, "seed": 3, "shuffle": True, "part_only": True}
    with ps.NeighborLoader(parts[0], [4, 4], "train", **own) as here:
        with ps.NeighborLoader(parts[0], [4, 4], "train", num_workers=1, **own) as pooled:
            for one, other in zip(here, pooled, strict=True):
                assert torch.equal(one.n_id, other.n_id)
                assert torch.equal(one.e_id, other.e_id)


def test_all_neighbours_within_the_part_are_found(parts: list[Path]) -> None:
    own: dict[str, Any] = {"batch_size": NODES, "part_only": True}
    with ps.NeighborLoader(parts[0], [-1], **own) as loader:
        (batch,) = loader
    within = np.flatnonzero((ENDS % 2 == 0).all(axis=0))
    assert sorted(batch.e_id.tolist()) == within.tolist()


def test_nodes_of_other_parts_are_named(parts: list[Path]) -> None:
    """CONTRACT 38."""
    with ps.NeighborLoader(parts[0], [2], [0, 5], part_only=True) as loader:
        with pytest.raises(ValueError, match=r"is 5, which is in part 1; this is part 0 of 2"):
            next(iter(loader))


def test_times_of_own_links_are_warned_of_in_a_part(parts: list[Path]) -> None:
    within = np.flatnonzero((ENDS % 2 == 0).all(axis=0))
    with pytest.warns(UserWarning, match="link's own edge"):
        loader = ps.LinkNeighborLoader(
            parts[0],
            [2],
            time_attr="edge_time",
            edge_label_time=TIMES[within],
            part_only=True,
        )
    loader.close()


def test_a_loader_of_a_whole_graph_takes_the_option(parts: list[Path]) -> None:
    with ps.Graph.from_coo(ENDS, NODES) as graph:
        with ps.NeighborLoader(graph, [2], batch_size=NODES, part_only=True) as loader:
            assert len(list(loader)) == 1
        with pytest.raises(ValueError, match="part_only is 'yes'; expected True or False"):
            ps.NeighborLoader(graph, [2], part_only="yes")  # type: ignore[arg-type]


def test_anchors_and_layers_of_a_part(tmp_path: Path) -> None:
    """CONTRACT 69: of typed graphs, with labels whose ends are both in the part."""
    edges = {
        BUYS: RNG.integers(0, 20, (2, 90)),
        ("item", "bought_by", "user"): RNG.integers(0, 20, (2, 90)),
        ("user", "buys_positive", "item"): RNG.integers(0, 20, (2, 60)),
    }
    with ps.Graph.from_coo(edges, {"user": 20, "item": 20}) as graph:
        first, _ = graph.partition(2, tmp_path / "parts")
        labels = graph.edge_index(("user", "buys_positive", "item"))
    own: dict[str, Any] = {"batch_size": 20, "part_only": True}
    with pytest.raises(ValueError, match="data is part 0 of 2"):
        ps.ABLPLoader(first, [3], "user", supervision=BUYS)
    with pytest.raises(ValueError, match="data is part 0 of 2"):
        ps.HGTLoader(first, [3], "user")
    with ps.ABLPLoader(first, [3], "user", supervision=BUYS, **own) as loader:
        (batch,) = loader
        found = batch[BUYS].y_positive
        pairs = zip(
            batch["user"].n_id[found[0]].tolist(),
            batch["item"].n_id[found[1]].tolist(),
            strict=True,
        )
        assert sorted(pairs) == sorted(map(tuple, labels[:, (labels < 10).all(axis=0)].T.tolist()))
    with ps.HGTLoader(first, [3], "user", **own) as loader:
        (batch,) = loader
        assert max(batch["user"].n_id.max(), batch["item"].n_id.max()) < 10
