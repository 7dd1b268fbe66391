"""Reads arrays from files that torch saved, without torch and without running what is in them.

A file has Python's pickles; of these only mappings, lists, texts, numbers, NumPy's arrays and
torch's tensors are made. Anything else is refused by its name, so that a file can do no harm.
NumPy's own unpickling is not used: a file could change the types that the process works with.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# How files begin that torch wrote before it used zip files.
_OLD_MAGIC: Final = 0x1950A86A20F9469CFC6C
_STORAGES: Final = {
    "BoolStorage": "?",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "<i2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}


# What damaged pickles and archives end in.
_DAMAGE: Final = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    zlib.error,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


def read_torch_file(path: Path) -> Any:
    """Return what a file has, with arrays for tensors.

    Args:
        path: The file, written by `torch.save`.

    Raises:
        ValueError: It is no such file, or it has something else than arrays.
    """
    try:
        with open(path, "rb") as file:
            return _read_zip(file) if zipfile.is_zipfile(file) else _read_old(file)
    except _DAMAGE as error:
        raise ValueError(
            f"{path} cannot be read ({error}); expected arrays by torch.save"
        ) from None


def _read_zip(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise pickle.UnpicklingError("it has no data.pkl")
        folder = names[0].removesuffix("data.pkl")
        reader = _Reader(io.BytesIO(archive.read(names[0])))
        found = reader.load()
        for key, storage in reader.storages.items():
            try:
                data = archive.read(f"{folder}data/{key}")
            except KeyError:
                raise pickle.UnpicklingError(f"it has no data/{key}") from None
            _fill(storage, data)
    return _with_arrays(found)


def _read_old(file: BinaryIO) -> Any:
    file.seek(0)
    if _Reader(file).load() != _OLD_MAGIC:
        raise pickle.UnpicklingError("it does not begin as such files do")
    for _ in ("version", "system"):
        _Reader(file).load()
    reader = _Reader(file)
    found = reader.load()
    for key in _Reader(file).load():
        storage = reader.storages.get(str(key))
        (count,) = struct.unpack("<q", file.read(8))
        if storage is None or count != len(storage):
            raise pickle.UnpicklingError(f"storage {key} is not the one that is used")
        _fill(storage, file.read(storage.nbytes))
    return _with_arrays(found)


def _fill(storage: Array, data: bytes) -> None:
    if len(data) < storage.nbytes:
        raise pickle.UnpicklingError("it ends too early")
    storage[:] = np.frombuffer(data, storage.dtype, len(storage))


class _Reader(pickle.Unpickler):
    """Makes what is allowed; tensors are views of storages, which are filled afterwards."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.storages: dict[str, Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        found = _ALLOWED.get((module.replace("numpy._core", "numpy.core"), name))
        if found is None:
            raise pickle.UnpicklingError(f"it has a {module}.{name}, which is not made here")
        return found

    def persistent_load(self, pid: Any) -> Array:
        match pid:
            case ("storage", str(dtype), key, str(), int(count), *_) if 0 <= count < 1 << 40:
                made = self.storages.get(str(key))
                if made is None:
                    made = self.storages[str(key)] = np.zeros(count, dtype)
                return made
        raise pickle.UnpicklingError("it refers to something else than a storage")


class _Dtype:
    """A type of NumPy's, as it is pickled: by its name, and then its byte order."""

    def __init__(self, name: str, *_: object) -> None:
        self.dtype = np.dtype(name)
        if self.dtype.kind not in "biufUS":
            raise pickle.UnpicklingError(f"it has an array of {self.dtype}")

    def __setstate__(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array of NumPy's, as it is pickled: empty, and then what it has."""

    def __init__(self, *_: object) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        if not (isinstance(kind, _Dtype) and isinstance(data, bytes)):
            raise pickle.UnpicklingError("it has an array of something else than numbers or text")
        flat = np.frombuffer(bytearray(data), kind.dtype)
        self.array = flat.reshape(shape, order="F" if is_fortran else "C")


def _with_arrays(found: Any) -> Any:
    """Return what was read with arrays in the place of what stood for them."""
    match found:
        case _Array():
            return found.array
        case dict():
            return type(found)((key, _with_arrays(value)) for key, value in found.items())
        case list() | tuple():
            return type(found)(_with_arrays(value) for value in found)
    return found


def _tensor(storage: Any, offset: int, size: Any, strides: Any, *_: object) -> Array:
    numbers = {type(each) for each in (offset, *size, *strides)}
    if not isinstance(storage, np.ndarray) or numbers != {int}:
        raise pickle.UnpicklingError("a tensor has no storage")
    last = offset + sum((count - 1) * step for count, step in zip(size, strides, strict=True))
    is_within = min([offset, *size, *strides]) >= 0 and (0 in size or last < len(storage))
    if not is_within:
        raise pickle.UnpicklingError("a tensor reaches beyond its storage")
    if 0 in size:
        return np.empty(size, storage.dtype)
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), steps)


def _bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it has bytes as {encoding}")
    return text.encode("latin1")


_ALLOWED: Final[dict[tuple[str, str], Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("_codecs", "encode"): _bytes,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
}
