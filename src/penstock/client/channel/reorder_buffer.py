"""One epoch as its reader sees it: what is due, what has come too early, what is behind.

The hub delivers batches as they are finished; a reader wants them in order of steps. Here they wait
for each other. Pure bookkeeping: what a step's content is, or where from, is others' affair.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.core.plan import EpochPlan

Content = TypeVar("Content")
# A step that was opened: its batch, or what became of it. It waits for its reader to return.
Opened: TypeAlias = tuple[int, Any, Exception | None]
NOTHING_OPEN: Final[Opened] = (-1, None, None)


class ReorderBuffer(Generic[Content]):
    """The steps of one epoch of one rank, from `first_step` on; each taken exactly once."""

    def __init__(self, epoch: int, plan: EpochPlan, rank: int, first_step: int = 0) -> None:
        # How many steps the epoch has, those before `first_step` included.
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
        """Whether what is due was opened, and its reader was interrupted before it had it."""
        return self.opened[0] == self.due

    @property
    def over(self) -> bool:
        """Whether the reader has been given everything."""
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
        """How many steps have come and not been fetched."""
        return len(self._early)

    def accept(self, step: int, content: Content) -> bool:
        """Keeps what has come of a step. False if it is not wanted: behind, twice, or no step."""
        if not self.due <= step < self.total or step in self._early or step == self.opened[0]:
            return False
        self._early[step] = content
        return True

    def take(self) -> Content:
        """Returns what is due, which is there. It is delivered once `due` has moved on."""
        return self._early.pop(self.due)

    def index(self, step: int) -> int:
        """Which batch of the global list a step is."""
        return self.plan.global_index(self.rank, step)

    def resume(self) -> tuple[int, list[Content]]:
        """The first step that has not come, and what came after it, which is let go."""
        step = self.due + self.is_open
        while step in self._early:
            step += 1
        beyond = [self._early.pop(later) for later in sorted(self._early) if later > step]
        return step, beyond

    def abandon(self) -> list[Content]:
        """Lets go of everything that has come."""
        early, self._early, self.opened = self._early, {}, NOTHING_OPEN
        return list(early.values())
