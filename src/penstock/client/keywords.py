"""Users' keywords, as the structs of `penstock.options` have them.

Here, and nowhere else, a size may be text ("64MB"), a number one of NumPy's, and an option have
another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from penstock.client.sizes import parse_bytes
from penstock.options import Field, Options, fields_of

_Struct = TypeVar("_Struct", bound=Options)


def check_names(given: Iterable[str], noun: str, *structs: type[Options]) -> None:
    """TypeError for a name that none of the structs has; a `noun` is what it was taken for."""
    names = [name for struct in structs for name in keywords_of(struct)]
    for name in given:
        if name not in names:
            raise TypeError(f"there is no {noun} {name!r}; there are {', '.join(names)}")


def keywords_of(struct: type[Options]) -> dict[str, Field]:
    """The fields of a struct, by all names that users may give them by."""
    return {name: field for field in fields_of(struct).values() for name in field.names}


def parsed(struct: type[_Struct], given: Mapping[str, Any]) -> _Struct:
    """The struct of those keywords that are its own.

    Raises:
        ValueError: A value cannot be what its option is; the words name the keyword.
    """
    found: dict[str, Any] = {}
    for field in fields_of(struct).values():
        names = [name for name in field.names if name in given]
        if names:
            found[field.name] = _one(
                {name: parsed_value(field, given[name], name) for name in names}
            )
    return struct(**found)


def _one(values: Mapping[str, Any]) -> Any:
    """The value that was given by one name of an option or by several; None was not given."""
    different = set(values.values()) - {None}
    if len(different) > 1:
        names = " and ".join(values)
        raise ValueError(f"{names} are the same, and were given as {sorted(different)}")
    return different.pop() if different else None


def parsed_value(field: Field, value: Any, name: str = "") -> Any:
    """A value as the field has it; ValueError if it cannot be that."""
    name, value = name or field.name, plain(value)
    if field.about.is_size and not (value is None and field.is_optional):
        return parse_bytes(value, name)
    field.check(value, name)
    return value


def plain(value: Any) -> Any:
    """Scalars of array libraries as Python's own, which is what the wire knows."""
    return value.item() if isinstance(value, np.generic) else value
