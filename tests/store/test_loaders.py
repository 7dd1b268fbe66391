"""Loaders of a store: every kind, its positions and splits, and all the ways to name the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph import Graph
from penstock.loader.source.remote_dataset import STORE_VARIABLE
from penstock.testing.digests import digest_of
from penstock.wire.transport.delay import VARIABLE as DELAY_VARIABLE
from tests.client.ranks import ROOT
from tests.loader.servers import BUYS, plain_graph, typed_graph
from tests.store.loading import WAYS, joined, torch
from tests.store.servers import StoreProcesses

pytestmark = pytest.mark.usefixtures("no_leaks_in_all")

every_way = pytest.mark.parametrize("way", WAYS)
TERMS: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 3}


def near(data: Any, **own: Any) -> Any:
    return ps.NeighborLoader(data, [4, 3], "train", **(TERMS | own))


PLAIN: dict[str, Callable[..., Any]] = {
    "neighbours": near,
    "of every node": lambda data, **own: ps.NeighborLoader(data, [2], **(TERMS | own)),
    "weighted": lambda data, **own: near(data, weight_attr="edge_weight", **own),
    "in time": lambda data, **own: near(data, time_attr="time", **own),
    "links": lambda data, **own: ps.LinkNeighborLoader(
        data, [3], neg_sampling="binary", **(TERMS | {"batch_size": 200} | own)
    ),
    "PPR": lambda data, **own: ps.PPRLoader(data, "train", max_ppr_nodes=8, **(TERMS | own)),
    "HGT": lambda data, **own: ps.HGTLoader(data, [6, 6], "train", **(TERMS | own)),
}
TYPED: dict[str, Callable[..., Any]] = {
    "neighbours": lambda data, **own: ps.NeighborLoader(
        data, [4, 3], ("user", "train"), **(TERMS | own)
    ),
    "links": lambda data, **own: ps.LinkNeighborLoader(
        data, [3], BUYS, neg_sampling="triplet", **(TERMS | own)
    ),
    "anchors": lambda data, **own: ps.ABLPLoader(
        data, [3], ("user", "train"), supervision=[BUYS], **(TERMS | own)
    ),
}


class Both:
    """A whole graph, and the store of its parts."""

    def __init__(self, whole: Graph, store: StoreProcesses) -> None:
        self.whole, self.store = whole, store


def served(make: Callable[[], Graph], folder: Path, parts: int, **cut: Any) -> Iterator[Both]:
    with make() as graph:
        paths = graph.partition(parts, folder / "parts", "hash", **cut)
        with StoreProcesses(paths) as store:
            yield Both(graph, store)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    yield from served(plain_graph, tmp_path_factory.mktemp("plain"), 2)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("typed")
    yield from served(typed_graph, folder, 2, topology="whole")


@pytest.fixture(scope="module")
def plain_data(plain: Both) -> Iterator[Any]:
    with joined(plain.store.addresses) as data:
        yield data


@pytest.fixture(scope="module")
def typed_data(typed: Both) -> Iterator[Any]:
    with joined(typed.store.addresses[0]) as data:
        yield data


def read(loader: Any, epochs: int = 2) -> list[str]:
    with loader:
        return [digest_of(batch) for _ in range(epochs) for batch in loader]


def how(way: str) -> dict[str, Any]:
    return {"num_workers": 0} if way == "inline" else {}


@every_way
@pytest.mark.parametrize("name", PLAIN)
def test_loaders_of_a_store_give_the_batches_of_the_whole(
    plain: Both, plain_data: Any, name: str, way: str
) -> None:
    """CONTRACT 65, 66: with all attributes, bfloat16 and those of the whole graph among them."""
    expected = read(PLAIN[name](plain.whole, num_workers=0), 1)
    assert read(PLAIN[name](plain_data, **how(way)), 1) == expected


@every_way
@pytest.mark.parametrize("name", TYPED)
def test_loaders_of_a_store_with_types_give_the_batches_of_the_whole(
    typed: Both, typed_data: Any, name: str, way: str
) -> None:
    """CONTRACT 65, 66: where every server has the whole topology."""
    expected = read(TYPED[name](typed.whole, num_workers=0))
    assert read(TYPED[name](typed_data, **how(way))) == expected


# --- positions and splits ------------------------------------------------------------------------


@every_way
def test_a_position_on_a_store_is_gone_on_with_on_the_whole(
    plain: Both, plain_data: Any, way: str
) -> None:
    """CONTRACT 5, 66: and the other way round; the list does not know who samples it."""
    expected = read(near(plain.whole, num_workers=0))
    half = len(expected) // 2
    sources = [(plain_data, how(way)), (plain.whole, {"num_workers": 0})]
    for (first, own), (second, other) in (sources, sources[::-1]):
        for taken in (0, 7, half + 4):
            with near(first, **own) as loader:
                reading = iter(loader)
                seen = [digest_of(batch) for batch in islice(reading, min(taken, half))]
                if taken > half:
                    assert next(reading, None) is None
                    seen += [digest_of(batch) for batch in islice(loader, taken - half)]
                state = json.loads(json.dumps(loader.state_dict()))
            with near(second, **other) as loader:
                loader.load_state_dict(state)
                rest = [digest_of(batch) for batch in loader]
                if taken < half:
                    rest += [digest_of(batch) for batch in loader]
            assert seen + rest == expected, taken


def test_a_split_by_name_is_that_of_the_whole(plain: Both, plain_data: Any) -> None:
    """CONTRACT 58, 66: its ids need not be named, and are in the order of the whole."""
    ids = plain.whole.split("train")
    assert plain_data.get_node_ids("train").tolist() == ids.tolist()
    by_name = read(near(plain_data, num_workers=0), 1)
    given = TERMS | {"num_workers": 0}
    by_ids = read(ps.NeighborLoader(plain_data, [4, 3], torch.from_numpy(ids.copy()), **given), 1)
    assert by_name == by_ids
    with pytest.raises(ValueError, match="'nobody'"):
        ps.NeighborLoader(plain_data, [4, 3], "nobody", **given)


def test_ranks_share_what_the_store_names(plain: Both, plain_data: Any) -> None:
    """CONTRACT 6, 66: rank r of W takes batches r, r + W, …; the list is that of the whole."""
    for epochs, world in ((1, 2), (1, 3)):
        whole = read(near(plain.whole, num_workers=0, rank=0, world_size=1), epochs)
        for rank in range(world):
            own: dict[str, Any] = {"rank": rank, "world_size": world}
            found = read(near(plain_data, num_workers=0, **own), epochs)
            assert found == read(near(plain.whole, num_workers=0, **own), epochs)
            assert found[: len(whole) // world] == whole[rank::world][: len(whole) // world]


# --- names of a store ----------------------------------------------------------------------------


def test_a_store_has_many_names(plain: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 66: one address, several in any order, with commas, or the environment's."""
    first, second = plain.store.addresses
    expected = read(near(plain.whole, num_workers=0), 1)
    monkeypatch.setenv(STORE_VARIABLE, f"{second}, {first}")
    local = first.replace("127.0.0.1", "localhost")
    for name in (first, second, [second, first], f"{first},{second}", None, local, [local, first]):
        with joined(name) as data:
            assert read(near(data, num_workers=0), 1) == expected
            assert set(data.address.split(",")) - {local} == {first, second}
            states = {each.address: each.state for each in data.servers.statistics().servers}
            assert list(states.values()).count("connected") == 2, states
            assert data.graph.num_parts == 2


