"""Servers that each hold a part of a graph: together they tell what one tells that holds it all.

Ids are those of the whole graph throughout. A part is sampled by itself only if that is asked for.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core.slices import ServerSlice, compute_server_assignments
from penstock.graph import Graph
from penstock.options import Limits
from penstock.sampling.spec import ABLPSpec, LinkSpec, NeighborSpec, WalkSpec
from penstock.server.dist.dist_server import DistServer
from penstock.wire.requests import SamplerInput
from tests.server.stores import (
    BUYS,
    ITEMS,
    RIGHT,
    USERS,
    AnyServer,
    backend,
    channel,
    messages,
    reached,
    shop,
)

WHOLE = NeighborSpec(num_neighbors=(-1,))


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with shop() as found:
        yield found


@pytest.fixture(scope="module", params=["range", "hash"])
def parts(
    request: pytest.FixtureRequest, graph: Graph, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Graph]]:
    """Three of them."""
    folder: Path = tmp_path_factory.mktemp("parts") / request.param
    with ExitStack() as stack:
        paths = graph.partition(3, folder, method=request.param)
        yield [stack.enter_context(Graph.open(path)) for path in paths]


@pytest.fixture(scope="module")
def servers(parts: list[Graph]) -> Iterator[list[AnyServer]]:
    """One for each part, which may be sampled by itself; the second one is asked by bytes."""
    with ExitStack() as stack:
        ways = ("in process", "as bytes", "in process")
        yield [
            stack.enter_context(reached(way, part, num_workers=0, part_only=True))[0]
            for way, part in zip(ways, parts, strict=True)
        ]


def test_the_ids_of_all_servers_are_those_of_the_graph(
    servers: list[AnyServer], graph: Graph
) -> None:
    """CONTRACT 35: each id is told by one of them, under its number in the whole graph."""
    for split, wanted in ((None, np.arange(USERS)), ("train", graph.split("train", "user"))):
        found = np.concatenate([server.get_node_ids(split, "user") for server in servers])
        np.testing.assert_array_equal(np.sort(found), np.sort(wanted))


def test_ranks_share_what_servers_hold(servers: list[AnyServer]) -> None:
    """CONTRACT 35, 36: two ranks, three servers; every id goes to one rank."""
    found: list[int] = []
    for rank in range(2):
        for number, piece in compute_server_assignments(3, 2, rank).items():
            found += servers[number].get_node_ids(None, "item", piece).tolist()
    assert sorted(found) == list(range(ITEMS))


def test_a_slice_of_another_server_is_refused(servers: list[AnyServer]) -> None:
    """CONTRACT 36."""
    with pytest.raises(ValueError, match="of server 2; this one has part 1 of 3"):
        servers[1].get_node_ids(None, "item", ServerSlice(2))


def test_rows_are_found_by_the_ids_of_the_whole(servers: list[AnyServer], graph: Graph) -> None:
    """CONTRACT 38: features go with their nodes."""
    for server in servers:
        ids = server.get_node_ids(None, "user")[::-1]
        rows = server.get_node_feature("user", ids)
        np.testing.assert_array_equal(rows, graph.node_attribute("x", "user")[ids])


def test_a_foreign_id_is_an_error_that_names_it(servers: list[AnyServer]) -> None:
    """CONTRACT 38: never a wrong row."""
    (foreign,) = servers[2].get_node_ids(None, "user")[:1].tolist()
    for ask in (servers[0].get_node_feature, servers[1].get_node_feature):
        with pytest.raises(ValueError, match=rf"is {foreign}, which is in part 2; this is"):
            ask("user", [foreign])
    with pytest.raises(ValueError, match=rf"is {USERS}; expected 0 <= id < {USERS}"):
        servers[0].get_node_feature("user", [USERS])


def test_books_say_who_has_what(servers: list[AnyServer], parts: list[Graph]) -> None:
    """CONTRACT 38: the same from every server."""
    for number, server in enumerate(servers):
        book = server.get_node_partition_book("item")
        assert book == parts[0].node_book("item")
        mine = server.get_node_ids(None, "item")
        assert set(server.get_node_partition_id("item", mine).tolist()) == {number}
        meta = server.get_dataset_meta()
        assert (meta.partition_idx, meta.num_partitions) == (number, 3)


def test_where_other_edges_are_a_part_does_not_know(servers: list[AnyServer]) -> None:
    """CONTRACT 68: the store knows."""
    for server in servers:
        with pytest.raises(
            ValueError, match=r"part \d of 3, which knows its own edges .* the store"
        ):
            server.get_edge_partition_book(BUYS)


def test_the_edges_of_all_servers_are_those_of_the_graph(
    servers: list[AnyServer], graph: Graph
) -> None:
    """CONTRACT 38: each with its destination, also those that come from elsewhere."""
    found = np.concatenate([server.get_edge_index(BUYS) for server in servers], axis=1)
    whole = graph.edge_index(BUYS)
    assert sorted(zip(*found.tolist(), strict=True)) == sorted(zip(*whole.tolist(), strict=True))
    assert all(server.get_edge_size(BUYS) == (USERS, ITEMS) for server in servers)
    sizes = [dict(_pairs(server.get_dataset_meta().num_edges))[BUYS] for server in servers]
    assert sum(sizes) == 90


def test_attributes_of_every_edge_are_where_its_destination_is(
    servers: list[AnyServer], graph: Graph
) -> None:
    """CONTRACT 38: also of an edge that comes from elsewhere; no other server tells them."""
    assert_attributes_are_with_their_edges(servers, graph, BUYS, "destination")


@pytest.mark.parametrize("edges", ["destination", "source"])
@pytest.mark.parametrize("method", ["range", "hash"])
def test_attributes_of_every_edge_are_where_its_end_is_without_types(
    tmp_path: Path, method: str, edges: str
) -> None:
    """CONTRACT 38: features, weights, times, whatever edges have."""
    rng = np.random.default_rng(3)
    with ExitStack() as stack:
        graph = stack.enter_context(
            Graph.from_coo(
                rng.integers(0, 20, (2, 60)),
                20,
                edge_attr=rng.random((60, 3)).astype("float32"),
                edge_weight=rng.random(60),
                edge_time=rng.integers(0, 9, 60),
            )
        )
        paths = graph.partition(2, tmp_path / "parts", method=method, edges=edges)
        parts = [stack.enter_context(Graph.open(path)) for path in paths]
        servers = [
            stack.enter_context(reached(way, part, num_workers=0))[0]
            for way, part in zip(("in process", "as bytes"), parts, strict=True)
        ]
        assert_attributes_are_with_their_edges(servers, graph, None, edges)


def assert_attributes_are_with_their_edges(
    servers: list[AnyServer], graph: Graph, kind: Any, edges: str
) -> None:
    told, end = 0, 1 if edges == "destination" else 0
    owner = None if kind is None else kind[2 if end else 0]
    owners = servers[0].get_node_partition_id(owner, graph.edge_index(kind)[end])
    for number, server in enumerate(servers):
        mine = np.flatnonzero(owners == number)
        others = np.setdiff1d(np.arange(graph.num_edges(kind)), mine)
        np.testing.assert_array_equal(server.get_edge_index(kind), graph.edge_index(kind)[:, mine])
        for name, column in graph.edge_attributes(kind).items():
            by_id = server.get_edge_attribute(name, kind, mine[::-1])
            np.testing.assert_array_equal(by_id, column.array[mine[::-1]])
            np.testing.assert_array_equal(server.get_edge_attribute(name, kind), column.array[mine])
            for edge in others:
                with pytest.raises(
                    ValueError, match=rf"is {edge}, an edge that belongs to another"
                ):
                    server.get_edge_attribute(name, kind, [edge])
        told += len(mine)
    assert told == graph.num_edges(kind)


@pytest.mark.parametrize("held", ["a part", "all"])
def test_a_few_edges_cost_what_they_are(tmp_path: Path, held: str) -> None:
    """CONTRACT 38: a piece of the edges, however many there are; the most is 1000 bytes."""
    rng = np.random.default_rng(4)
    ends, weights = rng.integers(0, 500, (2, 100_000)), rng.random(100_000)
    with ExitStack() as stack:
        data: Any = stack.enter_context(Graph.from_coo(ends, 500, edge_weight=weights))
        if held == "a part":
            data = stack.enter_context(Graph.open(data.partition(2, tmp_path / "p")[0]))
        server = stack.enter_context(
            DistServer(data, num_workers=0, limits=Limits(max_answer_bytes=1000))
        )
        ids = np.flatnonzero(ends[1] < 250)[:10] if held == "a part" else np.arange(10)

        def ask() -> None:
            found = server.get_edge_index(first=0, count=10)
            np.testing.assert_array_equal(found, ends[:, ids])
            rows = server.get_edge_attribute("edge_weight", index=ids)
            np.testing.assert_array_equal(rows, weights[ids])
            server.get_dataset_meta()

        ask()  # what is made once, and kept
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        ask()
        assert tracemalloc.get_traced_memory()[1] < 50_000  # half a byte for each edge


def test_messages_speak_of_the_whole_graph(servers: list[AnyServer], graph: Graph) -> None:
    """CONTRACT 43: seeds in, nodes and edges out, by their ids; features are theirs."""
    whole = graph.edge_index(BUYS)
    for server in servers:
        seeds = server.get_node_ids(None, "item")[::-1].copy()
        given = SamplerInput(ids=seeds, node_type="item")
        number = channel(
            server, backend(server, "m", WHOLE), given, channel_options={"batch_size": ITEMS}
        )
        (message,) = messages(server, number)
        assert message["item/n_id"][: len(seeds)].tolist() == seeds.tolist()
        np.testing.assert_array_equal(
            message["user/x"], graph.node_attribute("x", "user")[message["user/n_id"]]
        )
        local = message["user,buys,item/edge_index"]
        ends = np.stack((message["user/n_id"][local[0]], message["item/n_id"][local[1]]))
        np.testing.assert_array_equal(ends, whole[:, message["user,buys,item/e_id"]])
        server.destroy_sampling_input(number)


def test_links_and_their_ends_are_those_of_the_whole(
    servers: list[AnyServer], parts: list[Graph]
) -> None:
    """CONTRACT 58."""
    server, part = servers[1], parts[1]
    ends = part.within().edge_index(BUYS)
    spec = LinkSpec(neighbors=WHOLE)
    given = SamplerInput(ids=ends, edge_type=BUYS)
    number = channel(server, backend(server, "l", spec), given, channel_options={"batch_size": 99})
    (message,) = messages(server, number)
    local = message["user,buys,item/edge_label_index"]
    found = np.stack((message["user/n_id"][local[0]], message["item/n_id"][local[1]]))
    np.testing.assert_array_equal(found, ends)
    server.destroy_sampling_input(number)


def test_labels_that_come_with_anchors_are_those_of_the_whole(
    servers: list[AnyServer],
) -> None:
    """CONTRACT 37, 58: what a server tells as labels, it takes as labels."""
    server = servers[1]
    anchors, right, wrong = server.get_ablp_input(None, "user", BUYS)
    assert wrong is not None
    spec = ABLPSpec(neighbors=NeighborSpec(num_neighbors=(1,)), supervision=(BUYS,))
    columns = {"positive/0": right, "negative/0": wrong}
    given = SamplerInput(ids=anchors, node_type="user", columns=columns)
    number = channel(server, backend(server, "a", spec), given, channel_options={"batch_size": 99})
    (message,) = messages(server, number)
    places, labels = message["user,buys,item/y_positive"]
    found = [(int(at), int(message["item/n_id"][label])) for at, label in _pair(places, labels)]
    assert found == [(at, int(each)) for at, row in enumerate(right) for each in row if each >= 0]
    server.destroy_sampling_input(number)


def test_walks_name_the_edges_of_the_whole(servers: list[AnyServer], graph: Graph) -> None:
    """CONTRACT 43: also where edges stand in rows, with -1 for steps that were not taken."""
    server = servers[0]
    bought = ("item", "bought_by", "user")
    spec = WalkSpec(walk_length=2, path=(bought, BUYS), direction="in")
    seeds = server.get_node_ids(None, "user")
    given = SamplerInput(ids=seeds, node_type="user")
    number = channel(server, backend(server, "w", spec), given, channel_options={"batch_size": 99})
    (message,) = messages(server, number)
    walk, edges = message["user/walk"], message["user/walk_edges"]
    taken = edges[:, 0] >= 0
    assert taken.any()
    ends = graph.edge_index(bought)[:, edges[taken, 0]]
    np.testing.assert_array_equal(message["user/n_id"][walk[taken, 0]], ends[1])
    np.testing.assert_array_equal(message["item/n_id"][walk[taken, 1]], ends[0])
    server.destroy_sampling_input(number)


def test_foreign_seeds_are_refused(servers: list[AnyServer]) -> None:
    """CONTRACT 38: a channel is not opened on somebody else's nodes."""
    foreign = servers[2].get_node_ids(None, "user")
    made = backend(servers[1], "f", WHOLE)
    with pytest.raises(ValueError, match="which is in part 2"):
        channel(servers[1], made, SamplerInput(ids=foreign, node_type="user"))


