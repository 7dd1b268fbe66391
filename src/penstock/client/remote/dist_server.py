"""A `DistServer` on another host: the same methods, results and errors, by calls over the wire."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np

from penstock.client.dist_calls import VERBS, Array, DistCalls, Message, Shape
from penstock.client.naming import Where, spec_of
from penstock.errors import ChannelClosed
from penstock.wire.requests import (
    ArrayT,
    InitSamplingBackendRequest,
    RegisterBackendRequest,
    ShapeT,
)
from penstock.wire.rpc_schema import Verb, mirrored
from penstock.wire.values import Arrays, pack, unpack


class Caller(Protocol):
    """Something that can call a server."""

    def call(
        self, verb: str, arguments: dict[str, Any], arrays: Arrays
    ) -> tuple[Any, dict[str, Array]]:
        """Return the server's answer; raise what went wrong there."""


@mirrored(VERBS, {ArrayT: Array, ShapeT: Shape})
class _Calls(DistCalls):
    """Every declared call, made through a caller."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def ask(self, verb: Verb, arguments: dict[str, Any]) -> Any:
        """Make a call with all its arguments by name, and return its result."""
        plain, arrays = pack({name: _sent(verb, name, arguments[name]) for name in arguments})
        value, answered = self._caller.call(verb.name, plain, arrays)
        return verb.form.together(unpack(value, answered, verb.gives))


class RemoteDistServer(_Calls):
    """A server on another host. For each method see `DistServer`."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self._in_doubt: set[int] = set()  # channels that may have lost a batch here

    def fetch_one_sampled_message(self, channel_id: int) -> Message:
        """Do as `DistServer`; raise `ChannelClosed` if a fetch of the channel was interrupted."""
        if channel_id in self._in_doubt:
            raise ChannelClosed(
                f"a fetch of channel {channel_id} was interrupted, and its batch may be lost: "
                "register it again, and start where you were"
            )
        try:
            return super().fetch_one_sampled_message(channel_id)
        except Exception:
            raise
        except BaseException:  # the server does not know that nobody waits for the batch any more
            self._in_doubt.add(channel_id)
            raise

    def destroy_sampling_input(self, channel_id: int) -> None:
        """Do as `DistServer`."""
        super().destroy_sampling_input(channel_id)
        self._in_doubt.discard(channel_id)


def _sent(verb: Verb, name: str, value: Any) -> Any:
    """Return an argument in the one form in which it is sent."""
    if name in verb.arrays and value is not None:
        return np.asarray(value)
    match value:
        case InitSamplingBackendRequest():
            config = spec_of(value.sampling_config, Where.SERVER)
            return msgspec.structs.replace(value, sampling_config=config)
        case RegisterBackendRequest():
            return _with_arrays(value)
    return value


def _with_arrays(request: RegisterBackendRequest) -> RegisterBackendRequest:
    """Return the request with its ids as an array, which the server needs; a list may be long."""
    given = request.sampler_input
    if not isinstance(getattr(given, "ids", None), list | tuple):
        return request
    ids = np.asarray(given.ids)
    if ids.dtype.kind in "US":
        raise ValueError(
            f"sampler_input.ids are {given.ids!r:.60}; expected numbers of nodes: look them up "
            "(graph.lookup)"
        )
    given = msgspec.structs.replace(given, ids=ids)
    return msgspec.structs.replace(request, sampler_input=given)
