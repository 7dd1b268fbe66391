"""The recent history of a channel, which explains an error of the scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.events import Event, Instruction
from penstock.errors import PenstockError


class Entry(NamedTuple):
    """One event that touched the channel, and all instructions that were the answer."""

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
        """Add an entry; the same object twice in a row counts once."""
        entries = self._entries
        if not entries or entries[-1] is not entry:
            entries.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries, the oldest first."""
        return tuple(Entry(*entry) for entry in self._entries)


class SchedulerError(PenstockError, AssertionError):
    """Something impossible has happened: the scheduler must not be used any more.

    Contains the story of the channel concerned.
    """

    def __init__(self, message: str, story: Iterable[Entry] = ()) -> None:
        self.message, self.story = message, tuple(story)
        super().__init__("\n".join([message, *(f"  {entry}" for entry in self.story)]))

    def __reduce__(self) -> tuple[type[SchedulerError], tuple[str, tuple[Entry, ...]]]:
        return type(self), (self.message, self.story)


class FalseReport(SchedulerError):
    """A worker reports something impossible, such as a batch it was not given.

    The report was ignored; the scheduler's own state is still valid.
    """
