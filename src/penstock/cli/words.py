"""What people type, as the library has it; and what it says, in the words of the command line.

The library speaks of arguments (`allow_plaintext=True`), the command line of options.
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

from penstock.options import Field, Options, PoolOptions, fields_of

FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)

# Arguments by which the library's errors say what would help.
_ADVICE: Final = {
    "certificate=…": "--certificate",
    "key=…": "--key",
    "client_ca=…": "--client-ca",
    "tokens=…": "--tokens",
    "allow_plaintext=True": "--allow-plaintext",
    "allow_anyone=True": "--allow-anyone",
    "http_public=True": "--http-public",
}
# Options that have another name than the argument.
_OPTIONS: Final = {"address": "bind", "num_workers": "workers"}
_SUBJECT: Final = re.compile(r"(\w+) is ")


@contextmanager
def told_in_options(names: Iterable[str]) -> Iterator[None]:
    """A ValueError about an argument is about the option, if there is one."""
    try:
        yield
    except ValueError as error:
        raise ValueError(in_options(str(error), names)) from error


def in_options(words: str, names: Iterable[str]) -> str:
    """What the library says, for somebody who typed options of these names."""
    for argument, option in _ADVICE.items():
        words = words.replace(argument, option)
    if (found := _SUBJECT.match(words)) is None:
        return words
    name = _OPTIONS.get(found[1], found[1])
    option = f"--{name.replace('_', '-')}" if name in names else found[1]
    return option + words[found.end(1) :]


def named_values(struct: type[Options], given: Iterable[str], option: str) -> dict[str, Any]:
    """Values of a struct's fields, each typed as NAME=VALUE for an `option`."""
    fields, found = fields_of(struct), {}
    for word in given:
        name, _, value = word.partition("=")
        if name not in fields:
            raise _refusal(f"{word!r}; expected one of {', '.join(fields)}", option)
        if fields[name].is_count and not value.isdigit():
            raise _refusal(f"{word!r}; expected a whole number", option)
        found[name] = _typed(fields[name], value)
    return found


def setting(name: str) -> Callable[[FC], FC]:
    """An option of the command line for a setting of the pool."""
    field = fields_of(PoolOptions)[name]
    return click.option(
        f"--{name.replace('_', '-')}",
        type=str if field.about.is_size else field.kind,
        metavar="SIZE" if field.about.is_size else None,
        show_default=None if field.default is None else str(field.default),
        help=field.about.meaning,
    )


def _typed(field: Field, value: str) -> Any:
    """What somebody typed, as the field has it; what is no number is refused as the text it is."""
    from penstock.client.keywords import parsed_value

    number: Any = value
    if not field.about.is_size:
        with suppress(ValueError):
            number = field.kind(value)
    return parsed_value(field, number)


def samplers_of(given: Iterable[str]) -> tuple[str, ...]:
    """Samplers by MODULE:CLASS, which are looked for in the current folder, too."""
    names = tuple(given)
    if names and (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # a script of its own has only the folder it lies in
    for name in names:
        module, colon, member = name.partition(":")
        if not (module and colon and member):
            raise _refusal(f"{name!r}; expected MODULE:CLASS", "--sampler")
        if not _is_there(module):
            raise _refusal(f"{name!r}; there is no module {module!r} on the path", "--sampler")
    return names


def counted(number: int, thing: str) -> str:
    """1 batch, 2 batches."""
    many = f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{number} {thing if number == 1 else many}"


def workers_of(given: str) -> Any:
    """A number, or "auto"."""
    if given == "auto":
        return given
    if not given.isdigit() or int(given) < 1:
        raise _refusal("expected 'auto', or at least 1", "--workers")
    return int(given)


def chosen(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those of some options that were given: the library has its own mind about the rest."""
    return {name: given[name] for name in names if given[name] is not None}


def _is_there(module: str) -> bool:
    """Without running it, but for the packages that it lies in."""
    if module.endswith(".py"):
        return os.path.isfile(module)
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _refusal(words: str, option: str) -> click.BadParameter:
    return click.BadParameter(words, param_hint=option)
