"""What tests of the server share: one that need not be started for each, and ranks that knock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.server.dist.dist_server import DistServer
from penstock.server.serving import Server, serve
from tests.client.graphs import PATIENCE_S, small_graph
from tests.processes import until
from tests.server.ranks import BareRank
from tests.server.stores import WAYS, AnyServer, reached


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with small_graph() as made:
        yield made


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    """For tests that leave it as it was; whoever kills, stops or limits has a server of its own.

    Bare ranks give no signs of life: the lease is as long as any test.
    """
    with serve(graph, num_workers=2, lease=PATIENCE_S) as served:
        yield served


@pytest.fixture
def rank(server: Server) -> Iterator[Callable[..., BareRank]]:
    """Makes ranks that were greeted; `greeted=False`: that have not even said Hello."""
    with ExitStack() as stack:

        def make(address: str = server.address, *, greeted: bool = True, **given: Any) -> BareRank:
            made = stack.enter_context(BareRank(address))
            if greeted:
                made.greet(**given)
            return made

        yield make
    until(lambda: not server.statistics().sessions, "all ranks of the test have gone")


# --- of a `DistServer` ---

_keys = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where seeds may be read."""
    found: Path = tmp_path_factory.mktemp("seeds")
    np.save(found / "seeds.npy", np.arange(40))
    np.save(found / "pairs.npy", np.arange(20).reshape(2, 10))
    np.save(found / "numbers.npy", np.arange(40) / 2)
    (found / "words.npy").write_text("no array")
    np.save(found.parent / "beside.npy", np.arange(40))
    (found / "out.npy").symlink_to(found.parent / "beside.npy")
    return found


@pytest.fixture(scope="module", params=WAYS)
def both(
    request: pytest.FixtureRequest, graph: Graph, folder: Path
) -> Iterator[tuple[AnyServer, DistServer]]:
    """A way to a server with a pool of two, and the server."""
    with reached(request.param, graph, num_workers=2, input_folders=(folder,)) as found:
        yield found


@pytest.fixture
def key() -> str:
    """Of a backend that nobody else has."""
    return f"key {next(_keys)}"
