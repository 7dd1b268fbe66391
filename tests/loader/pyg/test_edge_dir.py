"""`edge_dir`: along which edges loaders sample, and how parts of a graph are read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.wire.requests import InitSamplingBackendRequest
from tests.loader.reading import Data, HeteroData, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES = 40
BUYS, KNOWS = ("user", "buys", "item"), ("user", "knows", "user")


def edges(count: int, seed: int) -> Any:
    return torch.randint(NODES, (2, count), generator=torch.Generator().manual_seed(seed))


def plain(**more: Any) -> Any:
    return Data(x=torch.rand(NODES, 2), edge_index=edges(160, 1), **more)


def typed() -> Any:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(NODES, 2), torch.rand(NODES, 3)
    data[BUYS].edge_index, data[KNOWS].edge_index = edges(160, 2), edges(160, 3)
    return data


def assert_edges_are_the_graphs(batch: Any, data: Any) -> None:
    """CONTRACT 43: an edge of a batch is that of the graph, sources above destinations."""
    for kind in data.edge_types if isinstance(data, HeteroData) else [None]:
        store, whole = (batch, data) if kind is None else (batch[kind], data[kind])
        sources, destinations = whole.edge_index[:, store.e_id]
        ends = (batch, batch) if kind is None else (batch[kind[0]], batch[kind[2]])
        assert torch.equal(ends[0].n_id[store.edge_index[0]], sources)
        assert torch.equal(ends[1].n_id[store.edge_index[1]], destinations)


def out_neighbors(edge_index: Any, nodes: list[int]) -> set[int]:
    sources, destinations = edge_index
    return set(destinations[torch.isin(sources, torch.tensor(nodes))].tolist())


class TestLoaders:
    @pytest.mark.parametrize("subgraph_type", ["directional", "induced"])
    def test_out_edges_lead_to_the_neighbours(self, subgraph_type: str) -> None:
        data, seeds = plain(), [3, 7]
        loader = ps.NeighborLoader(
            data, [-1], seeds, edge_dir="out", subgraph_type=subgraph_type, batch_size=2
        )
        with loader:
            batch = next(iter(loader))
        assert set(batch.n_id.tolist()) == {*seeds, *out_neighbors(data.edge_index, seeds)}
        assert_edges_are_the_graphs(batch, data)

    def test_in_edges_are_the_default(self) -> None:
        data = plain()
        with ps.NeighborLoader(data, [2, 2], batch_size=8, seed=0) as first:
            with ps.NeighborLoader(data, [2, 2], batch_size=8, seed=0, edge_dir="in") as second:
                for one, other in zip(first, second, strict=True):
                    assert torch.equal(one.n_id, other.n_id)
                    assert torch.equal(one.e_id, other.e_id)

    def test_types_keep_their_ends(self) -> None:
        data = typed()
        with ps.NeighborLoader(data, [3, 2], "user", edge_dir="out", batch_size=4) as loader:
            for batch in loader:
                assert_edges_are_the_graphs(batch, data)
                assert batch["item"].num_nodes > 0

    def test_links_and_anchors_follow_out_edges(self) -> None:
        data, links = plain(), edges(12, 5)
        with ps.LinkNeighborLoader(data, [-1], links, edge_dir="out", batch_size=4) as loader:
            batch = next(iter(loader))
        ends = links[:, :4].flatten().tolist()
        assert set(batch.n_id.tolist()) == {*ends, *out_neighbors(data.edge_index, ends)}
        assert_edges_are_the_graphs(batch, data)
        given = {"positive": torch.tensor([[5], [6]]), "edge_dir": "out", "batch_size": 2}
        with ps.ABLPLoader(data, [-1], [3, 7], **given) as loader:
            batch = next(iter(loader))
        seeds = [3, 7, 5, 6]
        assert set(batch.n_id.tolist()) == {*seeds, *out_neighbors(data.edge_index, seeds)}
        assert_edges_are_the_graphs(batch, data)

    def test_pagerank_has_the_sampled_edges_as_they_are(self) -> None:
        data = typed()
        given: dict[str, Any] = {"include_sampled_edges": True, "edge_dir": "out", "batch_size": 4}
        with ps.PPRLoader(data, "user", max_ppr_nodes=NODES, **given) as loader:
            batch = next(iter(loader))
        assert_edges_are_the_graphs(batch, data)
        kind = ("user", "ppr", "user")
        assert batch[kind].edge_index[0].max() < 4  # from seeds, whichever way is followed

    def test_pagerank_of_a_homogeneous_graph_goes_from_seeds(self) -> None:
        with ps.PPRLoader(plain(), [3, 7], max_ppr_nodes=5, edge_dir="out", batch_size=2) as loader:
            batch = next(iter(loader))
        assert set(batch.edge_index[0].tolist()) == {0, 1}

    @pytest.mark.parametrize("edge_dir", ["in", "out"])
    def test_anchors_over_pagerank_follow_the_same_edges(self, edge_dir: Any) -> None:
        labels = torch.zeros(NODES, 1, dtype=torch.long)
        given: dict[str, Any] = {"positive": labels, "batch_size": 4, "seed": 0}
        data, spec = plain(), ps.PPRSpec(max_ppr_nodes=5, direction=edge_dir)
        with ps.ABLPLoader(data, **given, sampler_options=spec) as loader:
            expected = next(iter(loader))
        spec = ps.PPRSpec(max_ppr_nodes=5)
        with ps.ABLPLoader(data, **given, sampler_options=spec, edge_dir=edge_dir) as loader:
            batch = next(iter(loader))
        assert torch.equal(batch.edge_index, expected.edge_index)
        assert torch.equal(batch.n_id, expected.n_id)
        with ps.ABLPLoader(data, **given, sampler_options=spec) as loader:
            in_edges = next(iter(loader))
        assert torch.equal(batch.n_id, in_edges.n_id) == (edge_dir == "in")

    def test_a_sampler_s_output_has_sources_above_too(self) -> None:
        data, seen = plain(), []

        def look(out: Any) -> Any:
            seen.append(out)
            return out

        given: dict[str, Any] = {"edge_dir": "out", "transform_sampler_output": look}
        with ps.NeighborLoader(data, [-1], [3], **given) as loader:
            next(iter(loader))
        (out,) = seen
        assert torch.equal(out.node[out.row], data.edge_index[0, out.edge])

    def test_layers_have_no_choice(self) -> None:
        with pytest.raises(
            ValueError, match="edge_dir is 'out'; layers are sampled along in-edges"
        ):
            ps.HGTLoader(typed(), [4], "user", edge_dir="out")  # type: ignore[arg-type]
        with ps.HGTLoader(typed(), [4], "user", edge_dir="in") as loader:
            assert len(loader) == NODES

    @pytest.mark.parametrize("loader", [ps.NeighborLoader, ps.LinkNeighborLoader])
    def test_other_words_are_refused(self, loader: Any) -> None:
        with pytest.raises(ValueError, match="edge_dir is 'both'; expected 'in' or 'out'"):
            loader(plain(), [2], edge_dir="both")


class TestParts:
    @pytest.fixture
    def part(self, tmp_path: Path) -> Iterator[ps.Graph]:
        with ps.Graph.from_pyg(plain()) as graph:
            path, _ = graph.partition(2, tmp_path / "parts", edges="source")
        with ps.Graph.open(path) as part:
            yield part

    def test_a_part_cut_by_source_is_read_along_out_edges(self, part: ps.Graph) -> None:
        own: dict[str, Any] = {"batch_size": 5, "seed": 0, "part_only": True}
        with ps.NeighborLoader(part, [2], **own) as found:
            with ps.NeighborLoader(part, [2], edge_dir="out", **own) as asked:
                for one, other in zip(found, asked, strict=True):
                    assert torch.equal(one.e_id, other.e_id)

    def test_the_other_direction_is_refused(self, part: ps.Graph) -> None:
        complaint = r"\(edge_dir\) is 'in', and the graph is a part that was cut by source.*'out'$"
        for make in (
            lambda: ps.NeighborLoader(part, [2], edge_dir="in", part_only=True),
            lambda: ps.LinkNeighborLoader(part, [2], edge_dir="in", part_only=True),
            lambda: ps.PPRLoader(part, edge_dir="in", part_only=True),
            lambda: ps.SharedDistSamplingBackend(
                part.within(), ps.SubgraphSpec(num_hops=1), num_workers=0
            ),
        ):
            with pytest.raises(ValueError, match=complaint):
                make()
        with pytest.raises(ValueError, match="edge_dir is 'out'; layers are sampled"):
            ps.HGTLoader(part, [2], None, part_only=True)

    def test_ranks_of_its_server_read_it_so(self, part: ps.Graph) -> None:
        own: dict[str, Any] = {"batch_size": 5, "seed": 0, "part_only": True}
        with ps.serve(part, "tcp://127.0.0.1:0", num_workers=1, part_only=True) as server:
            with ps.connect(server.address, part_only=True) as dataset:
                assert dataset.get_edge_dir() == "out"
                with ps.NeighborLoader(dataset, [2], **own) as far:
                    with ps.NeighborLoader(part, [2], **own) as near:
                        for one, other in zip(far, near, strict=True):
                            assert torch.equal(one.n_id, other.n_id)
                            assert torch.equal(one.e_id, other.e_id)
                with pytest.raises(ValueError, match="a part that was cut by source"):
                    ps.NeighborLoader(dataset, [2], edge_dir="in", part_only=True)

    def test_other_processes_of_the_host_read_it_so(self, part: ps.Graph) -> None:
        own: dict[str, Any] = {"batch_size": 5, "seed": 0, "part_only": True}
        spec = ps.NeighborSpec(num_neighbors=(2,), direction="out")
        with pickle.loads(pickle.dumps(part)) as graph:
            assert graph.part.sides == ("out",)
        with ps.SharedDistSamplingBackend(part.within(), spec, num_workers=1) as backend:
            assert backend.address is not None
            with ps.connect(backend.address) as hub:
                with pytest.raises(ValueError, match="a part that was cut by source"):
                    ps.NeighborLoader(hub, [2], edge_dir="in", part_only=True)
                with ps.NeighborLoader(hub, [2], **own) as far:
                    with ps.NeighborLoader(part, [2], **own) as near:
                        for one, other in zip(far, near, strict=True):
                            assert torch.equal(one.edge_index, other.edge_index)

    def test_requests_may_say_edge_dir(self, part: ps.Graph) -> None:
        spec = ps.LinkSpec(neighbors=ps.NeighborSpec(num_neighbors=(2,)))
        with ps.DistServer(part, num_workers=0, part_only=True) as server:
            with pytest.raises(ValueError, match="a part that was cut by source"):
                server.init_sampling_backend(
                    InitSamplingBackendRequest(backend_key="a", sampling_config=spec)
                )
            request = InitSamplingBackendRequest(
                backend_key="b", sampling_config=spec, sampler_options={"edge_dir": "out"}
            )
            assert isinstance(server.init_sampling_backend(request), int)

    def test_a_part_cut_by_destination_has_in_edges(self, tmp_path: Path) -> None:
        with ps.Graph.from_pyg(plain()) as graph:
            path, _ = graph.partition(2, tmp_path / "parts")
        with ps.Graph.open(path) as part:
            with pytest.raises(ValueError, match=r"is 'out', and .* cut by destination.*'in'$"):
                ps.NeighborLoader(part, [2], edge_dir="out", part_only=True)

    def test_a_part_cut_by_both_ends_has_both(self, tmp_path: Path) -> None:
        with ps.Graph.from_pyg(plain()) as graph:
            path, _ = graph.partition(2, tmp_path / "parts", edges="both")
        for direction in ("in", "out"):
            with ps.NeighborLoader(path, [2], edge_dir=direction, part_only=True) as loader:  # type: ignore[arg-type]
                assert len(list(loader)) == len(loader)
