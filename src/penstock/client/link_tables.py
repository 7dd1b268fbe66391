"""What belongs to all links of a channel: weights to draw their negatives by, and room for label 0.

Users give weights of nodes; workers want running sums of them, made once and shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from penstock.graph import check
from penstock.graph.tensors import floats, plain
from penstock.kernels import Adjacency
from penstock.kernels.prepare import weight_sums
from penstock.sampling.links import label_shift
from penstock.sampling.spec import LinkSpec, Spec

_WEIGHTS: Final = ("src_weight", "dst_weight")


def tables_of(
    spec: Spec, columns: Mapping[str, Any] | None, tables: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The tables of a feed, of what a user gave for a spec."""
    for name, arrays in (("columns", columns), ("tables", tables)):
        if arrays is not None and not isinstance(arrays, Mapping):
            raise ValueError(f"{name} is {arrays!r}; expected a mapping from names to arrays")
    given = dict(tables or {})
    if not isinstance(spec, LinkSpec):
        return given
    for name in _WEIGHTS:
        if name in given:
            given[name] = _sums(name, given[name])
    labels = (columns or {}).get("label")
    if spec.negatives == "binary" and labels is not None and "label_shift" not in given:
        found = plain("columns['label']", labels)
        shift = label_shift(floats(found.array, found.dtype))
        given["label_shift"] = np.array([shift], np.int64)
    return given


def _sums(name: str, weights: Any) -> Any:
    """Running sums over all nodes: as those of a row that leads to each of them, once."""
    found = plain(f"tables[{name!r}]", weights)
    check.weights(found)
    count = found.shape[0]
    row = Adjacency(np.array([0, count]), np.zeros(count, np.int32))
    sums = weight_sums(row, found.array, dtype=found.dtype)
    if count and sums[-1] == 0:
        raise ValueError(f"{found.label} is 0 for every node; expected a weight above 0")
    return sums
