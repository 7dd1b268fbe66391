"""Ids of users in a store and at servers: looked up in all parts, and told of all nodes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import GraphFormatError
from penstock.graph import Graph
from penstock.kernels.id_table import Text
from penstock.store.answers import PartAnswers
from penstock.wire.requests import ExternalIds
from tests.graph.named_graphs import NAMES, NUMBERS, USERS, shop, tells_ids
from tests.store.cuts import Cut, far_parts, in_parts
from tests.store.loading import torch

pytestmark = pytest.mark.usefixtures("no_leaks_in_all")


@pytest.mark.parametrize("most_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("method", ["range", "hash"])
def test_a_store_asks_its_parts_in_pieces(method: str, most_bytes: int) -> None:
    """CONTRACT 78: however few bytes an answer may have."""
    cut = Cut(3, method, "destination", "parts")
    with shop() as graph, in_parts(graph, cut, far_parts(most_bytes)) as parts:
        tells_ids(parts)
        assert parts.id_kind("shelf") is None
        with pytest.raises(ValueError, match=r"ids\[1\] is 'x', an id that no 'user' node has"):
            parts.lookup("user", [NAMES[0], "x"])
        with pytest.raises(ValueError, match=r"ids\[0\] is 1, and the ids of 'user' nodes are str"):
            parts.lookup("user", [1])
        with pytest.raises(ValueError, match="the 'shelf' nodes of this graph have no ids"):
            parts.ids("shelf")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The same graph at a server, here and as if far away, and in two parts."""
    with ExitStack() as stack:
        graph = stack.enter_context(shop())
        parts = graph.partition(2, tmp_path_factory.mktemp("ids") / "parts", "hash")
        server = stack.enter_context(ps.serve(graph, num_workers=1))
        one = stack.enter_context(ps.serve(parts[0], num_workers=1))
        other = stack.enter_context(ps.serve(parts[1], store=[one.address], num_workers=1))
        yield {
            "here": stack.enter_context(ps.connect(server.address)),
            "far": stack.enter_context(ps.connect(server.address, same_host=False)),
            "store": stack.enter_context(ps.connect([one.address, other.address], num_workers=0)),
            "part": stack.enter_context(ps.connect(one.address, part_only=True, same_host=False)),
        }


every_way = pytest.mark.parametrize("way", ["here", "far", "store"])


@every_way
def test_data_at_servers_know_the_ids(data: dict[str, Any], way: str, monkeypatch: Any) -> None:
    """CONTRACT 78: on a server and a store, in pieces."""
    monkeypatch.setattr("penstock.client.remote.remote_graph._IDS_AT_ONCE", 7)
    monkeypatch.setattr("penstock.store.graph._IDS_AT_ONCE", 7)
    tells_ids(data[way])
    tells_ids(data[way].graph)
    assert data[way].lookup("user", NAMES[3:4]).dtype == torch.int64


@every_way
def test_loaders_of_data_at_servers_take_ids_and_tell_them(data: dict[str, Any], way: str) -> None:
    """CONTRACT 78."""
    wanted = [NAMES[9], NAMES[2]]
    with ps.NeighborLoader(data[way], [3], ("user", wanted), batch_size=2, seed=1) as loader:
        (batch,) = loader
        assert batch["user"].n_id[:2].tolist() == [9, 2]
        told = data[way].names(batch)
        assert told["user"][:2].tolist() == wanted
        assert told["item"].tolist() == [NUMBERS[node] for node in batch["item"].n_id.tolist()]


@every_way
def test_an_unknown_input_is_named_before_anything_is_sampled(
    data: dict[str, Any], way: str
) -> None:
    with pytest.raises(ValueError, match=r"input_nodes\[1\] is 'x', an id that no 'user' node"):
        ps.NeighborLoader(data[way], [3], ("user", [NAMES[0], "x"]))


