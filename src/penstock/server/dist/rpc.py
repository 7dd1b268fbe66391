"""Answers calls that come over a wire: each verb is a method of `DistServer`.

One `RpcSession` exists per connected rank that calls; what it makes goes when the rank goes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import numpy.typing as npt

from penstock.client.dist_calls import VERBS, TransportCalls
from penstock.errors import PenstockError, ProtocolError
from penstock.server.dist.dist_server import DistServer
from penstock.wire.messages import Call
from penstock.wire.rpc_schema import Verb
from penstock.wire.values import Arrays, pack, unpack

Answered: TypeAlias = tuple[Any, Mapping[str, npt.NDArray[Any]]]

PING: Final = TransportCalls.ping.__name__
STATISTICS: Final = TransportCalls.server_statistics.__name__
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
MAKING: Final = frozenset(verb.name for verb in VERBS.values() if verb.traits.makes)


def answer(server: DistServer, call: Call, arrays: Arrays, caller: int) -> tuple[Any, Arrays]:
    """What a call comes to; raises what the method raises. `caller` is the session's number."""
    verb = VERBS.get(call.verb)
    if verb is None:
        raise ProtocolError(f"there is no verb {call.verb!r}")
    _check_allowed(server, verb)
    taken = unpack(call.arguments, arrays, verb.takes)
    arguments = {name: getattr(taken, name) for name in taken.__struct_fields__}
    if verb.traits.makes:
        arguments["holder"] = caller
    if "channel_id" in arguments:
        server.check_holder(arguments["channel_id"], caller)
    if "timeout" in arguments:  # nobody is kept for longer than by any other call
        asked, most = arguments["timeout"], server.request_timeout
        arguments["timeout"] = most if asked is None else min(asked, most)
    return pack(verb.form.apart(getattr(server, verb.name)(**arguments)))


def farewell(server: DistServer, caller: int) -> None:
    """A session has ended, however: what it made goes."""
    server.release(caller)


def _check_allowed(server: DistServer, verb: Verb) -> None:
    setting = verb.traits.permission
    if setting is not None and not getattr(server, setting):
        raise PenstockError(f"ranks may not call {verb.name} on this server (setting: {setting})")
