"""What a loader can read from, and that what is read is shared."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest

import penstock as ps
from tests.loader.reading import (
    Data,
    HeteroData,
    MyFeatureStore,
    MyGraphStore,
    node_batches,
    pyg,
    source_of,
    torch,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
RATES = ("user", "rates", "film")


def data(**attributes: Any) -> Any:
    return Data(**{"x": torch.rand(4, 3), "edge_index": EDGES, **attributes})


def films() -> Any:
    found = HeteroData()
    found["user"].x = torch.rand(3, 2)
    found["film"].x = torch.rand(2, 4).bfloat16()
    found[RATES].edge_index = torch.tensor([[0, 2, 1], [1, 0, 0]])
    found[RATES].stars = torch.tensor([5, 3, 1])
    return found


class TestSharing:
    def test_sources_of_the_same_data_have_one_graph(self) -> None:
        given = data()
        assert source_of(given).graph is not source_of(data()).graph
        first = source_of(given)
        assert source_of(given).graph is first.graph

    def test_content_counts_not_identity(self) -> None:
        given = data()
        first = source_of(given)
        assert source_of(given.clone()).graph is first.graph

    def test_what_is_no_part_of_the_graph_does_not_count(self) -> None:
        given = data()
        first, second = source_of(given), source_of(data(x=given.x, name="another"))
        assert first.graph is second.graph
        assert "name" not in first.template.blank()
        assert second.template.blank().name == "another"

    @pytest.mark.parametrize("name", ["x", "edge_index", "edge_attr"])
    @pytest.mark.parametrize("row", [0, 1])
    def test_what_was_changed_in_place_is_another_graph(self, name: str, row: int) -> None:
        given = data(edge_attr=torch.rand(5, 1), edge_index=EDGES.clone())
        first = source_of(given)
        given[name][row] = 3
        assert source_of(given).graph is not first.graph

    def test_a_change_behind_torchs_back_is_seen_as_well(self) -> None:
        given = data()
        first = source_of(given)
        given.x.numpy()[2, 1] += 1
        second = source_of(given)
        assert second.graph is not first.graph
        npt.assert_array_equal(second.graph.node_attribute("x"), given.x)

    def test_a_name_or_a_dtype_makes_another_graph(self) -> None:
        given = data(time=torch.arange(4))
        first = source_of(given)
        assert source_of(data(x=given.x, age=given.time)).graph is not first.graph
        assert source_of(data(x=given.x, time=given.time.int())).graph is not first.graph

    def test_views_of_any_stride_are_shared_by_content(self) -> None:
        wide = torch.rand(4, 6)
        first = source_of(data(x=wide[:, ::2]))
        assert source_of(data(x=wide[:, ::2].contiguous())).graph is first.graph
        npt.assert_array_equal(first.graph.node_attribute("x"), wide[:, ::2])

    def test_a_graph_goes_with_its_last_source(self) -> None:
        given = data()
        source = source_of(given)
        graph = weakref.ref(source.graph)
        del source
        gc.collect()
        assert graph() is None

    def test_a_graph_that_somebody_closed_is_made_again(self) -> None:
        given = data()
        first = source_of(given)
        first.graph.close()
        npt.assert_array_equal(source_of(given).graph.node_attribute("x"), given.x)

    def test_threads_that_ask_at_once_get_one_graph(self) -> None:
        given, found = data(x=torch.rand(4, 50_000)), []
        ready = threading.Barrier(4)

        def ask() -> None:
            ready.wait(60)
            found.append(source_of(given))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(found) == 4
        assert len({id(source.graph) for source in found}) == 1


class TestData:
    def test_what_belongs_to_nodes_and_edges_is_in_the_graph(self) -> None:
        given = data(edge_attr=torch.rand(5, 2), y=torch.arange(4), name="whole", z=torch.ones(7))
        graph = source_of(given).graph
        assert set(graph.node_attributes()) == {"x", "y"}
        assert set(graph.edge_attributes()) == {"edge_attr"}
        npt.assert_array_equal(graph.edge_index(), EDGES)

    def test_types_are_kept_in_their_order(self) -> None:
        graph = source_of(films()).graph
        assert graph.node_types == ("user", "film")
        assert graph.edge_types == (RATES,)
        assert graph.node_attributes("film")["x"].dtype == "bfloat16"
        npt.assert_array_equal(graph.edge_attribute("stars", RATES), [5, 3, 1])

    def test_masks_are_splits(self) -> None:
        given = data(train_mask=torch.tensor([True, False, True, False]))
        npt.assert_array_equal(source_of(given).graph.split("train"), [0, 2])

    def test_a_feature_in_a_file_is_read_and_comes_as_a_tensor(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        np.arange(12, dtype="float32").tofile(path)
        x = np.memmap(path, "float32", mode="r", shape=(4, 3))
        (batch,) = node_batches(data(x=x), [-1], batch_size=4)
        assert isinstance(batch.x, torch.Tensor)
        npt.assert_array_equal(batch.x, x[batch.n_id.numpy()])

    def test_weights_that_cannot_be_drawn_by_are_attributes_like_any_other(self) -> None:
        given = data(edge_weight=torch.tensor([-1.0, 2, float("nan"), 0, 1]))
        (batch,) = node_batches(given, [-1], batch_size=4)
        assert torch.equal(
            batch.edge_weight.nan_to_num(9), given.edge_weight[batch.e_id].nan_to_num(9)
        )

    def test_the_users_data_stays_as_it_was(self) -> None:
        given = data(y=torch.arange(4), name="whole")
        before, names = given.clone(), list(given.keys())
        (batch,) = node_batches(given, [1], batch_size=4)
        batch.x.zero_()
        assert list(given.keys()) == names
        assert all(torch.equal(given[name], before[name]) for name in ("x", "y", "edge_index"))

    def test_a_class_of_the_users_own_is_kept(self) -> None:
        class Mine(Data):  # type: ignore[misc, valid-type]
            def __cat_dim__(self, key: str, value: Any, *more: Any, **others: Any) -> Any:
                return 1 if key == "wide" else super().__cat_dim__(key, value, *more, **others)

        given = Mine(x=torch.rand(4, 3), edge_index=EDGES, wide=torch.arange(8).view(2, 4))
        (batch,) = node_batches(given, [-1], input_nodes=[3, 1], batch_size=4)
        assert type(batch) is Mine
        assert torch.equal(batch.wide, given.wide[:, batch.n_id])

    def test_edges_as_pygs_own_class_of_tensors_are_read(self) -> None:
        given = data(edge_index=pyg.EdgeIndex(EDGES, sparse_size=(4, 4)))
        npt.assert_array_equal(source_of(given).graph.edge_index(), EDGES)

    def test_a_list_of_words_is_cut_as_nodes_are(self) -> None:
        given = data(words=["a", "b", "c", "d"], texts=np.array(["e", "f", "g", "h"]))
        (batch,) = node_batches(given, [], input_nodes=[3, 1], batch_size=4)
        assert batch.words == ["d", "b"]
        assert batch.texts.tolist() == ["h", "f"]

    def test_what_wants_gradients_gets_them(self) -> None:
        given = data(learnt=torch.nn.Parameter(torch.ones(4)))
        (batch,) = node_batches(given, [], input_nodes=[3, 1], batch_size=4)
        batch.learnt.sum().backward()
        assert given.learnt.grad.tolist() == [0, 1, 0, 1]

    @pytest.mark.parametrize("name", ["adj", "adj_t"])
    def test_a_dense_matrix_instead_of_edges_is_refused_with_advice(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"data has {name}, a matrix .*; give the edges as"):
            source_of(Data(x=torch.rand(4, 3), **{name: torch.eye(4)}))


class TestOthers:
    def test_a_graph_is_taken_as_it_is(self) -> None:
        with ps.Graph.from_pyg(data(name="whole")) as graph:
            source = source_of(graph)
            assert source.graph is graph
            assert source.hub is None
            assert source.template.blank().name == "whole"

    def test_tensors_of_the_whole_graph_are_tensors_again(self) -> None:
        whole = torch.arange(3).bfloat16()
        with ps.Graph.from_coo(EDGES, graph_attrs={"whole": whole}) as graph:
            assert torch.equal(source_of(graph).template.blank().whole, whole)

    def test_a_class_of_the_users_own_can_be_asked_for(self) -> None:
        class Mine(HeteroData):  # type: ignore[misc, valid-type]
            pass

        with ps.Graph.from_pyg(films()) as graph:
            assert type(source_of(graph, Mine).template.blank()) is Mine

    def test_a_hub_brings_its_graph(self) -> None:
        with ps.Graph.from_pyg(data()) as graph, ps.HubProcess(graph, 1) as hub:
            source = source_of(hub)
            assert (source.hub, source.graph) == (hub, graph)

    def test_an_address_is_joined_once(self) -> None:
        given = data()
        with ps.Graph.from_pyg(given) as graph, ps.HubProcess(graph, 1) as hub:
            first, second = source_of(hub.address), source_of(hub.address)
            assert first.hub is second.hub is not None
            npt.assert_array_equal(first.graph.node_attribute("x"), given.x)

    @pytest.mark.parametrize("given", [None, 3, (data(),), EDGES])
    def test_anything_else_is_refused_in_pygs_words(self, given: Any) -> None:
        with pytest.raises(ValueError, match="Expected a 'Data', 'HeteroData', or a tuple of"):
            source_of(given)


class TestStores:
    """Pairs of a feature store and a graph store; PyG's own are the oracle in `agreement`."""

    @pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
    def test_edges_of_any_layout_are_read(self, layout: str) -> None:
        features, graph = MyFeatureStore(), MyGraphStore()
        features.put_tensor(torch.arange(4), group_name=None, attr_name="x", index=None)
        by = {"coo": 1, "csc": 1, "csr": 0}[layout]
        ends = EDGES[:, EDGES[by].argsort(stable=True)]
        rows = [ends[0], ends[1]]
        if layout != "coo":
            rows[by] = pyg.index.index2ptr(rows[by].contiguous(), 4)
        graph.put_edge_index((*rows,), edge_type=None, layout=layout, size=(4, 4))
        (batch,) = node_batches((features, graph), [-1], input_nodes=torch.arange(4), batch_size=4)
        assert torch.equal(batch.x, batch.n_id)
        assert torch.equal(batch.n_id[batch.edge_index], ends[:, batch.e_id])
        assert batch.num_nodes == 4

    def test_data_can_be_both_stores(self) -> None:
        given = films()
        (batch,) = node_batches((given, given), [-1], input_nodes="film", batch_size=2)
        assert torch.equal(batch["user"].x, given["user"].x[batch["user"].n_id])
        assert batch["film"]["num_nodes"] == 2

    def test_features_are_asked_for_when_a_batch_needs_them(self) -> None:
        given = films()
        batches = node_batches((given, given), [-1], input_nodes="film", batch_size=1)
        given["film"].x = given["film"].x + 100
        assert all(batch["film"].x.min() >= 100 for batch in batches)

    def test_a_class_of_the_users_own_can_be_asked_for(self) -> None:
        class Mine(HeteroData):  # type: ignore[misc, valid-type]
            pass

        given = films()
        assert type(source_of((given, given), Mine).template.blank()) is Mine

    def test_times_of_edges_are_sampled_by_and_come_along(self) -> None:
        features, graph = MyFeatureStore(), MyGraphStore()
        features.put_tensor(torch.arange(4), group_name=None, attr_name="x", index=None)
        features.put_tensor(torch.arange(5), group_name=None, attr_name="since", index=None)
        graph.put_edge_index((EDGES[0], EDGES[1]), edge_type=None, layout="coo", size=(4, 4))
        options = {"time_attr": "since", "input_nodes": [2], "input_time": [3], "batch_size": 1}
        (batch,) = node_batches((features, graph), [-1], **options)
        assert batch.e_id.tolist() == batch.since.tolist() == [1, 3]
        assert batch.x.tolist() == batch.n_id.tolist() == [2, 1, 0]

    def test_times_that_are_not_there_are_missed_in_pygs_words(self) -> None:
        given = films()
        with pytest.raises(ValueError, match="did not find any temporal data"):
            source_of((given, given), time_attr="time")


