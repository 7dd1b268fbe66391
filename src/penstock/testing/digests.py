"""A short digest of any batch: the same for the same content only.

Recognises tensors and PyG's data by their methods, so that neither torch nor PyG is imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

import numpy as np

from penstock.client.channel.batch import Batch
from penstock.sampling.digest import batch_digest


class _Hash(Protocol):
    def update(self, data: bytes, /) -> object: ...


def digest_of(batch: Any) -> str:
    """Return a digest of all numbers, strings and arrays, with their types, names and order."""
    words = hashlib.blake2b(digest_size=8)
    _add(words, batch)
    return words.hexdigest()


def _add(words: _Hash, value: Any) -> None:
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            words.update(f"{type(value).__name__} {value!r};".encode())
        case np.ndarray() | np.generic():
            _add_array(words, np.asarray(value))
        case Mapping():
            words.update(f"{len(value)} named;".encode())
            for name in sorted(value, key=repr):
                _add(words, repr(name))
                _add(words, value[name])
        case Set():
            _add(words, sorted(map(digest_of, value)))
        case Sequence():
            words.update(f"{len(value)} in order;".encode())
            for part in value:
                _add(words, part)
        case _:
            _add(words, _plain(value))


def _add_array(words: _Hash, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.hasobject:
        _add(words, array.tolist())
        return
    words.update(f"{array.dtype.str} {list(array.shape)};".encode())
    words.update(array.tobytes())


def _plain(value: Any) -> Any:
    """Return the contents of a value that is not plain itself."""
    if isinstance(value, Batch):  # its cost would differ
        return batch_digest(value.arrays)
    if callable(to_dict := getattr(value, "to_dict", None)):  # PyG's data
        return {"is": type(value).__name__, **to_dict()}
    if callable(detach := getattr(value, "detach", None)):  # a tensor on any device
        return _array_of(detach().cpu())
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dict__"):
        return {"is": type(value).__name__, **vars(value)}
    return repr(value)


def _array_of(tensor: Any) -> Any:
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    try:
        return tensor.numpy()
    except TypeError:  # a dtype that NumPy does not have; float holds all its values
        return {"of": str(tensor.dtype), "values": tensor.float().numpy()}
