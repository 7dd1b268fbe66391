"""Lets `help` and an editor's prompt show the options of a loader beside its own arguments.

They are keywords of `**options`, so Python itself knows nothing about them. Their names, types,
defaults and meanings come from where they are declared (`penstock.options`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from textwrap import fill
from typing import Any, Final, TypeVar

from penstock.loader.pyg.options import ARGUMENTS, CHANNEL
from penstock.option_types import LoaderKeywords
from penstock.options import LoadingOptions, fields_of

_OPTIONS: Final = {**fields_of(LoadingOptions), **CHANNEL}
_Class = TypeVar("_Class", bound=type)


class _SignatureOf:
    """The signature of one class; its subclasses have that of their own `__init__`."""

    def __init__(self, owner: type, signature: inspect.Signature) -> None:
        self._owner = owner
        self._signature = signature

    def __get__(self, _: object, owner: type) -> inspect.Signature:
        if owner is not self._owner:
            raise AttributeError("__signature__")
        return self._signature


def shows_options(loader: _Class) -> _Class:
    """Add the options of all loaders to the signature and the docstring of one.

    `__init__` keeps its own signature: Lightning reads that, to make loaders again.
    """
    own = inspect.signature(loader.__init__)  # type: ignore[misc]
    _, *parameters, _ = own.parameters.values()  # without `self` and `options`
    ARGUMENTS[loader.__name__] = tuple(each.name for each in parameters)
    signature = own.replace(parameters=[*parameters, *_parameters()])
    loader.__signature__ = _SignatureOf(loader, signature)  # type: ignore[attr-defined]
    text = inspect.cleandoc(loader.__doc__ or "")
    loader.__doc__ = "\n".join([text, "", "Options:", *_lines()])
    return loader


def _parameters() -> Iterator[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    for name, field in _OPTIONS.items():
        yield inspect.Parameter(name, kind, default=field.default, annotation=_type(name))


def _lines() -> Iterator[str]:
    for name, field in _OPTIONS.items():
        line = f"{name} ({_type(name)}): {field.about.meaning} Default: {field.default!r}."
        yield fill(line, 96, initial_indent="    ", subsequent_indent="        ")


def _type(name: str) -> Any:
    return LoaderKeywords.__annotations__[name].__forward_arg__
