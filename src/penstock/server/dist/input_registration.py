"""Registers the inputs of channels: reads them, checks them and counts them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.client.channel.channel_options import check_names, parsed
from penstock.client.dist.dataset import ServedDataset
from penstock.option_types import ChannelKeywords
from penstock.options import Limits
from penstock.sampling.kinds import InputKind
from penstock.server.dist.backends import ServedBackend
from penstock.server.dist.seeds import StrPath, read_seeds, sampler_input
from penstock.server.limits import Budget, check_at_most
from penstock.wire.requests import RegisterBackendRequest, SamplerInput


class InputRegistration:
    """Registers inputs and opens channels, as far as the limits allow.

    Other code that opens channels of this server must use the same budgets: `inputs` and
    `channels`.
    """

    def __init__(
        self,
        dataset: ServedDataset,
        folders: Sequence[StrPath] = (),
        limits: Limits | None = None,
    ) -> None:
        self._dataset = dataset
        self._folders = tuple(folders)
        self._limits = limits = limits or Limits()
        self.inputs = Budget("bytes of inputs", limits.max_inputs_bytes, "max_inputs_bytes")
        self.channels = Budget("channels", limits.max_channels, "max_channels")

    def read(self, file: str) -> npt.NDArray[Any]:
        """Return the ids in a file, if it may be read."""
        return read_seeds(file, self._folders, self._limits.max_input_bytes)

    def register(self, backend: ServedBackend, request: RegisterBackendRequest, number: int) -> int:
        """Open a channel of a backend, by number; return the bytes for `give_back` when it goes."""
        given = request.sampler_input
        if not isinstance(given, SamplerInput):
            raise ValueError(f"sampler_input is a {type(given).__name__}; expected a SamplerInput")
        channel_options, kind = self._channel_options(request), InputKind.of(backend.spec)
        with ExitStack() as undo:
            _take(self.channels, 1, undo)
            inputs = sampler_input(self._dataset, given, kind, self.read)
            nbytes = sum(map(_nbytes, (inputs, *given.columns.values(), *given.tables.values())))
            most = self._limits.max_input_bytes
            check_at_most(nbytes, most, "bytes of inputs", "max_input_bytes")
            _take(self.inputs, nbytes, undo)
            backend.up.register_input(
                number,
                inputs,
                request.sampling_config,
                columns=dict(given.columns) or None,
                tables=given.tables or None,
                **channel_options,
            )
            undo.pop_all()
        return nbytes

    def _channel_options(self, request: RegisterBackendRequest) -> ChannelKeywords:
        """Return the channel options, with the size of batches limited."""
        given, most = _channel_options_of(request), self._limits.max_batch_bytes
        check_names(given)
        _, asked = parsed(given)
        for wanted in (asked.slot_bytes, asked.max_batch_bytes):
            check_at_most(wanted or 0, most, "bytes of a batch are asked for", "max_batch_bytes")
        return {**given, "max_batch_bytes": asked.max_batch_bytes or most}

    def give_back(self, nbytes: int) -> None:
        """Give back the budgets of a channel that has gone."""
        self.inputs.give(nbytes)
        self.channels.give(1)


def _take(budget: Budget, amount: int, undo: ExitStack) -> None:
    budget.take(amount)
    undo.callback(budget.give, amount)


def _nbytes(given: Any) -> int:
    """Return the bytes an argument takes; a split's name, or None for all inputs, takes none."""
    if isinstance(given, tuple):  # (type, ids)
        given = given[1]
    return 0 if given is None or isinstance(given, str) else np.asarray(given).nbytes


def _channel_options_of(request: RegisterBackendRequest) -> ChannelKeywords:
    """Return the channel options of a request; three of them have fields of their own."""
    own = {
        "worker_key": request.worker_key or None,
        "buffer_capacity": request.buffer_capacity,
        "buffer_size": request.buffer_size,
    }
    given = {name: value for name, value in own.items() if value is not None}
    channel_options: ChannelKeywords = {**request.channel_options, **given}  # type: ignore[typeddict-item]
    return channel_options
