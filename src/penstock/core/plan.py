"""Epoch arithmetic: which batches an epoch has, which rank takes which, and where to resume.

An epoch is one global list of batches: consecutive slices of one permutation of the inputs, or, if
these are in groups, of one permutation of each group. The list does not depend on ranks. In each
step, W ranks take the next W batches, rank r the r-th of them. After s steps from batch `first` on,
exactly the batches before `first + s·W` have been delivered, so one number says where an epoch
stands, for any number of ranks.

This module must not know permutations, graphs, processes or the time. It works on integers of any
size.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from penstock.options import Remainder

POSITION_VERSION: Final = 1


def num_batches(n: int, batch_size: int, drop_last: bool) -> int:
    """Return how many batches `n` inputs make; 0 for n <= 0."""
    n, batch_size = _integer("n", n), _integer("batch_size", batch_size, least=1)
    return _num_batches(n, batch_size, _boolean("drop_last", drop_last))


def _num_batches(n: int, batch_size: int, drop_last: bool) -> int:
    """Return what `num_batches` does, without checking the arguments."""
    n = max(0, n)
    return n // batch_size if drop_last else -(-n // batch_size)


def input_range(
    num_inputs: int, batch_size: int, drop_last: bool, index: int, groups: Sequence[int] = ()
) -> tuple[int, int]:
    """Return where batch `index` starts and stops in the order of the inputs.

    Groups are cut one after the other. Only the index is checked. The other arguments come from a
    plan or a feed, already checked.
    """
    left = _integer("index", index, 0, length_of(num_inputs, batch_size, drop_last, groups))
    first, size = 0, num_inputs
    for size in groups:
        if left < (batches := _num_batches(size, batch_size, drop_last)):
            break
        left, first = left - batches, first + size
    start = left * batch_size
    return first + start, first + min(start + batch_size, size)


def group_at(groups: Sequence[int], place: int) -> tuple[int, int]:
    """Return which group a place in the order of the inputs is in, and where that group starts."""
    first = 0
    for number, size in enumerate(groups):
        if place < first + size:
            return number, first
        first += size
    raise ValueError(f"place must be in range(0, {first}), got {place}")


def length_of(num_inputs: int, batch_size: int, drop_last: bool, groups: Sequence[int] = ()) -> int:
    """Return how many batches the list of an epoch has. The arguments are not checked."""
    if not groups:
        return _num_batches(num_inputs, batch_size, drop_last)
    return sum(_num_batches(size, batch_size, drop_last) for size in groups)


def static_split(n: int, batch_size: int, workers: int) -> tuple[tuple[int, int], ...]:
    """Return a slice (start, stop) of the `n` inputs for each worker: consecutive, without gaps.

    Complete batches are divided evenly, and lower ranks take the extra ones; the last worker also
    takes the remaining inputs. With fewer complete batches than workers, the slices of the higher
    ranks are otherwise empty. This is for display and hints only: which worker samples a batch is
    decided at run time.
    """
    n, batch_size = _integer("n", n, least=0), _integer("batch_size", batch_size, least=1)
    workers = _integer("workers", workers, least=1)
    share, extra = divmod(n // batch_size, workers)
    starts = [batch_size * (rank * share + min(rank, extra)) for rank in range(workers)]
    return tuple(pairwise([*starts, n]))


@dataclass(frozen=True, slots=True)
class Position:
    """The position of training: the first `delivered` batches of the list of `epoch` are done.

    It is the same for all ranks after the same number of steps, and contains neither rank nor world
    size, so any number of ranks can resume from it. It does not identify the list: the caller must
    make sure that inputs, batch size and seed are the same.
    """

    epoch: int = 0
    delivered: int = 0

    def __post_init__(self) -> None:
        _settle(self, "epoch", least=0)
        _settle(self, "delivered", least=0)

    def to_dict(self) -> dict[str, int]:
        """Return the position as plain data, for JSON and checkpoints."""
        return {"version": POSITION_VERSION, "epoch": self.epoch, "delivered": self.delivered}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Position:
        """Return the position that `to_dict` wrote; raise ValueError for anything else."""
        if not isinstance(state, Mapping):
            raise ValueError(f"state must be a mapping, got {state!r}")
        version = state.get("version")
        # The version is checked first, because another version may have other fields. Its type is
        # checked because True equals 1.
        if type(version) is not int or version != POSITION_VERSION:
            raise ValueError(f"version must be {POSITION_VERSION}, got {version!r}")
        for name, value in state.items():
            if name not in ("version", "epoch", "delivered"):
                raise ValueError(f"state must not have the field {name!r}, got {value!r}")
        return cls(state.get("epoch"), state.get("delivered"))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """One epoch's list of batches, and its division among `world_size` ranks from `first` on.

    Batches before `first` were delivered earlier, perhaps to another number of ranks. `first` need
    not be a multiple of `world_size`: rank r resumes with first + r, first + r + W, …, and the
    remainder policy applies to what is left. Wrapping continues at batch 0 of the whole list, so
    resuming with the same number of ranks gives the same batches as an epoch that never stopped.

    With `groups`, the inputs are consecutive groups of these sizes, and no batch has inputs of two:
    the last batch of each group may be short, and is the one that `drop_last` leaves out.

    The arguments are checked once, when a plan is made; plans derived from it are not checked
    again. `num_batches` is the length of the global list, independent of ranks and `first`;
    `batches_per_rank` is the number of steps from `first` on, the same for every rank.
    """

    num_inputs: int
    batch_size: int
    drop_last: bool = False
    world_size: int = 1
    remainder: Remainder = Remainder.WRAP
    first: int = 0
    groups: tuple[int, ...] = ()
    num_batches: int = field(init=False, repr=False, compare=False)
    batches_per_rank: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _settle(self, "num_inputs", least=0)
        _settle(self, "batch_size", least=1)
        _boolean("drop_last", self.drop_last)
        _settle(self, "world_size", least=1)
        if not isinstance(self.remainder, Remainder):
            raise ValueError(f"remainder must be a Remainder, got {self.remainder!r}")
        self._check_groups()
        total = length_of(self.num_inputs, self.batch_size, self.drop_last, self.groups)
        object.__setattr__(self, "num_batches", total)
        self._begin_at(self.first)

    def _check_groups(self) -> None:
        for number, size in enumerate(self.groups):
            _integer(f"groups[{number}]", size, least=0)
        if self.groups and sum(self.groups) != self.num_inputs:
            raise ValueError(
                f"groups have {sum(self.groups)} inputs; expected all {self.num_inputs} of them"
            )

    def _begin_at(self, first: int) -> None:
        """Set `first` and what follows from it; only for a plan that is still being made."""
        first = _integer("first", first, 0, self.num_batches + 1)
        drop = self.remainder is Remainder.DROP
        left = _num_batches(self.num_batches - first, self.world_size, drop)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "batches_per_rank", left)

    def starting_at(self, first: int) -> EpochPlan:
        """Return this plan from batch `first` of the list on."""
        plan = copy(self)
        plan._begin_at(first)
        return plan

    def input_range(self, index: int) -> tuple[int, int]:
        """Return where batch `index` starts and stops in the order of the inputs."""
        return input_range(self.num_inputs, self.batch_size, self.drop_last, index, self.groups)

    def global_index(self, rank: int, step: int) -> int:
        """Return which batch of the global list `rank` takes in `step`, counted from `first`."""
        rank = _integer("rank", rank, 0, self.world_size)
        step = _integer("step", step, 0, self.batches_per_rank)
        return (self.first + step * self.world_size + rank) % self.num_batches

    def indices(self, rank: int, start: int = 0) -> Iterator[int]:
        """Return the batches that `rank` takes, from step `start` to its last."""
        # The check is not in a generator's body, so that a mistake is raised at the call.
        rank = _integer("rank", rank, 0, self.world_size)
        start = _integer("start", start, 0, self.batches_per_rank + 1)
        return (self.global_index(rank, step) for step in range(start, self.batches_per_rank))

    def position(self, epoch: int, step: int) -> Position:
        """Return the position once all ranks have taken `step` batches of this plan in `epoch`.

        After the last step it is the start of the next epoch: batches that DROP left out stay out,
        even if another number of ranks resumes. A plan without steps is over at once.
        """
        epoch = _integer("epoch", epoch, least=0)
        step = _integer("step", step, 0, self.batches_per_rank + 1)
        if step == self.batches_per_rank:
            return Position(epoch + 1, 0)
        return Position(epoch, self.first + step * self.world_size)

    def resume(self, position: Position) -> EpochPlan:
        """Return this plan from `position` on, whose epoch has a list of the same length."""
        return self.starting_at(_integer("delivered", position.delivered, 0, self.num_batches + 1))


def _integer(name: str, value: Any, least: int | None = None, below: int | None = None) -> int:
    """Return `value` as a plain int; array scalars are accepted, floats and bools are refused."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer, got {value!r}") from None
    if isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if below is not None and number >= below:
        raise ValueError(f"{name} must be in range({least}, {below}), got {number}")
    return number


def _boolean(name: str, value: bool) -> bool:
    """Return `value` if it is a bool; a number here was probably meant for another argument."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def _settle(frozen: object, name: str, least: int) -> None:
    """Check a field of a frozen dataclass that is being made, and convert it to a plain int."""
    value = _integer(name, getattr(frozen, name), least)
    object.__setattr__(frozen, name, value)
