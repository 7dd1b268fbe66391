"""What happened to a channel lately, for whoever has to explain how it came to this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.events import Event, Instruction
from penstock.core.recap import Recap
from penstock.errors import PenstockError


class Entry(NamedTuple):
    """One event that touched the channel, and all that was answered to it.

    The first may be a recap instead, of all that happened before.
    """

    event: Event | Recap
    instructions: tuple[Instruction, ...]

    def __str__(self) -> str:
        if isinstance(self.event, Recap):
            return f"before that: {self.event}"
        answers = ", ".join(map(str, self.instructions)) or "nothing"
        return f"{self.event} -> {answers}"


Told = tuple[Event | Recap, tuple[Instruction, ...]]


class Story:
    """The last few entries, and a recap of what was before them.

    It is told in chapters: this one and the last are kept. A recap is made at the end of each, so
    that it costs little, and begins the story once that chapter is forgotten.
    """

    __slots__ = ("_chapter", "_last", "_length", "_recap", "_told")

    def __init__(self, length: int) -> None:
        self._length = (length + 1) // 2  # of a chapter
        self._told: list[Told] = []  # the chapter before this one, with the recap before it
        self._recap: list[Told] = []  # between the two
        self._chapter: list[Told] = []
        self._last: Told | None = None

    def add(self, entry: Told) -> bool:
        """The same entry, told again, is told once. Whether that ends a chapter: `turn` it then."""
        if self._last is entry:
            return False
        self._last = entry
        self._chapter.append(entry)
        return len(self._chapter) >= self._length

    def turn(self, recap: Recap) -> None:
        """A new chapter; `recap` is how things are at its beginning."""
        self._told = [*self._recap, *self._chapter]
        self._recap, self._chapter = [(recap, ())], []

    def entries(self) -> tuple[Entry, ...]:
        return tuple(Entry(*entry) for entry in (*self._told, *self._chapter))


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
