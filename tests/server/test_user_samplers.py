"""Samplers of users at a server: links, columns and attributes, checked without the user's code."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client.naming import spec_of
from penstock.errors import SamplingError
from penstock.graph import Graph
from penstock.sampling.spec import CustomSpec
from penstock.wire.requests import RegisterBackendRequest, SamplerInput
from tests.client.graphs import TERMS, backend_of, read, small_graph
from tests.client.graphs import digests as digests_of
from tests.client.samplers import Ends, Stars
from tests.server.stores import WAYS, AnyServer, backend, digests, messages, reached

pytestmark = pytest.mark.usefixtures("no_leaks")

SPEC = spec_of(Ends)


@pytest.fixture
def graph() -> Iterator[Graph]:
    with small_graph() as found:
        yield found


def registered(server: AnyServer, spec: Any, **given: Any) -> int:
    return server.register_sampling_input(
        RegisterBackendRequest(
            backend_id=backend(server, "k", spec),
            sampler_input=SamplerInput(**given),
            channel_options=TERMS,
        )
    )


@pytest.mark.parametrize("way", WAYS)
def test_links_with_columns_and_attributes_are_those_of_an_embedded_backend(
    way: str, graph: Graph
) -> None:
    links = graph.edge_index()[:, ::2].astype(np.int64)
    columns = {"time": np.arange(links.shape[1]), "label": np.arange(links.shape[1]) % 3}
    with backend_of(graph, Ends, num_workers=0) as inline:
        inline.register_input("a", links, columns=columns, **TERMS)
        expected = digests_of(read(inline, "a", 0))
    assert isinstance(SPEC, CustomSpec)
    with reached(way, graph, num_workers=1, samplers=(SPEC.sampler,)) as (server, _):
        number = registered(server, SPEC, ids=links, columns=columns)
        assert digests(messages(server, number)) == expected
        with pytest.raises(ValueError, match="columns has no 'time', which"):
            registered(server, SPEC, ids=links)


@pytest.mark.parametrize("way", WAYS)
def test_an_error_at_a_server_that_goes_away_costs_nothing(
    way: str, graph: Graph, tmp_path: Path
) -> None:
    with backend_of(graph, Stars, num_workers=0) as inline:
        inline.register_input("a", "train", **TERMS)
        expected = digests_of(read(inline, "a", 0))
    name = "tests.client.samplers:Flaky"
    options = {"folder": str(tmp_path), "error": "Dropped"}
    with reached(way, graph, num_workers=1, samplers=(name,)) as (server, own):
        number = server.register_sampling_input(
            RegisterBackendRequest(
                backend_id=backend(server, "k", CustomSpec(sampler=name, options=options)),
                sampler_input=SamplerInput(split="train"),
                channel_options={**TERMS, "retry_errors": 2, "retry_on": "Dropped"},
            )
        )
        assert digests(messages(server, number)) == expected
        (channel,) = own.hub_statistics()["scheduler"]["channels"]
        assert channel["errors_retried"] == 2


@pytest.mark.parametrize("way", WAYS)
def test_an_exception_at_a_server_names_the_host_and_the_batch(way: str, graph: Graph) -> None:
    """CONTRACT 20, 49."""
    name = "tests.client.samplers:Stars"
    with reached(way, graph, num_workers=1, samplers=(name,)) as (server, _):
        number = server.register_sampling_input(
            RegisterBackendRequest(
                backend_id=backend(server, "k", CustomSpec(sampler=name, options={"fails": (0,)})),
                sampler_input=SamplerInput(split="train"),
                channel_options={**TERMS, "job": "friday"},
            )
        )
        server.start_new_epoch_sampling(number, 0)
        with pytest.raises(SamplingError) as caught:
            server.fetch_one_sampled_message(number)
    story = str(caught.value)
    for fact in (
        "ZeroDivisionError: there is no batch 0",
        "job 'friday', channel",
        f"host     {socket.gethostname()}",
        "of its own when it raised",
        "To sample this batch again",
    ):
        assert fact in story
    assert story.count("Traceback") == 1
    assert caught.value.details["host"] == socket.gethostname()
