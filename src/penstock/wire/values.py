"""Values that contain arrays, as they are sent: plain data, and the arrays separately, by name.

    pack({"ids": array, "split": None})  ->  {"ids": <array 0>, "split": None}, {"0": array}
    unpack(plain, arrays, Arguments)     ->  Arguments(ids=array, split=None)

In place of an array, the plain data has a msgpack extension with its name, which cannot be confused
with a user's value. Received values are not trusted: a value is converted to the expected type, and
an array that was not sent is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.msgpack import Ext

from penstock.core.known_types import known
from penstock.errors import ProtocolError
from penstock.graph.dtypes import storage_dtype

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_ARRAY: Final = 1
# bfloat16 is stored as uint16, which is not a dtype of the protocol, so it is sent as int16.
_BFLOAT16: Final = 2
_KEPT: Final = storage_dtype("bfloat16")
# Arguments do not nest deeply, so deeper values are refused.
_DEEPEST: Final = 32

_T = TypeVar("_T")


def pack(value: Any) -> tuple[Any, Arrays]:
    """Return a value as plain data and arrays."""
    arrays: Arrays = {}
    return _apart(value, arrays), arrays


def unpack(plain: Any, arrays: Mapping[str, Array], kind: type[_T]) -> _T:
    """Return the value, converted to `kind`.

    Raises:
        ValueError: It is not of that kind.
        ProtocolError: It refers to an array that was not sent, or nests too deeply.
    """
    return msgspec.convert(_together(plain, arrays, _DEEPEST), known(kind))


def _apart(value: Any, arrays: Arrays) -> Any:
    match value:
        case np.ndarray():
            return _named(value, arrays)
        case np.generic():
            return value.item()
        case _ if hasattr(value, "__array__"):  # for example a tensor
            return _named(np.asarray(value), arrays)
        case msgspec.Struct():
            named = {name: _apart(getattr(value, name), arrays) for name in value.__struct_fields__}
            return {**_tag_of(value), **named}
        case Mapping():
            return {name: _apart(each, arrays) for name, each in value.items()}
        case list() | tuple():
            return [_apart(each, arrays) for each in value]
        case _ if is_dataclass(value):
            return {each.name: _apart(getattr(value, each.name), arrays) for each in fields(value)}
    return value


def _tag_of(value: msgspec.Struct) -> dict[str, Any]:
    """Return the tag that identifies a struct in a union."""
    config = value.__struct_config__
    return {config.tag_field: config.tag} if config.tag_field is not None else {}


def _named(array: Array, arrays: Arrays) -> Ext:
    name = str(len(arrays))
    is_bfloat16 = array.dtype == _KEPT
    if array.dtype.kind == "u" and array.dtype.itemsize > 2:  # ids of a dtype that we do not store
        array = array.astype(np.int64)
    array = np.ascontiguousarray(array)
    arrays[name] = array.view(np.int16) if is_bfloat16 else array
    return Ext(_BFLOAT16 if is_bfloat16 else _ARRAY, name.encode())


def _together(plain: Any, arrays: Mapping[str, Array], depth: int) -> Any:
    if depth == 0:
        raise ProtocolError(f"a value nests deeper than {_DEEPEST} levels")
    match plain:
        case Ext(code=code, data=data):
            return _found(code, bytes(data), arrays)
        case dict():
            return {name: _together(each, arrays, depth - 1) for name, each in plain.items()}
        case list() | tuple():
            return type(plain)(_together(each, arrays, depth - 1) for each in plain)
    return plain


def _found(code: int, name: bytes, arrays: Mapping[str, Array]) -> Array:
    array = arrays.get(name.decode(errors="replace"))
    if array is None or code not in (_ARRAY, _BFLOAT16):
        raise ProtocolError(f"a value speaks of array {name!r} (code {code}), which did not come")
    if code == _ARRAY:
        return array
    if array.dtype != np.int16:
        raise ProtocolError(f"array {name!r} is {array.dtype}; expected int16, for bfloat16")
    return array.view(_KEPT)
