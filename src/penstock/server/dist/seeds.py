"""Seeds of a request: ids, a split, a file on the server, or all there are.

Files are arrays as NumPy saves them, in folders that the server was started with. A file name never
leads out of these folders, and nothing in a file is executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.client.dist.dataset import ServedDataset
from penstock.errors import Overloaded
from penstock.graph.schema import EDGE
from penstock.sampling.kinds import InputKind
from penstock.wire.requests import SamplerInput

StrPath = str | os.PathLike[str]


def read_seeds(
    file: str, folders: Sequence[StrPath], most_bytes: int | None = None
) -> npt.NDArray[Any]:
    """Return the integers in a file, memory-mapped.

    Raises:
        ValueError: The file may not be read, or holds no integers.
        Overloaded: The file has more than `most_bytes`; it is not read.
    """
    path = _allowed(file, folders)
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"file {file!r} is not a readable array: {error}") from None
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu":
        raise ValueError(f"file {file!r} has no integers: {getattr(found, 'dtype', 'no array')}")
    if most_bytes is not None and found.nbytes > most_bytes:
        raise Overloaded(
            f"file {file!r} has {found.nbytes} bytes; the most is {most_bytes} "
            "(setting: max_input_bytes)"
        )
    return found


def sampler_input(
    dataset: ServedDataset,
    given: SamplerInput,
    kind: InputKind,
    read: Callable[[str], npt.NDArray[Any]],
) -> Any:
    """Return the argument for `register_input` of a backend."""
    named = [name for name in ("ids", "split", "file") if getattr(given, name) is not None]
    if len(named) > 1:
        raise ValueError(f"sampler_input has {' and '.join(named)}: give only one of them")
    ids = given.ids if given.file is None else read(given.file)
    if kind is InputKind.LINK:
        return _links(dataset, given, ids)
    if given.edge_type is not None:
        raise ValueError(f"sampler_input has edge type {given.edge_type!r}; its inputs are nodes")
    node_type = dataset.node_type(given.node_type)
    wanted = given.split if ids is None else ids
    return (node_type, wanted) if node_type else wanted


def _links(dataset: ServedDataset, given: SamplerInput, ids: Any) -> Any:
    if given.node_type is not None:
        raise ValueError(f"sampler_input has node type {given.node_type!r}; its inputs are edges")
    if given.edge_type is None and dataset.graph.is_hetero:
        there = ", ".join(map(repr, dataset.graph.edge_types))
        raise ValueError(f"sampler_input lacks an edge type; this graph has {there}")
    kind = EDGE if given.edge_type is None else given.edge_type
    kind = (kind[0], kind[1], kind[2])
    wanted = given.split if ids is None else ids
    return wanted if given.edge_type is None else (kind, wanted)


def _allowed(file: str, folders: Sequence[StrPath]) -> Path:
    roots = [Path(folder).resolve() for folder in folders]
    for root in roots:
        try:
            path = (root / file).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):  # missing, invalid name, or cyclic links
            continue
        if path.is_relative_to(root) and path.is_file():
            return path
    raise ValueError(
        f"file {file!r} is in none of the {len(roots)} folders that seeds may be read from "
        "(setting: input_folders)"
    )
