"""Which nodes or edges a loader reads, in all the ways users say it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.testing as npt
import pytest

import penstock as ps
from tests.loader.reading import (
    Data,
    HeteroData,
    link_batches,
    link_inputs,
    node_batches,
    node_inputs,
    source_of,
    torch,
)

NODES = 6
EDGES = torch.tensor([[0, 1, 2, 0, 3, 5], [1, 2, 0, 2, 2, 4]])
MASK = torch.tensor([False, True, False, True, True, False])
RATES = ("user", "rates", "film")
LIKES = ("user", "likes", "film")
KNOWS = ("user", "knows", "user")


def plain() -> Any:
    return source_of(
        Data(x=torch.arange(NODES), edge_index=EDGES, train_mask=MASK, time=torch.arange(NODES))
    )


def typed() -> Any:
    data = HeteroData()
    data["user"].x = torch.arange(NODES)
    data["film"].x = torch.arange(4)
    data[RATES].edge_index = torch.tensor([[0, 5], [3, 1]])
    data[RATES].at = torch.tensor([7, 8])
    data[LIKES].edge_index = torch.tensor([[1], [2]])
    data[KNOWS].edge_index = EDGES
    return source_of(data)


class TestNodes:
    def test_none_is_all_nodes(self) -> None:
        inputs = node_inputs(plain())
        assert (inputs.num, inputs.ids, inputs.node_type) == (NODES, None, None)
        assert inputs.input_id is None

    @pytest.mark.parametrize(
        "given",
        [
            torch.tensor([4, 1, 4]),
            torch.tensor([4, 1, 4], dtype=torch.int32),
            np.array([4, 1, 4]),
            [4, 1, 4],
            (4, 1, 4),
            [torch.tensor(4), torch.tensor(1), torch.tensor(4)],
        ],
    )
    def test_ids_are_kept_in_their_order(self, given: Any) -> None:
        inputs = node_inputs(plain(), given)
        npt.assert_array_equal(inputs.ids, [4, 1, 4])
        assert inputs.ids is not None
        assert inputs.ids.dtype == np.int64
        assert inputs.input_id is None

    def test_a_range_is_a_list_of_ids(self) -> None:
        npt.assert_array_equal(node_inputs(plain(), range(2, 5)).ids, [2, 3, 4])

    def test_no_ids_at_all_are_no_inputs(self) -> None:
        assert node_inputs(plain(), []).num == 0

    @pytest.mark.parametrize("given", [MASK, MASK.numpy(), MASK.tolist()])
    def test_the_input_ids_of_a_mask_are_the_nodes(self, given: Any) -> None:
        inputs = node_inputs(plain(), given)
        npt.assert_array_equal(inputs.ids, [1, 3, 4])
        assert inputs.input_id.tolist() == [1, 3, 4]

    def test_a_split_is_known_by_its_name(self) -> None:
        ids = node_inputs(plain(), "train").ids
        assert ids is not None
        assert torch.from_numpy(ids).tolist() == [1, 3, 4]

    def test_what_cannot_be_written_to_becomes_a_tensor_all_the_same(self) -> None:
        given = np.array([4, 1])
        given.flags.writeable = False
        ids = node_inputs(plain(), given).ids
        assert ids is not None
        assert torch.from_numpy(ids).tolist() == [4, 1]

    def test_a_type_by_itself_is_all_of_its_nodes(self) -> None:
        inputs = node_inputs(typed(), "film")
        assert (inputs.num, inputs.sampler_input) == (4, ("film", None))

    @pytest.mark.parametrize("given", [("film", [3, 0]), ["film", torch.tensor([3, 0])]])
    def test_a_type_can_have_anything_beside_it(self, given: Any) -> None:
        inputs = node_inputs(typed(), given)
        assert inputs.node_type == "film"
        npt.assert_array_equal(inputs.ids, [3, 0])
        assert node_inputs(typed(), ("film", None)).num == 4
        mask = torch.tensor([True, False, False, True])
        assert node_inputs(typed(), ("film", mask)).input_id.tolist() == [0, 3]

    def test_a_type_is_needed_where_there_are_several(self) -> None:
        with pytest.raises(ValueError, match=r"input_nodes lacks a node type.*'user', 'film'"):
            node_inputs(typed())
        with pytest.raises(ValueError, match="input_nodes lacks a node type"):
            node_inputs(typed(), torch.tensor([1]))
        with pytest.raises(ValueError, match="'actor'"):
            node_inputs(typed(), "actor")

    @pytest.mark.parametrize(("wrong", "told"), [([6], 6), ([0, -1], -1)])
    def test_an_id_that_is_not_there_is_named(self, wrong: Any, told: int) -> None:
        with pytest.raises(ValueError, match=rf"input_nodes\[\d\] is {told}; expected 0 <= id < 6"):
            node_inputs(plain(), wrong)

    def test_a_mask_of_another_length_is_refused(self) -> None:
        with pytest.raises(ValueError, match="input_nodes is a mask of 5; there are 6 nodes"):
            node_inputs(plain(), MASK[:5])

    def test_fractions_are_no_ids(self) -> None:
        with pytest.raises(ValueError, match="input_nodes has dtype float32; expected integers"):
            node_inputs(plain(), torch.tensor([0.5]))

    def test_input_ids_can_be_given(self) -> None:
        ids = torch.tensor([7, 8, 9], dtype=torch.int32)
        inputs = node_inputs(plain(), MASK, input_id=ids)
        assert torch.equal(inputs.input_id, ids)
        with pytest.raises(ValueError, match="input_id has 2 ids; expected one for each of 3"):
            node_inputs(plain(), MASK, input_id=ids[:2])


class TestTimes:
    def test_times_without_an_attribute_are_refused_in_pygs_words(self) -> None:
        with pytest.raises(ValueError, match="conflicting 'input_time' and 'time_attr' arguments"):
            node_inputs(plain(), input_time=torch.arange(NODES))

    def test_times_of_edges_need_times_of_seeds(self) -> None:
        with pytest.raises(ValueError, match="Seed time needs to be specified"):
            node_inputs(typed(), "film", time_attr="at")

    def test_times_of_nodes_do_for_the_seeds(self) -> None:
        assert node_inputs(plain(), time_attr="time").columns == {}

    def test_times_go_along_with_the_inputs(self) -> None:
        inputs = node_inputs(plain(), [5, 2], torch.tensor([1, 9]), time_attr="time")
        npt.assert_array_equal(inputs.columns["time"], [1, 9])

    @pytest.mark.parametrize("times", [torch.arange(3), torch.tensor([0.5, 1.5])])
    def test_times_must_be_integers_one_for_each(self, times: Any) -> None:
        with pytest.raises(ValueError, match=r"^input_time has"):
            node_inputs(plain(), [5, 2], times, time_attr="time")

    def test_seed_times_have_the_dtype_they_were_given_in(self) -> None:
        data = Data(edge_index=EDGES, num_nodes=NODES, time=torch.arange(NODES))
        times = torch.tensor([4, 5], dtype=torch.int32)
        options = {"input_nodes": [1, 2], "input_time": times, "time_attr": "time"}
        (batch,) = node_batches(data, [-1], batch_size=2, **options)
        assert torch.equal(batch.seed_time, times)
        assert batch.seed_time.dtype == torch.int32

    def test_links_need_both_or_neither(self) -> None:
        with pytest.raises(ValueError, match="'edge_label_time' is not set while 'time_attr' is"):
            link_inputs(plain(), time_attr="time")
        with pytest.raises(ValueError, match="'edge_label_time' is set while 'time_attr' is not"):
            link_inputs(plain(), edge_label_time=torch.arange(6))


class TestLinks:
    def test_none_is_all_edges_in_their_order(self) -> None:
        inputs = link_inputs(plain())
        assert (inputs.num, inputs.sampler_input) == (6, None)

    def test_ends_are_kept_in_their_order(self) -> None:
        inputs = link_inputs(plain(), EDGES[:, [4, 1]].int())
        npt.assert_array_equal(inputs.ends, EDGES[:, [4, 1]])

    @pytest.mark.parametrize("given", [RATES, list(RATES), (RATES, None)])
    def test_an_edge_type_by_itself_is_all_of_its_edges(self, given: Any) -> None:
        inputs = link_inputs(typed(), given)
        assert (inputs.num, inputs.sampler_input) == (2, (RATES, None))

    def test_ends_of_a_type(self) -> None:
        inputs = link_inputs(typed(), (RATES, torch.tensor([[1, 2, 3], [0, 0, 1]])))
        assert (inputs.num, inputs.edge_type) == (3, RATES)

    def test_two_names_do_where_they_leave_one_type(self) -> None:
        assert link_inputs(typed(), ("user", "user")).edge_type == KNOWS

    def test_ids_are_checked_at_either_end(self) -> None:
        with pytest.raises(
            ValueError, match=r"edge_label_index\[1\]\[0\] is 4; expected 0 <= id < 4"
        ):
            link_inputs(typed(), (RATES, [[5], [4]]))
        with pytest.raises(ValueError, match=r"edge_label_index\[0\]\[0\] is -1"):
            link_inputs(plain(), [[-1], [4]])

    def test_anything_else_is_refused(self) -> None:
        with pytest.raises(ValueError, match="edge_label_index lacks an edge type"):
            link_inputs(typed())
        with pytest.raises(ValueError, match=r"edge_label_index has shape \[3, 2\]"):
            link_inputs(plain(), torch.zeros(3, 2, dtype=torch.int64))
        with pytest.raises(ValueError, match="'actor'"):
            link_inputs(typed(), ("user", "knows", "actor"))

    def test_labels_must_be_one_for_each(self) -> None:
        with pytest.raises(ValueError, match=r"edge_label has shape \[5\]; expected one for each"):
            link_inputs(plain(), edge_label=torch.arange(5))

    def test_labels_and_triplets_do_not_go_together(self) -> None:
        with pytest.raises(ValueError, match="'edge_label' needs to be undefined for 'triplet'"):
            link_inputs(plain(), edge_label=torch.arange(6), neg_sampling="triplet")

    def test_weights_are_one_for_each_node(self) -> None:
        wrong = {"mode": "binary", "dst_weight": torch.rand(NODES)}
        with pytest.raises(ValueError, match=r"match the number of nodes 4 \(got 6\)"):
            link_inputs(typed(), RATES, neg_sampling=wrong)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.float64, torch.int32])
    def test_weights_are_of_any_dtype(self, dtype: Any) -> None:
        weight = torch.tensor([0, 0, 0, 1, 0, 0]).to(dtype)
        against = {"mode": "triplet", "amount": 2, "dst_weight": weight}
        data = Data(edge_index=EDGES, num_nodes=NODES)
        (batch,) = link_batches(data, [1], neg_sampling=against, batch_size=NODES)
        assert batch.n_id[batch.dst_neg_index].unique().tolist() == [3]

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.float64, torch.bool])
    def test_labels_have_the_dtype_they_were_given_in(self, dtype: Any) -> None:
        labels = torch.tensor([1, 1, 1, 1, 1, 1]).to(dtype)
        data = Data(edge_index=EDGES, num_nodes=NODES)
        (batch,) = link_batches(
            data, [1], edge_label=labels, neg_sampling_ratio=1.0, batch_size=NODES
        )
        assert batch.edge_label.dtype == dtype
        assert batch.edge_label.tolist() == [1] * 6 + [0] * 6

    def test_room_is_made_for_label_0_whatever_a_batch_has(self) -> None:
        """CONTRACT 46: by the least of all labels, not of those of a batch."""
        labels = torch.tensor([0, 1, 2, 2, 2, 2])
        data = Data(edge_index=EDGES, num_nodes=NODES)
        batches = link_batches(data, [1], edge_label=labels, neg_sampling_ratio=1.0, batch_size=3)
        assert [batch.edge_label[:3].tolist() for batch in batches] == [[1, 2, 3], [3, 3, 3]]


class TestPlaces:
    """Some of the inputs: for a call of its own, or in an order of the user's."""

    def test_nodes_at_places_keep_what_was_given_with_them(self) -> None:
        times = torch.arange(10, 13)
        inputs = node_inputs(plain(), MASK, times, time_attr="time").at([2, 0, -1])
        npt.assert_array_equal(inputs.ids, [4, 1, 4])
        assert inputs.input_id.tolist() == [4, 1, 4]
        npt.assert_array_equal(inputs.columns["time"], [12, 10, 12])

    def test_without_ids_the_places_are_the_nodes(self) -> None:
        inputs = node_inputs(plain()).at(torch.tensor([5, 5]))
        npt.assert_array_equal(inputs.ids, [5, 5])
        assert inputs.input_id.tolist() == [5, 5]

    def test_places_among_places_lead_to_the_first(self) -> None:
        inputs = node_inputs(plain(), [5, 4, 3]).at([2, 1]).at([1])
        npt.assert_array_equal(inputs.ids, [4])
        assert inputs.input_id.tolist() == [1]

    def test_links_at_places_keep_what_was_given_with_them(self) -> None:
        labels = torch.tensor([0, 1, 2, 3, 4, 5])
        inputs = link_inputs(plain(), edge_label=labels, neg_sampling="binary").at([[5], [3]])
        npt.assert_array_equal(inputs.ends, EDGES[:, [5, 3]])
        npt.assert_array_equal(inputs.columns["label"], [5, 3])
        npt.assert_array_equal(inputs.tables["label_shift"], [1])
        assert inputs.input_id.tolist() == [5, 3]

    def test_a_place_that_is_not_there_is_an_error(self) -> None:
        with pytest.raises(IndexError, match=r"^index\[0\] is 3, .*expected -3 <= place < 3$"):
            node_inputs(plain(), MASK).at([3])


def test_a_graph_takes_the_same_inputs_as_data() -> None:
    with ps.Graph.from_coo(EDGES, train=[5, 0]) as graph:
        source = source_of(graph)
        npt.assert_array_equal(node_inputs(source, "train").ids, [5, 0])
        npt.assert_array_equal(node_inputs(source, MASK).ids, [1, 3, 4])
        npt.assert_array_equal(link_inputs(source).at([4]).ends, [[3], [2]])
