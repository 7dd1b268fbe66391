"""Samplers that users write: how they are found, called and checked.

    class Walks:
        def __init__(self, graph, *, length): ...
        def sample(self, seeds, *, seed, epoch, index): ...     # -> arrays by name

A sampler is named in text, "module:Class" or "/path/to/file.py:Class", and made once per process
with the graph and the spec's options. It may return any arrays; `n_id`, `edge_index` and `e_id`
mean what they mean in every batch and are checked (of a heterogeneous graph, under the names of
`sampling.names`). The same arguments must give the same arrays, so whoever draws random numbers
makes them from `penstock.kernels.batch_key(seed, epoch, index)`.

Whatever goes wrong in the user's code is a `SamplingError` that shows the user's lines. This module
knows no processes.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, TracebackType
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from penstock.errors import SamplingError
from penstock.graph import Graph
from penstock.graph.dtypes import dtype_name
from penstock.graph.schema import EDGE, NODE
from penstock.kernels import first_outside, name_hash
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.names import Owner, parsed, qualified
from penstock.sampling.spec import CustomSpec

# A message must stay one: what an exception has to say may be as long as it likes.
LONGEST_TRACEBACK: Final = 16_000
# The same holds for what is said of a batch.
MOST_ARRAYS: Final = 4096
LONGEST_NAME: Final = 255

_PENSTOCK: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_Result = TypeVar("_Result")


class Sampler(Protocol):
    """What a user writes."""

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> Mapping[str, Array]:
        """The arrays of one batch, the same whenever the arguments are."""


def load(spec: CustomSpec, graph: Graph) -> Sampler:
    """Makes the sampler that a spec names."""
    return called(f"making {spec.sampler}", lambda: find(spec.sampler)(graph, **spec.options))


def find(name: str) -> Callable[..., Sampler]:
    """The class that "module:Class" or "/path/to/file.py:Class" names. Runs the user's module."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise SamplingError(
            f"sampler is {name!r}; expected 'module:Class' or '/path/to/file.py:Class'"
        )
    module = from_file(place) if place.endswith(".py") else importlib.import_module(place)
    found: Callable[..., Sampler] | None = getattr(module, attribute, None)
    if found is None:
        there = ", ".join(sorted(word for word in vars(module) if not word.startswith("_")))
        raise SamplingError(f"{place} has no {attribute!r}; it has: {there or 'nothing'}")
    return found


def from_file(path: str) -> ModuleType:
    """The module in a file, which may be the user's main script: it is not `__main__` here.

    Its folder is searched for what it imports, as when it is run.
    """
    path = os.path.abspath(path)
    # Files of one name in different folders are different modules.
    stem = os.path.basename(path).removesuffix(".py").replace(".", "_")
    name = f"{stem}_{name_hash([path]):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if os.path.dirname(path) not in sys.path:
        sys.path.append(os.path.dirname(path))
    # Where dataclasses and pickle look for the module of a class.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def called(doing: str, work: Callable[[], _Result]) -> _Result:
    """What the user's code returns; `SamplingError` with its traceback if it raises.

    `sys.exit()` in a sampler must fail a batch, not end a process that has others to make. A
    Ctrl-C is not the sampler's, and what to do without memory is not known here.
    """
    try:
        return work()
    except (KeyboardInterrupt, MemoryError, SamplingError):
        raise
    except BaseException as error:
        raise SamplingError(f"{doing} failed\n{told(error)}") from error


def told(error: BaseException) -> str:
    """The traceback from the user's first line on; of a long one, its two ends."""
    import traceback  # here, where a batch has failed: a worker starts without it

    frames = _from_the_user(error.__traceback__) or error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return sayable(text)


def sayable(text: str) -> str:
    """As it can go into a message: any characters made Unicode, and of much only the two ends."""
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= LONGEST_TRACEBACK:
        return text
    half = LONGEST_TRACEBACK // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _from_the_user(frames: TracebackType | None) -> TracebackType | None:
    """Without the frames of ours, and of the import system, that stand before the user's."""
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def _is_ours(filename: str) -> bool:
    return filename.startswith((_PENSTOCK, "<frozen importlib")) or filename == importlib.__file__