def test_foreign_labels_are_refused(servers: list[AnyServer]) -> None:
    """CONTRACT 38, 58: of padded rows of labels, too."""
    anchors = servers[1].get_node_ids(None, "user")[:2]
    foreign = servers[2].get_node_ids(None, "item")[:1]
    spec = ABLPSpec(neighbors=NeighborSpec(num_neighbors=(1,)), supervision=(BUYS,))
    columns = {"positive/0": np.array([[-1], [foreign[0]]])}
    given = SamplerInput(ids=anchors, node_type="user", columns=columns)
    with pytest.raises(ValueError, match=r"'positive/0'\]\[0\] is \d+, which is in part 2"):
        channel(servers[1], backend(servers[1], "g", spec), given)


def test_negatives_are_nodes_of_the_part(servers: list[AnyServer], parts: list[Graph]) -> None:
    """Nodes of other parts have no rows here, and are not drawn."""
    for number, (server, part) in enumerate(zip(servers, parts, strict=True)):
        ends = part.within().edge_index(BUYS)
        spec = LinkSpec(neighbors=WHOLE, negatives="binary", amount=5.0)
        given = SamplerInput(ids=ends, edge_type=BUYS)
        made = backend(server, f"n{number}", spec)
        opened = channel(server, made, given, channel_options={"batch_size": 99})
        (message,) = messages(server, opened)
        for name in ("user", "item"):
            assert set(message[f"{name}/n_id"].tolist()) <= set(part.node_ids(name).tolist())
        server.destroy_sampling_input(opened)


