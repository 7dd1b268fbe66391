"""Samplers of users at a server: links, columns and attributes, checked without the user's code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.client.naming import spec_of
from penstock.graph import Graph
from penstock.sampling.spec import CustomSpec
from penstock.wire.requests import RegisterBackendRequest, SamplerInput
from tests.client.graphs import TERMS, backend_of, read, small_graph
from tests.client.graphs import digests as digests_of
from tests.client.samplers import Ends
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
