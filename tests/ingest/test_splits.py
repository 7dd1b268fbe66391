"""Splits of nodes and links: what is held out, and that it is always the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from tests.ingest.tables import table_of
from tests.store.servers import StoreProcesses

KIND = ("user", "buys", "item")
RING = {
    "data": {"s": np.arange(100), "t": (np.arange(100) + 1) % 100},
    "source": "s",
    "target": "t",
}


def splits(folder: Path, count: int, split: Any, **columns: Any) -> dict[str, list[int]]:
    """The splits of `count` nodes."""
    nodes = {"data": {"n": np.arange(count), **columns}, "split": split}
    more = {word: word for word in ("id", "time", "label") if word in columns}
    edges = {"s": [], "t": []} if count == 0 else {"s": [0], "t": [0]}
    if "id" in columns:
        first = columns["id"][0]
        edges = {"s": [first], "t": [first]}
    with ps.build(
        folder / "g",
        nodes={**nodes, **more},
        edges={"data": edges, "source": "s", "target": "t"},
    ) as graph:
        return {name: graph.split(name).tolist() for name in graph.splits()}


def test_a_column_says_the_split_of_each_node(tmp_path: Path) -> None:
    words = ["train", "Val", None, "test", "train"]
    found = splits(tmp_path, 5, "part", part=words)
    assert found == {"train": [0, 4], "val": [1], "test": [3]}
    said = {"by": "column", "column": "fold", "train": [0, 1], "test": 2}
    assert splits(tmp_path, 5, said, fold=[2, 0, 1, 3, 2]) == {"train": [1, 2], "test": [0, 4]}
    with pytest.raises(ValueError, match=r"row 1: column 'part' of nodes is 'tset'; expected"):
        splits(tmp_path, 2, "part", part=["test", "tset"])


def test_what_cannot_say_a_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nodes\.split: column 'part' of data of nodes is list"):
        splits(tmp_path, 2, "part", part=[[1], [2]])
    for by in ("random", "hash"):
        with pytest.raises(ValueError, match=r"nodes\.split\.seed is -1; expected 0 <= seed"):
            splits(tmp_path, 2, {"by": by, "val": 0.5, "seed": -1})


def test_random_splits_have_the_shares_that_were_asked_for(tmp_path: Path) -> None:
    said = {"by": "random", "val": 0.2, "test": 0.1, "seed": 3}
    found = splits(tmp_path, 1000, said)
    assert [len(found[name]) for name in ("train", "val", "test")] == [700, 200, 100]
    assert sorted(chain.from_iterable(found.values())) == list(range(1000))
    assert splits(tmp_path, 1000, said) == found
    assert splits(tmp_path, 1000, {**said, "seed": 4}) != found
    assert sorted(found["val"]) == found["val"] != list(range(200))


def test_a_hash_keeps_nodes_in_their_split_when_data_grows(tmp_path: Path) -> None:
    ids = np.array([f"node {n}" for n in range(2000)])
    said = {"by": "hash", "val": 0.2, "test": 0.1}
    before = splits(tmp_path, 1000, said, id=ids[500:1500])
    after = splits(tmp_path, 2000, said, id=ids[::-1].copy())
    for name, nodes in before.items():
        assert {ids[500 + n] for n in nodes} <= {ids[1999 - n] for n in after[name]}
    assert 300 < len(after["val"]) < 500
    assert 120 < len(after["test"]) < 280


def test_by_time_the_latest_are_held_out(tmp_path: Path) -> None:
    times = np.array([5.5, 1.0, 9.0, 3.0, 7.0, -2.0])
    found = splits(tmp_path, 6, {"by": "time", "val": 1 / 3, "test": 1 / 6}, time=times)
    assert found == {"train": [1, 3, 5], "val": [0, 4], "test": [2]}
    days = np.array(["2024-01-01", "2024-02-01", "2024-03-01"], "M8[D]")
    cuts = {"by": "time", "val_from": dt.date(2024, 2, 1), "test_from": dt.datetime(2024, 2, 15)}
    assert splits(tmp_path, 3, cuts, time=days) == {"train": [0], "val": [1], "test": [2]}
    with pytest.raises(ValueError, match=r"val_from is 3; column 'time' has dates"):
        splits(tmp_path, 3, {"by": "time", "val_from": 3}, time=days)


def test_nodes_without_a_label_are_in_no_split(tmp_path: Path) -> None:
    labels = pa.array(["a", None, "b", None, "a", "b"])
    found = splits(tmp_path, 6, {"by": "random", "val": 0.25, "test": 0.25}, label=labels)
    assert sorted(chain.from_iterable(found.values())) == [0, 2, 4, 5]


def test_equal_times_are_on_one_side(tmp_path: Path) -> None:
    found = splits(tmp_path, 6, {"by": "time", "test": 0.3}, time=np.array([1, 1, 1, 2, 2, 2]))
    assert found == {"train": [0, 1, 2], "test": [3, 4, 5]}


# --- links ---------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[ps.Graph]:
    """Links by time, with reverse edges."""
    table = table_of(
        {
            "who": ["u1", "u2", "u1", "u3", "u2"],
            "what": ["a", "a", "b", "b", "c"],
            "at": [10, 20, 30, 40, 50],
        }
    )
    with ps.build(
        tmp_path / "shop.graph",
        edges={
            KIND: {
                "data": table,
                "source": "who",
                "target": "what",
                "time": "at",
                "reverse": True,
                "split": {"by": "time", "val_from": 30, "test_from": 50},
            }
        },
    ) as graph:
        yield graph


def test_links_that_are_held_out_are_no_edges_in_either_direction(shop: ps.Graph) -> None:
    assert shop.edge_index(KIND).tolist() == [[0, 1], [0, 0]]
    assert shop.edge_index(("item", "rev_buys", "user")).tolist() == [[0, 0], [0, 1]]
    whole = shop.graph_attributes(KIND)
    assert {name: array.tolist() for name, array in whole.items()} == {
        "val_links": [[0, 2], [1, 1]],
        "val_links_time": [30, 40],
        "test_links": [[1], [2]],
        "test_links_time": [50],
    }


def ends_of(loader: Any) -> list[tuple[list[list[int]], list[int]]]:
    with loader:
        return [
            (batch[KIND].edge_label_index.tolist(), batch[KIND].input_id.tolist())
            for batch in loader
        ]


def test_a_loader_reads_links_by_name(shop: ps.Graph) -> None:
    options: dict[str, Any] = {"batch_size": 9, "num_workers": 0, "seed": 0}
    found = {
        name: ends_of(ps.LinkNeighborLoader(shop, [2], (KIND, name), **options))
        for name in ("train", "val", "test")
    }
    assert [(len(ends[0]), ids) for ((ends, ids),) in found.values()] == [
        (2, [0, 1]),
        (2, [0, 1]),
        (1, [0]),
    ]
    with pytest.raises(ValueError, match=r"'vall', .*'train', 'val', 'test'; did you mean 'val'"):
        ps.LinkNeighborLoader(shop, [2], (KIND, "vall"), **options)


def test_links_of_a_split_bring_their_times(shop: ps.Graph) -> None:
    options: dict[str, Any] = {"batch_size": 1, "num_workers": 0, "seed": 0}
    loader = ps.LinkNeighborLoader(shop, [-1, -1], (KIND, "val"), time_attr="edge_time", **options)
    with loader:
        batches = list(loader)
    assert [batch[KIND].edge_label_time.tolist() for batch in batches] == [[30], [40]]
    train = ps.LinkNeighborLoader(
        shop, [-1], (KIND, "train"), time_attr="edge_time", exclude="self", **options
    )
    with train:
        assert [batch[KIND].edge_label_time.tolist() for batch in train] == [[10], [20]]
    # Batches have rows of what was sampled, and not the links of whole splits.
    assert not [name for name in batches[0][KIND] if "links" in name]


def test_a_server_gives_links_by_name(shop: ps.Graph) -> None:
    with ps.serve(shop, num_workers=1) as server, ps.connect(server.address) as data:
        loader = ps.LinkNeighborLoader(
            data, [2], (KIND, "val"), time_attr="edge_time", batch_size=2, seed=0
        )
        with loader:
            (batch,) = loader
        assert batch[KIND].edge_label_time.tolist() == [30, 40]


def test_a_store_gives_links_by_name(shop: ps.Graph, tmp_path: Path) -> None:
    parts = shop.partition(2, tmp_path / "parts")
    options: dict[str, Any] = {"time_attr": "edge_time", "batch_size": 2, "seed": 0}
    with StoreProcesses(list(parts)) as store:
        with ps.connect(store.addresses[0], num_workers=1) as data:
            for name, times in (("val", [30, 40]), ("test", [50]), ("train", [10, 20])):
                # Of a link's own time its edge has to be left out.
                links = (KIND, name)
                with ps.LinkNeighborLoader(data, [2], links, exclude="self", **options) as loader:
                    (batch,) = loader
                assert batch[KIND].edge_label_time.tolist() == times


def test_disjoint_links_of_train_are_no_edges(tmp_path: Path) -> None:
    said = {**RING, "split": {"by": "random", "val": 0.1, "disjoint": 0.5}}
    with ps.build(tmp_path / "g", edges=said) as graph:
        whole = graph.graph_attributes()
        train, val = (
            set(map(tuple, whole[f"{name}_links"].T.tolist())) for name in ("train", "val")
        )
        edges = set(map(tuple, graph.edge_index().T.tolist()))
        assert len(train) + len(val) + len(edges) == len(train | val | edges) == 100
        assert len(val) == 10
        assert 20 < len(train) < 70
        with ps.LinkNeighborLoader(graph, [2], "train", batch_size=100, num_workers=0) as loader:
            (batch,) = loader
        pairs = batch.n_id[batch.edge_label_index].T.tolist()
        assert set(map(tuple, pairs)) == train


def test_few_links_may_have_none_of_train_that_is_no_edge(tmp_path: Path) -> None:
    """All edges were supervision edges then, though they had been asked to be apart."""
    few = {"data": {"s": [0, 1], "t": [1, 0]}, "source": "s", "target": "t"}
    said = {**few, "split": {"by": "random", "val": 0.5, "disjoint": 1e-9}}
    with ps.build(tmp_path / "g", edges=said) as graph:
        assert graph.num_edges() == 1
        assert graph.graph_attributes()["train_links"].shape == (2, 0)


def test_links_whose_split_is_unsaid_are_edges_alone(tmp_path: Path) -> None:
    table = table_of({"s": [0, 1, 2], "t": [1, 2, 0], "part": ["train", None, "test"]})
    edges = {"data": table, "source": "s", "target": "t", "split": "part"}
    with ps.build(tmp_path / "g", edges=edges) as graph:
        assert graph.edge_index().tolist() == [[0, 1], [1, 2]]
        whole = graph.graph_attributes()
        assert whole["train_links"].tolist() == [[0], [1]]
        assert whole["test_links"].tolist() == [[2], [0]]


def test_a_hash_holds_out_a_link_with_its_reverse_and_its_repetitions(tmp_path: Path) -> None:
    sources = np.concatenate([RING["data"]["s"], RING["data"]["t"], RING["data"]["s"]])
    targets = np.concatenate([RING["data"]["t"], RING["data"]["s"], RING["data"]["t"]])
    edges = {**RING, "data": {"s": sources, "t": targets}, "split": {"by": "hash", "test": 0.3}}
    with ps.build(tmp_path / "g", edges=edges) as graph:
        held_out = graph.graph_attributes()["test_links"].T.tolist()
        pairs = {tuple(sorted(pair)) for pair in held_out}
        assert len(held_out) == 3 * len(pairs) > 30
        assert not pairs & {tuple(sorted(pair)) for pair in graph.edge_index().T.tolist()}


def test_reverse_edges_of_a_graph_with_one_type_are_of_that_type(tmp_path: Path) -> None:
    table = table_of({"s": [0, 1, 2, 1, 0], "t": [1, 0, 2, 2, 1], "w": [1.0, 2.0, 3.0, 4.0, 5.0]})
    edges = {"data": table, "source": "s", "target": "t", "weight": "w", "reverse": True}
    with ps.build(tmp_path / "g", edges=edges) as graph:
        assert graph.edge_index().tolist() == [
            [0, 1, 2, 1, 0, 1, 0, 2, 1],
            [1, 0, 2, 2, 1, 0, 1, 1, 0],
        ]
        assert graph.edge_attribute("edge_weight").tolist() == [1, 2, 3, 4, 5, 1, 2, 4, 5]
    with ps.build(tmp_path / "g", edges={**edges, "duplicates": "drop"}) as graph:
        assert graph.edge_index().tolist() == [[0, 2, 1, 1, 2], [1, 2, 2, 0, 1]]
        assert graph.edge_attribute("edge_weight").tolist() == [1, 3, 4, 1, 4]
