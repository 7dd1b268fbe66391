"""The inputs of channels: found, counted, put into the part's own numbers, and registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.client.terms import ChannelTerms
from penstock.sampling.kinds import InputKind
from penstock.server.backends import Backend
from penstock.server.holding import Holding
from penstock.server.limits import Budget, check_at_most
from penstock.server.numbering import Numbering
from penstock.server.seeds import StrPath, read_seeds, sampler_input
from penstock.wire.requests import RegisterBackendRequest, SamplerInput

MAX_INPUT_BYTES: Final = 8 << 30
MAX_INPUTS_BYTES: Final = 32 << 30


class Intake:
    """Takes in at most `most` bytes for a channel, and `most_together` for all there are."""

    def __init__(
        self,
        holding: Holding,
        folders: Sequence[StrPath] = (),
        most: int = MAX_INPUT_BYTES,
        most_together: int = MAX_INPUTS_BYTES,
    ) -> None:
        self.numbering = Numbering(holding)
        self._holding = holding
        self._folders = tuple(folders)
        self._most = most
        self._budget = Budget("bytes of inputs", most_together, "max_inputs_bytes")

    def read(self, file: str) -> npt.NDArray[Any]:
        """The ids in a file that may be read."""
        return read_seeds(file, self._folders, self._most)

    def register(self, backend: Backend, request: RegisterBackendRequest, number: int) -> int:
        """Opens a channel of a backend under a number; the bytes to be given back after it."""
        given = request.sampler_input
        if not isinstance(given, SamplerInput):
            raise ValueError(f"sampler_input is a {type(given).__name__}; expected a SamplerInput")
        kind = InputKind.of(backend.spec)
        inputs = sampler_input(self.numbering, self._holding, given, kind, self.read)
        nbytes = sum(map(_nbytes, (inputs, *given.columns.values(), *given.tables.values())))
        check_at_most(nbytes, self._most, "bytes of inputs", "max_input_bytes")
        self._budget.take(nbytes)
        try:
            backend.up.register_input(
                number,
                inputs,
                request.sampling_config,
                columns=self.numbering.columns(backend.spec, given.columns) or None,
                tables=given.tables or None,
                **_terms_of(request),
            )
        except BaseException:
            self._budget.give(nbytes)
            raise
        return nbytes

    def give_back(self, nbytes: int) -> None:
        """A channel has gone."""
        self._budget.give(nbytes)


def _nbytes(given: Any) -> int:
    """What an argument takes; what is named (a split, all) takes nothing."""
    if isinstance(given, tuple):  # (type, ids)
        given = given[1]
    return 0 if given is None or isinstance(given, str) else np.asarray(given).nbytes


def _terms_of(request: RegisterBackendRequest) -> ChannelTerms:
    """The terms of a channel, of which three have fields of their own."""
    own = {
        "worker_key": request.worker_key or None,
        "buffer_capacity": request.buffer_capacity,
        "buffer_size": request.buffer_size,
    }
    given = {name: value for name, value in own.items() if value is not None}
    terms: ChannelTerms = {**request.terms, **given}  # type: ignore[typeddict-item]
    return terms
