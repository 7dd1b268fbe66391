"""The options that every loader takes besides what to sample: torch's keywords and ours.

`penstock.options.LoadingOptions` declares them. Here each option is honoured, or refused by name
with the reason; none is ignored silently. `LoaderOptions` has them as given and checked, and
derives the options of a channel from them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from numbers import Real
from typing import Any, Final

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from penstock.client.hub.hub import Provider
from penstock.client.sizes import parse_bytes
from penstock.errors import suggestion
from penstock.kernels.arrays import check_word
from penstock.loader.epoch.ranks import RankShare, ranks_of
from penstock.loader.pyg.torch_shims import InputIndices
from penstock.option_types import ChannelKeywords
from penstock.options import ChannelOptions, LoadingOptions, Remainder, fields_of
from penstock.workers.limits import auto_workers

# A reader holds one batch while it takes the next, and the hub needs two more to go on with.
_IN_HANDS: Final = 2
_FEWEST_SLOTS: Final = 4
_ORDERS: Final = ("part",)
# The channel options that are keywords of loaders, too.
CHANNEL: Final = {
    name: each for name, each in fields_of(ChannelOptions).items() if each.about.for_loaders
}
# The arguments of each loader, by its class's name: what a user may have meant.
ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {}
# Lightning passes these to a loader that it makes again; they have no meaning for us.
_OWN: Final = ("dataset", "collate_fn")


class LoaderOptions(LoadingOptions, frozen=True, kw_only=True, eq=False, dict=True):
    """A loader's options as given, checked.

    Attributes:
        channel: The channel options among the loader's keywords, by name, where they are given.
    """

    channel: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in REFUSED:
            if not self._means_nothing(name):
                check_honoured(name, getattr(self, name))
        for name, each in fields_of(LoadingOptions).items():
            given = getattr(self, name)
            if each.kind is bool and (given is not None or not each.is_optional):
                msgspec.structs.force_setattr(self, name, flag(name, given))
        _check_workers(self.num_workers)
        for name in ("prefetch", "prefetch_factor"):
            _check_count(name, getattr(self, name))
        if self.prefetch_factor is not None and self.num_workers == 0:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing: "
                "let num_workers > 0, or leave it out"
            )
        if self.persistent_workers and self.num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if self.multiprocessing_context is not None and self.num_workers == 0:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading "
                "(num_workers > 0), but got num_workers=0"
            )
        parse_bytes(self.device_prefetch, "device_prefetch")
        self._check_features()
        for name in ("device", "features"):
            if (given := getattr(self, name)) is not None:
                _check_there(_device(name, given), name, given)
        for name in ("sampler", "batch_sampler"):
            _check_iterable(name, getattr(self, name))
        if self.order is not None and (type(self.order) is not str or self.order not in _ORDERS):
            close = suggestion(self.order, _ORDERS)
            raise ValueError(f"order is {self.order!r}; expected 'part', or None{close}")
        if not isinstance(self.generator, torch.Generator | None):
            raise ValueError(f"generator is {self.generator!r}; expected a torch.Generator")
        if isinstance(self.timeout, bool) or not _is_number(self.timeout, 0, math.inf):
            raise ValueError(
                f"timeout option should be non-negative: it is {self.timeout!r}; expected "
                "seconds, or 0 for no limit"
            )

    def _means_nothing(self, name: str) -> bool:
        """Return whether torch itself would ignore the value."""
        return name == "batch_size" and self.batch_sampler is not None

    @property
    def is_inline(self) -> bool:
        """Return whether batches are made in this process, whatever the source."""
        return type(self.num_workers) is int and self.num_workers == 0

    @cached_property
    def workers(self) -> int | None:
        """The number of workers asked for; None: as many as a given hub has."""
        return auto_workers() if self.num_workers == "auto" else self.num_workers

    @cached_property
    def torch_device(self) -> torch.device | None:
        """Where batches arrive; None: in this process's memory."""
        device, features = (
            None if given is None else _device(name, given)
            for name, given in (("device", self.device), ("features", self.features))
        )
        # "cuda" is any GPU: the number may be given once.
        names_more = features is not None and device == torch.device(features.type)
        return features if device is None or names_more else device

    @cached_property
    def feature_bytes(self) -> int | None:
        """Bytes of the GPU for rows that are read often; None: as many as all rows take, or 0."""
        given = self.feature_cache
        return None if given is None else parse_bytes(given, "feature_cache")

    @property
    def keeps_features(self) -> bool:
        """Whether rows of nodes are kept on the GPU: all, or some."""
        return self.features is not None or bool(self.feature_bytes)

    def _check_features(self) -> None:
        """Raise ValueError for rows that are to be kept elsewhere than where batches arrive."""
        if self.features is not None and self.feature_cache is not None:
            raise ValueError(
                f"features is {self.features!r}, and feature_cache is {self.feature_cache!r}: give "
                "features to keep all rows on the GPU, or feature_cache to keep some"
            )
        if not self.keeps_features:
            return
        option = "feature_cache" if self.features is None else "features"
        device = self.torch_device
        if device is None or device.type != "cuda":
            raise ValueError(
                f"{option} is {getattr(self, option)!r}, which keeps rows on a GPU, but batches "
                f"arrive {'here' if device is None else f'on {device}'}: give device='cuda'"
            )
        if self.features is not None and _device("features", self.features) not in (
            device,
            torch.device(device.type),
        ):
            raise ValueError(
                f"features is {self.features!r}, and device is {self.device!r}: rows can be kept "
                "only where batches arrive"
            )

    @property
    def pins_slots(self) -> bool:
        """Whether slots are page-locked, for a GPU."""
        if self.torch_device is not None and self.torch_device.type != "cpu":
            return self.torch_device.type == "cuda"
        return self.pin_memory and torch.cuda.is_available()

    def usual_order(self, num_inputs: int) -> bool | None:
        """Return whether inputs are shuffled; None if a sampler has an order of its own.

        Lightning passes back the samplers that torch makes for `shuffle`; those need not be asked.
        A class derived from them must be asked if it has an order of its own.
        """
        if self.batch_sampler is not None or not _goes_as_torch_s(self.sampler):
            return None
        match self.sampler:
            case None:
                return bool(self.shuffle)
            case SequentialSampler() as sampler if len(sampler) == num_inputs:
                return False
            case (
                DistributedSampler(dataset=InputIndices() as places, shuffle=shuffle) as sampler
            ) if type(sampler) is DistributedSampler and len(places) == num_inputs:
                return bool(shuffle)
            case RandomSampler(replacement=False, _num_samples=None, generator=None) as sampler if (
                len(sampler) == num_inputs
            ):
                return True
            case _:
                return None

    def ranks(self, *, by_name: bool) -> RankShare:
        """Return which share of the batches this loader takes.

        A user's `DistributedSampler` shares the inputs among ranks itself, so all its batches are
        read; Lightning's says which rank this is.

        Args:
            by_name: whether the inputs are a split that is named, which ranks share out by
                themselves. All others are the rank's own unless arguments say otherwise.
        """
        asked = self.sampler
        if asked is None:
            asked = getattr(self.batch_sampler, "sampler", None)
        if self._shares_out(asked):
            return RankShare(asked.rank, asked.num_replicas, told_by="its sampler")
        if isinstance(asked, DistributedSampler):
            if self.world_size not in (None, 1):
                raise ValueError(
                    f"world_size is {self.world_size}, but the sampler is a DistributedSampler, "
                    "which shares the inputs out among ranks itself: give one of them"
                )
            return RankShare(told_by="its sampler")
        ranks = ranks_of(self.rank, self.world_size)
        return ranks if by_name else ranks.for_own_inputs()

    def _shares_out(self, sampler: Any) -> bool:
        """Return whether Lightning added the sampler to say which rank this is, and we agree."""
        if sampler is not self.sampler or type(sampler) is not DistributedSampler:
            return False
        found = sampler.rank, sampler.num_replicas
        given = found if self.world_size is None else (self.rank, self.world_size)
        return isinstance(sampler.dataset, InputIndices) and given == found

    def seed_for(self, ranks: RankShare) -> int:
        """Return the seed of everything random; drawn if not given, see `seed`."""
        if self.seed is not None:
            return check_word(self.seed, "seed")
        if ranks.world_size > 1:
            if self.generator is not None:
                raise ValueError(
                    f"generator would give this rank a seed that the other {ranks.world_size - 1} "
                    "may not have, and batches of different lists would be shared out: give seed, "
                    "the same on every rank (or world_size=1 and rank=0, if the inputs are this "
                    "rank's share already)"
                )
            return 0
        drawn = torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return int(drawn.item())

    def ours(self) -> dict[str, Any]:
        """Return the options that torch's loaders do not have, as keywords."""
        names = list(_own_names())
        ours = {name: getattr(self, name) for name in names[names.index("seed") :]}
        return {**ours, **self.channel}

    def keywords(self) -> dict[str, Any]:
        """Return all options as keywords, as given or by default."""
        by_default = {name: each.default for name, each in CHANNEL.items()}
        own = {name: getattr(self, name) for name in _own_names()}
        return {**own, **by_default, **self.channel}

    @property
    def remainder(self) -> Remainder:
        """What happens to the last batches if there are not enough for all ranks."""
        return Remainder(self.channel.get("remainder", CHANNEL["remainder"].default))

    def slots(self) -> int | None:
        """Return how many batches may be in progress, ready or held by the reader; None: default.

        The number is large enough that a loop that holds one batch at a time gets no copies. With
        None, the hub chooses.
        """
        ahead = self.prefetch
        if ahead is None and self.prefetch_factor is not None:
            ahead = self.prefetch_factor * (1 if self.workers is None else self.workers)
        return None if ahead is None else max(_FEWEST_SLOTS, ahead + _IN_HANDS)

    def channel_options(self, ranks: RankShare, seed: int) -> ChannelKeywords:
        """Return the options of a channel, except for the order of its inputs."""
        return {
            "seed": seed,
            "rank": ranks.rank,
            "world_size": ranks.world_size,
            "slots": self.slots(),
            "keep_pages": self.pins_slots,
            **self.channel,  # type: ignore[typeddict-item]
        }