# --- what a sampler returned -------------------------------------------------------------------


def checked(result: Any, graph: Graph) -> dict[str, Array]:
    """The arrays of a batch, in the order given; `SamplingError` if they make none."""
    try:
        arrays = _as_arrays(result)
        for name, array in arrays.items():
            _check_ids(name, array, arrays, graph)
    except ValueError as error:
        raise SamplingError(f"what the sampler returned is no batch: {error}") from None
    return arrays


def _as_arrays(result: Any) -> dict[str, Array]:
    if not isinstance(result, Mapping):
        raise ValueError(f"it is {_kind(result)}, not a mapping from names to arrays")
    if len(result) > MOST_ARRAYS:
        raise ValueError(f"it has {len(result)} arrays; a batch may have {MOST_ARRAYS}")
    arrays = {}
    for given, value in result.items():
        name = _checked_name(given)
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{name!r} is {_kind(value)}, not a NumPy array")
        try:
            dtype_name(value.dtype)
        except ValueError as error:
            raise ValueError(f"{name!r} has an {error}") from None
        arrays[name] = np.require(value, requirements=("ALIGNED", "ENSUREARRAY"))
    return arrays


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name or not _is_unicode(name):
        raise ValueError(f"{name!r} is no name for an array")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name {name[:20]!r}… has {len(name)} characters, not {LONGEST_NAME}")
    return str.__str__(name)  # NumPy's strings, and other kinds of str, do not travel


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character
        return False
    return True


def _check_ids(name: str, array: Array, arrays: Mapping[str, Array], graph: Graph) -> None:
    owner, attribute = parsed(name)
    match attribute:
        case "n_id":
            _check_vector(name, array)
            _check_range(name, array, graph.num_nodes(_node_type(name, owner, graph)))
        case "e_id":
            _check_vector(name, array)
            _check_range(name, array, graph.num_edges(_edge_type(name, owner, graph)))
        case "input_id":
            raise ValueError(f"{name!r} is added to every batch: the places of its seeds")
        case "edge_index":
            kind = _edge_type(name, owner, graph)
            _check_ends(name, array, arrays, (kind[0], kind[2]))
        case _:
            pass


def _check_ends(
    name: str, array: Array, arrays: Mapping[str, Array], ends: tuple[str, str]
) -> None:
    _check_integers(name, array)
    if array.ndim != 2 or len(array) != 2:
        raise ValueError(f"{name!r} has shape {list(array.shape)}, not [2, edges]")
    for row, end in enumerate(ends):
        nodes = qualified(end, "n_id")
        if nodes not in arrays:
            raise ValueError(f"{name!r} comes without {nodes!r}, whose places its ids are")
        _check_vector(nodes, arrays[nodes])
        _check_range(f"{name}[{row}]", array[row], len(arrays[nodes]))


def _check_vector(name: str, array: Array) -> None:
    _check_integers(name, array)
    if array.ndim != 1:
        raise ValueError(f"{name!r} has shape {list(array.shape)}, not one dimension")


def _check_integers(name: str, array: Array) -> None:
    if array.dtype not in (np.int64, np.int32):
        raise ValueError(f"{name!r} has dtype {array.dtype}, not int64")


def _check_range(name: str, ids: Array, bound: int) -> None:
    bad = first_outside(ids, bound)
    if bad >= 0:
        raise ValueError(f"{name}[{bad}] is {ids[bad]}; expected 0 <= id < {bound}")


def _node_type(name: str, owner: Owner, graph: Graph) -> str:
    if isinstance(owner, str) and owner in graph.node_types:
        return owner
    raise ValueError(f"{name!r} names no node type of the graph: {_types(graph.node_types)}")


def _edge_type(name: str, owner: Owner, graph: Graph) -> tuple[str, str, str]:
    kind = EDGE if owner == NODE else owner
    if not isinstance(kind, str) and kind in graph.edge_types:
        return kind
    raise ValueError(f"{name!r} names no edge type of the graph: {_types(graph.edge_types)}")


def _types(names: tuple[Owner, ...]) -> str:
    return ", ".join(map(repr, names)) if any(map(any, names)) else "it has no types"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
