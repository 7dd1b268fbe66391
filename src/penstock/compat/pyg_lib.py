"""PyG's own loaders on Penstock's kernels: a stand-in for pyg-lib.

    from penstock.compat import pyg_lib

    pyg_lib.install()

    from torch_geometric.loader import NeighborLoader

PyG looks for pyg-lib once, when it is imported, so call `install` before that: at the top of the
script, which processes started by "spawn" run as well. Samples mean what PyG's mean, with one
difference: a seed given twice has two rows, and all edges are those of the first. A call draws one
number from torch's default generator, so `torch.manual_seed` repeats its result.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from penstock.compat import operators, sampler, walks

__all__ = ["install", "ops", "sampler", "uninstall"]

# PyG asks this module for kernels that have nothing to do with sampling; Penstock has none.
ops: Final = ModuleType("pyg_lib.ops", "pyg-lib's other operators, of which Penstock has none.")

_SAMPLING: Final = {
    "neighbor_sample": operators.neighbor_sample,
    "hetero_neighbor_sample": operators.hetero_neighbor_sample,
    "random_walk": walks.random_walk,
}
_INDUCED: Final = {
    "neighbor_sample": operators.sparse_neighbor_sample,
    "hetero_neighbor_sample": operators.sparse_hetero_neighbor_sample,
}
_OPERATORS: Final = {"pyg": _SAMPLING, "torch_sparse": _INDUCED}
# The flags that PyG sets when it finds these libraries; `uninstall` resets them.
_FLAGS: Final = {
    "pyg": ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE"),
    "torch_sparse": ("WITH_TORCH_SPARSE",),
}
# The operators that are in place: "pyg", and perhaps "torch_sparse".
_installed: set[str] = set()


def install(*, induced: bool = False) -> None:
    """Let `import pyg_lib`, and so PyG, find this module. Idempotent.

    Args:
        induced: stand in for torch_sparse, too, which PyG asks for `subgraph_type="induced"`. PyG
            then assumes all of torch_sparse, and what else needs it (HGTLoader, ShaDowKHopSampler,
            SparseTensor) fails later than it would without.

    Raises:
        RuntimeError: PyG is imported already, or the real library is installed.

    Examples:
        >>> import subprocess, sys
        >>> script = '''
        ... from penstock.compat import pyg_lib
        ... pyg_lib.install()
        ... from torch_geometric import typing
        ... print(typing.WITH_PYG_LIB)
        ... '''
        >>> done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        >>> done.stdout
        'True\\n'
    """
    wanted = {"pyg", "torch_sparse"} if induced else {"pyg"}
    missing = wanted - _installed
    if not missing:
        return
    if "torch_geometric" in sys.modules:
        raise RuntimeError(
            "torch_geometric is imported already, and has looked for pyg_lib: call install() first"
        )
    for library, module in (("pyg", "pyg_lib"), ("torch_sparse", "torch_sparse")):
        if library in missing and find_spec(module) is not None:
            raise RuntimeError(f"there is a {module}, and PyG will use that: remove it first")
    for library in missing:
        _put(library)
        _installed.add(library)


def uninstall() -> None:
    """Undo `install`; a PyG that is imported then finds no pyg_lib any more. Idempotent.

    Loaders that were made meanwhile stop working.

    Examples:
        >>> from penstock.compat import pyg_lib
        >>> pyg_lib.uninstall()  # there is nothing to undo here
    """
    import torch

    typing = sys.modules.get("torch_geometric.typing")
    for library in _installed:
        for name in _OPERATORS[library]:
            delattr(getattr(torch.ops, library), name)
        for name in _FLAGS[library]:
            if typing is not None:
                setattr(typing, name, False)
        for module in _modules_of(library):
            sys.modules.pop(module, None)
    _installed.clear()


def _put(library: str) -> None:
    import torch

    for name, operator in _OPERATORS[library].items():
        setattr(getattr(torch.ops, library), name, operator)
    sys.modules.update(_modules_of(library))


def _modules_of(library: str) -> dict[str, ModuleType]:
    if library == "torch_sparse":
        return {"torch_sparse": _sparse()}
    return {"pyg_lib": sys.modules[__name__], "pyg_lib.sampler": sampler, "pyg_lib.ops": ops}


def _sparse() -> ModuleType:
    """Make a torch_sparse with the two names that PyG imports, which refuse to be used."""
    module = ModuleType("torch_sparse", "Penstock's stand-in: it samples, and that is all.")
    module.__spec__ = ModuleSpec(module.__name__, None)  # `find_spec` must find something
    for name in ("SparseTensor", "SparseStorage"):
        setattr(module, name, type(name, (), {"__init__": _refuse}))
    return module


def _refuse(self: Any, *_: Any, **__: Any) -> None:
    raise ImportError(f"{type(self).__name__!r} requires 'torch-sparse'")
