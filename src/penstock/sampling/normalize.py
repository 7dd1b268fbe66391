"""Normalizes specs as people write them in Python, and says what is wrong with a field.

Lists, arrays and mappings become tuples, NumPy's numbers become Python's: `settled` gives equal
specs one form, here and on the wire. This module does not check whether a graph can be sampled by a
spec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from enum import Enum
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from penstock.core.known_types import known
from penstock.errors import suggestion
from penstock.sampling.spec import SamplingSpec

_Spec = TypeVar("_Spec", bound=SamplingSpec)

_EDGE_TYPES: Final = "edge types, such as (('user', 'buys', 'item'),)"
_NAMES: Final = "names of attributes, such as ('x',), or None for all"
# For fields whose type says too little.
_EXPECTED: Final = {
    "num_neighbors": "one fan-out per hop, such as (15, 10, 5)",
    "by_type": "fan-outs for each edge type, such as {('user', 'buys', 'item'): (10, 5)}",
    "node_caps": "one number per hop, such as (1000, 5000)",
    "num_samples": "one number per layer, such as (512, 256)",
    "node_attributes": _NAMES,
    "edge_attributes": _NAMES,
    "weight_attr": "the name of an edge attribute, or None",
    "time_attr": "the name of an attribute, or None",
    "supervision": _EDGE_TYPES,
    "positive": f"{_EDGE_TYPES}, or None",
    "negative": f"{_EDGE_TYPES}, or None",
    "path": f"{_EDGE_TYPES}, or None",
    "rev_edge_types": f"{_EDGE_TYPES}, or None",
    "sampler": "'module:Class' as text",
    "options": "names and values",
    "columns": "names of columns, such as ('time',)",
    "channels": "a name, edge types and a share for each, such as "
    "(('social', (('user', 'knows', 'user'),), 1.0),)",
}
_BY_TYPE: Final[dict[object, str]] = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "None",
}
# The position in a value at which msgspec found an error.
_PLACE: Final = re.compile(r" - at `\$(.*)`$")
_LONGEST: Final = 200


def settled(spec: _Spec, prefix: str = "") -> _Spec:
    """Return the same spec in tuples and Python's numbers; `ValueError` names an invalid field."""
    fields = msgspec.structs.fields(spec)
    return msgspec.structs.replace(
        spec,
        **{
            field.name: _settled(spec, prefix, field.name, field.type, getattr(spec, field.name))
            for field in fields
        },
    )


def plain(value: Any) -> Any:
    """Return tuples and Python's numbers for what represents them; anything else as it is."""
    if isinstance(value, Enum):
        value = value.value
    if hasattr(value, "tolist") and not isinstance(value, type):  # NumPy's or torch's
        value = value.tolist()
    if isinstance(value, Mapping):
        value = list(value.items())
    if isinstance(value, Set):
        return dict.fromkeys(value)  # a dict fails as a list: a set has no order
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def _settled(spec: SamplingSpec, prefix: str, field: str, kind: Any, value: Any) -> Any:
    if specs := _specs_in(kind):
        if isinstance(value, Mapping) and "type" in value:  # a spec in a request's sampler_options
            value = _received(field, value, kind)
        if not isinstance(value, specs):
            names = " or a ".join(each.__name__ for each in specs)
            raise ValueError(f"{field} is {_shown(value)}; expected a {names}")
        return settled(value, f"{field}.")
    made = value if get_origin(kind) is dict else plain(value)
    try:
        return msgspec.convert(made, known(kind))
    except msgspec.ValidationError as error:
        place = found[1] if (found := _PLACE.search(str(error))) else ""
    name, expected = f"{prefix}{field}", _expected(spec, field, kind)
    if isinstance(value, Mapping) and field in ("num_neighbors", "num_samples"):
        raise ValueError(
            f"{name} is {_shown(value)}; expected {expected}: by_type has those of each type"
        )
    if not place:
        near = suggestion(value, _choices(kind))
        raise ValueError(f"{name} is {_shown(value)}; expected {expected}{near}")
    for index in re.findall(r"\d+", place):
        made = made[int(index)]
    raise ValueError(f"{name}{place} is {_shown(made)}; {name} is to be {expected}")


def _received(field: str, value: Mapping[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(value, known(kind))
    except msgspec.ValidationError as error:
        raise ValueError(f"{field} is {_shown(value)}: {error}") from None


def _specs_in(kind: Any) -> tuple[type[SamplingSpec], ...]:
    """Return the specs that a field of this type can hold."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(
        each for each in kinds if isinstance(each, type) and issubclass(each, SamplingSpec)
    )


def _expected(spec: SamplingSpec, field: str, kind: Any) -> str:
    return type(spec).expected.get(field) or _EXPECTED.get(field) or _in_words(kind)


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return the words that a field of this type can have as its value."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return tuple(choice for each in get_args(kind) for choice in _choices(each))
    return ()


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        *others, last = map(repr, get_args(kind))
        return f"{', '.join(others)} or {last}"
    if get_origin(kind) in (Union, UnionType):
        return ", or ".join(map(_in_words, get_args(kind)))
    return _BY_TYPE.get(kind, str(kind))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
