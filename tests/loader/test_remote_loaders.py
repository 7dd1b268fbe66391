"""Loaders over a server: the batches are those of a loader that has the graph itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph import Graph
from penstock.server.serving import Server, serve
from penstock.testing.digests import digest_of
from tests.loader.epochs import torch
from tests.loader.servers import BUYS, ITEMS, NODES, TRAIN, USERS, plain_graph, typed_graph

WAYS = ("by TCP", "by shared memory")
OPTIONS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3}


@dataclass(frozen=True)
class Shop:
    """A server, and its graph, which nobody else here has."""

    graph: Graph
    server: Server
    ways: dict[str, Any]


@pytest.fixture(scope="module")
def shops() -> Iterator[dict[str, Shop]]:
    with ExitStack() as stack:
        yield {"plain": _opened(stack, plain_graph()), "typed": _opened(stack, typed_graph())}


@pytest.fixture(scope="module")
def plain(shops: dict[str, Shop]) -> Shop:
    return shops["plain"]


def _opened(stack: ExitStack, graph: Graph) -> Shop:
    stack.enter_context(graph)
    server = stack.enter_context(serve(graph, num_workers=2))
    far = stack.enter_context(ps.connect(server.address, same_host=False))
    near = stack.enter_context(ps.connect(server.address))
    return Shop(graph, server, dict(zip(WAYS, (far, near), strict=True)))


def mask() -> Any:
    return torch.arange(NODES) % 3 == 0


def rows() -> Any:
    return torch.arange(USERS).view(-1, 1) % ITEMS


# Each makes a loader of whatever `data` is.
Make = Callable[..., Any]
OF_PLAIN: dict[str, Make] = {
    "neighbours of a split": lambda data: ps.NeighborLoader(data, [4, 3], "train", **OPTIONS),
    "neighbours of all": lambda data: ps.NeighborLoader(data, [4, 3], **OPTIONS),
    "neighbours of ids": lambda data: ps.NeighborLoader(data, [4, 3], range(90), **OPTIONS),
    "neighbours of a mask": lambda data: ps.NeighborLoader(data, [4, 3], mask(), **OPTIONS),
    "neighbours by weight": lambda data: ps.NeighborLoader(
        data, [4, 3], "train", weight_attr="edge_weight", **OPTIONS
    ),
    "neighbours in time": lambda data: ps.NeighborLoader(
        data, [4, 3], "train", torch.arange(TRAIN), time_attr="time", **OPTIONS
    ),
    "neighbours with all between": lambda data: ps.NeighborLoader(
        data, [4, 3], "train", subgraph_type="induced", **OPTIONS
    ),
    "rows joined here": lambda data: ps.NeighborLoader(
        data, [4, 3], "train", transform_sampler_output=lambda out: out, **OPTIONS
    ),
    "an order of its own": lambda data: ps.NeighborLoader(
        data, [4, 3], "train", sampler=list(range(TRAIN))[::-1], batch_size=16, seed=3
    ),
    "links that are all": lambda data: ps.LinkNeighborLoader(
        data, [3, 2], neg_sampling="binary", **(OPTIONS | {"batch_size": 256})
    ),
    "links with labels": lambda data: ps.LinkNeighborLoader(
        data, [3, 2], torch.arange(60).view(2, 30), torch.arange(30), **OPTIONS
    ),
    "links in triplets": lambda data: ps.LinkNeighborLoader(
        data, [3, 2], torch.arange(60).view(2, 30), neg_sampling="triplet", **OPTIONS
    ),
    "page rank": lambda data: ps.PPRLoader(data, "train", **OPTIONS),
    "labels beside anchors": lambda data: ps.ABLPLoader(
        data, [3, 2], "train", positive=torch.arange(TRAIN).view(-1, 1), **OPTIONS
    ),
    "labels beside anchors, page rank": lambda data: ps.ABLPLoader(
        data,
        None,
        "train",
        positive=torch.arange(TRAIN).view(-1, 1),
        sampler_options=ps.PPRSpec(max_ppr_nodes=5),
        **OPTIONS,
    ),
    "layers": lambda data: ps.HGTLoader(data, [8, 4], "train", **OPTIONS),
}
OF_TYPED: dict[str, Make] = {
    "typed neighbours of a split": lambda data: ps.NeighborLoader(
        data, [4, 3], ("user", "train"), **OPTIONS
    ),
    "typed neighbours of a type": lambda data: ps.NeighborLoader(data, [4, 3], "item", **OPTIONS),
    "typed links that are all": lambda data: ps.LinkNeighborLoader(
        data, [3, 2], BUYS, neg_sampling="triplet", **OPTIONS
    ),
    "typed layers": lambda data: ps.HGTLoader(data, [8, 4], ("user", "train"), **OPTIONS),
    "typed page rank": lambda data: ps.PPRLoader(data, ("user", "train"), **OPTIONS),
    "anchors of a split": lambda data: ps.ABLPLoader(
        data, [3, 2], "train", supervision=BUYS, **OPTIONS
    ),
    "anchors of a split, page rank": lambda data: ps.ABLPLoader(
        data,
        None,
        "train",
        supervision=BUYS,
        sampler_options=ps.PPRSpec(max_ppr_nodes=5),
        **OPTIONS,
    ),
    "anchors that are all": lambda data: ps.ABLPLoader(
        data, [3, 2], supervision=BUYS, positive=rows(), **OPTIONS
    ),
}


def digests(loader: Any) -> list[str]:
    with loader:
        return [digest_of(batch) for batch in loader]


@pytest.mark.parametrize("way", WAYS)
def test_two_iterators_of_a_loader_have_a_channel_each(plain: Shop, way: str) -> None:
    """CONTRACT 17: and none of them loses a batch to the other."""
    with (
        ps.NeighborLoader(plain.graph, [4, 3], "train", **OPTIONS) as own,
        ps.NeighborLoader(plain.ways[way], [4, 3], "train", **OPTIONS) as loader,
    ):
        pairs = [
            (digest_of(one), digest_of(other)) for one, other in zip(loader, loader, strict=True)
        ]
        first, second = ([digest_of(batch) for batch in own] for _ in range(2))
        assert pairs == list(zip(first, second, strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("of", "what"),
    [*(("plain", what) for what in OF_PLAIN), *(("typed", what) for what in OF_TYPED)],
)
def test_batches_are_those_of_a_loader_that_has_the_graph(
    shops: dict[str, Shop], of: str, what: str, way: str
) -> None:
    """CONTRACT 5, 58: whichever way they come."""
    shop, make = shops[of], (OF_PLAIN | OF_TYPED)[what]
    expected = digests(make(shop.graph))
    assert expected
    assert digests(make(shop.ways[way])) == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("of", "nodes"), [("plain", "train"), ("typed", ("user", "train"))])
def test_batches_out_of_turn_are_the_same(
    shops: dict[str, Shop], of: str, nodes: Any, way: str
) -> None:
    shop = shops[of]

    def made(data: Any) -> list[str]:
        with ps.NeighborLoader(data, [4, 3], nodes, **OPTIONS) as loader:
            return [digest_of(loader(index)) for index in ([0, 5, -1], [7], torch.arange(4))]

    assert made(shop.ways[way]) == made(shop.graph)


def everyday(data: Any, **options: Any) -> Any:
    return ps.NeighborLoader(data, [4, 3], **({"input_nodes": "train"} | OPTIONS | options))


def test_links_out_of_turn_are_the_same(plain: Shop) -> None:
    def made(data: Any) -> str:
        with ps.LinkNeighborLoader(data, [3], neg_sampling="binary", **OPTIONS) as loader:
            return digest_of(loader([3, 5, 900]))

    assert made(plain.ways["by TCP"]) == made(plain.graph)


def test_two_ranks_of_one_server_share_the_list(plain: Shop) -> None:
    """CONTRACT 6"""
    far = plain.ways["by TCP"]
    with (
        everyday(far, rank=0, world_size=2) as first,
        everyday(far, rank=1, world_size=2) as second,
    ):
        seen = [digest_of(batch) for pair in zip(first, second, strict=True) for batch in pair]
    assert seen == digests(everyday(plain.graph))


@pytest.mark.parametrize("way", ["by TCP", "by shared memory"])
def test_ranks_that_were_found_share_out_what_the_server_names(
    plain: Shop, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 6: ids that a rank brings are its own, and read whole."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    whole = digests(everyday(plain.graph, rank=0, world_size=1))
    ids = plain.graph.split("train")
    assert digests(everyday(plain.ways[way])) == whole[1::2] + whole[: len(whole) % 2]
    assert digests(everyday(plain.ways[way], input_nodes=ids)) == whole


def test_an_address_will_do_as_data(plain: Shop) -> None:
    assert digests(everyday(plain.server.address)) == digests(everyday(plain.graph))


def test_a_position_is_gone_on_with_from_elsewhere(plain: Shop) -> None:
    """CONTRACT 6"""
    whole = digests(everyday(plain.graph))
    with everyday(plain.ways["by TCP"]) as loader:
        reading = iter(loader)
        seen = [digest_of(next(reading)) for _ in range(4)]
        state = loader.state_dict()
    with everyday(plain.graph) as loader:
        loader.load_state_dict(state)
        assert seen + [digest_of(batch) for batch in loader] == whole


def test_epochs_go_on_and_back(plain: Shop) -> None:
    with everyday(plain.ways["by TCP"]) as far, everyday(plain.graph) as here:
        for epoch in (0, 1, 4, 2):
            far.set_epoch(epoch)
            here.set_epoch(epoch)
            assert [digest_of(batch) for batch in far] == [digest_of(batch) for batch in here]


def test_a_hoarder_keeps_every_batch_as_it_was(plain: Shop) -> None:
    with everyday(plain.ways["by TCP"], prefetch=1) as loader:
        held = list(loader)
        assert [digest_of(batch) for batch in held] == digests(everyday(plain.graph))


def test_batches_are_the_users_to_change(plain: Shop) -> None:
    with everyday(plain.ways["by TCP"]) as loader:
        for batch in loader:
            batch.x.zero_()
        assert [digest_of(batch) for batch in loader] != []


def test_statistics_are_those_of_the_channel_at_the_server(plain: Shop) -> None:
    """CONTRACT 57"""
    with everyday(plain.ways["by TCP"]) as loader:
        taken = sum(1 for _ in loader)
        seen = loader.statistics()
    assert seen.batches == taken
    assert seen.num_workers == 2
    assert seen.waits.sampling > 0
    assert seen.waits.turn > 0
    assert seen.restarts_of_hub == 0


def test_a_loader_can_be_watched_and_reweighed(plain: Shop, capsys: Any) -> None:
    with everyday(plain.ways["by TCP"]) as loader, loader.watch():
        loader.reweigh(2.0)
        assert sum(1 for _ in loader) == len(loader)


def test_batches_of_unequal_sizes_are_refused_with_advice(plain: Shop) -> None:
    batches = [[0, 1], [2], [3, 4, 5]]
    loader = ps.NeighborLoader(plain.ways["by TCP"], [4], "train", batch_sampler=batches)
    with loader, pytest.raises(ValueError, match="unequal sizes"):
        next(iter(loader))


def test_no_workers_here_is_refused_with_advice(plain: Shop) -> None:
    with pytest.raises(ValueError, match=r"num_workers is 0, but the graph is at tcp://"):
        everyday(plain.ways["by TCP"], num_workers=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"input_nodes": "exam"}, "there is no split called 'exam'; there are: 'train'"),
        ({"input_nodes": [NODES]}, rf"input_nodes\[0\] is {NODES}; expected 0 <= id < {NODES}"),
        ({"input_nodes": "train", "weight_attr": "heft"}, "heft"),
    ],
    ids=["split", "id", "attribute"],
)
def test_wrong_arguments_are_refused_before_anything_travels(
    plain: Shop, arguments: dict[str, Any], words: str
) -> None:
    """As for a loader that has the graph, in the same words."""
    told = []
    for data in (plain.graph, plain.ways["by TCP"]):
        with pytest.raises((ValueError, KeyError), match=words) as caught:
            ps.NeighborLoader(data, [4], **arguments)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_no_ids_travel_for_a_split(plain: Shop) -> None:
    """CONTRACT 58"""
    with everyday(plain.ways["by TCP"]) as loader:
        next(iter(loader))
        assert loader._inputs.ids is None
        inputs = loader._batches_from._channel.registration.inputs
        assert (inputs.ids, inputs.split, inputs.num) == (None, "train", TRAIN)
        assert np.array_equal(loader.input_data.node, plain.graph.split("train"))


def test_a_timeout_is_for_a_batch_and_does_not_lose_it(plain: Shop) -> None:
    with everyday(plain.ways["by TCP"], timeout=1e-6) as loader:
        reading = iter(loader)
        seen: list[str] = []
        late = 0
        while len(seen) < len(loader):
            try:
                seen.append(digest_of(next(reading)))
            except TimeoutError:
                late += 1
    assert late
    assert seen == digests(everyday(plain.graph))
