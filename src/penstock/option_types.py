"""The types of users' keywords, for editors and type checkers.

Written by `python -m tests.options` from the structs in `penstock.options`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    import torch


class LoaderKeywords(TypedDict, total=False):
    """What every loader takes beside what to sample."""

    batch_size: int
    """Inputs of one batch. Default: 1."""

    shuffle: bool | None
    """Shuffle the inputs, in another order for each epoch. None: in the order given. Default:
    None."""

    sampler: Iterable[Any] | None
    """The order of the inputs, as positions; asked once per epoch, so it must end. Default:
    None."""

    batch_sampler: Iterable[Any] | None
    """The batches of an epoch, as lists of positions; asked once per epoch, so it must end.
    Instead of `batch_size`, `shuffle`, `sampler` and `drop_last`. Default: None."""

    num_workers: int | Literal["auto"] | None
    """0: batches are made in this process. Else by a pool that all loaders of the same data share,
    with the largest number of workers that any of them asks for; 'auto': as many as the machine
    has room for. None: 0, or the pool of a hub or server that is given as `data`. The bytes are
    the same in any case. Default: None."""

    device: torch.device | str | int | None
    """Where batches arrive: 'cuda', another device of torch's, or its number. They are copied
    while the model computes. 'cuda' is the device that is current when the first batch is asked
    for. None: in this process's memory. Default: None."""

    device_prefetch: int | str
    """Bytes of batches, such as '512MB', that may be on a GPU before they are asked for, or on
    their way there; one batch in any case. Default: '512MB'."""

    features: torch.device | str | int | None
    """Keep the rows of all nodes on this GPU, which is the loader's `device`: workers leave them
    out, and batches take them there. None: they come with the batches. Default: None."""

    feature_cache: int | str | None
    """Bytes, such as '20GB', of the GPU that is the loader's `device` for the rows of nodes that
    are read most often; others are moved. Instead of `features`. None: all rows come with the
    batches. Default: None."""

    pin_memory: bool
    """Have batches in page-locked memory, so that you can copy them to a GPU beside the model;
    with `device` that is done in any case. Default: False."""

    drop_last: bool
    """Leave out the last batch of an epoch if it has fewer inputs. Default: False."""

    timeout: float
    """Seconds to wait for a batch. 0: no limit. Default: 0."""

    worker_init_fn: Callable[[int], object] | None
    """Never called, with a warning: workers run no torch, and `transform` runs here. Default:
    None."""

    multiprocessing_context: str | BaseContext | None
    """Accepted if it is 'spawn' or 'forkserver': workers are never forked. Default: None."""

    generator: torch.Generator | None
    """Where the seed is drawn from if `seed` is not given; not for several ranks. Default:
    None."""

    prefetch_factor: int | None
    """Batches made ahead, per worker. None: enough to keep all workers busy, and more if batches
    are small. Default: None."""

    persistent_workers: bool
    """No effect: workers stay from epoch to epoch in any case. Default: False."""

    pin_memory_device: str
    """No effect; torch itself has given it up. Default: ''."""

    in_order: bool
    """No effect: batches come in order in any case. Default: True."""

    seed: int | None
    """All that is random follows from this number. None: drawn from `generator`, or from torch's
    own; 0 with several ranks, which must agree. Default: None."""

    rank: int | None
    """Which rank of `world_size` this is. None: for a split by name, that of torch.distributed or
    of torchrun's environment; ids, masks and None are read whole. Default: None."""

    world_size: int | None
    """How many ranks share the list of batches; rank r takes batches r, r + W, …. None: as for
    `rank`. 1: all batches. Default: None."""

    order: Literal["part"] | None
    """'part': every batch has inputs of one part of a graph in parts, so that most of what it
    reads is at one server; with `shuffle`, inputs are shuffled within their parts, and batches
    among parts. Only the last batch of each part may be smaller; `drop_last` leaves these out.
    None: batches have inputs of all parts. Default: None."""

    prefetch: int | None
    """Batches made ahead, by all workers together; see `prefetch_factor`. Default: None."""

    part_only: bool
    """Sample a part of a graph by itself, without its neighbours in other parts. Otherwise a part
    is an error: read from the store of all parts. Default: False."""

    remainder: Literal["wrap", "drop"]
    """Where the last batches do not suffice for all ranks, 'wrap' takes some from the start of the
    list again, and 'drop' leaves them out. Default: 'wrap'."""

    max_batch_bytes: int | str | None
    """Bytes that a batch larger than its slot may need. None: 4 GiB. Default: None."""

    weight: float
    """The channel's share of the workers, against other channels. Default: 1.0."""

    deadline: float | None
    """Seconds a batch may take; then its worker is replaced. None: no limit. Default: None."""

    max_attempts: int
    """How often a batch may lose its worker before it fails. Default: 3."""

    retry_errors: int
    """How often a batch that raised an error of `retry_on` is tried again, by another worker if
    one has room: after 0.1 s, then 0.2 s, 0.4 s and so on, up to 30 s. Then it fails. Default:
    0."""

    retry_on: type[BaseException] | str | Iterable[type[BaseException] | str]
    """The exceptions that `retry_errors` is for, with all that are derived from them: classes, or
    their names. The end of a name suffices: 'requests.exceptions.HTTPError' or 'HTTPError'.
    Default: ('OSError', 'TimeoutError')."""

    on_error: Literal["raise", "substitute"]
    """What becomes of a batch that cannot be made: 'raise' its error, or 'substitute' another
    batch for it. Default: 'raise'."""

    max_substitutes: int
    """How many batches of an epoch may be substituted, with on_error='substitute': more of them
    are no accident. Default: 16."""


