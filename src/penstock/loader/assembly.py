"""From a batch as a rank gets it to PyG's: tensors over the same memory."""

from __future__ import annotations

from typing import Any

from penstock.client.batch import Batch
from penstock.loader.inputs import Inputs
from penstock.loader.sources import Source
from penstock.sampling.spec import BuiltInSpec


class Assembly:
    """Makes Data / HeteroData of batches of one loader; stateless, any thread."""

    def __init__(self, source: Source, spec: BuiltInSpec, inputs: Inputs) -> None: ...

    def data(self, batch: Batch, inputs: Inputs | None = None) -> Any:
        """The batch as Data | HeteroData. `inputs`: those it was sampled from, if not the loader's
        (`inputs.at(index)`)."""
        raise NotImplementedError

    def sampler_output(self, batch: Batch, inputs: Inputs | None = None) -> Any:
        """As PyG's SamplerOutput | HeteroSamplerOutput, metadata filled; without features."""
        raise NotImplementedError

    def join(self, out: Any) -> Any:
        """PyG's `filter_fn` without transforms: Data | HeteroData of a (changed) sampler output."""
        raise NotImplementedError
