"""Penstock: a graph store with a sampling service for GNN training.

The public names live here and are loaded when first used, so that `import penstock` costs a
worker or a command line next to nothing. This module must not import anything beyond the standard
library and `penstock.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import BatchTooLarge, GraphFormatError, PenstockError

if TYPE_CHECKING:
    from penstock.graph import Graph, SharedArray

__version__ = "0.1.0.dev0"

__all__ = [
    "BatchTooLarge",
    "Graph",
    "GraphFormatError",
    "PenstockError",
    "SharedArray",
    "__version__",
]

# Public name -> module that defines it.
_LOADED_ON_USE = {
    "Graph": "penstock.graph",
    "SharedArray": "penstock.graph",
}


if not TYPE_CHECKING:  # a type checker would take this to mean that every name exists

    def __getattr__(name: str) -> object:
        home = _LOADED_ON_USE.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value  # later uses do not come through here
        return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
