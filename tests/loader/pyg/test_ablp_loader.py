"""Anchors with their labels: from edges or from padded rows, by any number of workers."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.epochs import (
    Data,
    HeteroData,
    digests,
    epochs,
    small_data,
    through_json,
    torch,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

BUYS = ("user", "buys", "item")
BOUGHT = ("item", "bought_by", "user")
LIKES = ("user", "likes", "item")
RIGHT = ("user", "buys_positive", "item")
WRONG = ("user", "buys_negative", "item")
USERS, ITEMS, BATCH = 60, 50, 8
PUSHES = ps.PPRSpec(max_ppr_nodes=4)
# Compared with `PPRLoader`, which has nothing to predict and so excludes nothing.
RANKED: dict[str, Any] = {"num_neighbors": None, "sampler_options": PUSHES, "exclude": None}


def shop(*labels: Any) -> Any:
    """Users, items, what is bought, and labels under these edge types; user 0 has no labels."""
    make = torch.Generator().manual_seed(8)

    def edges(sources: int, destinations: int, count: int, first: int = 0) -> Any:
        upper = torch.randint(first, sources, (count,), generator=make)
        return torch.stack([upper, torch.randint(0, destinations, (count,), generator=make)])

    data = HeteroData()
    data["user"].x = torch.randn(USERS, 3, generator=make)
    data["user"].train_mask = torch.arange(USERS) % 3 == 0
    data["item"].x = torch.randn(ITEMS, 2, generator=make)
    data[BUYS].edge_index = edges(USERS, ITEMS, 200)
    data[BOUGHT].edge_index = data[BUYS].edge_index.flip(0)
    for kind in labels or (RIGHT, WRONG):
        data[kind].edge_index = edges(USERS, ITEMS, 150, 1)
    return data


def everyday(data: Any, **options: Any) -> Any:
    wanted = {"num_neighbors": [3, 2], "supervision": [BUYS], "batch_size": BATCH}
    return ps.ABLPLoader(data, **(wanted | {"shuffle": True, "seed": 7} | options))


def padded(rows: int, most: int = 4, nodes: int = ITEMS) -> Any:
    """Labels that tell their row: the k-th of row r is 5 r + k, and row r has r % (most + 1)."""
    found = 5 * torch.arange(rows).view(-1, 1) + torch.arange(most)
    return (found % nodes).where(
        torch.arange(most) < (torch.arange(rows) % (most + 1))[:, None], -1
    )


def labels_in(batch: Any, kind: Any, sign: str) -> list[tuple[int, int]]:
    """Labels as (anchor, node): what they are in the graph."""
    anchors, labels = batch[kind][f"y_{sign}"]
    users, items = batch[kind[0]].n_id[anchors], batch[kind[2]].n_id[labels]
    return list(zip(users.tolist(), items.tolist(), strict=True))


def labels_of_edges(data: Any, kind: Any, anchors: Any, most: int | None = None) -> list[Any]:
    """The labels of each anchor, in the order of the edges."""
    sources, destinations = data[kind].edge_index.numpy()
    return [
        (anchor, int(label))
        for anchor in anchors.tolist()
        for label in destinations[sources == anchor][:most]
    ]


def labels_of_rows(rows: Any, anchors: Any, places: Any) -> list[tuple[int, int]]:
    return [
        (anchor, label)
        for anchor, place in zip(anchors.tolist(), places.tolist(), strict=True)
        for label in rows[place].tolist()
        if label >= 0
    ]


def test_batches_are_the_same_whoever_makes_them() -> None:
    """CONTRACT 5: labels of edges and labels of rows, inline and by two workers."""
    data = shop()
    options = {"negative": padded(USERS)}
    with everyday(data, **options) as inline, everyday(data, num_workers=2, **options) as loader:
        expected = epochs(inline)
        assert epochs(loader) == expected
        assert len({name for epoch in expected for name in epoch}) == 2 * len(inline)


def test_labels_are_those_of_the_edges_for_every_anchor() -> None:
    """CONTRACT 47: [2, labels] on the supervision edge type, anchors above, found by name."""
    data = shop()
    with everyday(data, anchors=("user", data["user"].train_mask)) as loader:
        seen = []
        for batch in loader:
            assert isinstance(batch, HeteroData)
            anchors = batch["user"].n_id[: batch["user"].batch_size]
            assert labels_in(batch, BUYS, "positive") == labels_of_edges(data, RIGHT, anchors)
            assert labels_in(batch, BUYS, "negative") == labels_of_edges(data, WRONG, anchors)
            assert torch.equal(batch["user"].input_id, anchors)  # of a mask
            seen += anchors.tolist()
        assert sorted(seen) == list(range(0, USERS, 3))


def test_rows_follow_their_anchors_in_any_order() -> None:
    """CONTRACT 37: row k belongs to anchor k, however they are shuffled."""
    order = torch.arange(USERS).flip(0)
    right, wrong = padded(USERS), padded(USERS, most=2)
    with everyday(shop(), anchors=order, positive=right, negative=wrong) as loader:
        for batch in loader:
            places = batch["user"].input_id
            anchors = order[places]
            assert torch.equal(batch["user"].n_id[: len(places)], anchors)
            found = labels_in(batch, BUYS, "positive")
            assert found == labels_of_rows(right, anchors, places)
            assert labels_in(batch, BUYS, "negative") == labels_of_rows(wrong, anchors, places)


def positives_of(batch: Any) -> set[tuple[int, int]]:
    anchors, labels = batch[BUYS].y_positive
    users, items = batch["user"].n_id[anchors], batch["item"].n_id[labels]
    return set(zip(users.tolist(), items.tolist(), strict=True))


def test_anchors_and_labels_have_their_features_and_neighbours() -> None:
    data = shop()
    with everyday(data, num_neighbors=[-1]) as loader:
        for batch in loader:
            for name in ("user", "item"):
                assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
            for kind in (BUYS, BOUGHT):
                upper, lower = batch[kind].edge_index
                ends = torch.stack([batch[kind[0]].n_id[upper], batch[kind[2]].n_id[lower]])
                assert torch.equal(ends, data[kind].edge_index[:, batch[kind].e_id])
            labels = set(batch["item"].n_id[batch[BUYS].y_positive[1]].tolist())
            bought = data[BUYS].edge_index[1]
            expected = sum(int((bought == label).sum()) for label in labels)
            hidden = positives_of(batch)  # edges to predict are left out
            expected -= sum((u, v) in hidden for u, v in data[BUYS].edge_index.T.tolist())
            reached = batch["item"].n_id[batch[BUYS].edge_index[1]]
            assert sum(int((reached == label).sum()) for label in labels) == expected


def test_edges_that_are_labels_are_not_walked_and_need_no_fan_outs() -> None:
    fanouts = {BUYS: [-1, -1], BOUGHT: [-1, -1]}
    with everyday(shop(), num_neighbors=fanouts) as loader:
        for batch in loader:
            assert batch[RIGHT].num_edges == batch[WRONG].num_edges == 0
            assert batch[BUYS].num_edges > 0


def test_max_labels_keeps_the_first_of_each_anchor() -> None:
    """CONTRACT 37."""
    data, rows = shop(), padded(USERS)
    with everyday(data, negative=rows, max_labels=1) as loader:
        for batch in loader:
            anchors = batch["user"].n_id[: batch["user"].batch_size]
            found = labels_in(batch, BUYS, "positive")
            assert found == labels_of_edges(data, RIGHT, anchors, 1)
            expected = labels_of_rows(rows[:, :1], anchors, anchors)
            assert labels_in(batch, BUYS, "negative") == expected


def test_max_labels_of_0_keeps_no_labels() -> None:
    """CONTRACT 37: 0 is a number of labels; None is no limit."""
    with everyday(shop(), negative=padded(USERS), max_labels=0) as loader:
        for batch in loader:
            for sign in ("positive", "negative"):
                assert labels_in(batch, BUYS, sign) == []


@pytest.mark.parametrize("shape", ["list", "dict"])
def test_each_supervision_edge_type_may_have_its_labels_from_elsewhere(shape: str) -> None:
    """CONTRACT 47: by rows, by edge type, by name; several supervision edge types at once."""
    liked = ("user", "stars", "item")
    data, rows = shop(RIGHT, WRONG, liked), padded(USERS)
    positive = {"list": [rows, liked], "dict": {LIKES: liked, BUYS: rows}}[shape]
    negative = {"list": [None, WRONG], "dict": {LIKES: WRONG}}[shape]
    options = {"supervision": [BUYS, LIKES], "positive": positive, "negative": negative}
    with everyday(data, **options) as loader:
        for batch in loader:
            anchors = batch["user"].n_id[: batch["user"].batch_size]
            found = labels_in(batch, BUYS, "positive")
            assert found == labels_of_rows(rows, anchors, anchors)
            for kind, sign, source in (
                (BUYS, "negative", WRONG),
                (LIKES, "positive", liked),
                (LIKES, "negative", WRONG),
            ):
                assert labels_in(batch, kind, sign) == labels_of_edges(data, source, anchors)
            assert all(batch[kind].num_edges == 0 for kind in (RIGHT, WRONG, liked))


def test_labels_of_a_homogeneous_graph_are_on_the_batch_itself() -> None:
    data, anchors = small_data(), torch.tensor([9, 4, 200, 31, 9])
    rows = padded(5, nodes=400)
    options = {"anchors": anchors, "positive": rows, "supervision": None, "batch_size": 2}
    with everyday(data, num_neighbors=[3], **options) as loader:
        for batch in loader:
            assert isinstance(batch, Data)
            found = [tuple(pair) for pair in batch.n_id[batch.y_positive].T.tolist()]
            places = batch.input_id
            assert found == labels_of_rows(rows, anchors[places], places)
            assert "y_negative" not in batch
            assert torch.equal(batch.x, data.x[batch.n_id])


@pytest.mark.parametrize(
    ("anchors", "expected"),
    [
        (None, range(USERS)),
        ("user", range(USERS)),
        ("train", range(0, USERS, 3)),
        ([7, 3], [7, 3]),
        (("user", [7, 3]), [7, 3]),
        (np.arange(USERS) % 20 == 1, [1, 21, 41]),
    ],
    ids=["all", "type", "split", "list", "type and list", "mask"],
)
def test_the_type_of_anchors_may_be_left_out(anchors: Any, expected: Any) -> None:
    options = {"anchors": anchors, "supervision": BUYS, "batch_size": USERS, "shuffle": False}
    with everyday(shop(), **options) as loader:
        (batch,) = loader
        seeds = batch["user"].n_id[: batch["user"].batch_size]
        assert seeds.tolist() == list(expected)


def test_a_batch_out_of_turn_has_its_labels() -> None:
    rows = padded(USERS)
    with everyday(shop(), positive=rows) as loader:
        batch, places = loader([12, 3, -1]), torch.tensor([12, 3, 59])
        assert labels_in(batch, BUYS, "positive") == labels_of_rows(rows, places, places)


def test_rows_follow_the_order_of_a_sampler_of_one_s_own() -> None:
    rows, order = padded(USERS), [30, 4, 4, 58, 13]
    options = {"positive": rows, "sampler": order, "shuffle": None, "batch_size": 2}
    with everyday(shop(), num_workers=2, **options) as loader:
        found = [pair for batch in loader for pair in labels_in(batch, BUYS, "positive")]
        places = torch.tensor(order)
        assert found == labels_of_rows(rows, places, places)


def test_it_goes_on_where_it_was_with_another_number_of_workers() -> None:
    data, rows = shop(), padded(USERS)
    with everyday(data, positive=rows) as one, everyday(data, positive=rows, num_workers=2) as two:
        expected = epochs(one, 2)[1]
        one.set_epoch(1)
        for step, _ in enumerate(one, 1):
            if step == 3:
                break
        two.load_state_dict(through_json(one.state_dict()))
        assert digests(two) == expected[3:]


def test_ranks_share_an_epoch() -> None:
    data, rows = shop(), padded(USERS)
    with (
        everyday(data, positive=rows) as whole,
        everyday(data, positive=rows, rank=0, world_size=2) as even,
        everyday(data, positive=rows, rank=1, world_size=2) as odd,
    ):
        pairs = zip(digests(even), digests(odd), strict=True)
        assert [each for pair in pairs for each in pair] == digests(whole)


def test_a_loader_made_again_of_its_attributes_gives_the_same() -> None:
    with everyday(
        shop(), positive=padded(USERS), max_labels=2, transform=lambda batch: batch
    ) as loader:
        names = set(inspect.signature(ps.ABLPLoader.__init__).parameters) - {"self", "options"}
        given = {name: vars(loader)[name] for name in names}
        with ps.ABLPLoader(**given, batch_size=BATCH, shuffle=True, seed=7) as again:
            assert digests(again) == digests(loader)
        assert str(loader) == "ABLPLoader()"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"supervision": None}, "supervision is missing.*'buys'"),
        ({"supervision": "buys"}, "supervision is 'buys'; expected an edge type"),
        ({"supervision": []}, "supervision is empty"),
        ({"supervision": [("user", "buys", "shop")]}, "supervision.0. is .*this graph has"),
        ({"supervision": [BUYS, BOUGHT]}, "its anchors must be 'user'"),
        ({"supervision": [LIKES]}, "no positive labels of .*'likes_positive'"),
        ({"anchors": "item"}, "anchors are 'item'; those of .* are 'user'"),
        ({"anchors": [USERS]}, r"anchors\[0\] is 60"),
        ({"anchors": torch.ones(3, dtype=torch.bool)}, "anchors is a mask of 3"),
        ({"positive": BOUGHT}, "its ends are not those of"),
        ({"positive": ("user", "hates", "item")}, "positive.0. is .*this graph has"),
        ({"positive": padded(9)}, r"positive has shape \[9, 4\]; .* each of 60 anchors"),
        ({"positive": torch.arange(USERS)}, r"positive has shape \[60\]"),
        ({"positive": padded(USERS) - 1}, r"positive\[\d+, \d+\] is -2"),
        ({"negative": padded(USERS, nodes=99)}, r"negative\[\d+, \d+\] is .*< 50, or -1"),
        ({"positive": padded(USERS) / 2}, "positive has dtype float"),
        ({"positive": 7}, "positive is 7; expected an edge type, or a tensor"),
        ({"positive": [7]}, "positive has 7; expected an edge type, or a tensor"),
        ({"negative": [WRONG, WRONG]}, "negative has labels of 2 .*; there are 1"),
        ({"negative": {LIKES: WRONG}}, "negative has labels of .*'likes'.* not in supervision"),
        ({"max_labels": -1}, "max_labels"),
        ({"max_labels": "all"}, "max_labels is 'all'"),
        ({"num_neighbors": {BUYS: [3]}}, "for edge type .*'bought_by'"),
        ({"num_neighbors": 3}, "num_neighbors is 3"),
        ({"num_neighbors": None}, "num_neighbors is missing: .*sampler_options=ps.PPRSpec"),
        ({"sampler_options": PUSHES}, "num_neighbors is .3, 2.*; sampler_options is a PPRSpec"),
        (RANKED | {"disjoint": True}, "disjoint is True.*; sampler_options is a PPRSpec"),
        (RANKED | {"sampler_options": "ppr"}, "sampler_options is 'ppr'; expected a PPRSpec"),
        (RANKED | {"sampler_options": ps.PPRSpec(alpha=2.0)}, "alpha is 2.0"),
        ({"labels": "dicts"}, "labels is 'dicts'; expected 'index' or 'dict'.*mean 'dict'"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_loader_is_made(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        everyday(shop(), **given)


def test_an_unknown_argument_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="ABLPLoader got an unexpected keyword argument 'strict'"):
        everyday(shop(), strict=True)


# --- labels over PageRank ----------------------------------------------------------------------


def ranks(batch: Any, kind: Any = None) -> list[tuple[int, int, float, float]]:
    """Edges of PageRank by the ids of their ends, with what is said of them."""
    store, below = (batch, batch) if kind is None else (batch[kind], batch[kind[2]])
    above = (batch if kind is None else batch[kind[0]]).n_id[store.edge_index[0]].tolist()
    nodes = below.n_id[store.edge_index[1]].tolist()
    rows = zip(above, nodes, store.edge_attr.tolist(), strict=True)
    return [(one, other, *attr) for one, other, attr in rows]


def test_anchors_and_labels_have_the_edges_of_the_ppr_loader() -> None:
    """Labels are those of any ABLP batch; edges those that each seed has from `PPRLoader`."""
    data = shop()
    walked = shop()
    del walked[RIGHT], walked[WRONG]
    with everyday(data, **RANKED) as loader:
        for batch in loader:
            users, items = batch["user"].n_id, batch["item"].n_id
            anchors = users[: batch["user"].batch_size]
            assert labels_in(batch, BUYS, "positive") == labels_of_edges(data, RIGHT, anchors)
            assert labels_in(batch, BUYS, "negative") == labels_of_edges(data, WRONG, anchors)
            assert torch.equal(batch["item"].x, data["item"].x[items])
            labels = items[: batch["item"].num_sampled_nodes[0]]
            for seeds, owner in ((anchors, "user"), (labels, "item")):
                nodes = (owner, seeds)
                with ps.PPRLoader(walked, nodes, max_ppr_nodes=4, batch_size=99) as alone:
                    (expected,) = alone
                for found in ("user", "item"):
                    kind = (owner, "ppr", found)
                    assert ranks(batch, kind) == ranks(expected, kind)


def test_ranked_batches_are_the_same_whoever_makes_them() -> None:
    """CONTRACT 5."""
    data = shop()
    with everyday(data, **RANKED) as inline, everyday(data, num_workers=1, **RANKED) as loader:
        assert epochs(loader) == epochs(inline)


# --- graphs that have types for their labels only ----------------------------------------------

TO, LIKED, HATED = ("n", "to", "n"), ("n", "to_positive", "n"), ("n", "to_negative", "n")


def friends() -> tuple[Any, Any]:
    """A labelled homogeneous graph in PyG's form and in ours; node 0 has no labels."""
    make = torch.Generator().manual_seed(3)
    data = HeteroData(name="friends")
    data["n"].x = torch.randn(40, 3, generator=make)
    for kind, count, first in ((TO, 150, 0), (LIKED, 60, 1), (HATED, 30, 1)):
        data[kind].edge_index = torch.randint(first, 40, (2, count), generator=make)
    data[TO].edge_attr = torch.randn(150, 2, generator=make)
    graph = ps.Graph.from_coo(
        {kind: data[kind].edge_index for kind in (TO, LIKED, HATED)},
        num_nodes={"n": 40},
        x={"n": data["n"].x},
        edge_attr={TO: data[TO].edge_attr},
        graph_attrs={"name": "friends"},
    )
    return data, graph


