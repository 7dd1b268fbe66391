"""A part by itself never passes for the whole: it says so, or it gives what the whole gives."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import PenstockError
from penstock.graph import Graph
from tests.sampling.worlds import SOME, World, worlds
from tests.store.cuts import MEMORY, cuts, sides_for
from tests.store.loading import joined, small_graph, torch
from tests.store.test_any_cut import KINDS, check_same

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning")
@SOME
@given(st.data(), worlds())
def test_a_part_refuses_or_gives_the_batches_of_the_whole(
    kind: str, data: st.DataObject, world: World
) -> None:
    """CONTRACT 69: never fewer neighbours, or other rows, without a word; every kind."""
    spec, inputs = data.draw(KINDS[kind](world))
    cut = data.draw(cuts(world, *sides_for(spec)))
    place = str(MEMORY) if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="cut-", dir=place) as folder:
        for path in cut.write(world.graph, Path(folder) / "parts"):
            with Graph.open(path) as part:
                told = "a part"
                try:
                    check_same(world, dataclasses.replace(world, graph=part), (spec, inputs))
                except (ValueError, PenstockError) as refusal:
                    told = str(refusal)
                assert "part" in told


LOADERS: dict[str, Callable[..., Any]] = {
    "neighbours": lambda data, **own: ps.NeighborLoader(data, [2], "train", batch_size=8, **own),
    "links": lambda data, **own: ps.LinkNeighborLoader(data, [2], batch_size=8, **own),
    "PPR": lambda data, **own: ps.PPRLoader(data, "train", batch_size=8, **own),
    "HGT": lambda data, **own: ps.HGTLoader(data, [4], "train", batch_size=8, **own),
}


@pytest.fixture(scope="module", params=["parts", "whole"])
def paths(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("lone") / request.param
    with small_graph() as graph:
        return list(graph.partition(3, folder, "hash", topology=request.param))


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_refuse_a_part(paths: list[Path], name: str) -> None:
    """CONTRACT 69: by its folder, or open; the error names the part, and the way out."""
    words = r"part 1 of 3.*part_only=True"
    with pytest.raises(ValueError, match=words):
        LOADERS[name](paths[1], num_workers=0)
    with Graph.open(paths[1]) as part, pytest.raises(ValueError, match=words):
        LOADERS[name](part, num_workers=0)


def test_a_part_that_was_asked_for_gives_its_own_edges(paths: list[Path]) -> None:
    """CONTRACT 69: all of those with both ends in it, and none of another; ids of the whole."""
    with small_graph() as whole, Graph.open(paths[1]) as part:
        mine = set(part.node_ids().tolist())
        source, destination = whole.edge_index()
        wanted = {
            number
            for number, ends in enumerate(zip(source.tolist(), destination.tolist(), strict=True))
            if mine.issuperset(ends)
        }
        found: set[int] = set()
        options: dict[str, Any] = {"batch_size": 8, "num_workers": 0, "part_only": True}
        with ps.NeighborLoader(part, [-1], None, **options) as loader:
            for batch in loader:
                assert set(batch.n_id.tolist()) <= mine
                x = torch.from_numpy(whole.node_attribute("x")[batch.n_id.numpy()])
                assert torch.equal(batch.x, x)
                found |= set(batch.e_id.tolist())
        assert found == wanted


def test_a_server_of_a_part_answers_for_its_part_and_does_not_sample(paths: list[Path]) -> None:
    """CONTRACT 68, 69: as before; batches of it are refused, whatever the rank says."""
    with (
        Graph.open(paths[1]) as part,
        ps.serve(paths[1], num_workers=1) as lone,
        joined(lone.address, part_only=True) as data,
    ):
        with pytest.raises(ps.ServerGone, match=r"parts 0, 2 of 3 have no server"):
            ps.connect(lone.address, timeout=0.5)
        assert data.get_node_ids().tolist() == part.node_ids().tolist()
        assert data.get_node_ids("train").tolist() == part.split("train").tolist()
        ids = part.node_ids()[:5]
        rows = torch.from_numpy(part.node_features("x").gather(ids))
        assert torch.equal(data.get_node_feature(index=ids), rows)
        others = np.setdiff1d(np.arange(400), part.node_ids())
        with pytest.raises(ValueError, match=r"is \d+, which is in part [02]; this is part 1"):
            data.get_node_feature(index=others[:1])
        for options in ({}, {"part_only": True}):
            with pytest.raises(ValueError, match="part 1 of 3"):
                ps.NeighborLoader(data, [2], "train", batch_size=8, **options)
        with pytest.raises((ValueError, PenstockError), match="part 1 of 3"):
            data.server.init_sampling_backend(
                ps.InitSamplingBackendRequest(
                    backend_key="k", sampling_config=ps.NeighborSpec(num_neighbors=(2,))
                )
            )


def test_a_server_may_be_told_to_sample_its_part(paths: list[Path]) -> None:
    """CONTRACT 69: both sides have said that it is what they want."""
    with (
        ps.serve(paths[1], num_workers=1, part_only=True) as server,
        joined(server.address, part_only=True) as data,
    ):
        with pytest.raises(ValueError, match="part_only=True"):
            ps.NeighborLoader(data, [2], "train", batch_size=8)
        options: dict[str, Any] = {"batch_size": 8, "part_only": True, "seed": 2}
        with ps.NeighborLoader(data, [-1], "train", **options) as loader:
            far = [batch.e_id.tolist() for batch in loader]
        with ps.NeighborLoader(paths[1], [-1], "train", num_workers=0, **options) as loader:
            assert far == [batch.e_id.tolist() for batch in loader]


def test_part_only_and_a_store_do_not_go_together(paths: list[Path]) -> None:
    """CONTRACT 69: a server of a store never samples its part alone."""
    with pytest.raises(ValueError, match="part_only is given with store"):
        ps.serve(paths[1], store=["tcp://127.0.0.1:1"], part_only=True)
