"""A batch that went wrong: what it was, for the autopsy, and how to make it again, for the user.

A recipe is written when a batch is given up, not before: most batches whose worker died are made
again, and nobody needs to. The folder is this user's own, and keeps the newest only.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
import tempfile
from typing import Final

from penstock.hub.channels import Channel, mapped_ids
from penstock.hub.house import House
from penstock.hub.posts import Task
from penstock.sampling.inputs import positions_of, seeds_at
from penstock.workers.autopsy import HeldBatch
from penstock.workers.recipe import Recipe, for_batch

log = logging.getLogger(__name__)

FOLDER_VARIABLE: Final = "PENSTOCK_RECIPES"
SEEDS_SHOWN: Final = 16


def held_batch(task: Task, channel: Channel) -> HeldBatch:
    """What is known of the batch a worker died with, its first seeds among it."""
    try:
        seeds = _seeds(channel, task.batch.epoch, task.index)
    except (OSError, ValueError):  # a file of inputs that is gone: perhaps what it died of
        seeds = ()
    return HeldBatch(
        job=channel.job,
        channel=task.batch.channel,
        epoch=task.batch.epoch,
        step=task.batch.step,
        index=task.index,
        attempt=task.attempt,
        seeds=seeds[:SEEDS_SHOWN],
        num_seeds=len(seeds),
    )


def replay_command(house: House, channel: Channel, epoch: int, index: int) -> str | None:
    """Writes a recipe; the command that follows it, or None where no file can be written."""
    try:
        path = _recipe(house, channel, epoch, index).write(recipe_folder())
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


def _recipe(house: House, channel: Channel, epoch: int, index: int) -> Recipe:
    given = channel.feed.ids is not None
    return for_batch(
        spec=channel.backend.spec,
        feed=channel.feed,
        epoch=epoch,
        index=index,
        graph=house.graph.founded,
        seeds=_seeds(channel, epoch, index) if given else None,
        address=house.found.address,
        job=channel.job,
        channel=channel.number,
        search_path=house.found.search_path,
    )


def _seeds(channel: Channel, epoch: int, index: int) -> tuple[int, ...]:
    with mapped_ids(channel.feed, channel.ids) as ids:
        return tuple(seeds_at(positions_of(channel.feed, epoch, index), ids).tolist())
