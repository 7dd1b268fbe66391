"""One epoch of one channel: which steps are still to be handed out, and how the others ended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Epoch:
    """The steps of an epoch, handed out in order; each ends delivered, failed or cancelled."""

    number: int
    steps: range
    open: bool = True
    given: int = 0
    delivered: int = 0
    failed: int = 0
    cancelled: int = 0
    substitutes: int = 0
    spoiled: dict[int, str] = field(default_factory=dict)  # steps that cannot be made, and why
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = len(self.steps)

    @classmethod
    def closed(cls, number: int) -> Epoch:
        """Return an epoch without steps that is already over."""
        return cls(number, range(0), open=False)

    @property
    def ended(self) -> int:
        return self.delivered + self.failed + self.cancelled

    def next_step(self) -> int:
        self.given += 1
        return self.steps[self.given - 1]

    def close(self) -> None:
        """End the epoch and count every step that has not ended as cancelled."""
        self.cancelled = self.total - self.delivered - self.failed
        self.open = False

    def next_source(self, step: int) -> int | None:
        """Return a step's substitute: the next one, cyclically, that is not spoiled, if any."""
        start = self.steps.index(step)
        for distance in range(1, self.total):
            candidate = self.steps[(start + distance) % self.total]
            if candidate not in self.spoiled:
                return candidate
        return None
