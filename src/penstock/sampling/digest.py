"""A few characters that stand for a whole batch: the same for the same batch, wherever it lies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.kernels import digest
from penstock.kernels.arrays import Array


def batch_digest(arrays: Mapping[str, Array]) -> str:
    """The digest of names, types, shapes and contents, in hexadecimal; order does not count."""
    parts = [
        f"{name}|{array.dtype.str}|{list(array.shape)}|".encode()
        + digest(np.ascontiguousarray(array))
        for name, array in sorted(arrays.items())
    ]
    return digest(np.frombuffer(b"".join(parts), np.uint8)).hex()
