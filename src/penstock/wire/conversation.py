"""Who may send which message, and when: one table, for unix sockets and for TCP.

Every connection between a rank and a hub or server has a `Conversation` at both ends, and each end
checks what it sends and what it receives. The table is coarse where messages may cross: a slot may
still be returned, and a batch may still arrive, after `Unregister`. The contents of a message
(whose channel, which slot) are checked by the code that acts on it.

The diagrams and lists in docs/protocol.md are made from this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import or_
from typing import Any, Final, TypeAlias

from penstock.errors import ProtocolError
from penstock.wire.messages import (
    Answer,
    AskGraph,
    AskStatistics,
    AskWorkers,
    BackendCreated,
    BatchLost,
    BatchReady,
    Call,
    ChannelBroken,
    CreateBackend,
    EpochDone,
    Goodbye,
    GraphHere,
    Heartbeat,
    Hello,
    HubConfig,
    Leaving,
    Message,
    Notice,
    Refused,
    Register,
    Registered,
    Resize,
    Resized,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Statistics,
    Stop,
    Unregister,
    Welcome,
    WorkerGone,
)


class Medium(Enum):
    """The kind of a connection."""

    UNIX = "unix"  # a rank and a hub on one host
    TCP = "tcp"  # a rank and a server


class Side(Enum):
    """The end of a connection that sends a message."""

    RANK = "rank"
    HUB = "hub or server"


class State(Enum):
    """The state of a conversation."""

    NEW = "new"  # nothing was sent
    GREETING = "greeting"  # the rank has sent Hello
    OPEN = "open"  # requests may be made
    REGISTERING = "registering"  # TCP: the one channel of the connection is being opened
    REGISTERED = "registered"  # TCP: it is open
    LEFT = "left"  # TCP: it was unregistered; messages that were under way may still arrive
    ENDED = "ended"


# There are three kinds of `Refused`, and only this module distinguishes them, by their request.
class RegisterRefused(Message, frozen=True, kw_only=True):
    """Never sent; stands for a Refused whose request is that of the registration."""


class ConnectionRefused(Message, frozen=True, kw_only=True):
    """Never sent; stands for a Refused of request 0, which ends the conversation."""


Kind: TypeAlias = type[Message]


@dataclass(frozen=True, slots=True)
class Rule:
    """`side` may send `messages` in `states`. `then` is the next state; None: no change."""

    side: Side
    messages: tuple[Kind, ...]
    media: tuple[Medium, ...]
    states: tuple[State, ...]
    then: State | None = None


_UNIX, _TCP, _BOTH = (Medium.UNIX,), (Medium.TCP,), (Medium.UNIX, Medium.TCP)
_RANK, _HUB = Side.RANK, Side.HUB
_NEW, _GREETING, _OPEN = State.NEW, State.GREETING, State.OPEN
_TALKING: Final = (State.OPEN, State.REGISTERING, State.REGISTERED, State.LEFT)
_CHANNEL: Final = (State.REGISTERED, State.LEFT)

RULES: Final = (
    # The beginning. The rank that starts a hub sends its configuration.
    Rule(_RANK, (HubConfig,), _UNIX, (_NEW,)),
    Rule(_RANK, (Hello,), _BOTH, (_NEW,), _GREETING),
    Rule(_HUB, (Welcome,), _BOTH, (_GREETING,), _OPEN),
    # Over unix a connection may have any number of channels.
    Rule(_RANK, (CreateBackend, Register), _UNIX, (_OPEN,)),
    Rule(_HUB, (BackendCreated, Registered), _UNIX, (_OPEN,)),
    Rule(_RANK, (StartEpoch, ReturnSlot, Reweigh, Unregister), _UNIX, (_OPEN,)),
    Rule(_HUB, (BatchReady, BatchLost, EpochDone, ChannelBroken), _UNIX, (_OPEN,)),
    Rule(_RANK, (Resize, AskWorkers, AskStatistics, AskGraph, Stop), _UNIX, (_OPEN,)),
    Rule(_HUB, (Resized, Statistics, GraphHere, WorkerGone, Notice), _UNIX, (_OPEN,)),
    # Over TCP a connection has one channel at a time.
    Rule(_RANK, (Register,), _TCP, (_OPEN,), State.REGISTERING),
    Rule(_HUB, (Registered,), _TCP, (State.REGISTERING,), State.REGISTERED),
    Rule(_HUB, (RegisterRefused,), _TCP, (State.REGISTERING,), _OPEN),
    Rule(_RANK, (StartEpoch, ReturnSlot, Reweigh), _TCP, _CHANNEL),
    Rule(_HUB, (BatchReady, BatchLost, EpochDone, ChannelBroken), _TCP, _CHANNEL),
    Rule(_RANK, (Unregister,), _TCP, _CHANNEL, State.LEFT),
    # Calls, heartbeats, and the end.
    Rule(_RANK, (Call, Heartbeat), _TCP, _TALKING),
    Rule(_HUB, (Answer, Heartbeat, Leaving), _TCP, _TALKING),
    Rule(_HUB, (Refused,), _BOTH, _TALKING),
    Rule(_RANK, (Goodbye,), _TCP, _TALKING, State.ENDED),
    Rule(_HUB, (ConnectionRefused,), _BOTH, (_NEW, _GREETING, *_TALKING), State.ENDED),
)
_UNIX_STATES: Final = (_NEW, _GREETING, _OPEN, State.ENDED)

Table: TypeAlias = Mapping[State, Mapping[Kind, State]]


def table_of(medium: Medium, side: Side) -> Table:
    """Return what one side may send over a medium: by state, the messages and their next states."""
    table: dict[State, dict[Kind, State]] = {state: {} for state in states_of(medium)}
    for rule in RULES:
        if rule.side is side and medium in rule.media:
            for state in rule.states:
                if state in table:
                    table[state] |= dict.fromkeys(rule.messages, rule.then or state)
    return table


def states_of(medium: Medium) -> tuple[State, ...]:
    """Return the states that a conversation over a medium can be in."""
    return _UNIX_STATES if medium is Medium.UNIX else tuple(State)


TABLES: Final = {(medium, side): table_of(medium, side) for medium in Medium for side in Side}


def union_of(medium: Medium, side: Side) -> Any:
    """Return the union of messages that one side may send over a medium, for a decoder."""
    kinds = {kind: None for kinds in TABLES[medium, side].values() for kind in kinds}
    real = (Refused if kind in _REFUSALS else kind for kind in kinds)
    return reduce(or_, dict.fromkeys(real))


_REFUSALS: Final = (RegisterRefused, ConnectionRefused)


class Conversation:
    """The state of one connection. A message that its state does not allow is a `ProtocolError`."""

    __slots__ = ("_from_hub", "_from_rank", "_medium", "_register", "state")

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._register = 0  # the number of the registration's request
        self._move(State.NEW)

    def _move(self, state: State) -> None:
        self.state = state
        # What may be sent now. It is looked up here because states change far less often than
        # messages are checked.
        self._from_rank = TABLES[self._medium, Side.RANK][state]
        self._from_hub = TABLES[self._medium, Side.HUB][state]

    def rank_says(self, message: Message) -> None:
        """Check a message from the rank, and move to the next state."""
        kind = type(message)
        then = self._from_rank.get(kind)
        if then is None:
            raise self._misplaced(kind, self._from_rank)
        if kind is Register:
            self._register = message.request  # type: ignore[attr-defined]
        if then is not self.state:
            self._move(then)

    def hub_says(self, message: Message) -> None:
        """Check a message from the hub or server, and move to the next state."""
        kind = type(message)
        if kind is Refused:
            kind = self._refusal(message.request)  # type: ignore[attr-defined]
        then = self._from_hub.get(kind)
        if then is None:
            raise self._misplaced(kind, self._from_hub)
        if then is not self.state:
            self._move(then)

    def _refusal(self, request: int) -> Kind:
        if request == 0:
            return ConnectionRefused
        if self.state is State.REGISTERING and request == self._register:
            return RegisterRefused
        return Refused

    def _misplaced(self, kind: Kind, allowed: Mapping[Kind, State]) -> ProtocolError:
        names = ", ".join(sorted({each.__name__ for each in allowed}))
        return ProtocolError(
            f"{kind.__name__} makes no sense now: the conversation is {self.state.value!r}; "
            f"expected {names or 'nothing more'}"
        )


# --- for the documentation -------------------------------------------------------------------


def diagram(medium: Medium) -> Iterator[str]:
    """Yield the states and their transitions as lines of a Mermaid diagram."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.NEW.value}"
    for side in Side:
        moves: dict[tuple[State, State], list[str]] = {}
        for state, kinds in TABLES[medium, side].items():
            for kind, then in kinds.items():
                if then is not state:
                    moves.setdefault((state, then), []).append(_name(kind))
        for (state, then), names in moves.items():
            who = _speaker(medium, side)
            yield f"    {state.value} --> {then.value}: {who}: {', '.join(names)}"
    yield f"    {State.ENDED.value} --> [*]"


def lists(medium: Medium) -> Iterator[str]:
    """Yield what each side may send in each state, as lines of a Markdown table."""
    yield f"| state | a rank may send | a {_speaker(medium, Side.HUB)} may send |"
    yield "|---|---|---|"
    for state in states_of(medium):
        cells = (", ".join(map(_name, TABLES[medium, side][state])) or "nothing" for side in Side)
        yield f"| {state.value} | {' | '.join(cells)} |"


def _speaker(medium: Medium, side: Side) -> str:
    if side is Side.RANK:
        return "rank"
    return "hub" if medium is Medium.UNIX else "server"


def _name(kind: Kind) -> str:
    names = {RegisterRefused: "Refused (of Register)", ConnectionRefused: "Refused (request 0)"}
    return names.get(kind, kind.__name__)
