"""The batch a worker died with, for its autopsy: what it was, and how to make it again."""

from __future__ import annotations

import logging

from penstock.hub.channels import Channel, mapped_ids
from penstock.hub.house import House
from penstock.hub.posts import Task
from penstock.sampling.inputs import positions_of, seeds_at
from penstock.workers.autopsy import HeldBatch

log = logging.getLogger(__name__)

SEEDS_SHOWN = 16


def held_batch(task: Task, channel: Channel) -> HeldBatch:
    """What is known of the batch, its first seeds among it."""
    with mapped_ids(channel.feed, channel.ids) as ids:
        positions = positions_of(channel.feed, task.batch.epoch, task.index)
        seeds = seeds_at(positions[:SEEDS_SHOWN], ids)
        return HeldBatch(
            job=channel.job,
            channel=task.batch.channel,
            epoch=task.batch.epoch,
            step=task.batch.step,
            index=task.index,
            attempt=task.attempt,
            seeds=tuple(int(seed) for seed in seeds),
            num_seeds=len(positions),
        )


def recipe_command(house: House, task: Task, channel: Channel) -> str | None:
    """The command that makes the batch again in the foreground."""
    return None
