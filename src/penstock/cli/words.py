"""Convert between the command line's words and the library's.

What people type becomes the library's arguments; its errors, which name arguments
(`allow_plaintext=True`), become errors that name options.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, Final, TypeVar

import click

from penstock.errors import suggestion
from penstock.options import Field, Options, PoolOptions, fields_of

FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)

# Arguments that the library's errors recommend, and their options.
_ADVICE: Final = {
    "certificate=…": "--certificate",
    "key=…": "--key",
    "client_ca=…": "--client-ca",
    "tokens=…": "--tokens",
    "allow_plaintext=True": "--allow-plaintext",
    "allow_anyone=True": "--allow-anyone",
    "http_public=True": "--http-public",
    "replace=True": "--replace",
}
# Options that have another name than the argument.
_OPTIONS: Final = {"address": "bind", "num_workers": "workers"}
_SUBJECT: Final = re.compile(r"(\w+) is ")


@contextmanager
def told_in_options(names: Iterable[str]) -> Iterator[None]:
    """Reword a ValueError about an argument to name the option, if there is one."""
    try:
        yield
    except ValueError as error:
        raise ValueError(in_options(str(error), names)) from error


def in_options(words: str, names: Iterable[str]) -> str:
    """Reword the library's message for somebody who typed options of these names."""
    for argument, option in _ADVICE.items():
        words = words.replace(argument, option)
    if (found := _SUBJECT.match(words)) is None:
        return words
    name = _OPTIONS.get(found[1], found[1])
    option = f"--{name.replace('_', '-')}" if name in names else found[1]
    return option + words[found.end(1) :]


def named_values(struct: type[Options], given: Iterable[str], option: str) -> dict[str, Any]:
    """Return values of a struct's fields, each typed as NAME=VALUE for an `option`."""
    fields, found = fields_of(struct), {}
    for word in given:
        name, _, value = word.partition("=")
        if name not in fields:
            near = suggestion(name, fields)
            raise _refusal(f"{word!r}; expected one of {', '.join(fields)}{near}", option)
        if fields[name].is_count and not value.isdigit():
            raise _refusal(f"{word!r}; expected a whole number", option)
        found[name] = _typed(fields[name], value)
    return found


def setting(name: str) -> Callable[[FC], FC]:
    """Return a command-line option for a setting of the pool."""
    field = fields_of(PoolOptions)[name]
    return click.option(
        f"--{name.replace('_', '-')}",
        type=str if field.about.is_size else field.kind,
        metavar="SIZE" if field.about.is_size else None,
        show_default=None if field.default is None else str(field.default),
        help=field.about.meaning,
    )


def _typed(field: Field, value: str) -> Any:
    """Convert a typed value to the field's type; text that is no number is refused as text."""
    from penstock.client.keywords import parsed_value

    number: Any = value
    if not field.about.is_size:
        with suppress(ValueError):
            number = field.kind(value)
    return parsed_value(field, number)


def samplers_of(given: Iterable[str]) -> tuple[str, ...]:
    """Return samplers given as MODULE:CLASS, which may be in the current folder, too."""
    names = tuple(given)
    if names and (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # a script's path has only its own folder
    for name in names:
        module, colon, member = name.partition(":")
        if not (module and colon and member):
            raise _refusal(f"{name!r}; expected MODULE:CLASS", "--sampler")
        if not _is_there(module):
            raise _refusal(f"{name!r}; there is no module {module!r} on the path", "--sampler")
    return names


def counted(number: int, thing: str) -> str:
    """Return a count with its noun: 1 batch, 2 batches."""
    many = f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{number} {thing if number == 1 else many}"


def workers_of(given: str) -> Any:
    """Return the number of workers, or "auto"."""
    if given == "auto":
        return given
    if not given.isdigit() or int(given) < 1:
        raise _refusal("expected 'auto', or at least 1", "--workers")
    return int(given)


def chosen(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return those of the named options that were given; the library has defaults for the rest."""
    return {name: given[name] for name in names if given[name] is not None}


def _is_there(module: str) -> bool:
    """Return whether a module exists, without running it; its parent packages are imported."""
    if module.endswith(".py"):
        return os.path.isfile(module)
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _refusal(words: str, option: str) -> click.BadParameter:
    return click.BadParameter(words, param_hint=option)
