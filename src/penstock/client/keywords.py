"""Parses users' keywords into the structs of `penstock.options`.

Only here may a size be text ("64MB"), a number be one of NumPy's, or an option have another name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from penstock.client.sizes import parse_bytes
from penstock.errors import suggestion
from penstock.options import Field, Options, fields_of
from penstock.workers.failures import class_name

_Struct = TypeVar("_Struct", bound=Options)


def check_names(
    given: Iterable[str], noun: str, *structs: type[Options], beside: Iterable[str] = ()
) -> None:
    """Raise TypeError for a name that none of the structs has.

    Args:
        given: The names.
        noun: What to call such a name in the error.
        structs: The structs whose fields are known.
        beside: Other keywords of the same function, which may have been meant.
    """
    names = [name for struct in structs for name in keywords_of(struct)]
    for name in given:
        if name not in names:
            near = suggestion(name, [*names, *beside])
            listed = ", ".join([*beside, *names])
            raise TypeError(f"there is no {noun} {name!r}; there are {listed}{near}")


def arguments_of(function: Callable[..., object]) -> list[str]:
    """Return the names of a function's arguments, without those that `**` takes."""
    known = inspect.signature(function).parameters.values()
    return [each.name for each in known if each.name != "self" and each.kind != each.VAR_KEYWORD]


def keywords_of(struct: type[Options]) -> dict[str, Field]:
    """Return the fields of a struct, by all names that users may give them by."""
    return {name: field for field in fields_of(struct).values() for name in field.names}


def parsed(struct: type[_Struct], given: Mapping[str, Any]) -> _Struct:
    """Return the struct with the values of those keywords that belong to it.

    Raises:
        ValueError: A value is not of its option's type; the error names the keyword.
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
    """Return the value of an option that was given by one or more names; None means not given."""
    different = set(values.values()) - {None}
    if len(different) > 1:
        names = " and ".join(values)
        raise ValueError(f"{names} are the same, and were given as {sorted(different)}")
    return different.pop() if different else None


def parsed_value(field: Field, value: Any, name: str = "") -> Any:
    """Return a value as the field stores it; ValueError if it is not of the field's type."""
    name, value = name or field.name, plain(value)
    if field.about.is_size and not (value is None and field.is_optional):
        return parse_bytes(value, name)
    if field.kind is tuple:
        value = class_names(value, name)
    field.check(value, name)
    return value


def class_names(value: Any, name: str) -> tuple[str, ...]:
    """Return the names of exceptions that were given as classes or names, one or several."""
    given = [value] if isinstance(value, (str, type)) else value
    if not isinstance(given, Iterable):
        raise ValueError(
            f"{name} is {value!r}; expected a class of exceptions, its name, or several"
        )
    return tuple(_class_name(each, f"{name}[{place}]") for place, each in enumerate(given))


def _class_name(value: Any, name: str) -> str:
    if isinstance(value, type) and issubclass(value, BaseException):
        # In a worker, the module of a script has another name.
        return value.__qualname__ if value.__module__ == "__main__" else class_name(value)
    if isinstance(value, str) and all(part.isidentifier() for part in value.split(".")):
        return value
    raise ValueError(
        f"{name} is {value!r}; expected a class of exceptions, or its name: 'OSError', or "
        "'module.Class'"
    )


def plain(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, the only kind the wire knows; others as they are."""
    return value.item() if isinstance(value, np.generic) else value