@pytest.mark.parametrize("options", [{"num_neighbors": [-1]}, RANKED], ids=["hops", "ranks"])
def test_a_labelled_homogeneous_graph_comes_back_as_data(options: Any) -> None:
    """From whatever holds it; what is sampled is what the graph without labels gives."""
    data, graph = friends()
    plain = Data(x=data["n"].x, edge_index=data[TO].edge_index, edge_attr=data[TO].edge_attr)
    seen = []
    for source in (data, graph):
        with everyday(source, supervision=TO, **options) as loader:
            for batch in loader:
                assert isinstance(batch, Data)
                anchors = batch.n_id[: batch.batch_size]
                assert [(int(a), int(b)) for a, b in batch.n_id[batch.y_positive].T] == (
                    labels_of_edges(data, LIKED, anchors)
                )
                assert [(int(a), int(b)) for a, b in batch.n_id[batch.y_negative].T] == (
                    labels_of_edges(data, HATED, anchors)
                )
                assert torch.equal(batch.x, data["n"].x[batch.n_id])
                assert batch.name == "friends"
                assert batch.num_nodes == len(batch.n_id) == sum(batch.num_sampled_nodes)
                assert batch.num_sampled_edges == [batch.num_edges]
                batch.validate()
                seeds = batch.n_id[: batch.num_sampled_nodes[0]]
                assert set(seeds.tolist()) >= set(batch.n_id[batch.y_positive[1]].tolist())
                if options is RANKED:
                    with ps.PPRLoader(plain, seeds, max_ppr_nodes=4, batch_size=99) as alone:
                        assert ranks(batch) == ranks(next(iter(alone)))
                else:
                    assert torch.equal(
                        batch.n_id[batch.edge_index], plain.edge_index[:, batch.e_id]
                    )
                    assert torch.equal(batch.edge_attr, plain.edge_attr[batch.e_id])
                    degrees = torch.bincount(plain.edge_index[1], minlength=40)
                    hidden = {(int(a), int(b)) for a, b in batch.n_id[batch.y_positive].T}
                    left_out = sum((u, v) in hidden for u, v in plain.edge_index.T.tolist())
                    assert batch.num_edges == int(degrees[seeds].sum()) - left_out
                seen.append(anchors)
    assert len(torch.cat(seen)) == 2 * 40


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["n"].update({"edge_attr": torch.ones(40)}),
        lambda data: data["n", "at", "n"].update({"edge_index": torch.zeros(2, 1).long()}),
        lambda data: data["m"].update({"x": torch.ones(2, 1)}),
    ],
    ids=["one name for nodes and edges", "another relation", "another node type"],
)
def test_other_graphs_keep_their_types(change: Any) -> None:
    """Where `Data` would have no room for all that a batch has."""
    data, _ = friends()
    change(data)
    with everyday(data, supervision=TO, num_neighbors=[2]) as loader:
        batch = next(iter(loader))
        assert isinstance(batch, HeteroData)
        assert torch.equal(batch[TO].edge_attr, data[TO].edge_attr[batch[TO].e_id])


