"""A short digest of a whole batch: the same for the same batch, wherever it is stored."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.kernels import digest
from penstock.kernels.arrays import Array


def batch_digest(arrays: Mapping[str, Array]) -> str:
    """Return the digest of names, types, shapes and contents, in hexadecimal, in any order."""
    parts = [
        f"{name}|{array.dtype.str}|{list(array.shape)}|".encode()
        + digest(np.ascontiguousarray(array))
        for name, array in sorted(arrays.items())
    ]
    return digest(np.frombuffer(b"".join(parts), np.uint8)).hex()
