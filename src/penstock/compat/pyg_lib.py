"""PyG's own loaders on Penstock's kernels: a stand-in for pyg-lib.

    from penstock.compat import pyg_lib

    pyg_lib.install()

    from torch_geometric.loader import NeighborLoader

`install` may come before PyG is imported, or after. Processes that Python starts by "spawn" or
"forkserver" from then on have it too. Samples mean what PyG's mean, with one difference: a seed
given twice has two rows, and all edges are those of the first. A call draws one number from torch's
default generator, so `torch.manual_seed` repeats its result.
"""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing.context import ForkServerProcess, SpawnProcess
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
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
_MODULES: Final = {
    "pyg_lib": sys.modules[__name__],
    "pyg_lib.sampler": sampler,
    "pyg_lib.ops": ops,
}
# The flags that PyG sets when it finds pyg-lib: in `torch_geometric.typing`, and copies elsewhere.
_FLAGS: Final = (
    "WITH_PYG_LIB",
    "WITH_EDGE_TIME_NEIGHBOR_SAMPLE",
    "WITH_WEIGHTED_NEIGHBOR_SAMPLE",
)
# The operators that are in place: "pyg", and perhaps "torch_sparse".
_installed: set[str] = set()


def install(*, induced: bool = False) -> None:
    """Let `import pyg_lib`, and so PyG, find this module. Idempotent.

    It may be called before or after PyG is imported. Processes that are started afterwards by
    `multiprocessing` (torch's DataLoader workers and `torch.multiprocessing.spawn` among them) have
    it, too, whichever way they are started. A subclass of `Process` that you started yourself, and
    a program of its own (a subprocess, a process of torchrun), call `install` themselves.

    Args:
        induced: Whether PyG's `subgraph_type="induced"` works, too. PyG has torch_sparse sample
            that; its sampler then finds two operators of that library here, and nothing else of PyG
            takes torch_sparse for installed. It imports PyG.

    Raises:
        RuntimeError: The real library is installed.

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
    for library, module in (("pyg", "pyg_lib"), ("torch_sparse", "torch_sparse")):
        if library in missing and find_spec(module) is not None:
            raise RuntimeError(f"there is a {module}, and PyG will use that: remove it first")
    for library in missing:
        _put(library)
        _installed.add(library)
    if "pyg" in missing:
        sys.modules.update(_MODULES)
        _tell_pyg(True)
    if "torch_sparse" in missing:
        _let_sampler_see_torch_sparse()
    for kind in (multiprocessing.Process, SpawnProcess, ForkServerProcess):
        ForkingPickler.register(kind, _reduced)


def uninstall() -> None:
    """Undo `install`; a PyG that is imported then finds no pyg_lib any more. Idempotent.

    Loaders that were made meanwhile stop working.

    Examples:
        >>> from penstock.compat import pyg_lib
        >>> pyg_lib.uninstall()  # there is nothing to undo here
    """
    import torch

    for library in _installed:
        for name in _OPERATORS[library]:
            delattr(getattr(torch.ops, library), name)
    if "pyg" in _installed:
        for name in _MODULES:
            sys.modules.pop(name, None)
        _tell_pyg(False)
    if "torch_sparse" in _installed:
        vars(_sampler_of_pyg())["torch_geometric"] = sys.modules["torch_geometric"]
    _installed.clear()


def _put(library: str) -> None:
    import torch

    for name, operator in _OPERATORS[library].items():
        setattr(getattr(torch.ops, library), name, operator)


def _tell_pyg(is_there: bool) -> None:
    """Set PyG's flags where it has looked for pyg-lib already."""
    for module in list(_modules_of_pyg()):
        for flag in _FLAGS:
            if flag in vars(module):
                setattr(module, flag, is_there)


def _modules_of_pyg() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch_geometric" and isinstance(module, ModuleType):
            yield module


def _let_sampler_see_torch_sparse() -> None:
    """Show PyG's sampler, alone, a `torch_geometric.typing` in which there is a torch_sparse.

    Everything else of PyG would use far more of torch_sparse than there is here.
    """
    pyg = _sampler_of_pyg()
    package = sys.modules["torch_geometric"]
    typing = _view_of(sys.modules["torch_geometric.typing"], WITH_TORCH_SPARSE=True)
    vars(pyg)["torch_geometric"] = _view_of(package, typing=typing)


def _sampler_of_pyg() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's own, of itself, while it is imported
        import torch_geometric.sampler.neighbor_sampler  # noqa: F401 - put into sys.modules
    return sys.modules["torch_geometric.sampler.neighbor_sampler"]


def _view_of(module: ModuleType, **instead: Any) -> ModuleType:
    """Return a module with these attributes, and otherwise those that `module` has at the time."""
    view = ModuleType(module.__name__, module.__doc__)
    vars(view).update(instead, __getattr__=lambda name: getattr(module, name))
    return view


# --- processes that are started by multiprocessing -------------------------------------------


def _reduced(process: BaseProcess) -> tuple[Any, ...]:
    """Pickle a process that is being started, so that it installs this before anything else.

    What it runs and its arguments are read after the first two entries: the call that makes it.
    """
    reduced = process.__reduce_ex__(2)
    assert isinstance(reduced, tuple)
    if not _installed:
        return reduced
    return (_started, (type(process), "torch_sparse" in _installed), *reduced[2:])


def _started(kind: type[BaseProcess], induced: bool) -> BaseProcess:
    """Do as the parent has done, in a process that was started; return its process object."""
    install(induced=induced)
    return kind.__new__(kind)
