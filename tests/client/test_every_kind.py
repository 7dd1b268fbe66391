"""Every kind of sampling, in this process and by a pool: the same bytes, whatever dies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.hub.hub_process import HubProcess
from penstock.graph import Graph
from penstock.sampling.labels import label_type
from penstock.sampling.spec import (
    ABLPSpec,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    Spec,
    SubgraphSpec,
    WalkSpec,
)
from tests.client.graphs import digests, pids_of_workers, read
from tests.leaks import Holdings, leaks_since
from tests.processes import strike, until

EDGE = ("", "", "")
CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
WRITTEN = ("paper", "written", "author")
NODES = 300
TERMS: dict[str, Any] = {"shuffle": True, "seed": 3}
HOPS = NeighborSpec(num_neighbors=(4, 3))
RNG = np.random.default_rng(1)


def plain_graph() -> Graph:
    rng = np.random.default_rng(8)
    return Graph.from_coo(
        rng.integers(0, NODES, (2, 8 * NODES)),
        NODES,
        x=rng.random((NODES, 5), np.float32),
        node_time=rng.integers(0, 1000, NODES),
        edge_weight=rng.random(8 * NODES),
        edge_time=rng.integers(0, 1000, 8 * NODES),
        train=rng.permutation(NODES)[:80],
    )


def typed_graph() -> Graph:
    rng = np.random.default_rng(9)
    papers, authors = NODES, 90

    def edges(sources: int, destinations: int, count: int) -> Any:
        ends = rng.integers(0, sources, count), rng.integers(0, destinations, count)
        return np.stack(ends)

    kinds = {
        CITES: edges(papers, papers, 1500),
        WRITES: edges(authors, papers, 900),
        WRITTEN: edges(papers, authors, 900),
        label_type(WRITES, "positive"): edges(authors, papers, 200),
        label_type(WRITES, "negative"): edges(authors, papers, 200),
    }
    return Graph.from_coo(
        kinds,
        {"paper": papers, "author": authors},
        x={"paper": rng.random((papers, 3), np.float32)},
        node_time={"paper": rng.integers(0, 1000, papers)},
        edge_weight={kind: rng.random(ends.shape[1]) for kind, ends in kinds.items()},
        train={"paper": np.arange(80), "author": np.arange(60)},
    )


@dataclass(frozen=True)
class Case:
    spec: Spec
    inputs: Any = "train"
    columns: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 16


TIMES = {"time": np.arange(80) * 12}
LABELS = {"positive/0": np.where(np.arange(320) % 3 == 0, -1, np.arange(320) % 290).reshape(80, 4)}
PAIRS = RNG.integers(0, 90, (2, 70))


def hops(**options: Any) -> NeighborSpec:
    return NeighborSpec(num_neighbors=(4, 3), **options)


PLAIN = {
    "uniform": Case(HOPS),
    "replace": Case(hops(replace=True)),
    "out": Case(hops(direction="out")),
    "disjoint": Case(hops(disjoint=True)),
    "bidirectional": Case(hops(subgraph_type="bidirectional")),
    "induced": Case(hops(subgraph_type="induced")),
    "weighted": Case(hops(weight_attr="edge_weight")),
    "weighted with replacement": Case(hops(weight_attr="edge_weight", replace=True)),
    "by time of nodes": Case(hops(time_attr="time")),
    "by time of nodes, last, given": Case(
        hops(time_attr="time", temporal_strategy="last"), columns=TIMES
    ),
    "by time of edges": Case(hops(time_attr="edge_time"), columns=TIMES),
    "links": Case(LinkSpec(neighbors=HOPS), PAIRS),
    "all links, binary": Case(
        LinkSpec(neighbors=HOPS, negatives="binary", amount=0.5), None, batch_size=400
    ),
    "links, triplet, strict": Case(
        LinkSpec(neighbors=HOPS, negatives="triplet", amount=2, strict=True), PAIRS
    ),
    "links with labels and weights": Case(
        LinkSpec(neighbors=HOPS, negatives="binary"),
        PAIRS,
        columns={"label": np.arange(70) % 4},
        tables={"src_weight": np.arange(NODES) % 7, "dst_weight": np.ones(NODES)},
    ),
    "links without themselves": Case(
        LinkSpec(neighbors=HOPS, negatives="binary", exclude="reverse"), None, batch_size=300
    ),
    "links by time": Case(
        LinkSpec(neighbors=hops(time_attr="time"), negatives="triplet"),
        PAIRS,
        columns={"time": np.arange(70) * 14},
    ),
    "subgraph": Case(SubgraphSpec(num_hops=1)),
    "ablp": Case(ABLPSpec(neighbors=HOPS, supervision=(EDGE,)), columns=LABELS),
    "ablp, ppr": Case(
        ABLPSpec(neighbors=PPRSpec(max_ppr_nodes=10), supervision=(EDGE,)), columns=LABELS
    ),
    "ppr": Case(PPRSpec(max_ppr_nodes=10)),
    "walks": Case(WalkSpec(walk_length=5)),
    "node2vec": Case(WalkSpec(walk_length=5, p=0.5, q=2.0)),
    "hgt": Case(HGTSpec(num_samples=(8, 8))),
}
TYPED = {
    "uniform": Case(HOPS, ("paper", "train")),
    "out": Case(hops(direction="out"), ("paper", "train")),
    "disjoint": Case(hops(disjoint=True), ("paper", "train")),
    "bidirectional": Case(hops(subgraph_type="bidirectional"), ("paper", "train")),
    "induced": Case(hops(subgraph_type="induced"), ("paper", "train")),
    "weighted": Case(hops(weight_attr="edge_weight"), ("paper", "train")),
    "by time": Case(hops(time_attr="time"), ("paper", "train"), TIMES),
    "links": Case(LinkSpec(neighbors=HOPS, negatives="binary"), (WRITES, PAIRS)),
    "triplet": Case(LinkSpec(neighbors=HOPS, negatives="triplet"), CITES, batch_size=200),
    "links without themselves": Case(
        LinkSpec(neighbors=hops(disjoint=True), exclude="reverse", rev_edge_types=(WRITTEN,)),
        WRITES,
        batch_size=200,
    ),
    "subgraph": Case(SubgraphSpec(num_hops=1), ("author", "train")),
    "ablp": Case(ABLPSpec(neighbors=HOPS, supervision=(WRITES,)), ("author", "train")),
    "ablp, ppr": Case(
        ABLPSpec(
            neighbors=PPRSpec(max_ppr_nodes=10, include_sampled_edges=True), supervision=(WRITES,)
        ),
        ("author", "train"),
    ),
    "ppr": Case(PPRSpec(max_ppr_nodes=10), ("paper", "train")),
    "walks": Case(WalkSpec(walk_length=4, path=(WRITTEN, WRITES)), ("paper", "train")),
    "hgt": Case(HGTSpec(num_samples=(8, 8)), ("paper", "train")),
}


def run(
    backend: SharedDistSamplingBackend, case: Case, *, kill: bool = False
) -> list[tuple[int, int, str]]:
    backend.register_input(
        "all",
        case.inputs,
        columns=case.columns,
        tables=case.tables,
        batch_size=case.batch_size,
        **TERMS,
    )
    found = digests(read(backend, "all", 0))
    if kill:
        strike(pids_of_workers(backend)[-1])
    return found + digests(read(backend, "all", 1))


@pytest.fixture(scope="module", autouse=True)
def _no_leaks() -> Iterator[None]:
    """As `no_leaks`, but over all tests here: they share hubs, whose workers they kill, and graphs,
    which keep what was made for one of them.
    """
    mark = uuid.uuid4().hex
    before = Holdings.now(mark)
    yield
    if leaks := leaks_since(before, mark):
        pytest.fail("left behind:\n  " + "\n  ".join(leaks), pytrace=False)


@pytest.fixture(scope="module")
def plain_hub() -> Iterator[HubProcess]:
    with plain_graph() as graph, HubProcess(graph, 2) as hub:
        yield hub


@pytest.fixture(scope="module")
def typed_hub() -> Iterator[HubProcess]:
    with typed_graph() as graph, HubProcess(graph, 2) as hub:
        yield hub


def check(hub: HubProcess, case: Case) -> None:
    with SharedDistSamplingBackend(hub.graph, case.spec, num_workers=0) as inline:
        inline.init_backend()
        expected = run(inline, case)
    with SharedDistSamplingBackend(hub, case.spec) as backend:
        backend.init_backend()
        assert run(backend, case, kill=True) == expected
    assert len(set(expected)) == len(expected) > 4


@pytest.mark.parametrize("name", PLAIN)
def test_a_pool_makes_the_same_batches_of_a_graph_without_types(
    plain_hub: HubProcess, name: str
) -> None:
    """CONTRACT 5, 18, 61."""
    check(plain_hub, PLAIN[name])


@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning")
@pytest.mark.parametrize("name", TYPED)
def test_a_pool_makes_the_same_batches_of_a_graph_with_types(
    typed_hub: HubProcess, name: str
) -> None:
    """CONTRACT 5, 18, 61."""
    check(typed_hub, TYPED[name])


def test_workers_let_go_of_what_came_with_the_inputs_of_a_channel_that_is_gone() -> None:
    """CONTRACT 40: tables and columns lie in memory of the rank, of which nothing is kept."""
    case = PLAIN["links with labels and weights"]
    with (
        plain_graph() as graph,
        SharedDistSamplingBackend(graph, case.spec, num_workers=1) as backend,
    ):
        [worker] = pids_of_workers(backend)
        before = shared_mappings(worker)
        run(backend, case)
        assert shared_mappings(worker) > before
        backend.unregister_input("all")
        until(lambda: shared_mappings(worker) <= before, f"{before} mappings")


def shared_mappings(pid: int) -> int:
    """How many stretches of anonymous shared memory a process has mapped."""
    with open(f"/proc/{pid}/maps") as maps:
        return sum("memfd:penstock" in line for line in maps)


def test_inputs_of_another_kind_are_refused_when_the_backend_is_made(plain_hub: HubProcess) -> None:
    """CONTRACT 61."""
    with pytest.raises(ValueError, match="input_kind is 'link'; what NeighborSpec samples"):
        SharedDistSamplingBackend(plain_hub, HOPS, input_kind="link")
    with pytest.raises(ValueError, match="input_kind is 'graph'; expected one of node, link"):
        SharedDistSamplingBackend(plain_hub, HOPS, input_kind="graph")


def test_edges_that_are_none_are_refused(plain_hub: HubProcess) -> None:
    with SharedDistSamplingBackend(plain_hub, LinkSpec(neighbors=HOPS)) as backend:
        backend.init_backend()
        for given, message in [
            (np.arange(4), r"sampler_input has shape \[4\]; expected edges, \[2, n\]"),
            (
                np.array([[0], [NODES]]),
                rf"sampler_input\[1\]\[0\] is {NODES}; expected 0 <= id < {NODES}",
            ),
            ((CITES, PAIRS), "sampler_input names edge type .* this graph has no types"),
        ]:
            with pytest.raises(ValueError, match=message):
                backend.register_input("x", given, batch_size=2)


def test_labels_of_links_leave_room_for_negatives_and_weights_of_0_are_never_drawn() -> None:
    """CONTRACT 46: shifted by one where the least of all is 0, not of a batch."""
    spec = LinkSpec(neighbors=NeighborSpec(), negatives="binary")
    weights = np.zeros(NODES)
    weights[[5, 7]] = 1.0
    with plain_graph() as graph:
        with SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
            backend.init_backend()
            backend.register_input(
                "links",
                PAIRS,
                columns={"label": np.arange(70)},
                tables={"src_weight": weights, "dst_weight": weights},
                batch_size=10,
            )
            batches = read(backend, "links", 0)
    for number, batch in enumerate(batches):
        labels = batch["edge_label"]
        assert labels.tolist() == [*range(10 * number + 1, 10 * number + 11), *[0] * 10]
        assert set(batch["n_id"][batch["edge_label_index"][:, 10:]].flat) <= {5, 7}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"time": np.arange(70)}}, "conflicting 'edge_label_time' and 'time_attr'"),
        ({"columns": {"label": np.arange(9)}}, r"columns\['label'\] has shape \[9\]"),
        (
            {"tables": {"src_weight": np.array([1.0, -1.0])}},
            r"tables\['src_weight'\]\[1\] is -1.0; expected a finite weight >= 0",
        ),
        ({"tables": {"src_weight": np.ones((2, 2))}}, r"src_weight'\] has shape \[2, 2\]"),
        (
            {"tables": {"dst_weight": np.ones(7)}},
            rf"dst_weight'\] has shape \[7\]; expected a weight for each of {NODES} nodes",
        ),
        ({"tables": {"dst_weight": np.zeros(NODES)}}, r"dst_weight'\] is 0 for every node"),
        ({"tables": {"weight": np.ones(NODES)}}, "reads: 'src_weight', 'dst_weight';"),
        ({"columns": {"label": np.array([255, 0] * 35, "uint8")}}, "label has 255, the most"),
        ({"columns": {"label": np.arange(-1, 69)}}, "label has -1 and 0"),
    ],
)
def test_what_comes_with_links_must_make_sense(
    plain_hub: HubProcess, options: dict[str, Any], message: str
) -> None:
    spec = LinkSpec(neighbors=HOPS, negatives="binary")
    with SharedDistSamplingBackend(plain_hub, spec) as backend:
        backend.init_backend()
        with pytest.raises(ValueError, match=message):
            backend.register_input("x", PAIRS, batch_size=2, **options)


def test_links_to_predict_need_not_be_of_a_type_the_graph_has(typed_hub: HubProcess) -> None:
    likes = ("author", "likes", "paper")
    spec = LinkSpec(neighbors=HOPS, negatives="binary")
    for source in (typed_hub, typed_hub.graph):
        options: dict[str, Any] = {} if source is typed_hub else {"num_workers": 0}
        with SharedDistSamplingBackend(source, spec, **options) as backend:
            backend.init_backend()
            backend.register_input("links", (likes, PAIRS), batch_size=70)
            (batch,) = read(backend, "links", 0)
            ends = batch["author,likes,paper/edge_label_index"][:, :70]
            assert batch["author/n_id"][ends[0]].tolist() == PAIRS[0].tolist()
            assert batch["paper/n_id"][ends[1]].tolist() == PAIRS[1].tolist()