def test_labels_of_several_kinds_keep_their_types() -> None:
    data, _ = friends()
    likes = ("n", "likes", "n")
    several = {"supervision": [TO, likes], "positive": [LIKED, HATED]}
    with everyday(data, **several) as loader:
        batch = next(iter(loader))
        anchors = batch["n"].n_id[: batch["n"].batch_size]
        assert labels_in(batch, TO, "positive") == labels_of_edges(data, LIKED, anchors)
        assert labels_in(batch, likes, "positive") == labels_of_edges(data, HATED, anchors)


@pytest.mark.parametrize("options", [{}, RANKED], ids=["hops", "ranks"])
def test_labels_may_come_as_a_dict_from_anchor_to_labels(options: Any) -> None:
    data, _ = friends()
    with (
        everyday(data, supervision=TO, **options) as loader,
        everyday(data, supervision=TO, labels="dict", **options) as other,
    ):
        for batch, told in zip(loader, other, strict=True):
            for name in ("y_positive", "y_negative"):
                assert list(told[name]) == list(range(batch.batch_size))
                pairs = [(a, int(b)) for a, each in told[name].items() for b in each]
                assert pairs == [(int(a), int(b)) for a, b in batch[name].T]
            assert torch.equal(told.n_id, batch.n_id)
            assert told.to("cpu").y_positive[0].dtype == torch.int64