class TestSavedGraphs:
    def test_a_loader_reads_a_saved_graph_by_its_path(self, tmp_path: Path) -> None:
        with ps.Graph.from_pyg(data()) as graph:
            graph.save(tmp_path / "saved.graph")
        for given in (tmp_path / "saved.graph", str(tmp_path / "saved.graph")):
            with ps.NeighborLoader(given, [2], batch_size=4, seed=0) as loader:
                assert next(iter(loader)).n_id.tolist() == [0, 1, 2, 3]

    def test_loaders_of_one_path_share_the_graph_until_it_is_saved_anew(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "saved.graph"
        with ps.Graph.from_pyg(data()) as graph:
            graph.save(path)
            first = source_of(path)
            assert source_of(str(path)).graph is first.graph
            graph.save(path)
        assert source_of(path).graph is not first.graph

    def test_a_path_without_a_graph_is_refused_in_words(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("no graph")
        with pytest.raises(ValueError, match=r"data is '.*'.*no manifest.json, but notes\.txt"):
            source_of(tmp_path)
        with pytest.raises(ValueError, match=r"there is no graph here.*or an address such as"):
            source_of("nowhere.graph")

    def test_a_part_of_a_graph_is_told_from_a_graph(self, tmp_path: Path) -> None:
        """CONTRACT 69."""
        with ps.Graph.from_pyg(data()) as graph:
            first, _ = graph.partition(2, tmp_path / "parts")
        words = "data is part 0 of 2 of a graph: neighbours in other parts would be missing"
        with pytest.raises(ValueError, match=words):
            source_of(first, part_only=False)
        alone = source_of(first, part_only=True).graph
        assert alone.part is not None
        assert alone.part.alone
        assert source_of(first, part_only=True).graph is alone
        assert source_of(alone, part_only=False).graph is alone  # whoever has it has asked for it
        assert source_of(first).graph.part == ps.Graph.open(first).part  # not to be sampled


def test_metadata_of_a_graph_is_that_of_the_data() -> None:
    given = films()
    with ps.Graph.from_pyg(given) as graph:
        assert graph.metadata() == given.metadata()
    with ps.Graph.from_pyg(data()) as graph, pytest.raises(ValueError, match="homogeneous"):
        graph.metadata()
