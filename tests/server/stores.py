"""Graphs, servers, and the ways to them that tests share: in process, as bytes, over a wire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec
import numpy as np

from penstock.client.channel.batch import Batch
from penstock.client.hub.hub_process import HubProcess
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.graph import Graph
from penstock.hub.reports import report_of
from penstock.rpc.failures import error_of
from penstock.sampling.digest import batch_digest
from penstock.sampling.labels import label_type
from penstock.sampling.spec import NeighborSpec
from penstock.server.dist.dist_server import DistServer
from penstock.server.dist.rpc import answer
from penstock.wire import payload
from penstock.wire.frames import read
from penstock.wire.messages import Answer, Call, Refused
from penstock.wire.requests import (
    InitSamplingBackendRequest,
    RegisterBackendRequest,
    SamplerInput,
)

AnyServer: TypeAlias = DistServer | RemoteDistServer
WAYS = ("in process", "as bytes", "over the wire")

BUYS = ("user", "buys", "item")
RIGHT, WRONG = label_type(BUYS, "positive"), label_type(BUYS, "negative")
USERS, ITEMS = 30, 40
SPEC = NeighborSpec(num_neighbors=(4, 3))
TERMS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 7}


def shop() -> Graph:
    """Users and items, labels of both signs, splits of the users; user 0 has no labels."""
    rng = np.random.default_rng(5)

    def edges(ends: tuple[int, int], count: int, first: int = 0) -> Any:
        return np.stack((rng.integers(first, ends[0], count), rng.integers(0, ends[1], count)))

    return Graph.from_coo(
        {
            BUYS: edges((USERS, ITEMS), 90),
            ("item", "bought_by", "user"): edges((ITEMS, USERS), 90),
            RIGHT: edges((USERS, ITEMS), 70, 1),
            WRONG: edges((USERS, ITEMS), 50, 1),
            ("user", "likes_positive", "item"): edges((USERS, ITEMS), 40, 1),
        },
        {"user": USERS, "item": ITEMS},
        x={"user": rng.random((USERS, 3)).astype("float32"), "item": rng.random((ITEMS, 2))},
        train={"user": rng.permutation(USERS)[:17]},
        val={"user": np.array([], np.int64)},
        edge_attr={BUYS: rng.random((90, 5)).astype("float16")},
        graph_attrs={"title": "a shop", "opening": np.arange(7)},
    )


class AsBytes:
    """Calls that become bytes and come back as bytes, as on a wire, but for the wire."""

    def __init__(self, server: DistServer, caller: int = 1) -> None:
        self._server, self._caller = server, caller

    def call(
        self, verb: str, arguments: dict[str, Any], arrays: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        packed = payload.pack(arrays)
        sent = Call(request=1, verb=verb, arguments=arguments, arrays=packed.arrays)
        call = _through(sent, Call)
        try:
            value, answered = answer(self._server, call, _moved(packed), self._caller)
        except Exception as error:
            told = _through(Refused(request=1, report=report_of(error)), Refused)
            raise error_of(told.report) from error_of(told.report).__cause__
        repacked = payload.pack(answered)
        said = _through(Answer(request=1, value=value, arrays=repacked.arrays), Answer)
        return said.value, _moved(repacked)


def _through(message: Any, kind: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kind)


def _moved(packed: payload.Packed) -> dict[str, Any]:
    memory = payload.reserved(packed.arrays, packed.nbytes)
    memory[:] = np.frombuffer(b"".join(packed.views), np.uint8)
    return read(memory, packed.arrays)


@contextmanager
def reached(way: str, graph: Any, **options: Any) -> Iterator[tuple[AnyServer, DistServer]]:
    """A server of a graph by one of the ways, and the server itself."""
    if way == "over the wire":
        with _served(graph, **options) as found:
            yield found
        return
    with DistServer(graph, **options) as server:
        yield (server if way == "in process" else RemoteDistServer(AsBytes(server))), server


@contextmanager
def _served(graph: Any, **options: Any) -> Iterator[tuple[AnyServer, DistServer]]:
    from penstock.rpc.endpoint import Endpoint
    from penstock.rpc.server import RemoteServer
    from penstock.server.serving import serve

    workers = options.pop("num_workers", 1) or 1
    own = {"samplers": options.pop("samplers", ()), "files": options.pop("input_folders", ())}
    own["limits"] = options.pop("limits", None)
    options.pop("hub", None)
    with serve(graph, num_workers=workers, store_options=options, **own) as served:
        store = RemoteServer(Endpoint(served.address))
        try:
            yield RemoteDistServer(store), served.store
        finally:
            store.close()


def lent(way: str, pool: HubProcess) -> dict[str, Any]:
    """Options for a server that borrows a pool, where it can."""
    return {} if way == "over the wire" else {"hub": pool}


def backend(server: AnyServer, key: str = "k", spec: Any = SPEC, **fields: Any) -> int:
    """The number of a backend."""
    return server.init_sampling_backend(
        InitSamplingBackendRequest(backend_key=key, sampling_config=spec, **fields)
    )


def channel(server: AnyServer, backend_id: int, given: Any = None, **fields: Any) -> int:
    """The number of a channel, of the training split unless told otherwise."""
    fields = {"channel_options": TERMS, **fields}
    inputs = SamplerInput(split="train") if given is None else given
    return server.register_sampling_input(
        RegisterBackendRequest(backend_id=backend_id, sampler_input=inputs, **fields)
    )


def messages(server: AnyServer, number: int, epoch: int = 0) -> list[Batch]:
    """All messages of an epoch."""
    server.start_new_epoch_sampling(number, epoch)
    found = []
    while True:
        message, done = server.fetch_one_sampled_message(number)
        if message is None:
            assert done
            return found
        assert not done
        found.append(message)


def digests(found: list[Batch]) -> list[tuple[int, int, str]]:
    """Each message in a few characters."""
    return [(each.step, each.index, batch_digest(each.arrays)) for each in found]