def options_of(given: dict[str, Any], who: str, hub: Provider | None) -> LoaderOptions:
    """Take the options from a loader's keywords; TypeError for an unknown one.

    Without a `hub` that has workers already, there are none unless they are asked for.
    """
    wanted = {name: value for name, value in given.items() if name not in _OWN}
    if isinstance(places := given.get("dataset"), InputIndices):
        wanted = places.options | wanted
    for name in wanted:
        if name not in CHANNEL and name not in _own_names():
            near = suggestion(name, [*CHANNEL, *_own_names(), *ARGUMENTS.get(who, ())])
            raise TypeError(f"{who} got an unexpected keyword argument {name!r}{near}")
    if hub is None and wanted.get("num_workers") is None:
        wanted["num_workers"] = 0
    own = {name: value for name, value in wanted.items() if name not in CHANNEL}
    options = LoaderOptions(**own, channel=_channel_of(wanted))
    if options.worker_init_fn is not None and not options.is_inline:
        warnings.warn(
            f"worker_init_fn of {who} is never called: {_NO_TORCH}. What is to happen to batches "
            "belongs into `transform`, which runs in this process",
            stacklevel=3,  # where the loader is made
        )
    return options


def flag(name: str, value: Any) -> bool:
    """Return a boolean argument; ValueError for others, such as "no", which Python takes for true.

    0 and 1 are taken, since torch's users write them.
    """
    is_scalar = isinstance(value, np.generic) or (isinstance(value, Tensor) and value.ndim == 0)
    plain = value.item() if is_scalar else value
    if type(plain) not in (bool, int) or plain not in (0, 1):
        raise ValueError(f"{name} is {value!r}; expected True or False")
    return bool(plain)


