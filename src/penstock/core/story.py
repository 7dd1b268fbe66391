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
    """The last few entries. They are shared between stories and never change."""

    __slots__ = ("_entries",)

    def __init__(self, length: int) -> None:
        self._entries: deque[tuple[Event, tuple[Instruction, ...]]] = deque(maxlen=length)

    def add(self, entry: tuple[Event, tuple[Instruction, ...]]) -> None:
        """The same entry, told again, is told once."""
        entries = self._entries
        if not entries or entries[-1] is not entry:
            entries.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        return tuple(Entry(*entry) for entry in self._entries)

    def __deepcopy__(self, memo: dict[int, object]) -> Story:
        twin = Story(self._entries.maxlen or 1)
        twin._entries.extend(self._entries)
        return twin


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
