"""Which word may follow which between a rank and a server: two tables, and nothing else decides.

One connection is one conversation. Both sides keep to the same tables, each hearing what the other
says; they are made so that words which cross on their way do no harm. What a word says (whose
channel, which slot) is for those to check who act on it.

The diagram and the lists in docs/protocol.md are made from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

from penstock.errors import ProtocolError
from penstock.wire.messages import (
    BatchLost,
    BatchReady,
    ChannelBroken,
    EpochDone,
    Message,
    Refused,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Unregister,
)
from penstock.wire.remote import (
    Answer,
    Call,
    Enroll,
    Enrolled,
    Goodbye,
    Greeting,
    Knock,
    Leaving,
    Part,
    Piece,
    Pulse,
    Taken,
)


class State(Enum):
    """How far a conversation has come."""

    STRANGER = "stranger"  # nothing has been said
    KNOCKED = "knocked"  # the server is to greet, or to refuse
    GREETED = "greeted"  # questions may be asked, a channel opened
    ENROLLING = "enrolling"  # inputs come in, the hub is asked
    ENROLLED = "enrolled"  # a channel is open
    LEFT = "left"  # the channel was given up; what was on its way may still come
    ENDED = "ended"


# A `Refused` is one of three, and only this module tells them apart by its number.
class EnrolmentRefused(Message, frozen=True, kw_only=True):
    """Never sent: a Refused whose number is the enrolment's."""


class SessionRefused(Message, frozen=True, kw_only=True):
    """Never sent: a Refused whose number is 0. The conversation is over."""


Word: TypeAlias = type[Message]
Table: TypeAlias = Mapping[tuple[State, Word], State]

_S = State
# Whoever was greeted may ask, whatever else is going on.
_TALKING: Final = (_S.GREETED, _S.ENROLLING, _S.ENROLLED, _S.LEFT)
_ABOUT_A_CHANNEL: Final = (StartEpoch, ReturnSlot, Reweigh)
_OF_A_CHANNEL: Final = (BatchReady, Piece, BatchLost, EpochDone, ChannelBroken)


def _staying(states: tuple[State, ...], *words: Word) -> dict[tuple[State, Word], State]:
    return {(state, word): state for state in states for word in words}


# What a rank says, and what state it leads to.
RANK_SAYS: Final[Table] = MappingProxyType(
    {
        (_S.STRANGER, Knock): _S.KNOCKED,
        (_S.GREETED, Enroll): _S.ENROLLING,
        **_staying(_TALKING, Call, Part),
        **_staying((_S.ENROLLED, _S.LEFT), *_ABOUT_A_CHANNEL),
        (_S.ENROLLED, Unregister): _S.LEFT,
        (_S.LEFT, Unregister): _S.LEFT,
        **{(state, Goodbye): _S.ENDED for state in _TALKING},
    }
)

# What a server says, and what state it leads to.
SERVER_SAYS: Final[Table] = MappingProxyType(
    {
        (_S.KNOCKED, Greeting): _S.GREETED,
        (_S.ENROLLING, Enrolled): _S.ENROLLED,
        (_S.ENROLLING, EnrolmentRefused): _S.GREETED,
        **_staying((_S.ENROLLED, _S.LEFT), *_OF_A_CHANNEL),
        **_staying(_TALKING, Answer, Part, Refused, Taken, Pulse, Leaving),
        **{(state, SessionRefused): _S.ENDED for state in (_S.STRANGER, _S.KNOCKED, *_TALKING)},
    }
)


class Conversation:
    """One connection's place in the tables. Words in the wrong place are `ProtocolError`s."""

    def __init__(self) -> None:
        self.state = State.STRANGER
        self._enrolling = 0  # the number of the enrolment's request

    def rank_says(self, message: Message) -> None:
        """A word of the rank's."""
        self.state = _next(RANK_SAYS, self.state, type(message))
        if isinstance(message, Enroll):
            self._enrolling = message.request

    def server_says(self, message: Message) -> None:
        """A word of the server's."""
        self.state = _next(SERVER_SAYS, self.state, self._word(message))

    def _word(self, message: Message) -> Word:
        if isinstance(message, Refused):
            if message.request == 0:
                return SessionRefused
            if self.state is State.ENROLLING and message.request == self._enrolling:
                return EnrolmentRefused
        return type(message)


def _next(table: Table, state: State, word: Word) -> State:
    try:
        return table[state, word]
    except KeyError:
        expected = ", ".join(sorted(word.__name__ for at, word in table if at is state))
        raise ProtocolError(
            f"{word.__name__} makes no sense now: the conversation is {state.value!r}; "
            f"expected {expected or 'nothing more'}"
        ) from None


# --- for the documentation -------------------------------------------------------------------


def diagram() -> Iterator[str]:
    """The states and what leads from one to another, as lines of a Mermaid diagram."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.STRANGER.value}"
    for speaker, table in (("rank", RANK_SAYS), ("server", SERVER_SAYS)):
        moves: dict[tuple[State, State], list[str]] = {}
        for (state, word), then in table.items():
            if then is not state:
                moves.setdefault((state, then), []).append(_name(word))
        for (state, then), words in moves.items():
            yield f"    {state.value} --> {then.value}: {speaker}: {', '.join(words)}"
    yield f"    {State.ENDED.value} --> [*]"


def lists() -> Iterator[str]:
    """What each side may say in each state, as lines of a Markdown table."""
    yield "| state | a rank may say | a server may say |"
    yield "|---|---|---|"
    for state in State:
        cells = (
            ", ".join(_name(word) for at, word in table if at is state) or "nothing"
            for table in (RANK_SAYS, SERVER_SAYS)
        )
        yield f"| {state.value} | {' | '.join(cells)} |"


def _name(word: Word) -> str:
    refusals = {EnrolmentRefused: "Refused (the enrolment)", SessionRefused: "Refused (request 0)"}
    return refusals.get(word, word.__name__)