def _own_names() -> Iterator[str]:
    """Yield the keywords that are not options of the channel."""
    return iter(fields_of(LoadingOptions))


def _channel_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channel options among a loader's keywords; None stands for the default."""
    return {name: value for name, value in given.items() if name in CHANNEL and value is not None}


def _goes_as_torch_s(sampler: Any) -> bool:
    """Return whether a sampler yields what torch's class of that kind yields."""
    return all(
        type(sampler).__iter__ is kind.__iter__
        for kind in (SequentialSampler, RandomSampler)
        if isinstance(sampler, kind)
    )


def _check_workers(workers: Any) -> None:
    if workers is None or workers == "auto":
        return
    if type(workers) is not int:
        close = suggestion(workers, ("auto",))
        raise ValueError(f"num_workers is {workers!r}; expected a number, or 'auto'{close}")
    if workers < 0:
        raise ValueError(
            f"num_workers option should be non-negative, got {workers}; "
            "use num_workers=0 to sample in this process"
        )


def _device(name: str, given: Any) -> torch.device:
    """Return the device that a user has given, by name, number or as torch has it."""
    try:
        if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            return torch.device("cuda", given)
        if isinstance(given, str | torch.device):
            return torch.device(given)
    except RuntimeError:
        pass
    near = ""
    if isinstance(given, str):
        near = suggestion(given.lower().replace("gpu", "cuda"), ("cuda", "cpu"))
    raise ValueError(f"{name} is {given!r}; expected a device of torch's, such as 'cuda'{near}")