def test_an_address_of_a_store_will_do_as_data(plain: Both) -> None:
    """CONTRACT 66: in a process of its own, since such data are kept for all loaders of one."""
    program = (
        "import sys, penstock as ps\n"
        "from penstock.testing.digests import digest_of\n"
        "with ps.NeighborLoader(sys.argv[1], [4, 3], 'train', batch_size=8, shuffle=True, seed=3,"
        " num_workers=0) as loader:\n"
        "    print(*[digest_of(batch) for batch in loader])\n"
    )
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, plain.store.addresses[1]],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert said.stdout.split() == read(near(plain.whole, num_workers=0), 1)


def test_a_delay_of_every_message_changes_no_byte(
    plain: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 65: two milliseconds each way, inline and by workers."""
    expected = read(near(plain.whole, num_workers=0), 1)
    monkeypatch.setenv(DELAY_VARIABLE, "2")
    folders = [server.folder for server in plain.store.servers]
    with StoreProcesses(folders) as slow, joined(slow.addresses) as data:
        for way in WAYS:
            assert read(near(data, **how(way)), 1) == expected


# --- what a store tells --------------------------------------------------------------------------


def test_a_store_tells_what_the_whole_tells(plain: Both, plain_data: Any) -> None:
    """CONTRACT 68: rows, labels, edges, books and slices over the network, as tensors."""
    whole, data = plain.whole, plain_data
    ids = np.array([299, 0, 7, 7, 150])
    for name in ("x", "y", "time", "half"):
        expected = whole.node_attribute(name)[ids]
        found = data.get_node_attribute(name, index=ids)
        if found.dtype is torch.bfloat16:
            found = found.view(torch.int16)
            expected = expected.view(np.int16)
        assert torch.equal(found, torch.from_numpy(expected.copy()))
    assert torch.equal(data.get_node_label(), torch.from_numpy(whole.node_attribute("y").copy()))
    edges = np.array([2399, 5, 5, 0])
    found = data.get_edge_attribute("edge_attr", index=edges)
    assert torch.equal(found, torch.from_numpy(whole.edge_attribute("edge_attr")[edges]))
    assert torch.equal(data.get_edge_index().long(), torch.from_numpy(whole.edge_index()))
    assert data.get_graph_attribute("names") == ["a", "b"]
    assert data.get_graph_attribute("whole").tolist() == list(range(7))
    assert (data.graph.num_nodes(), data.graph.num_edges()) == (300, 2400)
    assert data.get_tensor_size() == torch.Size([300, 6])
    meta = data.get_dataset_meta()
    assert meta.num_partitions == 2
    owners = data.get_node_partition_id(index=np.arange(300))
    recombined: list[int] = []
    for rank in range(3):
        for piece in ps.compute_server_assignments(2, 3, rank).values():
            recombined += data.get_node_ids("train", server_slice=piece).tolist()
    assert sorted(recombined) == sorted(whole.split("train").tolist())
    for part in range(2):
        mine = data.get_node_ids(server_slice=ps.ServerSlice(part))
        assert mine.tolist() == np.flatnonzero(owners.numpy() == part).tolist()


def test_anchors_of_a_store_have_all_their_labels(typed: Both, typed_data: Any) -> None:
    """CONTRACT 68: as many as the whole has; a server alone has those within its part."""
    with ps.serve(typed.whole, num_workers=1) as server, joined(server.address) as single:
        for split in (None, "train"):
            found = typed_data.get_ablp_input(split, "user", BUYS)
            expected = single.get_ablp_input(split, "user", BUYS)
            assert torch.equal(found.anchors, expected.anchors)
            assert torch.equal(found.positive, expected.positive)
            assert (found.negative is None) == (expected.negative is None)


def test_any_server_may_be_asked_for_its_own(plain: Both) -> None:
    """CONTRACT 68: alone it answers for its part, as before; together they are the whole."""
    found: list[int] = []
    for address in plain.store.addresses:
        with joined(address, part_only=True, same_host=False) as data:
            found += data.get_node_ids("train").tolist()
            assert data.get_dataset_meta().num_partitions == 2
    assert sorted(found) == sorted(plain.whole.split("train").tolist())
