"""Find out which rank this process is, and of how many.

The user says it, or it is found where PyTorch's launchers leave it. Ranks that were only found
share a split that is named; ids, masks and None are read whole, as PyG's loaders read them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from penstock.core.plan import EpochPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankShare:
    """A loader takes the share of number `rank` of `world_size`; `told_by` names who says so.

    `process` is this process among others, if its loader takes no share but reads all it was given.
    """

    rank: int = 0
    world_size: int = 1
    told_by: str = "nobody"
    process: RankShare | None = None

    @property
    def is_found(self) -> bool:
        """Return whether batches are shared among ranks without an explicit argument for it."""
        return self.world_size > 1 and self.told_by != "arguments"

    @property
    def process_rank(self) -> int:
        """The rank of this process, whatever its loader reads."""
        return self.rank if self.process is None else self.process.rank

    def for_own_inputs(self) -> RankShare:
        """Return the share of inputs that are this rank's own: all, unless arguments say less."""
        return RankShare(told_by=self.told_by, process=self) if self.is_found else self


def ranks_of(
    rank: Any = None, world_size: Any = None, environment: Mapping[str, str] | None = None
) -> RankShare:
    """Return the rank and world size of this process.

    They come from the arguments, else from `torch.distributed`, else from torchrun's environment;
    else this process is the only rank. `ValueError` if only one of the two arguments is given.
    """
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        value = rank if world_size is None else world_size
        raise ValueError(f"{given} is {value!r}, but {missing} is not given: give both, or neither")
    if rank is not None:
        return _checked(rank, world_size, "arguments")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        found = torch.distributed.get_rank(), torch.distributed.get_world_size()
        return _checked(*found, "torch.distributed")
    return _from_environment(os.environ if environment is None else environment)


def _from_environment(environment: Mapping[str, str]) -> RankShare:
    rank, world_size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if not rank or not world_size:
        return RankShare()
    try:
        return _checked(int(rank), int(world_size), "the environment")
    except ValueError as error:
        raise ValueError(
            f"the environment says RANK={rank!r}, WORLD_SIZE={world_size!r}: {error}"
        ) from None


def _checked(rank: Any, world_size: Any, told_by: str) -> RankShare:
    # EpochPlan has the checks for these numbers, and accepts scalars of any library.
    plan = EpochPlan(world_size, 1, world_size=world_size)
    return RankShare(plan.global_index(rank, 0), plan.world_size, told_by)


def others_have(inputs: str) -> bool | None:
    """Return whether another rank has asked about the same inputs; None if ranks cannot be asked.

    A message to the store by which ranks of torch.distributed found each other: nobody waits for
    other ranks, so the last of them knows, and the first does not.

    Args:
        inputs: a digest of the inputs.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    if inputs not in _count:
        try:
            store = torch.distributed.distributed_c10d._get_default_store()
            _count[inputs] = store.add(f"penstock/inputs/{inputs}", 1)
        except (RuntimeError, AttributeError) as error:  # a group by MPI has no store
            log.debug("ranks cannot be asked for their inputs: %s", error)
            return None
    return _count[inputs] > 1


def warn_of_same_inputs(name: str, ranks: RankShare) -> None:
    """Log, once in a process, that every rank trains on all inputs instead of a share of them."""
    process = ranks.process
    assert process is not None
    if process not in _told:
        _told.add(process)
        log.warning(
            "%s: all %d ranks (as %s has it) were given the same inputs, and each reads all of "
            "them. To share them out, give rank=%d and world_size=%d here, or the name of a split, "
            "or split them by hand. If every rank is to read them all, give rank=0 and "
            "world_size=1",
            name,
            process.world_size,
            process.told_by,
            process.rank,
            process.world_size,
        )


def tell_of_share(name: str, ranks: RankShare) -> None:
    """Log that a loader without shuffling, as for inference, reads only this rank's share."""
    log.warning(
        "%s is not shuffled, and reads one batch in %d (rank %d of %d, as %s has it): for all of "
        "its inputs, as in inference, give rank=0 and world_size=1",
        name,
        ranks.world_size,
        ranks.rank,
        ranks.world_size,
        ranks.told_by,
    )


_told: set[RankShare] = set()
_count: dict[str, int] = {}  # by digest of inputs: how many ranks had them when this one asked