@pytest.mark.parametrize("options", [{}, RANKED], ids=["hops", "ranks"])
def test_dicts_of_labels_are_on_the_batch_by_type_if_there_are_several(options: Any) -> None:
    data = shop()
    with everyday(data, labels="dict", **options) as loader:
        batch = next(iter(loader))
        places = batch.y_positive[1]
        anchor = batch["user"].n_id[1:2]
        labels = [label for _, label in labels_of_edges(data, RIGHT, anchor)]
        assert batch["item"].n_id[places].tolist() == labels != []
        assert options is not RANKED or BUYS not in batch.edge_types
    several = {"supervision": [BUYS, LIKES], "positive": [RIGHT, WRONG], "labels": "dict"}
    with everyday(data, **several, **options) as loader:
        batch = next(iter(loader))
        assert list(batch.y_positive) == [BUYS, LIKES]
        assert list(batch.y_positive[LIKES]) == list(range(BATCH))
        assert list(batch.y_negative) == [BUYS]


def test_a_class_of_one_s_own_is_made_where_it_can_hold_the_batch() -> None:
    class Mine(Data):
        pass

    _, graph = friends()
    for wanted in (Mine, HeteroData):
        with everyday(graph, supervision=TO, custom_cls=wanted) as loader:
            assert type(next(iter(loader))) is wanted


