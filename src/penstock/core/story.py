"""What happened to a channel lately, for whoever has to explain how it came to this."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.events import Event, Instruction
from penstock.errors import PenstockError


class Entry(NamedTuple):
    """One event that touched the channel, and all that was answered to it."""

    event: Event
    instructions: tuple[Instruction, ...]

    def __str__(self) -> str:
        answers = ", ".join(map(str, self.instructions)) or "nothing"
        return f"{self.event} -> {answers}"


class Story:
    """The last `length` entries of a channel."""

    __slots__ = ("_entries",)

    def __init__(self, length: int) -> None:
        self._entries: deque[tuple[Event, tuple[Instruction, ...]]] = deque(maxlen=length)

    def add(self, entry: tuple[Event, tuple[Instruction, ...]]) -> None:
        """Adds an entry; adding the same object twice in a row counts once."""
        entries = self._entries
        if not entries or entries[-1] is not entry:
            entries.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        """Returns the entries, the oldest first."""
        return tuple(Entry(*entry) for entry in self._entries)


class SchedulerError(PenstockError, AssertionError):
    """Something impossible has happened: the scheduler cannot be trusted any more.

    Carries the story of the channel concerned.
    """

    def __init__(self, message: str, story: Iterable[Entry] = ()) -> None:
        self.message, self.story = message, tuple(story)
        super().__init__("\n".join([message, *(f"  {entry}" for entry in self.story)]))

    def __reduce__(self) -> tuple[type[SchedulerError], tuple[str, tuple[Entry, ...]]]:
        return type(self), (self.message, self.story)


class FalseReport(SchedulerError):
    """A worker reports what cannot be, such as a batch it was not given.

    The report was not taken into account; the scheduler itself is unharmed.
    """
