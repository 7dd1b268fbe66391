"""Bad calls, each of which names the argument, the value and the choices, and what was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import penstock as ps
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.errors import suggestion
from tests.loader.epochs import Data, HeteroData, torch

BUYS, BOUGHT = ("user", "buys", "item"), ("item", "bought_by", "user")
TYPO = ("user", "buy", "item")


def plain() -> Any:
    edges = torch.arange(19).repeat(2, 1)
    return Data(x=torch.zeros(20, 2), edge_index=edges, time=torch.arange(20), w=torch.ones(19))


def typed() -> Any:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.zeros(10, 2), torch.zeros(5, 2)
    data[BUYS].edge_index = data[BOUGHT].edge_index = torch.arange(5).repeat(2, 1)
    return data


def graph() -> ps.Graph:
    return ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])


def nodes(**given: Any) -> Any:
    return ps.NeighborLoader(plain(), **{"num_neighbors": [2], **given})


def of_types(**given: Any) -> Any:
    common = {"num_neighbors": [2], "input_nodes": "user", **given}
    return ps.NeighborLoader(typed(), **common)


def links(data: Any = None, **given: Any) -> Any:
    return ps.LinkNeighborLoader(data or plain(), **{"num_neighbors": [2], **given})


def anchors(**given: Any) -> Any:
    labels = torch.zeros(20, 1, dtype=torch.long)
    return ps.ABLPLoader(plain(), [2], **{"positive": labels, **given})


def registered(**given: Any) -> None:
    spec = ps.NeighborSpec(num_neighbors=(2,))
    with ps.SharedDistSamplingBackend(graph(), spec, num_workers=0) as backend:
        backend.register_input("one", **{"sampler_input": "train", "batch_size": 1, **given})


def sampled(spec: Any, of: Any = graph) -> None:
    with ps.SharedDistSamplingBackend(of(), spec, num_workers=0):
        pass


def from_typed() -> ps.Graph:
    return ps.Graph.from_pyg(typed())


def asked(**given: Any) -> None:
    """Ask as a client does, whose arguments are checked before anything is sent."""
    RemoteDistServer.__new__(RemoteDistServer).get_node_ids(**given)


class Bad(NamedTuple):
    """A call, and what its error has to say. `meant`: what the user is asked about."""

    call: Callable[[], Any]
    says: tuple[str, ...]
    meant: Any = None
    error: type[Exception] = ValueError


def bad(call: Callable[[], Any], *says: str, meant: Any = None, error: Any = ValueError) -> Bad:
    return Bad(call, says, meant, error)


OUT_OF_RANGE = torch.tensor([0, 25, 30])
CALLS: dict[str, Bad] = {
    # options of loaders
    "a seed": bad(lambda: nodes(seed="x"), "seed is 'x'", "an integer, 0 <= seed < 1844674407"),
    "a seed with a fraction": bad(lambda: nodes(seed=1.5), "seed is 1.5", "an integer"),
    "a remainder": bad(
        lambda: nodes(remainder="wrp"), "remainder is 'wrp'", "'wrap' or 'drop'", meant="wrap"
    ),
    "what to do": bad(
        lambda: nodes(on_error="substitue"),
        "on_error is 'substitue'",
        "'raise' or",
        meant="substitute",
    ),
    "a number of workers": bad(lambda: nodes(num_workers="two"), "num_workers is 'two'", "'auto'"),
    "workers as a word": bad(
        lambda: nodes(num_workers="autp"), "num_workers is 'autp'", meant="auto"
    ),
    "a way to start": bad(
        lambda: nodes(multiprocessing_context="spwan"), "context is 'spwan'", "'forkserver'"
    ),
    "a limit of time": bad(lambda: nodes(timeout="soon"), "timeout", "'soon'", "seconds"),
    "a generator": bad(lambda: nodes(generator=3), "generator is 3", "torch.Generator"),
    "a sampler": bad(lambda: nodes(sampler=3), "sampler is 3", "positions"),
    "a sampler of batches": bad(lambda: nodes(batch_sampler=3), "batch_sampler is 3", "positions"),
    "a weight": bad(lambda: nodes(weight=0), "weight is 0", "0.0001 to 10000"),
    "a size": bad(lambda: nodes(max_batch_bytes="64XB"), "max_batch_bytes is '64XB'", "'64MB'"),
    "an option": bad(
        lambda: nodes(num_worker=1), "'num_worker'", meant="num_workers", error=TypeError
    ),
    "an argument": bad(
        lambda: nodes(input_node=[1]), "'input_node'", meant="input_nodes", error=TypeError
    ),
    "a transform": bad(lambda: nodes(transform=3), "transform is 3", "a function", error=TypeError),
    # how to sample
    "fan-outs": bad(lambda: nodes(num_neighbors=[2, -2]), "num_neighbors[1] is -2", "-1 (all)"),
    "fan-outs of a type": bad(
        lambda: of_types(num_neighbors={TYPO: [2], BOUGHT: [2]}),
        repr(TYPO),
        repr(BOUGHT),
        meant=BUYS,
    ),
    "a subgraph": bad(
        lambda: nodes(subgraph_type="induce"),
        "subgraph_type is 'induce'",
        "'directional'",
        meant="induced",
    ),
    "a strategy": bad(
        lambda: nodes(temporal_strategy="unifrom"),
        "temporal_strategy is 'unifrom'",
        "'last'",
        meant="uniform",
    ),
    "a direction": bad(
        lambda: nodes(edge_dir="inn"), "edge_dir is 'inn'", "'in' or 'out'", meant="in"
    ),
    "a yes": bad(lambda: nodes(replace="yes"), "replace is 'yes'", "True or False"),
    "labels walked": bad(
        lambda: ps.HGTLoader(typed(), [3], input_nodes="user", walk_labels="no"),  # type: ignore[arg-type]
        "walk_labels is 'no'",
        "True or False",
    ),
    "a no": bad(lambda: nodes(disjoint="no"), "disjoint is 'no'", "True or False"),
    "times": bad(lambda: nodes(time_attr="tme"), "'tme'", "'x', 'time'", meant="time"),
    "weights": bad(
        lambda: nodes(weight_attr="ww"), "weight_attr is 'ww'", meant="w", error=KeyError
    ),
    "samples of a type": bad(
        lambda: ps.HGTLoader(typed(), {"usr": [3], "item": [3]}, input_nodes="user"),
        "num_samples names node type 'usr'",
        "'user', 'item'",
        meant="user",
    ),
    # inputs
    "ids": bad(lambda: nodes(input_nodes=OUT_OF_RANGE), "input_nodes[1] is 25", "0 <= id < 20"),
    "ids below": bad(lambda: nodes(input_nodes=[3, -1]), "input_nodes[1] is -1", "0 <= id < 20"),
    "ids of a type": bad(
        lambda: of_types(input_nodes=("item", [1, 7])), "input_nodes[1] is 7", "0 <= id < 5"
    ),
    "a node type": bad(
        lambda: of_types(input_nodes="usr"),
        "input_nodes has node type 'usr'",
        "'user', 'item'",
        meant="user",
    ),
    "a split": bad(
        lambda: ps.NeighborLoader(graph(), [2], "trian"),
        "input_nodes is 'trian'",
        "there are: 'train'",
        meant="train",
    ),
    "times as text": bad(
        lambda: nodes(input_nodes=[1], input_time=["2024-05-01"], time_attr="time"),
        "input_time is ['2024-05-01']",
        "or dates",
    ),
    "ends": bad(
        lambda: links(edge_label_index=torch.tensor([[0, 3], [1, 25]])),
        "edge_label_index[1][1] is 25",
        "0 <= id < 20",
    ),
    "an edge type": bad(
        lambda: links(typed(), edge_label_index=TYPO), repr(TYPO), repr(BOUGHT), meant=BUYS
    ),
    "a place": bad(
        lambda: nodes()([3, 20]), "index[1] is 20", "-20 <= place < 20", error=IndexError
    ),
    "anchors": bad(lambda: anchors(anchors=[1, 25]), "anchors[1] is 25", "0 <= id < 20"),
    "labels": bad(
        lambda: anchors(positive=torch.full((20, 1), 33)), "positive[0, 0] is 33", "0 <= id < 20"
    ),
    "an edge type of labels": bad(
        lambda: ps.ABLPLoader(typed(), [2], supervision=BUYS, positive=TYPO),
        f"positive[0] is {TYPO!r}",
        repr(BOUGHT),
        meant=BUYS,
    ),
    "an edge type to predict": bad(
        lambda: ps.ABLPLoader(typed(), [2], supervision=TYPO),
        f"no positive labels of {TYPO!r}",
        meant=BUYS,
    ),
    "no sampler": bad(
        lambda: ps.CustomLoader(plain(), 3),  # type: ignore[call-overload]
        "custom_sampler is 3",
        "module:Class",
    ),
    "a sampler of a module": bad(
        lambda: ps.CustomLoader(plain(), "fractions:Fracton"),
        "has no 'Fracton'",
        meant="Fraction",
        error=ps.SamplingError,
    ),
    # negatives
    "a mode": bad(
        lambda: links(neg_sampling="binry"),
        "the mode of neg_sampling is 'binry'",
        "'triplet'",
        meant="binary",
    ),
    "a mode in a dict": bad(
        lambda: links(neg_sampling={"mode": "triplett"}),
        "'triplett'",
        "'binary' or",
        meant="triplet",
    ),
    "a name in a dict": bad(
        lambda: links(neg_sampling={"mod": "binary"}),
        "neg_sampling has 'mod'",
        "amount",
        meant="mode",
        error=TypeError,
    ),
    "no mode": bad(lambda: links(neg_sampling=3), "the mode of neg_sampling is 3", "'binary' or"),
    "a ratio": bad(
        lambda: links(neg_sampling_ratio=-1.0), "neg_sampling_ratio has the amount -1.0", "positive"
    ),
    "a ratio in words": bad(
        lambda: links(neg_sampling_ratio="one"),
        "neg_sampling_ratio has the amount 'one'",
        "a number",
        error=TypeError,
    ),
    "what to leave out": bad(
        lambda: links(exclude="revers"), "exclude is 'revers'", "'self' or", meant="reverse"
    ),
    "strictness": bad(lambda: links(strict="yes"), "strict is 'yes'", "True or False"),
    "half a negative": bad(
        lambda: links(neg_sampling=("triplet", 1.5)), "neg_sampling has the amount 1.5", "integer"
    ),
    # channels
    "a channel's seed": bad(lambda: registered(seed="x"), "seed is 'x'", "an integer"),
    "a channel's rank": bad(lambda: registered(rank=5), "rank is 5", "0 <= rank < 1"),
    "a channel's slots": bad(lambda: registered(slots=0), "slots is 0", "1 to 1024"),
    "a channel's errors": bad(
        lambda: registered(on_error="rise"), "on_error is 'rise'", "'substitute'", meant="raise"
    ),
    "a channel's option": bad(
        lambda: registered(bach_size=3), "'bach_size'", "slots", meant="batch_size", error=TypeError
    ),
    "a channel's split": bad(lambda: registered(sampler_input="trian"), "'trian'", meant="train"),
    "a channel's ids": bad(
        lambda: registered(sampler_input=[0, 5]), "sampler_input[1] is 5", "0 <= id < 3"
    ),
    # specs
    "a spec's subgraph": bad(
        lambda: sampled(ps.NeighborSpec(num_neighbors=(1,), subgraph_type="induce")),  # type: ignore[arg-type]
        "subgraph_type is 'induce'",
        "'directional'",
        meant="induced",
    ),
    "a spec's strategy": bad(
        lambda: sampled(ps.NeighborSpec(num_neighbors=(1,), temporal_strategy="lst")),  # type: ignore[arg-type]
        "temporal_strategy is 'lst'",
        "'uniform'",
        meant="last",
    ),
    "a spec's negatives": bad(
        lambda: sampled(
            ps.LinkSpec(neighbors=ps.NeighborSpec(num_neighbors=(1,)), negatives="binry")
        ),  # type: ignore[arg-type]
        "negatives is 'binry'",
        "'none'",
        meant="binary",
    ),
    "a spec's edge type": bad(
        lambda: sampled(ps.NeighborSpec(by_type=((TYPO, (1,)), (BOUGHT, (1,)))), from_typed),
        repr(TYPO),
        repr(BOUGHT),
        meant=BUYS,
    ),
    "a spec's node type": bad(
        lambda: sampled(ps.HGTSpec(by_type=(("usr", (1,)), ("item", (1,)))), from_typed),
        "'usr'",
        "'user', 'item'",
        meant="user",
    ),
    "a path": bad(
        lambda: sampled(ps.WalkSpec(walk_length=1, path=(TYPO,)), from_typed),
        f"path[0] is {TYPO!r}",
        meant=BUYS,
    ),
    # graphs
    "progress": bad(
        lambda: ps.Graph.from_coo([[0], [1]], num_nodes=3, progress="no"),  # type: ignore[arg-type]
        "progress is 'no'",
        "True, False, None",
    ),
    "an edge": bad(
        lambda: ps.Graph.from_coo([[0, 1, 7], [1, 2, 0]], num_nodes=3),
        "edge_index[0][2] is 7",
        "0 <= id < 3",
    ),
    "a number of nodes": bad(
        lambda: ps.Graph.from_coo([[0], [1]], num_nodes=-3), "num_nodes is -3"
    ),
    "rows": bad(
        lambda: ps.Graph.from_coo([[0], [1]], num_nodes=3, x=np.zeros((2, 2))),
        "x has 2 rows",
        "expected 3",
    ),
    "a type of a graph": bad(
        lambda: from_typed().csc(TYPO), f"edge_type is {TYPO!r}", repr(BOUGHT), meant=BUYS
    ),
    "a split of a graph": bad(lambda: graph().split("trian"), "'trian'", "'train'", meant="train"),
    "no graph": bad(lambda: ps.serve(3), "data is 3", "a Graph"),  # type: ignore[arg-type]
    # hubs and servers
    "a hub among several addresses": bad(
        lambda: ps.connect(["tcp://a:1", "unix://@b"]), "address is 'unix://@b'", "tcp://host:port"
    ),
    "an address that is no text": bad(
        lambda: ps.connect([7]),  # type: ignore[list-item]
        "address is 7",
        "as text",
    ),
    "no address": bad(lambda: ps.connect("somewhere"), "address is 'somewhere'", "tcp://host:port"),
    "another scheme": bad(
        lambda: ps.connect("tpc://host:1"), "address is 'tpc://host:1'", "unix://", meant="tcp"
    ),
    "an option of connect": bad(
        lambda: ps.connect("tcp://host:1", timeot=1),  # type: ignore[call-overload]
        "'timeot'",
        meant="timeout",
        error=TypeError,
    ),
    "an option of serve": bad(
        lambda: ps.serve(graph(), num_worker=1),  # type: ignore[call-arg]
        "'num_worker'",
        "max_batches",
        meant="num_workers",
        error=TypeError,
    ),
    "an argument of serve": bad(
        lambda: ps.serve(graph(), limit=3),  # type: ignore[call-arg]
        "'limit'",
        "tokens",
        meant="limits",
        error=TypeError,
    ),
    "an argument of a server": bad(
        lambda: ps.DistServer(graph(), log_every=3),  # type: ignore[call-arg]
        "'log_every'",
        "max_backends",
        meant="log_every_n",
        error=TypeError,
    ),
    "samplers of serve": bad(
        lambda: ps.serve(graph(), samplers="module:Class"),
        "samplers is 'module:Class'",
        "['module:Class']",
    ),
    "samplers of a server": bad(
        lambda: ps.DistServer(graph(), samplers="module:Class"), "samplers is 'module:Class'"
    ),
    "an argument of a call": bad(
        lambda: asked(spilt="train"),
        "get_node_ids: ",
        "'spilt'",
        "it takes split, node_type",
        meant="split",
        error=TypeError,
    ),
    "workers of serve": bad(
        lambda: ps.serve(graph(), num_workers=-1), "num_workers is -1", "'auto'"
    ),
    "limits": bad(lambda: ps.serve(graph(), limits={}), "limits is {}", "Limits"),  # type: ignore[arg-type]
    "an option of a hub": bad(
        lambda: ps.HubProcess(graph(), num_worker=1),  # type: ignore[call-arg]
        "'num_worker'",
        meant="num_workers",
        error=TypeError,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_call_is_told_what_is_wrong_and_what_would_be_right(name: str) -> None:
    call = CALLS[name]
    with pytest.raises(call.error) as caught:
        call.call()
    said = str(caught.value)
    assert [each for each in call.says if each not in said] == [], said
    assert ("did you mean" in said) == (call.meant is not None), said
    if call.meant is not None:
        assert f"; did you mean {call.meant!r}?" in said


def test_only_what_is_close_is_suggested() -> None:
    assert suggestion("wrp", ["wrap", "drop"]) == "; did you mean 'wrap'?"
    assert suggestion("Wrap", ["wrap", "drop"]) == "; did you mean 'wrap'?"
    assert suggestion(TYPO, [BOUGHT, BUYS]) == f"; did you mean {BUYS!r}?"
    assert suggestion(3, ["wrap", "drop"]) == suggestion("wrap", []) == ""


def test_the_options_of_connect_are_all_known() -> None:
    from penstock.loader.source.remote_dataset import ConnectKeywords

    assert set(ps._CONNECTING) == set(ConnectKeywords.__annotations__)
