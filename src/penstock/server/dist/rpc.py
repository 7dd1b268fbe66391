"""Answers calls that come over a wire: each verb is a method of `DistServer`.

One `RpcSession` exists per connected rank that calls; what it makes goes when the rank goes.
"""

from __future__ import annotations

from typing import Any, Final
from penstock.client.channel.batch import Batch
from penstock.errors import PenstockError, ProtocolError
from penstock.graph.partition.book import ArrayBook, PartitionBook, RangeBook
from penstock.server.dist.dist_server import DistServer
from penstock.wire.messages import Call
from penstock.wire.requests import BatchParts, BookParts, Fetched
from penstock.wire.values import Arrays, pack, unpack
from penstock.wire.rpc_schema import VERBS
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias
import numpy.typing as npt
from penstock.server.dist.dist_server import DistServer
from penstock.wire.messages import Call
from penstock.wire.payload import Arrays



Answered: TypeAlias = tuple[Any, Mapping[str, npt.NDArray[Any]]]

PING: Final = "ping"  # answered at once: whether anybody listens
STATISTICS: Final = "server_statistics"
# Why a session is over that its rank has ended; any other reason is a loss.
GOODBYE: Final = "goodbye"

_numbers: Final = itertools.count(1)  # of sessions


class RpcSession(Protocol):
    """One session's questions; several threads may ask at once."""

    def answer(self, call: Call, arrays: Arrays) -> Answered:
        """Plain data and arrays; or raises what the rank is to raise."""

    def end(self, reason: str) -> None:
        """The session is over: whatever it has made is let go of."""


RpcSessions: TypeAlias = Callable[[], RpcSession]


class DistServerSession:
    """Calls of one rank to a `DistServer`."""

    def __init__(self, store: DistServer) -> None:
        self._store = store
        self._number = next(_numbers)

    def answer(self, call: Call, arrays: Arrays) -> Answered:
        """What the verb of this name comes to."""
        return answer(self._store, call, arrays, self._number)

    def end(self, reason: str) -> None:
        """What it made goes."""
        farewell(self._store, self._number)


# What is made by these belongs to the session, and goes with it.
MAKING: Final = frozenset({"init_sampling_backend", "register_sampling_input"})


def answer(server: DistServer, call: Call, arrays: Arrays, caller: int) -> tuple[Any, Arrays]:
    """What a call comes to; raises what the method raises. `caller` is the session's number."""
    verb = VERBS.get(call.verb)
    if verb is None:
        raise ProtocolError(f"there is no verb {call.verb!r}")
    _check_allowed(server, call.verb)
    taken = unpack(call.arguments, arrays, verb.takes)
    arguments = {name: getattr(taken, name) for name in taken.__struct_fields__}
    if call.verb in MAKING:
        arguments["holder"] = caller
    if "channel_id" in arguments:
        server.check_holder(arguments["channel_id"], caller)
    if call.verb == "wait_for_exit":  # nobody is kept for longer than by any other call
        asked = arguments["timeout"]
        most = server.request_timeout
        arguments["timeout"] = most if asked is None else min(asked, most)
    return pack(_parts(getattr(server, call.verb)(**arguments)))


def farewell(server: DistServer, caller: int) -> None:
    """A session has ended, however: what it made goes."""
    server.release(caller)


def _check_allowed(server: DistServer, verb: str) -> None:
    if verb == "exit" and not server.exit_by_ranks:
        raise PenstockError("this server is not ended by ranks (setting: exit_by_ranks)")


def _parts(result: Any) -> Any:
    match result:
        case (Batch() | None as batch, bool(done)):
            return Fetched(batch=None if batch is None else _batch(batch), done=done)
        case RangeBook() | ArrayBook():
            return _book(result)
    return result


def _batch(batch: Batch) -> BatchParts:
    return BatchParts(
        arrays=dict(batch.arrays),
        facts=dict(batch.facts),
        epoch=batch.epoch,
        step=batch.step,
        index=batch.index,
        substitute=batch.substitute,
        cost=batch.cost,
        dtypes=dict(batch.dtypes),
    )


def _book(book: PartitionBook) -> BookParts:
    return BookParts(
        num_partitions=book.num_partitions,
        bounds=book.bounds if isinstance(book, RangeBook) else None,
        parts=book.parts if isinstance(book, ArrayBook) else None,
    )