class ChannelKeywords(TypedDict, total=False):
    """What a channel can be opened with. Only `batch_size` must be given."""

    batch_size: int
    """Inputs of one batch. It must be given."""

    shuffle: bool
    """Shuffle the inputs, in another order for each epoch. Default: False."""

    drop_last: bool
    """Leave out the last batch of an epoch if it has fewer inputs. Default: False."""

    seed: int
    """All that is random follows from this number. Default: 0."""

    rank: int
    """Which rank of `world_size` reads this channel. Default: 0."""

    world_size: int
    """How many ranks share the list of batches; rank r takes batches r, r + W, …. Default: 1."""

    remainder: Literal["wrap", "drop"]
    """Where the last batches do not suffice for all ranks, 'wrap' takes some from the start of the
    list again, and 'drop' leaves them out. Default: 'wrap'."""

    slots: int | None
    """Batches that may be in the making, ready or in the reader's hands. None: enough to keep all
    workers busy, and more if batches are small. Default: None."""

    buffer_capacity: int | None
    """Batches that may be in the making, ready or in the reader's hands. None: enough to keep all
    workers busy, and more if batches are small. Default: None."""

    buffer_size: int | str | None
    """Bytes of all slots together. None: each slot has room for any batch that the spec can make;
    memory is used only where batches were written. Default: None."""

    max_batch_bytes: int | str | None
    """Bytes that a batch larger than its slot may need. None: 4 GiB. Default: None."""

    keep_pages: bool
    """Never give pages of unused slots back to the system: the reader has page-locked them for its
    GPU. Default: False."""

    weight: float
    """The channel's share of the workers, against other channels. Default: 1.0."""

    deadline: float | None
    """Seconds a batch may take; then its worker is replaced. None: no limit. Default: None."""

    max_attempts: int
    """How often a batch may lose its worker before it fails. Default: 3."""

    retry_errors: int
    """How often a batch that raised an error of `retry_on` is tried again, by another worker if
    one has room: after 0.1 s, then 0.2 s, 0.4 s and so on, up to 30 s. Then it fails. Default:
    0."""

    retry_on: type[BaseException] | str | Iterable[type[BaseException] | str]
    """The exceptions that `retry_errors` is for, with all that are derived from them: classes, or
    their names. The end of a name suffices: 'requests.exceptions.HTTPError' or 'HTTPError'.
    Default: ('OSError', 'TimeoutError')."""

    on_error: Literal["raise", "substitute"]
    """What becomes of a batch that cannot be made: 'raise' its error, or 'substitute' another
    batch for it. Default: 'raise'."""

    max_substitutes: int
    """How many batches of an epoch may be substituted, with on_error='substitute': more of them
    are no accident. Default: 16."""

    job: str
    """A name for the channel, in errors and logs. Default: ''."""

    worker_key: str
    """A name for the channel, in errors and logs. Default: ''."""


class PoolKeywords(TypedDict, total=False):
    """How the pool of a hub can be run."""

    worker_concurrency: int
    """Batches that a worker holds at once; it makes them one after another. Default: 2."""

    beat_every: float
    """Seconds from one heartbeat of a worker to the next. Default: 1.0."""

    silence: float
    """Seconds without a heartbeat after which a worker is killed. Default: 10.0."""

    start_limit: float
    """Seconds that a worker may take from its start until it is ready. Default: 60.0."""

    max_batches: int | None
    """Batches that a worker makes before it is replaced. None: no limit. Default: None."""

    max_age: float | None
    """Seconds that a worker lives before it is replaced. None: no limit. Default: None."""

    soft_memory: int | str | None
    """Bytes of private memory above which a worker is replaced once its batches are done. None: no
    limit. Default: None."""

    hard_memory: int | str | None
    """Bytes of private memory above which a worker is killed. None: no limit. Default: None."""

    max_channels: int
    """Channels that the hub has room for. Default: 4096."""

    max_connections: int
    """Connections that the hub has room for. Default: 8192."""

    max_arena_bytes: int | str | None
    """Bytes of the slots of all channels together. None: no limit. Default: None."""

    slow_step: float
    """Seconds after which a step is named in the log. Default: 1.0."""

    trim_after: float
    """Seconds after which an unused slot gives its pages back to the system. Default: 30.0."""
