"""Batches that failed: a description for the autopsy, and a recipe to replay them.

A recipe is written only when a batch is given up, because most batches whose worker died succeed
when they are tried again. The folder belongs to this user, and only the newest recipes are kept.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import stat
import tempfile
from collections.abc import Callable
from typing import Final

from penstock.core.events import BatchKey
from penstock.hub.channels import HubChannel, given_by
from penstock.hub.state import HubState
from penstock.kernels.arrays import Ids
from penstock.sampling.inputs import (
    ChannelInputs,
    positions_of,
    request_of,
    seeds_at,
    stretch_of,
)
from penstock.sampling.request import Request
from penstock.sampling.spec import Feed
from penstock.workers.incident import HeldBatch
from penstock.workers.recipe import Recipe, for_batch

log = logging.getLogger(__name__)

FOLDER_VARIABLE: Final = "PENSTOCK_RECIPES"
SEEDS_SHOWN: Final = 16
RECIPES: Final = 16  # recipes written in one epoch of a channel
# The most numbers in a recipe, so that writing it does not block the hub for long.
LARGEST: Final = 1 << 20


def held_batch(channel: HubChannel, batch: BatchKey, index: int, attempt: int) -> HeldBatch:
    """Return what is known of a batch that could not be made, including its first seeds."""
    try:
        seeds = first_seeds(channel.feed, given_by(channel.feed, channel.ids), batch.epoch, index)
    except (OSError, ValueError):  # the file of inputs is gone: perhaps the cause
        seeds = (), 0
    return HeldBatch(
        channel.options.job, batch.channel, batch.epoch, batch.step, index, attempt, *seeds
    )


def first_seeds(
    feed: Feed, given: ChannelInputs, epoch: int, index: int
) -> tuple[tuple[int | str, ...], int]:
    """Return the first inputs of a batch, for display, and how many it has."""
    start, stop = stretch_of(feed, epoch, index)
    few = positions_of(feed, epoch, index, SEEDS_SHOWN)
    return _shown(seeds_at(few, given.ids)), stop - start


def replay_command(make: Callable[[], Recipe]) -> str | None:
    """Write the recipe that `make` returns, and return the command that replays it.

    None if it cannot be written. The user has to name the graph if only this process has it.
    """
    try:
        recipe = make()
        path = recipe.write(recipe_folder())
    except (OSError, TypeError, ValueError) as error:
        log.warning("no recipe could be written: %s", error)
        return None
    command = f"penstock replay {shlex.quote(path)}"
    return command if recipe.knows_graph else f"{command} --graph PATH"


def recipe_folder() -> str:
    """Return the folder for recipes: from the environment, or in the temporary directory."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    folder = os.path.join(tempfile.gettempdir(), f"penstock-{os.geteuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    # All users may write to the temporary directory, so another user may have made the folder.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to somebody else (setting: {FOLDER_VARIABLE})")
    return folder


def recipe_of(state: HubState, channel: HubChannel, epoch: int, index: int) -> Recipe:
    return for_batch(
        spec=channel.backend.spec,
        feed=channel.feed,
        epoch=epoch,
        index=index,
        graph=state.graph.founded,
        request=request_for(channel.feed, given_by(channel.feed, channel.ids), epoch, index),
        address=state.config.address,
        job=channel.options.job,
        channel=channel.number,
        search_path=state.config.search_path,
    )


def request_for(feed: Feed, given: ChannelInputs, epoch: int, index: int) -> Request:
    """Return the inputs of a batch. They are copied, so very large ones raise ValueError."""
    start, stop = stretch_of(feed, epoch, index)
    columns = [math.prod(column.shape[1:]) for column in given.columns.values()]
    if (stop - start) * (2 + sum(columns)) > LARGEST:
        raise ValueError(f"batch {index} has more than {LARGEST} numbers to record")
    return request_of(feed, given, epoch, index)


def _shown(seeds: Ids) -> tuple[int | str, ...]:
    """Return inputs for display: nodes as ids, edges as "source->destination"."""
    if seeds.ndim == 1:
        return tuple(seeds.tolist())
    return tuple(f"{source}->{destination}" for source, destination in seeds.T.tolist())
