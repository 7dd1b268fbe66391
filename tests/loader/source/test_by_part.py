"""`order="part"`: batches of inputs of one part, another list that is as pure as the usual one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.graph import Graph
from penstock.loader.source.by_part import by_part
from penstock.loader.source.inputs import node_inputs
from penstock.loader.source.sources import source_of
from penstock.store.graph import StoreGraph
from penstock.store.handles import open_parts
from tests.client.test_every_kind import WRITES, plain_graph, typed_graph
from tests.loader.epochs import digests, through_json

pytestmark = pytest.mark.usefixtures("no_leaks")

BATCH = 8
HASHED = {"method": "hash", "edges": "both"}


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreGraph]:
    folder = tmp_path_factory.mktemp("fixed") / "parts"
    with plain_graph() as graph, parts_of(graph, folder) as parts:
        yield parts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreGraph]:
    with plain_graph() as graph, parts_of(graph, tmp_path / "parts") as parts:
        yield parts


def parts_of(graph: Graph, folder: Path, n: int = 3, **options: Any) -> StoreGraph:
    return open_parts([str(path) for path in graph.partition(n, folder, **(HASHED | options))])


def by_parts(data: Any, **options: Any) -> Any:
    wanted = {
        "num_neighbors": [4, 3],
        "input_nodes": "train",
        "batch_size": BATCH,
        "shuffle": True,
        "seed": 7,
        "order": "part",
    }
    return ps.NeighborLoader(data, **(wanted | options))


def seeds_of(batch: Any) -> list[int]:
    return list(batch.n_id[: batch.batch_size].tolist())


def check_list(graph: StoreGraph, batches: list[list[int]], inputs: list[int]) -> None:
    """Every input is in one batch, every batch in one part, one batch of each part is short."""
    book, left = graph.node_book(), {}
    for batch in batches:
        (part,) = set(book.partition_of(batch).tolist())
        left.setdefault(part, []).append(len(batch))
    assert sorted(node for batch in batches for node in batch) == sorted(inputs)
    counts = np.bincount(book.partition_of(inputs), minlength=graph.num_parts).tolist()
    for part, count in enumerate(counts):
        whole, rest = divmod(count, BATCH)
        assert sorted(left.get(part, []), reverse=True) == [BATCH] * whole + [rest] * (rest > 0)


# --- the list ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("nodes", ["train", None, [5, 3, 3, 250, 17, 8, 5, 9, 44, 31]])
def test_every_batch_has_inputs_of_one_part(store: StoreGraph, nodes: Any, shuffle: bool) -> None:
    with by_parts(store, input_nodes=nodes, shuffle=shuffle) as loader:
        batches = [seeds_of(batch) for batch in loader]
        assert len(loader) == len(batches)
    expected = nodes if isinstance(nodes, list) else list(range(300))
    check_list(store, batches, store.split("train").tolist() if nodes == "train" else expected)


def test_parts_come_one_after_another_in_the_order_given_if_they_are_not_shuffled(
    store: StoreGraph,
) -> None:
    with by_parts(store, shuffle=False) as loader:
        nodes = [node for batch in loader for node in seeds_of(batch)]
    train = store.split("train")
    parts = store.node_book().partition_of(train)
    assert nodes == train[np.argsort(parts, kind="stable")].tolist()


def test_epochs_differ_in_their_batches_and_in_the_order_of_parts(store: StoreGraph) -> None:
    with by_parts(store) as loader:
        epochs = [[seeds_of(batch) for batch in loader] for _ in range(2)]
    parts = [store.node_book().partition_of([batch[0] for batch in epoch]) for epoch in epochs]
    assert parts[0].tolist() != parts[1].tolist()
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}


def test_drop_last_leaves_out_the_short_batch_of_each_part(store: StoreGraph) -> None:
    counts = np.bincount(store.node_book().partition_of(store.split("train")))
    with by_parts(store, drop_last=True) as loader:
        batches = [seeds_of(batch) for batch in loader]
        assert len(loader) == len(batches) == (counts // BATCH).sum()
    assert {len(batch) for batch in batches} == {BATCH}


def test_batches_show_the_positions_of_their_inputs_as_given(store: StoreGraph) -> None:
    nodes = [5, 3, 250, 17, 8]
    with by_parts(store, input_nodes=nodes) as loader:
        for batch in loader:
            assert [nodes[at] for at in batch.input_id.tolist()] == seeds_of(batch)
        assert loader([4, 0]).n_id[:2].tolist() == [8, 5]  # places are those of the user's list


def test_what_belongs_to_an_input_goes_with_it(store: StoreGraph) -> None:
    nodes = np.arange(300)
    options = {"input_nodes": nodes, "input_time": nodes + 1000, "time_attr": "time"}
    with by_parts(store, **options) as loader:
        for batch in loader:
            assert batch.seed_time.tolist() == [node + 1000 for node in seeds_of(batch)]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_make_the_same_list(store: StoreGraph, workers: int) -> None:
    with by_parts(store) as loader:
        expected = [digests(loader) for _ in range(2)]
    with by_parts(store, num_workers=workers) as loader:
        assert [digests(loader) for _ in range(2)] == expected


def test_the_list_depends_on_the_assignment_and_not_on_who_has_the_parts(tmp_path: Path) -> None:
    with plain_graph() as graph:
        given = (np.arange(300) * 7919 % 3).astype(np.int64)
        with (
            parts_of(graph, tmp_path / "a", method=given) as one,
            parts_of(
                graph, tmp_path / "b", method=given, topology="whole", edges="source"
            ) as other,
            by_parts(one) as first,
            by_parts(other) as second,
        ):
            assert digests(first) == digests(second)


def test_servers_and_replicas_make_no_difference(store: StoreGraph, tmp_path: Path) -> None:
    with by_parts(store) as loader:
        expected = digests(loader)
    with plain_graph() as graph:
        parts = graph.partition(3, tmp_path / "again", **HASHED)
    with ExitStack() as ends:
        started = [
            ends.enter_context(ps.serve(parts[part], num_workers=1)) for part in (2, 0, 1, 0)
        ]
        addresses = [server.address for server in started]
        data = ends.enter_context(ps.connect(addresses, num_workers=1))
        assert digests(ends.enter_context(by_parts(data))) == expected


def test_a_users_collate_fn_gets_the_places_of_the_same_batches(store: StoreGraph) -> None:
    class Own(ps.NeighborLoader):
        def collate_fn(self, index: Any) -> Any:
            return super().collate_fn(index)

    with by_parts(store) as loader:
        expected = digests(loader)
    with Own(store, [4, 3], "train", batch_size=BATCH, shuffle=True, seed=7, order="part") as own:
        assert digests(own) == expected


# --- ranks and positions -------------------------------------------------------------------------


@pytest.mark.parametrize("remainder", ["wrap", "drop"])
def test_ranks_share_the_list_and_get_as_many_batches_each(
    store: StoreGraph, remainder: str
) -> None:
    with by_parts(store) as loader:
        whole = digests(loader)
    read = []
    for rank in range(3):
        with by_parts(store, rank=rank, world_size=3, remainder=remainder) as loader:
            read.append(digests(loader))
    steps = len(whole) // 3 if remainder == "drop" else -(-len(whole) // 3)
    assert {len(each) for each in read} == {steps}
    taken = [batch for step in zip(*read, strict=True) for batch in step]
    assert taken == (whole + whole)[: 3 * steps]


@pytest.mark.parametrize("taken", [1, 4])
def test_a_loader_goes_on_from_any_batch_with_any_number_of_ranks(
    store: StoreGraph, taken: int
) -> None:
    with by_parts(store) as loader:
        whole = digests(loader)
    with by_parts(store, num_workers=1) as loader:
        list(islice(iter(loader), taken))
        state = through_json(loader.state_dict())
    rest = []
    for rank in range(2):
        with by_parts(store, rank=rank, world_size=2, remainder="drop") as loader:
            loader.load_state_dict(state)
            rest.append(digests(loader))
    going_on = [batch for step in zip(*rest, strict=True) for batch in step]
    assert going_on == whole[taken:][: len(going_on)]
    assert len(whole) - taken - len(going_on) < 2


def test_a_state_of_other_parts_is_refused(tmp_path: Path, store: StoreGraph) -> None:
    with by_parts(store) as loader:
        next(iter(loader))
        state = loader.state_dict()
    assert state["order"] == "shuffled, by part"
    with (
        plain_graph() as graph,
        parts_of(graph, tmp_path / "two", 2) as two,
        by_parts(two) as other,
    ):
        other.load_state_dict(state)
        with pytest.raises(ValueError, match="cut otherwise than when the state was saved"):
            iter(other)
    with by_parts(store, order=None) as usual:
        with pytest.raises(ValueError, match="order that is 'shuffled, by part', but"):
            usual.load_state_dict(state)


# --- other inputs, other loaders -----------------------------------------------------------------


@pytest.mark.parametrize(("edges", "end"), [("destination", 1), ("source", 0), ("both", 1)])
def test_links_are_in_the_part_of_the_end_that_edges_go_with(
    tmp_path: Path, edges: str, end: int
) -> None:
    with typed_graph() as graph, parts_of(graph, tmp_path / "parts", edges=edges) as store:
        ends = np.stack([np.arange(90), np.arange(90)[::-1] * 3])
        book, seen = store.node_book(WRITES[2 * end]), []
        with ps.LinkNeighborLoader(
            store,
            [2],
            (WRITES, ends),
            edge_dir="out" if end == 0 else "in",
            batch_size=BATCH,
            shuffle=True,
            seed=1,
            order="part",
        ) as loader:
            for batch in loader:
                links = batch[WRITES].input_id.tolist()
                seen += links
                assert len(set(book.partition_of(ends[end][links]).tolist())) == 1
        assert sorted(seen) == list(range(90))


def test_all_edges_can_be_read_by_part(store: StoreGraph) -> None:
    with ps.LinkNeighborLoader(store, [2], batch_size=500, seed=1, order="part") as loader:
        ends = store.edge_index()
        for batch in loader:
            there = store.node_book().partition_of(ends[1][batch.input_id.numpy()])
            assert len(set(there.tolist())) == 1


def test_anchors_keep_their_labels(store: StoreGraph) -> None:
    nodes = np.arange(300)
    with ps.ABLPLoader(
        store,
        [2],
        nodes,
        positive=(nodes * 7 % 300)[:, None],
        batch_size=BATCH,
        shuffle=True,
        seed=1,
        order="part",
    ) as loader:
        seen = []
        for batch in loader:
            anchors, labels = batch.n_id[batch.y_positive].tolist()
            assert labels == [anchor * 7 % 300 for anchor in anchors]
            assert len(set(store.node_book().partition_of(anchors).tolist())) == 1
            seen += anchors
    assert sorted(seen) == nodes.tolist()


def test_a_part_by_itself_is_one_part(store: StoreGraph, tmp_path: Path) -> None:
    with plain_graph() as graph:
        paths = graph.partition(3, tmp_path / "again", **HASHED)
        with Graph.open(paths[1]) as part:
            with by_parts(part, part_only=True) as loader:
                alone = [seeds_of(batch) for batch in loader]
    with by_parts(store) as loader:
        batches = [seeds_of(batch) for batch in loader]
    own = [batch for batch in batches if store.node_book().partition_of(batch[:1]) == [1]]
    assert sorted(map(sorted, alone)) == sorted(map(sorted, own))


def test_a_server_of_a_part_by_itself_makes_the_same_list(tmp_path: Path) -> None:
    with plain_graph() as graph:
        path = graph.partition(3, tmp_path / "parts", **HASHED)[1]
    with Graph.open(path) as part, by_parts(part, part_only=True) as loader:
        expected = digests(loader)
    with (
        ps.serve(path, num_workers=1, part_only=True) as server,
        ps.connect(server.address, same_host=False, part_only=True) as data,
        by_parts(data, part_only=True) as loader,
    ):
        assert digests(loader) == expected


def test_ranges_are_in_the_order_of_parts_already(tmp_path: Path) -> None:
    with plain_graph() as graph, parts_of(graph, tmp_path / "parts", method="range") as store:
        inputs = node_inputs(source_of(store))
        found, places = by_part(inputs)
        assert places is None
        assert found.ids is None
        assert found.groups == (100, 100, 100)


@given(ids=st.lists(st.integers(0, 299), max_size=60))
def test_inputs_of_a_part_keep_their_order(fixed: StoreGraph, ids: list[int]) -> None:
    found, places = by_part(node_inputs(source_of(fixed), np.array(ids, np.int64)))
    parts = fixed.node_book().partition_of(np.array(ids, np.int64)).tolist()
    assert found.all_ids().tolist() == [
        node for part in range(3) for node, at in zip(ids, parts, strict=True) if at == part
    ]
    assert found.groups == tuple(parts.count(part) for part in range(3))
    if places is not None:
        assert np.array(ids, np.int64)[places].tolist() == found.all_ids().tolist()


# --- refusals ------------------------------------------------------------------------------------


def test_a_whole_graph_has_no_parts() -> None:
    with plain_graph() as graph:
        with pytest.raises(ValueError, match=r"order is 'part', but the graph is whole.*partition"):
            by_parts(graph)
        with ps.serve(graph, "tcp://127.0.0.1:0") as server:
            with ps.connect(server.address, same_host=False) as data:
                with pytest.raises(ValueError, match="order is 'part', but the graph at tcp://127"):
                    by_parts(data)


@pytest.mark.parametrize("given", ["parts", 1, ["part"]])
def test_another_order_is_refused(store: StoreGraph, given: Any) -> None:
    near = ".*did you mean 'part'" if given == "parts" else ""
    with pytest.raises(ValueError, match=f"order is .*; expected 'part', or None{near}"):
        by_parts(store, order=given)


@pytest.mark.parametrize(
    "given", [{"sampler": [1, 2], "shuffle": None}, {"batch_sampler": [[1], [2]]}]
)
def test_a_sampler_beside_it_is_refused(store: StoreGraph, given: dict[str, Any]) -> None:
    options: dict[str, Any] = {"shuffle": None}
    if "batch_sampler" in given:
        options["batch_size"] = 1
    with pytest.raises(ValueError, match="order is 'part', but a sampler gives the order"):
        by_parts(store, **(options | given))
