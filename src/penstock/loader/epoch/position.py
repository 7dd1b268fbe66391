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
    0 for a user's batch sampler, whose batches may have any size. `world_size` is the number of
    ranks of which each has inputs of its own; None if all of them share one list.
    """

    num_inputs: int
    batch_size: int
    drop_last: bool
    order: str
    seed: int
    world_size: int | None = None


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A position in a course. `digest` is the digest of the epoch's order if a sampler gave it.

    `rank` is the rank whose course it is, if each rank has inputs of its own.
    """

    position: Position
    course: Course
    digest: str | None = None
    rank: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "epoch": self.position.epoch,
            "delivered": self.position.delivered,
            **asdict(self.course),
        }
        if self.course.world_size is None:
            del state["world_size"]
        else:
            state["rank"] = self.rank
        return state if self.digest is None else state | {"digest": self.digest}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LoaderState:
        """Read what `to_dict` wrote; ValueError for anything else."""
        if not isinstance(state, Mapping):
            raise ValueError(f"state is {state!r}; expected what state_dict() gave")
        version = state.get("version")
        if type(version) is not int or version != STATE_VERSION:
            raise ValueError(f"state has version {version!r}; this Penstock reads {STATE_VERSION}")
        wanted = {"version", "epoch", "delivered", *Course.__dataclass_fields__} - {"world_size"}
        if missing := wanted - state.keys():
            raise ValueError(f"state lacks {', '.join(sorted(missing))}")
        if unknown := state.keys() - wanted - {"digest", "rank", "world_size"}:
            raise ValueError(f"state has {', '.join(map(repr, sorted(unknown)))}, unknown here")
        names = Course.__dataclass_fields__.keys() & state.keys()
        course = Course(**{name: state[name] for name in names})
        position = Position(state["epoch"], state["delivered"])
        return cls(position, course, state.get("digest"), state.get("rank", 0))

    def for_course(self, course: Course, *, seed_is_given: bool, rank: int) -> LoaderState:
        """Return this state for a loader of another course; ValueError if the lists differ.

        If the loader was given no seed, the state's seed is used, since the loader's own was
        arbitrary; but not another rank's, if each rank has inputs, and so a seed, of its own.
        """
        for name in Course.__dataclass_fields__:
            saved, here = getattr(self.course, name), getattr(course, name)
            if saved != here and (name != "seed" or seed_is_given):
                raise ValueError(
                    f"the state was saved with {_said(name, saved)}, but this loader has "
                    f"{_said(name, here)}: its batches are others, so it cannot go on from there"
                )
        if course.world_size is not None and self.rank != rank and self.course.seed != course.seed:
            raise ValueError(
                f"the state was saved by rank {self.rank}, and this is rank {rank}: each has "
                "inputs of its own, and drew a seed of its own. Let every rank save and load its "
                "own state, or give seed, the same on every rank"
            )
        return replace(self, course=replace(course, seed=self.course.seed), rank=rank)


def _said(name: str, value: Any) -> str:
    if name == "order":
        return f"its inputs in an order that is {value!r}"
    if name == "world_size":
        one, own = "one list of inputs for all ranks", "inputs of its own for each of"
        return one if value is None else f"{own} {value} ranks (world_size={value})"
    return f"{name}={value!r}"


def digest_of(order: np.ndarray[Any, Any]) -> str:
    """Return a short digest that distinguishes one order from another."""
    return hashlib.blake2b(np.ascontiguousarray(order, "<i8").tobytes(), digest_size=8).hexdigest()
