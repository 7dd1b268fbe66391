"""Calls that come over a wire, and `DistServer`'s methods: one to one.

Arguments are read as what the verb takes, before anything is done. Results are made plain; of those
that are no plain data (batches, partition books) the parts travel.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.client.batch import Batch
from penstock.errors import PenstockError, ProtocolError
from penstock.graph.books import ArrayBook, PartitionBook, RangeBook
from penstock.server.dist_server import DistServer
from penstock.wire.messages import Call
from penstock.wire.requests import BatchParts, BookParts, Fetched
from penstock.wire.values import Arrays, pack, unpack
from penstock.wire.verbs import VERBS

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
