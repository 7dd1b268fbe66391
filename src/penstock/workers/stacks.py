"""Parses the Python stacks that `faulthandler` printed in a worker.

It prints them when a process crashes in native code, and when we ask for them. This module reads
text, and knows nothing of processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_FATAL: Final = re.compile(r"^Fatal Python error: (?:\w+: )?(.*)$")
_THREAD: Final = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$")
_FRAME: Final = re.compile(r'^  (File ".*", line .* in .*|<.*>|\.\.\.)$')
_EXTENSIONS: Final = re.compile(r"^Extension modules: (.*?)(?: \(total: \d+\))?$")


@dataclass(frozen=True, slots=True)
class Stack:
    """One thread's calls, innermost first. `current`: the thread that crashed or was signalled."""

    current: bool
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump of all stacks; `reason` is set only if a crash was the cause."""

    reason: str | None
    stacks: tuple[Stack, ...]
    extensions: tuple[str, ...]


@dataclass(slots=True)
class _Draft:
    reason: str | None = None
    stacks: list[tuple[bool, list[str]]] = field(default_factory=list)
    extensions: tuple[str, ...] = ()
    lines: set[int] = field(default_factory=set)

    def dump(self) -> Dump:
        stacks = tuple(Stack(current, tuple(frames)) for current, frames in self.stacks)
        # The current thread first; a stable order otherwise.
        ordered = sorted(stacks, key=lambda stack: not stack.current)
        return Dump(self.reason, tuple(ordered), self.extensions)


def last_dump(text: str) -> tuple[Dump | None, str]:
    """Return the last stacks in `text`, if there are any, and the text without them."""
    lines = text.splitlines()
    drafts = [draft for draft in _drafts(lines) if draft.stacks]
    if not drafts:
        return None, text
    rest = (line for number, line in enumerate(lines) if number not in drafts[-1].lines)
    return drafts[-1].dump(), "\n".join(rest).strip("\n")


def last_exception(text: str) -> str | None:
    """Return the line with the exception of the last traceback in `text`."""
    _, traceback, after = text.rpartition("Traceback (most recent call last):\n")
    if not traceback:
        return None
    # The lines of a traceback are indented; the first that is not ends it.
    return next((line for line in after.splitlines() if line and not line.startswith(" ")), None)


def _drafts(lines: list[str]) -> list[_Draft]:
    """Group lines into dumps; a line of another kind ends a dump."""
    drafts = [_Draft()]
    for number, line in enumerate(lines):
        draft = drafts[-1]
        if match := _FATAL.match(line):
            draft = _Draft(reason=match[1])
            drafts.append(draft)
        elif match := _THREAD.match(line):
            if any(current for current, _ in draft.stacks):
                draft = _Draft()  # the current thread comes last: this is another dump
                drafts.append(draft)
            draft.stacks.append((match[1] == "Current thread", []))
        elif draft.stacks and (match := _FRAME.match(line)):
            draft.stacks[-1][1].append(match[1])
        elif draft.stacks and (match := _EXTENSIONS.match(line)):
            draft.extensions = tuple(match[1].split(", "))
        elif line:
            drafts.append(_Draft())
            continue
        draft.lines.add(number)
    return drafts
