"""What went wrong with a batch, for people: the batch, and how the facts about it are laid out.

Deaths of workers (`autopsy`) and exceptions (`failures`) are told in the same form: what happened
first, then the facts by name, then the command that samples the batch again. Secrets are not among
the facts: neither environment variables nor values of variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_SEEDS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """The batch that was being made. `seeds` are the first few of `num_seeds`."""

    job: str
    channel: int | None  # None without a hub
    epoch: int
    step: int
    index: int
    attempt: int = 1
    seeds: tuple[int | str, ...] = ()
    num_seeds: int = 0

    def describe(self) -> str:
        job = f"job {self.job!r}, " if self.job else ""
        channel = "" if self.channel is None else f"channel {self.channel}, "
        where = f"{channel}epoch {self.epoch}, batch {self.index}"
        return f"{job}{where} (step {self.step}, attempt {self.attempt})"

    def describe_seeds(self) -> str:
        shown = ", ".join(map(str, self.seeds[:_SEEDS_SHOWN]))
        more = ", …" if self.num_seeds > min(len(self.seeds), _SEEDS_SHOWN) else ""
        return f"{shown}{more} ({self.num_seeds} in all)"


def chapter(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a report about one fact; its name is before the first."""
    for number, line in enumerate(lines):
        yield f"  {name if number == 0 else '':<8} {line}"


def again(command: str | None) -> Iterator[str]:
    """Yield the last lines of a report: how to sample the batch again."""
    if command is not None:
        yield "To sample this batch again, in the foreground:"
        yield f"  {command}"


def megabytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"
