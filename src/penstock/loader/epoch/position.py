"""A loader's position as plain data: small, JSON-able, exact after every delivered batch.

A position is a number of batches of an epoch's list, which does not depend on workers or ranks. It
is saved with everything the list depends on, so that it is not used for another list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from penstock.core.plan import Position

STATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Course:
    """What each epoch's list of batches depends on, apart from the graph and the sampling.

    `order` says who decides the order of inputs: "given", "shuffled" or "sampler". `batch_size` is
    0 for a user's batch sampler, whose batches may have any size.
    """

    num_inputs: int
    batch_size: int
    drop_last: bool
    order: str
    seed: int


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A position in a course. `digest` is the digest of the epoch's order if a sampler gave it."""

    position: Position
    course: Course
    digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "epoch": self.position.epoch,
            "delivered": self.position.delivered,
            **asdict(self.course),
        }
        return state if self.digest is None else state | {"digest": self.digest}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LoaderState:
        """Read what `to_dict` wrote; ValueError for anything else."""
        if not isinstance(state, Mapping):
            raise ValueError(f"state is {state!r}; expected what state_dict() gave")
        version = state.get("version")
        if type(version) is not int or version != STATE_VERSION:
            raise ValueError(f"state has version {version!r}; this Penstock reads {STATE_VERSION}")
        wanted = {"version", "epoch", "delivered", *Course.__dataclass_fields__}
        if missing := wanted - state.keys():
            raise ValueError(f"state lacks {', '.join(sorted(missing))}")
        if unknown := state.keys() - wanted - {"digest"}:
            raise ValueError(f"state has {', '.join(map(repr, sorted(unknown)))}, unknown here")
        course = Course(**{name: state[name] for name in Course.__dataclass_fields__})
        return cls(Position(state["epoch"], state["delivered"]), course, state.get("digest"))

    def for_course(self, course: Course, *, seed_is_given: bool) -> LoaderState:
        """Return this state for a loader of another course; ValueError if the lists differ.

        If the loader was given no seed, the state's seed is used, since the loader's own was
        arbitrary.
        """
        for name in Course.__dataclass_fields__:
            saved, here = getattr(self.course, name), getattr(course, name)
            if saved != here and (name != "seed" or seed_is_given):
                raise ValueError(
                    f"the state was saved with {_said(name, saved)}, but this loader has "
                    f"{_said(name, here)}: its batches are others, so it cannot go on from there"
                )
        return replace(self, course=replace(course, seed=self.course.seed))


def _said(name: str, value: Any) -> str:
    return f"{name}={value!r}" if name != "order" else f"its inputs in an order that is {value!r}"


def digest_of(order: np.ndarray[Any, Any]) -> str:
    """Return a short digest that distinguishes one order from another."""
    return hashlib.blake2b(np.ascontiguousarray(order, "<i8").tobytes(), digest_size=8).hexdigest()
