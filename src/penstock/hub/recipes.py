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
from typing import Final

import numpy as np

from penstock.hub.channels import HubChannel, given_by
from penstock.hub.state import HubState
from penstock.hub.worker_records import Assignment
from penstock.kernels.arrays import Ids
from penstock.sampling.inputs import positions_of, request_of, seeds_at, stretch_of
from penstock.sampling.request import Request
from penstock.workers.autopsy import HeldBatch
from penstock.workers.recipe import Recipe, for_batch

log = logging.getLogger(__name__)

FOLDER_VARIABLE: Final = "PENSTOCK_RECIPES"
SEEDS_SHOWN: Final = 16
# The most numbers in a recipe, so that writing it does not block the hub for long.
LARGEST: Final = 1 << 20


def held_batch(task: Assignment, channel: HubChannel) -> HeldBatch:
    """Return what is known of the batch that a worker died with, including its first seeds."""
    feed, num_seeds = channel.feed, 0
    try:
        start, stop = stretch_of(feed, task.index)
        few = positions_of(feed, task.batch.epoch, task.index, SEEDS_SHOWN)
        seeds, num_seeds = seeds_at(few, given_by(feed, channel.ids).ids), stop - start
    except (OSError, ValueError):  # the file of inputs is gone: perhaps the cause of the death
        seeds = np.empty(0, np.int64)
    return HeldBatch(
        job=channel.options.job,
        channel=task.batch.channel,
        epoch=task.batch.epoch,
        step=task.batch.step,
        index=task.index,
        attempt=task.attempt,
        seeds=_shown(seeds),
        num_seeds=num_seeds,
    )


def replay_command(state: HubState, channel: HubChannel, epoch: int, index: int) -> str | None:
    """Write a recipe, and return the command that replays it; None if it cannot be written."""
    try:
        path = _recipe(state, channel, epoch, index).write(recipe_folder())
    except (OSError, ValueError) as error:
        log.warning("no recipe could be written: %s", error)
        return None
    return f"penstock replay {shlex.quote(path)}"


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


def _recipe(state: HubState, channel: HubChannel, epoch: int, index: int) -> Recipe:
    return for_batch(
        spec=channel.backend.spec,
        feed=channel.feed,
        epoch=epoch,
        index=index,
        graph=state.graph.founded,
        request=_request(channel, epoch, index),
        address=state.config.address,
        job=channel.options.job,
        channel=channel.number,
        search_path=state.config.search_path,
    )


def _request(channel: HubChannel, epoch: int, index: int) -> Request:
    """Return the inputs of a batch. They are copied, so very large ones raise ValueError."""
    feed, given = channel.feed, given_by(channel.feed, channel.ids)
    start, stop = stretch_of(feed, index)
    columns = [math.prod(column.shape[1:]) for column in given.columns.values()]
    if (stop - start) * (2 + sum(columns)) > LARGEST:
        raise ValueError(f"batch {index} has more than {LARGEST} numbers to record")
    return request_of(feed, given, epoch, index)


def _shown(seeds: Ids) -> tuple[int | str, ...]:
    """Return inputs for display: nodes as ids, edges as "source->destination"."""
    if seeds.ndim == 1:
        return tuple(seeds.tolist())
    return tuple(f"{source}->{destination}" for source, destination in seeds.T.tolist())
