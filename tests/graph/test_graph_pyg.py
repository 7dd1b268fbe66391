"""Graphs from PyG's `Data` and `HeteroData`, with the real thing."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest

from penstock.graph import Graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of themselves while being imported
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric")

Data, HeteroData = pyg.data.Data, pyg.data.HeteroData

EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
RATES = ("user", "rates", "film")
LIKES = ("user", "likes", "user")


def data(**attributes: Any) -> Any:
    return Data(**{"x": torch.rand(4, 3), "edge_index": EDGES, **attributes})


def films() -> Any:
    found = HeteroData()
    found["user"].x = torch.rand(3, 2)
    found["film"].x = torch.rand(2, 4).half()
    found["film"].y = torch.tensor([1, 0])
    found[RATES].edge_index = torch.tensor([[0, 2, 1], [1, 0, 0]])
    found[RATES].edge_attr = torch.rand(3, 1)
    found[LIKES].edge_index = torch.tensor([[0], [1]])
    return found


def refused(message: str, given: Any) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Graph.from_pyg(given)


class TestData:
    def test_edges_and_features_come_along(self) -> None:
        given = data(y=torch.arange(4), edge_attr=torch.rand(5, 2), edge_weight=torch.rand(5))
        with Graph.from_pyg(given) as graph:
            npt.assert_array_equal(graph.edge_index(), EDGES)
            for name in ("x", "y"):
                npt.assert_array_equal(graph.node_attribute(name), given[name])
            for name in ("edge_attr", "edge_weight"):
                npt.assert_array_equal(graph.edge_attribute(name), given[name])

    @pytest.mark.parametrize(
        "dtype",
        ["float32", "float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"],
    )
    def test_features_keep_their_type(self, dtype: str) -> None:
        given = data(x=torch.arange(8).reshape(4, 2).to(getattr(torch, dtype)))
        with Graph.from_pyg(given) as graph:
            assert graph.node_attributes()["x"].dtype == dtype
            npt.assert_array_equal(graph.node_attribute("x"), given.x)

    def test_bfloat16_is_kept_bit_for_bit(self) -> None:
        given = data(x=torch.rand(3, 4).bfloat16().t())
        with Graph.from_pyg(given) as graph:
            shared = graph.node_attributes()["x"]
            assert shared.dtype == "bfloat16"
            back = torch.from_numpy(shared.array.view(np.int16).copy()).view(torch.bfloat16)
            assert torch.equal(back, given.x)

    def test_any_attribute_is_put_where_pyg_says_it_belongs(self) -> None:
        given = data(
            age=torch.arange(4), kind=torch.arange(5), prior=torch.rand(7), scalar=torch.tensor(2.5)
        )
        with Graph.from_pyg(given) as graph:
            assert list(graph.node_attributes()) == ["x", "age"]
            assert list(graph.edge_attributes()) == ["kind"]
            assert list(graph.graph_attributes()) == ["prior", "scalar"]
            assert graph.graph_attributes()["scalar"] == 2.5

    def test_names_decide_where_nodes_and_edges_are_as_many(self) -> None:
        given = Data(
            x=torch.rand(2, 1),
            edge_index=torch.tensor([[0, 1], [1, 0]]),
            edge_mood=torch.tensor([1, 2]),
            mood=torch.tensor([3, 4]),
        )
        with Graph.from_pyg(given) as graph:
            npt.assert_array_equal(graph.edge_attribute("edge_mood"), [1, 2])
            npt.assert_array_equal(graph.node_attribute("mood"), [3, 4])

    def test_numpy_arrays_and_lists_of_numbers_are_attributes_too(self) -> None:
        with Graph.from_pyg(data(age=np.arange(4), rank=[4, 3, 2, 1])) as graph:
            npt.assert_array_equal(graph.node_attribute("age"), np.arange(4))
            npt.assert_array_equal(graph.node_attribute("rank"), [4, 3, 2, 1])

    def test_a_table_that_pyg_cuts_by_columns_belongs_to_the_whole(self) -> None:
        with Graph.from_pyg(data(edge_label_index=EDGES, edge_label=torch.ones(5))) as graph:
            npt.assert_array_equal(graph.graph_attributes()["edge_label_index"], EDGES)
            npt.assert_array_equal(graph.edge_attribute("edge_label"), np.ones(5))

    def test_json_values_belong_to_the_whole(self) -> None:
        with Graph.from_pyg(data(title="cora", sizes=[1, 2, 3], options={"a": None})) as graph:
            expected = {"title": "cora", "sizes": [1, 2, 3], "options": {"a": None}}
            assert graph.schema.attributes == expected

    @pytest.mark.parametrize("number", [3, 4, 5])
    @pytest.mark.parametrize("item", ["a", None, ["b"], {"c": 1}])
    def test_a_list_of_no_numbers_belongs_to_the_whole_whatever_its_length(
        self, item: Any, number: int
    ) -> None:
        with Graph.from_pyg(data(names=[item] * number)) as graph:
            assert graph.graph_attributes() == {"names": [item] * number}

    def test_lists_that_differ_in_length_belong_to_the_whole(self) -> None:
        with Graph.from_pyg(data(walks=[[0], [1, 2], [], [3]])) as graph:
            assert graph.graph_attributes() == {"walks": [[0], [1, 2], [], [3]]}

    def test_negative_weights_are_kept(self) -> None:
        weights = torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0])
        with Graph.from_pyg(data(edge_weight=weights)) as graph:
            npt.assert_array_equal(graph.edge_attribute("edge_weight"), weights)

    def test_masks_are_kept_and_are_splits(self) -> None:
        mask = torch.tensor([True, False, True, False])
        with Graph.from_pyg(data(train_mask=mask, test_mask=~mask)) as graph:
            assert graph.split("train").tolist() == [0, 2]
            assert graph.split("test").tolist() == [1, 3]
            assert list(graph.splits()) == ["train", "test"]
            npt.assert_array_equal(graph.node_attribute("train_mask"), mask)

    def test_masks_of_several_splits_are_kept_but_are_none(self) -> None:
        with Graph.from_pyg(data(train_mask=torch.ones(4, 10, dtype=torch.bool))) as graph:
            assert graph.node_attribute("train_mask").shape == (4, 10)
            assert graph.splits() == {}

    def test_isolated_nodes_are_counted(self) -> None:
        with Graph.from_pyg(Data(edge_index=EDGES, num_nodes=9)) as graph:
            assert graph.num_nodes() == 9
            assert list(graph.arrays) == [key for key in graph.arrays if key.group == "csc"]

    def test_a_graph_may_have_no_edges(self) -> None:
        with pytest.warns(UserWarning, match="data has no edges"):
            made = Graph.from_pyg(Data(x=torch.rand(3, 1)))
        with made as graph:
            assert (graph.num_nodes(), graph.num_edges()) == (3, 0)

    def test_a_guess_of_pygs_is_told_by_its_warning(self) -> None:
        with pytest.warns(UserWarning, match="accurately infer 'num_nodes'"):
            graph = Graph.from_pyg(Data(edge_index=EDGES))
        with graph:
            assert graph.num_nodes() == 4

    def test_tensors_that_are_views_or_need_gradients_are_read(self) -> None:
        given = data(
            x=torch.rand(4, 6, requires_grad=True)[:, ::2], pos=torch.nn.Parameter(torch.ones(4))
        )
        with Graph.from_pyg(given) as graph:
            npt.assert_array_equal(graph.node_attribute("x"), given.x.detach())
            npt.assert_array_equal(graph.node_attribute("pos"), np.ones(4))

    def test_pygs_own_edge_index_is_read(self) -> None:
        given = data(edge_index=pyg.EdgeIndex(EDGES, sparse_size=(4, 4)))
        with Graph.from_pyg(given) as graph:
            npt.assert_array_equal(graph.edge_index(), EDGES)

    def test_edges_may_be_a_transposed_view(self) -> None:
        with Graph.from_pyg(data(edge_index=EDGES.t().contiguous().t())) as graph:
            npt.assert_array_equal(graph.edge_index(), EDGES)

    def test_a_subclass_of_data_is_data(self) -> None:
        class Pair(Data):  # type: ignore[misc, valid-type]
            pass

        with Graph.from_pyg(Pair(x=torch.rand(4, 1), edge_index=EDGES)) as graph:
            assert graph.num_edges() == 5


class TestHeteroData:
    def test_every_type_comes_along_in_pygs_order(self) -> None:
        given = films()
        with Graph.from_pyg(given) as graph:
            assert list(graph.node_types) == given.node_types
            assert list(graph.edge_types) == given.edge_types
            for name in given.edge_types:
                npt.assert_array_equal(graph.edge_index(name), given[name].edge_index)
            for name in given.node_types:
                npt.assert_array_equal(graph.node_attribute("x", name), given[name].x)
            npt.assert_array_equal(graph.edge_attribute("edge_attr", RATES), given[RATES].edge_attr)
            graph.validate()

    def test_a_node_type_that_only_edges_name_is_counted_by_them(self) -> None:
        given = films()
        given["user", "sees", "cinema"].edge_index = torch.tensor([[0], [6]])
        with Graph.from_pyg(given) as graph:
            assert graph.node_types == ("user", "film", "cinema")
            assert graph.num_nodes("cinema") == 7

    def test_masks_of_a_type_are_its_splits(self) -> None:
        given = films()
        given["film"].val_mask = torch.tensor([False, True])
        with Graph.from_pyg(given) as graph:
            assert graph.split("val", "film").tolist() == [1]
            assert graph.splits("user") == {}

    def test_what_belongs_to_a_type_as_a_whole_is_kept_with_it(self) -> None:
        given = films()
        given["film"].source = "archive"
        given[RATES].edge_label_index = torch.tensor([[0, 1], [1, 1]])
        given[RATES].scale = 5
        given.season = 3
        with Graph.from_pyg(given) as graph:
            assert graph.graph_attributes() == {"season": 3}
            assert graph.graph_attributes("film") == {"source": "archive"}
            found = graph.graph_attributes(RATES)
            assert found.pop("edge_label_index").tolist() == [[0, 1], [1, 1]]
            assert found == {"scale": 5}

    def test_what_belongs_to_a_type_as_a_whole_is_saved_with_it(self, tmp_path: Path) -> None:
        given = films()
        given["film"].source = "archive"
        given[RATES].edge_label_index = torch.tensor([[0, 1], [1, 1]])
        with Graph.from_pyg(given) as graph:
            graph.save(tmp_path / "films")
        with Graph.open(tmp_path / "films") as opened:
            opened.validate()
            assert opened.graph_attributes("film") == {"source": "archive"}
            found = opened.graph_attributes(RATES)["edge_label_index"]
            assert found.tolist() == [[0, 1], [1, 1]]

    def test_what_belongs_to_an_unknown_type_is_refused(self) -> None:
        with Graph.from_pyg(films()) as graph:
            with pytest.raises(ValueError, match=r"^owner is 'cinema'; expected a node or edge"):
                graph.graph_attributes("cinema")

    def test_an_edge_type_without_edges_is_a_type(self) -> None:
        given = films()
        given["film", "of", "user"].edge_index = torch.empty(2, 0, dtype=torch.long)
        with Graph.from_pyg(given) as graph:
            assert graph.num_edges(("film", "of", "user")) == 0

    def test_a_node_type_may_have_a_number_of_nodes_only(self) -> None:
        given = films()
        given["seat"].num_nodes = 12
        with Graph.from_pyg(given) as graph:
            assert graph.num_nodes("seat") == 12


class TestRefusals:
    def test_something_else(self) -> None:
        refused("data is dict; expected torch_geometric's Data or HeteroData", {})
        refused("data is TemporalData; expected torch_", pyg.data.TemporalData())

    def test_an_id_out_of_range(self) -> None:
        message = "data.edge_index[1][0] is 7; expected 0 <= id < 4"
        refused(message, data(edge_index=torch.tensor([[0], [7]])))

    def test_an_id_out_of_range_of_a_type(self) -> None:
        given = films()
        given[RATES].edge_index = torch.tensor([[0, 1, 2], [0, 0, 2]])
        message = "data['user', 'rates', 'film'].edge_index[1][2] is 2; expected 0 <= id < 2"
        refused(message, given)

    def test_a_dense_adjacency(self) -> None:
        message = "data has adj but no edge_index; give the edges as edge_index"
        refused(message, Data(x=torch.rand(4, 1), adj=torch.ones(4, 4)))

    def test_sparse_features(self) -> None:
        message = "data.x is sparse; make it dense or remove it"
        refused(message, data(x=torch.eye(4).to_sparse()))

    def test_a_dtype_that_a_graph_cannot_keep(self) -> None:
        refused("data.x has an unsupported dtype torch.complex64", data(x=torch.ones(4) * 1j))

    def test_an_object(self) -> None:
        with pytest.raises(ValueError, match=r"^data.fun is <function .*leave it out$"):
            Graph.from_pyg(data(fun=refused))

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_a_weight_that_is_not_finite(self, value: float) -> None:
        weights = torch.ones(5)
        weights[3] = value
        message = f"data.edge_weight[3] is {value}; expected a finite weight"
        refused(message, data(edge_weight=weights))

    def test_a_weight_of_a_type_that_is_not_finite_in_a_column(self) -> None:
        given = films()
        given[RATES].edge_weight = torch.tensor([[1.0], [float("nan")], [2.0]])
        message = "data['user', 'rates', 'film'].edge_weight[1] is [nan]; expected a finite weight"
        refused(message, given)

    def test_a_count_that_is_none(self) -> None:
        refused("data.num_nodes is -2; expected a non-negative", Data(num_nodes=-2))

    def test_edges_of_the_wrong_type(self) -> None:
        message = "data.edge_index has dtype float32; expected int32 or int64"
        refused(message, data(edge_index=EDGES.float()))


class TestTensors:
    def test_from_coo_takes_tensors(self) -> None:
        mask = torch.tensor([True, True, False, False])
        with Graph.from_coo(EDGES.int(), x=torch.rand(4, 2).half(), train=mask, val=[3]) as graph:
            npt.assert_array_equal(graph.edge_index(), EDGES)
            assert graph.node_attributes()["x"].dtype == "float16"
            assert graph.split("train").tolist() == [0, 1]

    def test_weights_of_bfloat16_are_looked_at_as_numbers(self) -> None:
        weights = torch.ones(5).bfloat16()
        with Graph.from_coo(EDGES, edge_weight=weights) as graph:
            assert graph.edge_attributes()["edge_weight"].dtype == "bfloat16"
        weights[3] = -2
        with pytest.raises(ValueError, match=r"^edge_weight\[3\] is -2.0; expected a finite"):
            Graph.from_coo(EDGES, edge_weight=weights)

    def test_a_sparse_tensor_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^x is sparse \(torch.Tensor\); make it dense"):
            Graph.from_coo(EDGES, x=torch.eye(4).to_sparse())

    def test_the_graph_does_without_torch(self) -> None:
        program = (
            "import sys; from penstock.graph import Graph; "
            "Graph.from_coo([[0], [1]], x=[1.0, 2.0]).validate(); "
            "sys.exit('torch' in sys.modules or 'torch_geometric' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-W", "error", "-c", program]).returncode == 0