@pytest.mark.parametrize("way", ["in process", "as bytes"])
def test_a_lone_part_refuses_to_be_sampled_as_if_it_were_all(parts: list[Graph], way: str) -> None:
    """CONTRACT 69: it answers questions, and gives no batch with fewer neighbours."""
    with reached(way, parts[0], num_workers=0) as (server, _):
        assert server.get_node_ids("train", "user").tolist()
        with pytest.raises(ValueError, match=r"part 0 of 3: neighbours .* part_only=True"):
            backend(server, "r", WHOLE)


def test_the_only_part_of_a_graph_is_sampled_like_the_graph(graph: Graph, tmp_path: Path) -> None:
    (path,) = graph.partition(1, tmp_path / "parts")
    told = []
    with Graph.open(path) as part:
        for data in (graph, part):
            with DistServer(data, num_workers=0) as server:
                given = SamplerInput(split="train", node_type="user")
                number = channel(server, backend(server, "o", WHOLE), given)
                told.append([message["user/n_id"].tolist() for message in messages(server, number)])
    assert told[0] == told[1]


def test_a_folder_is_told_what_to_open(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a graph, or a part of one: give Graph.open"):
        DistServer(str(tmp_path))  # type: ignore[arg-type]


def test_labels_lie_where_both_ends_do(servers: list[AnyServer], graph: Graph) -> None:
    """CONTRACT 37: of a part, those labels whose ends it has."""
    sources, destinations = graph.edge_index(RIGHT)
    wanted = set(zip(sources.tolist(), destinations.tolist(), strict=True))
    for server in servers:
        anchors, right, _ = server.get_ablp_input(None, "user", BUYS)
        here = {
            (int(a), int(each)) for a, row in _pair(anchors, right) for each in row if each >= 0
        }
        assert here <= wanted
        mine = set(server.get_node_ids(None, "item").tolist())
        assert here == {(a, b) for a, b in wanted if a in set(anchors.tolist()) and b in mine}


def _pair(left: Any, right: Any) -> Any:
    return zip(left, right, strict=True)


def _pairs(sizes: Any) -> Any:
    return ((each.name, each.num) for each in sizes)
