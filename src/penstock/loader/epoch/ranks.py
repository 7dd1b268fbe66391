"""Find out which rank this process is, and of how many.

The user says it, or it is found where PyTorch's launchers leave it. Nothing here communicates with
other ranks.
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
    """This process is number `rank` of `world_size`; `told_by` names the source of that."""

    rank: int = 0
    world_size: int = 1
    told_by: str = "nobody"

    @property
    def is_found(self) -> bool:
        """Return whether batches are shared among ranks without an explicit argument for it."""
        return self.world_size > 1 and self.told_by != "arguments"


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


def tell_once(ranks: RankShare) -> None:
    """Log once that batches are shared among ranks, which scripts for PyG do themselves."""
    if ranks not in _told:
        _told.add(ranks)
        log.warning(
            "rank %d of %d, as %s has it: loaders take one batch in %d of the list. If their "
            "inputs are this rank's share already, give rank=0 and world_size=1",
            ranks.rank,
            ranks.world_size,
            ranks.told_by,
            ranks.world_size,
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
