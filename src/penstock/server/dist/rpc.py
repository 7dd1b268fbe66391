"""Answers calls that come over the network: each verb is a method of `DistServer`.

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
from penstock.store.calls import STORE_VERBS
from penstock.wire.messages import Call
from penstock.wire.rpc_schema import Verb
from penstock.wire.values import Arrays, pack, unpack

Answered: TypeAlias = tuple[Any, Mapping[str, npt.NDArray[Any]]]

PING: Final = TransportCalls.ping.__name__
STATISTICS: Final = TransportCalls.server_statistics.__name__
# The reason of sessions that their ranks have ended; any other reason means a lost rank.
GOODBYE: Final = "goodbye"

_numbers: Final = itertools.count(1)  # of sessions


class RpcSession(Protocol):
    """Answers the calls of one session; several threads may use it at once."""

    def answer(self, call: Call, arrays: Arrays) -> Answered:
        """Return plain data and arrays, or raise the exception that the rank is to raise."""

    def end(self, reason: str) -> None:
        """Release whatever the session has made, since it has ended."""


RpcSessions: TypeAlias = Callable[[], RpcSession]


class DistServerSession:
    """Answers the calls of one rank with a `DistServer`."""

    def __init__(self, store: DistServer) -> None:
        self._store = store
        self._number = next(_numbers)

    def answer(self, call: Call, arrays: Arrays) -> Answered:
        """Return the result of the method that the call names."""
        return answer(self._store, call, arrays, self._number)

    def end(self, reason: str) -> None:
        """Release what the session has made."""
        farewell(self._store, self._number)


# Results of these verbs belong to the session, and are released with it.
MAKING: Final = frozenset(verb.name for verb in VERBS.values() if verb.traits.makes)


def answer(server: DistServer, call: Call, arrays: Arrays, caller: int) -> tuple[Any, Arrays]:
    """Return a call's result, or raise what the method raises. `caller` is the session's number."""
    if (question := STORE_VERBS.get(call.verb)) is not None:
        return pack(getattr(server.answers, call.verb)(**_taken(question, call, arrays)))
    verb = VERBS.get(call.verb)
    if verb is None:
        raise ProtocolError(f"there is no verb {call.verb!r}")
    _check_allowed(server, verb)
    arguments = _taken(verb, call, arrays)
    if verb.traits.makes:
        arguments["holder"] = caller
    if "channel_id" in arguments:
        server.check_holder(arguments["channel_id"], caller)
    if "timeout" in arguments:  # no call may wait longer than any other
        asked, most = arguments["timeout"], server.request_timeout
        arguments["timeout"] = most if asked is None else min(asked, most)
    return pack(verb.form.apart(getattr(server, verb.name)(**arguments)))


def _taken(verb: Verb, call: Call, arrays: Arrays) -> dict[str, Any]:
    """Return a call's arguments by name, converted to what the verb declares."""
    taken = unpack(call.arguments, arrays, verb.takes)
    return {name: getattr(taken, name) for name in taken.__struct_fields__}


def farewell(server: DistServer, caller: int) -> None:
    """Release what a session has made, however it has ended."""
    server.release(caller)


def _check_allowed(server: DistServer, verb: Verb) -> None:
    setting = verb.traits.permission
    if setting is not None and not getattr(server, setting):
        raise PenstockError(f"ranks may not call {verb.name} on this server (setting: {setting})")
