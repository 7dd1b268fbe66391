"""One epoch as its reader sees it: which step is due, and which have come early.

The hub delivers batches as they are finished, but a reader wants them in order of steps; here they
wait. This is only bookkeeping: it does not know what a step's content is or where it came from.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.core.plan import EpochPlan

Content = TypeVar("Content")
# A step that was opened: its number, its batch, or its error. It is kept until `next` returns it.
Opened: TypeAlias = tuple[int, Any, Exception | None]
NOTHING_OPEN: Final[Opened] = (-1, None, None)


class ReorderBuffer(Generic[Content]):
    """The steps of one epoch of one rank, from `first_step` on; each is taken exactly once."""

    def __init__(self, epoch: int, plan: EpochPlan, rank: int, first_step: int = 0) -> None:
        # All steps of the epoch, including those before `first_step`.
        self.total = plan.batches_per_rank
        if not 0 <= first_step <= self.total:
            raise ValueError(f"first_step is {first_step}; the epoch has {self.total} steps")
        self.epoch = epoch
        self.plan = plan
        self.rank = rank
        self.first_step = first_step
        self.due = first_step
        self.opened = NOTHING_OPEN
        self._early: dict[int, Content] = {}

    @property
    def is_open(self) -> bool:
        """Whether the due step was opened, but its reader was interrupted before it got it."""
        return self.opened[0] == self.due

    @property
    def over(self) -> bool:
        """Whether the reader has got everything."""
        return self.due >= self.total

    @property
    def ready(self) -> bool:
        """Whether the next call need not wait."""
        return self.due >= self.total or self.due in self._early or self.is_open

    @property
    def complete(self) -> bool:
        """Whether every step has ended; the reader may still have to fetch the last ones."""
        return self.due + len(self._early) + self.is_open >= self.total

    @property
    def waiting(self) -> int:
        """How many steps have come and were not fetched yet."""
        return len(self._early)

    def accept(self, step: int, content: Content) -> bool:
        """Keep the content of a step; return False if it is behind, came twice, or is no step."""
        if not self.due <= step < self.total or step in self._early or step == self.opened[0]:
            return False
        self._early[step] = content
        return True

    def take(self) -> Content:
        """Remove and return the due step's content, which must have come; `due` stays as it is."""
        return self._early.pop(self.due)

    def index(self, step: int) -> int:
        """Return the index of a step's batch in the list for all ranks."""
        return self.plan.global_index(self.rank, step)

    def resume(self) -> tuple[int, list[Content]]:
        """Return the first step that has not come, and the contents after it, which are removed."""
        step = self.due + self.is_open
        while step in self._early:
            step += 1
        beyond = [self._early.pop(later) for later in sorted(self._early) if later > step]
        return step, beyond

    def abandon(self) -> list[Content]:
        """Remove and return everything that has come."""
        early, self._early, self.opened = self._early, {}, NOTHING_OPEN
        return list(early.values())
