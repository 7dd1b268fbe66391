"""Loaders: PyG's interface over a hub. Torch begins here; nothing below knows it."""

from __future__ import annotations

import warnings

try:
    # PyG warns of itself while being imported, which is no concern of who imports us.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric  # noqa: F401 - so that it is there for all that follows
except ImportError as error:
    raise ImportError(
        "the loaders need torch and torch_geometric: pip install 'penstock[pyg]'"
    ) from error