def test_a_server_of_a_part_knows_its_own_nodes(data: dict[str, Any]) -> None:
    part = data["part"]
    nodes = part.get_node_ids(node_type="user").tolist()
    assert 0 < len(nodes) < USERS
    assert part.ids("user").tolist() == [NAMES[node] for node in nodes]
    assert part.lookup("user", [NAMES[nodes[1]]]).tolist() == [nodes[1]]
    foreign = next(node for node in range(USERS) if node not in nodes)
    with pytest.raises(ValueError, match=r"an id that no 'user' node has in part 0 of 2"):
        part.lookup("user", [NAMES[foreign]])
    with pytest.raises(ValueError, match=rf"index\[0\] is {foreign}, which is in part 1"):
        part.ids("user", [foreign])


@every_way
def test_servers_are_asked_for_ids_as_they_are_stored(data: dict[str, Any], way: str) -> None:
    server = data[way].server
    found = server.get_external_ids("user", [3, 1])
    assert found.together().strings() == [NAMES[3], NAMES[1]]
    wanted = ExternalIds.of(Text.of([NAMES[4], "x"]))
    assert server.look_up_ids("user", wanted).tolist() == [4, -1]
    assert data[way].get_external_ids("item", [2]).together().tolist() == [NUMBERS[2]]


@every_way
def test_wrong_calls_are_refused_in_words(data: dict[str, Any], way: str) -> None:
    server = data[way].server
    numbers = ExternalIds(keys=np.array([1]))
    with pytest.raises(ValueError, match=r"ids\[0\] is 1, and the ids of 'user' nodes are strings"):
        server.look_up_ids("user", numbers)
    with pytest.raises(ValueError, match="ids are keys, or offsets and text"):
        server.look_up_ids("user", ExternalIds())
    with pytest.raises(ValueError, match="offsets must be int64"):
        server.look_up_ids("user", ExternalIds(offsets=np.zeros(2), text=np.zeros(1, np.uint8)))
    outside = ExternalIds(offsets=np.array([0, 2**40]), text=np.zeros(1, np.uint8))
    with pytest.raises(GraphFormatError, match="damaged text: key 0"):
        server.look_up_ids("user", outside)
    with pytest.raises(ValueError, match=r"ids\[0\] is 99; expected 0 <= id < 40"):
        server.get_external_ids("user", [99])
    with pytest.raises(ValueError, match="the 'shelf' nodes of this graph have no ids"):
        server.get_external_ids("shelf")


def test_an_answer_that_is_too_large_names_the_setting() -> None:
    with shop() as graph:
        queries = ps.DistServer(graph, num_workers=0, limits=ps.Limits(max_answer_bytes=100))
        for use in (
            lambda: queries.get_external_ids("item"),
            lambda: queries.get_external_ids("user", list(range(12))),
            lambda: queries.look_up_ids("item", ExternalIds(keys=np.arange(13))),
        ):
            with pytest.raises(ValueError, match=r"the most is 100 \(setting: max_answer_bytes\)"):
                use()


def test_a_long_id_takes_no_more_than_an_answer_however_often_it_is_asked_for() -> None:
    """CONTRACT 73: an answer that was too large, or was cut short, was made as a whole first."""
    often = [0] * 1000
    with Graph.from_coo([[0], [1]], node_ids=["x" * 100_000, "y"]) as graph:
        limits = ps.Limits(max_answer_bytes=200_000)
        queries = ps.DistServer(graph, num_workers=0, limits=limits)
        answers = PartAnswers(graph, 200_000)
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="has 100000000 bytes, and the most is 200000"):
                queries.get_external_ids(index=often)
            assert len(answers.get_ids_share("", often).together()) == 2
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()


def test_requests_with_strings_are_refused_in_words(data: dict[str, Any]) -> None:
    request = ps.RegisterBackendRequest(
        backend_id=0, worker_key="w", sampler_input=ps.SamplerInput(ids=["a"], node_type="user")
    )
    with pytest.raises(ValueError, match=r"sampler_input.ids are \['a'\]; expected numbers of nod"):
        data["far"].server.register_sampling_input(request)


def test_a_store_in_this_process_is_pickled_with_its_ids(tmp_path: Path) -> None:
    from penstock.store.handles import open_parts

    with shop() as graph:
        paths = [str(path) for path in graph.partition(2, tmp_path / "parts")]
    with open_parts(paths) as parts:
        tells_ids(parts)
        assert isinstance(parts, Graph)