class TestReversesOfLabels:
    """`ToUndirected` also turns label types round, whatever their names are."""

    BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
    TRUTH, HTURT = ("user", "truth", "item"), ("item", "rev_truth", "user")

    def graph(self) -> Any:
        buys, truth = torch.tensor([[0, 1], [1, 2]]), torch.arange(3).repeat(2, 1)
        edges = {self.BUYS: buys, self.BACK: buys.flip(0)}
        edges |= {self.TRUTH: truth, self.HTURT: truth.flip(0)}
        return ps.Graph.from_coo(edges, {"user": 3, "item": 3})

    def batch(self, graph: Any, *hops: Any, **options: Any) -> Any:
        given = {"batch_size": 3, "num_workers": 0, **options}
        loader = ps.ABLPLoader(
            graph, *hops, supervision=self.BUYS, positive=self.TRUTH, exclude="reverse", **given
        )
        with loader:
            return next(iter(loader))

    def test_they_are_not_walked(self) -> None:
        with self.graph() as graph:
            batch = self.batch(graph, [-1, -1])
            assert batch[self.BACK].edge_index.shape[1] == 2
            assert batch[self.HTURT].edge_index.shape[1] == 0

    def test_nor_by_pagerank(self) -> None:
        with self.graph() as graph:
            batch = self.batch(graph, sampler_options=ps.PPRSpec(include_sampled_edges=True))
            assert self.BACK in batch.edge_types
            assert self.HTURT not in batch.edge_types

    def test_unless_they_are_asked_for(self) -> None:
        with self.graph() as graph:
            kinds = (self.BUYS, self.BACK, self.HTURT)
            batch = self.batch(graph, {kind: [-1, -1] for kind in kinds})
            assert batch[self.HTURT].edge_index.shape[1] == 3
            walk = ps.PPRSpec(include_sampled_edges=True, channels=(("all", kinds, 1.0),))
            batch = self.batch(graph, sampler_options=walk)
            assert batch[self.HTURT].edge_index.shape[1] == 3