def _check_there(device: torch.device, name: str, given: Any) -> None:
    """Raise ValueError for a GPU that torch does not find."""
    if device.type != "cuda":
        return
    if not torch.cuda.is_available():
        built: str | None = torch.version.cuda
        why = "this torch was built without CUDA" if built is None else "no driver, or no GPU"
        raise ValueError(
            f"{name} is {given!r}, but torch finds no GPU here ({why}): leave it out, and batches "
            "stay in this process's memory"
        )
    index: int | None = device.index
    if index is not None and index >= torch.cuda.device_count():
        raise ValueError(
            f"{name} is {given!r}, but torch finds {torch.cuda.device_count()} GPUs here, numbered "
            "from 0"
        )


def _is_number(value: Any, least: float, below: float) -> bool:
    return isinstance(value, Real) and least <= float(value) < below


def _check_iterable(name: str, value: Any) -> None:
    if value is not None and not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
        raise ValueError(f"{name} is {value!r}; expected positions among the inputs, one by one")


def _check_count(name: str, value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name} is {value!r}; expected a number of batches, at least 1")


_NO_TORCH: Final = (
    "workers are not PyTorch's: they are fresh interpreters that sample, without torch, and serve "
    "several loaders"
)

# Keywords of torch's DataLoader that cannot be honoured, with a test for values that can.
REFUSED: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "multiprocessing_context": (
        lambda value: value is None or _method(value) in ("spawn", "forkserver"),
        f"{_NO_TORCH}. They are never forked; expected 'spawn', 'forkserver' or None",
    ),
    "batch_size": (
        lambda value: value is not None,
        "every batch is made of several inputs: give their number",
    ),
}


def check_honoured(name: str, value: Any) -> None:
    """Raise ValueError, with the reason, for an argument that cannot be honoured."""
    fine, reason = REFUSED[name]
    if not fine(value):
        raise ValueError(f"{name} is {value!r}, which cannot be honoured: {reason}")


def _method(context: Any) -> Any:
    """Return the name of a start method of processes."""
    return context if isinstance(context, str) else getattr(context, "_name", None)
