"""A batch that went wrong: what it was, for the autopsy, and how to make it again, for the user.

A recipe is written when a batch is given up, not before: most batches whose worker died are made
again, and nobody needs to. The folder is this user's own, and keeps the newest only.
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
# Numbers in a recipe: to write so many keeps the hub from its work for a moment, and no longer.
LARGEST: Final = 1 << 20


def held_batch(task: Assignment, channel: HubChannel) -> HeldBatch:
    """What is known of the batch a worker died with, its first seeds among it."""
    feed, num_seeds = channel.feed, 0
    try:
        start, stop = stretch_of(feed, task.index)
        few = positions_of(feed, task.batch.epoch, task.index, SEEDS_SHOWN)
        seeds, num_seeds = seeds_at(few, given_by(feed, channel.ids).ids), stop - start
    except (OSError, ValueError):  # a file of inputs that is gone: perhaps what it died of
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
    """Writes a recipe; the command that follows it, or None where no file can be written."""
    try:
        path = _recipe(state, channel, epoch, index).write(recipe_folder())
    except (OSError, ValueError) as error:
        log.warning("no recipe could be written: %s", error)
        return None
    return f"penstock replay {shlex.quote(path)}"


def recipe_folder() -> str:
    """Where recipes go: as the environment says, or among this user's temporary files."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    folder = os.path.join(tempfile.gettempdir(), f"penstock-{os.geteuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    # In a folder that all may write to, somebody else may have been there first.
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
    """The inputs of a batch. They are copied, and a rank may have given any number: not here."""
    feed, given = channel.feed, given_by(channel.feed, channel.ids)
    start, stop = stretch_of(feed, index)
    columns = [math.prod(column.shape[1:]) for column in given.columns.values()]
    if (stop - start) * (2 + sum(columns)) > LARGEST:
        raise ValueError(f"batch {index} has more than {LARGEST} numbers to be written down")
    return request_of(feed, given, epoch, index)


def _shown(seeds: Ids) -> tuple[int | str, ...]:
    """Inputs in words: nodes by their ids, edges by those of both ends."""
    if seeds.ndim == 1:
        return tuple(seeds.tolist())
    return tuple(f"{source}->{destination}" for source, destination in seeds.T.tolist())
