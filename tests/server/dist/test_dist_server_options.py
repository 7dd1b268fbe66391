"""What people may ask of a `DistServer`'s backends and channels, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.errors import Overloaded
from penstock.graph import Graph
from penstock.options import Limits
from penstock.sampling.spec import ABLPSpec, CustomSpec, LinkSpec, NeighborSpec, PPRSpec
from penstock.server.dist.dist_server import DistServer
from penstock.wire.requests import SamplerInput, WorkerOptions
from tests.client.graphs import SPEC, expected
from tests.server.stores import WAYS, AnyServer, backend, channel, digests, messages, reached


@pytest.fixture
def server(both: tuple[AnyServer, DistServer]) -> AnyServer:
    """A server that other tests have used, and will."""
    return both[0]


# --- 58, 61, 62 ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        SamplerInput(ids=np.arange(40)),
        SamplerInput(ids=list(range(40))),
        SamplerInput(file="seeds.npy"),
    ],
    ids=["array", "list", "file"],
)
def test_seeds_come_as_ids_or_as_a_file(
    server: AnyServer, key: str, graph: Graph, given: SamplerInput
) -> None:
    """CONTRACT 58: ids, or a file that the server may read."""
    number = channel(server, backend(server, key), given)
    assert digests(messages(server, number)) == expected(graph, inputs=np.arange(40))
    server.destroy_sampling_input(number)


def test_without_seeds_all_nodes_are_meant(server: AnyServer, key: str, graph: Graph) -> None:
    """CONTRACT 58."""
    number = channel(server, backend(server, key), SamplerInput())
    assert digests(messages(server, number)) == expected(graph, inputs=None)
    server.destroy_sampling_input(number)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("../beside.npy", "in none of the 1 folders"),
        ("out.npy", "in none of the 1 folders"),
        ("/etc/passwd", "in none of the 1 folders"),
        ("nothing.npy", "in none of the 1 folders"),
        ("a\0b", "in none of the 1 folders"),
        (".", "in none of the 1 folders"),
        ("words.npy", "not a readable array"),
        ("numbers.npy", "has no integers"),
        ("pairs.npy", "expected a list of ids"),
    ],
)
def test_other_files_are_not_read(server: AnyServer, key: str, file: str, words: str) -> None:
    """CONTRACT 58: only what lies in the folders given, links followed; only integers."""
    made = backend(server, key)
    with pytest.raises(ValueError, match=words):
        channel(server, made, SamplerInput(file=file))
    server.destroy_sampling_input(channel(server, made))


def test_links_are_inputs_too(server: AnyServer, key: str, graph: Graph) -> None:
    """CONTRACT 58, 61: the kind of input follows from the spec."""
    spec = LinkSpec(neighbors=SPEC, negatives="binary", amount=1.0)
    ends = graph.edge_index()[:, :64]
    number = channel(server, backend(server, key, spec), SamplerInput(ids=ends))
    found = digests(messages(server, number))
    assert found == expected(graph, spec=spec, inputs=(("", "", ""), ends))
    server.destroy_sampling_input(number)


def test_what_a_sampler_needs_once_is_made_once(server: AnyServer, key: str, graph: Graph) -> None:
    """CONTRACT 60: degrees for PPR are there before the first batch, for all backends."""
    spec = PPRSpec(max_ppr_nodes=5)
    number = channel(server, backend(server, key, spec))
    assert digests(messages(server, number)) == expected(graph, spec=spec)
    server.destroy_sampling_input(number)


def test_an_unknown_kind_of_input_is_refused_when_the_backend_is_made(
    server: AnyServer, key: str
) -> None:
    """CONTRACT 61."""
    with pytest.raises(ValueError, match="expected one of node, link, subgraph"):
        backend(server, key, worker_options=WorkerOptions(input_kind="edge"))


def test_sampler_options_are_fields_of_the_config(
    server: AnyServer, key: str, graph: Graph
) -> None:
    """CONTRACT 62: they complete it; one there is not is refused."""
    options = {"num_neighbors": [2], "replace": True}
    number = channel(server, backend(server, key, sampler_options=options))
    spec = NeighborSpec(num_neighbors=(2,), replace=True)
    assert digests(messages(server, number)) == expected(graph, spec=spec)
    with pytest.raises(ValueError, match="sampler_options has 'fanout'; NeighborSpec has"):
        backend(server, key + "'", sampler_options={"fanout": 3})
    server.destroy_sampling_input(number)


def test_sampler_options_may_have_another_way_to_sample_around_anchors(
    server: AnyServer, key: str, graph: Graph
) -> None:
    """A spec within a spec arrives as one: labels over PageRank instead of hops."""
    anchors = ABLPSpec(neighbors=SPEC, supervision=(("", "", ""),))
    pushes = PPRSpec(max_ppr_nodes=5)
    inputs = SamplerInput(ids=np.arange(20), columns={"positive/0": np.arange(20)[::-1, None]})
    ranked = backend(server, key, anchors, sampler_options={"neighbors": pushes})
    same = backend(server, key + "'", replace(anchors, neighbors=pushes))
    numbers = [channel(server, each, inputs) for each in (ranked, same)]
    found, expected = (messages(server, number) for number in numbers)
    assert digests(found) == digests(expected)
    assert found[0].arrays["edge_attr"].shape[1] == 2
    for number in numbers:
        server.destroy_sampling_input(number)
    wrong = {"type": "ppr", "alpha": "much"}
    with pytest.raises(ValueError, match=r"neighbors is .*alpha"):
        backend(server, key + "''", anchors, sampler_options={"neighbors": wrong})


def test_a_request_cannot_enlarge_the_pool(server: AnyServer, key: str) -> None:
    """CONTRACT 59, 62: it is for all; the setting of the server is named."""
    with pytest.raises(ValueError, match="the server's pool has 2"):
        backend(server, key, worker_options=WorkerOptions(num_workers=3))
    made = backend(server, key, worker_options=WorkerOptions(num_workers=2))
    server.destroy_sampling_input(channel(server, made))


def test_only_samplers_that_were_named_may_be_asked_for(server: AnyServer, key: str) -> None:
    """CONTRACT 62: no code by name from elsewhere."""
    with pytest.raises(ValueError, match=r"'os:system'; the server was started with: none"):
        backend(server, key, CustomSpec(sampler="os:system"))


def test_a_group_of_nobody_is_refused(server: AnyServer, key: str) -> None:
    """CONTRACT 59: 0 would mean to sample in the server itself."""
    with pytest.raises(ValueError, match="expected at least 1"):
        backend(server, key, worker_options=WorkerOptions(num_workers=0))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_option_that_there_is_not_is_refused_by_name(graph: Graph, workers: int) -> None:
    with pytest.raises(TypeError, match="no option 'max_input_bytes'"):
        DistServer(graph, num_workers=workers, max_input_bytes=800)  # type: ignore[call-arg]


@pytest.mark.parametrize("way", WAYS[:2])
def test_what_a_server_takes_on_is_limited(graph: Graph, key: str, way: str) -> None:
    """CONTRACT 53: backends, and the inputs of a channel and of all; the setting is named."""
    limits = Limits(max_input_bytes=800, max_inputs_bytes=1024)
    with reached(way, graph, num_workers=0, max_backends=1, limits=limits) as (server, _):
        made = backend(server, key)
        with pytest.raises(Overloaded, match="setting: max_backends"):
            backend(server, key + "'")
        with pytest.raises(Overloaded, match="setting: max_input_bytes"):
            channel(server, made, SamplerInput(ids=np.arange(101)))
        number = channel(server, made, SamplerInput(ids=np.arange(100)))
        with pytest.raises(Overloaded, match="setting: max_inputs_bytes"):
            channel(server, made, SamplerInput(ids=np.arange(100)))
        channel(server, made)  # of a split, which is there already
        server.destroy_sampling_input(number)
        channel(server, made, SamplerInput(ids=np.arange(100)))
