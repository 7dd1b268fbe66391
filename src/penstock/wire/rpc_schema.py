"""The schema of calls: classes whose annotated methods declare what a server can be asked.

    class Questions(ABC):
        @call(reads=True)
        def get_node_types(self) -> list[str] | None:
            ...  # its docstring describes the call

`verbs_of` reads such a class. A method's signature determines the struct that decodes its
arguments, the type of its answer and, with `mirrored`, the method of a class that makes the call
over a connection. A `Form` says how to send results that cannot be sent as they are. This module
must not know which calls there are.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import FunctionType, MappingProxyType
from typing import Annotated, Any, Final, Protocol, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec

from penstock.errors import suggestion

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type[Any])

_AS_ARRAY: Final = "as array"
# Ids as users give them: an array, a tensor, a list. They are sent as an array.
IdsLike: TypeAlias = Annotated[Any, _AS_ARRAY]

_TRAITS: Final = "__call_traits__"
# The names of declared calls that change nothing.
_reading: set[str] = set()


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of the structs of calls' arguments; most calls have none."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a call that its signature does not say.

    Attributes:
        reads: It changes nothing, so it may be repeated after the connection was lost.
        makes: It makes something that belongs to the session and is closed with it. The server's
            method takes the session's number as `holder`.
        permission: The server's setting that must be true for ranks to make this call.
        request: A struct with all arguments, which may be given instead of the first one.
    """

    reads: bool = False
    makes: bool = False
    permission: str | None = None
    request: type[msgspec.Struct] | None = None


def call(
    *,
    reads: bool = False,
    makes: bool = False,
    permission: str | None = None,
    request: type[msgspec.Struct] | None = None,
) -> Callable[[_Method], _Method]:
    """Declare a method to be a call, and abstract; for the arguments see `Traits`.

    Type checkers do not see that it is abstract, because `mirrored` adds the methods of a mirror
    class at run time.
    """

    def declare(method: _Method) -> _Method:
        vars(method)[_TRAITS] = Traits(reads, makes, permission, request)
        if reads:
            _reading.add(method.__name__)
        return abc.abstractmethod(method)

    return declare


def only_reads(verb: str) -> bool:
    """Return whether a call is declared to change nothing, so that it may be repeated."""
    return verb in _reading


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Form:
    """How a result is sent: `apart` converts it to what is sent, `together` converts it back."""

    travels_as: Any
    apart: Callable[[Any], Any] = _itself
    together: Callable[[Any], Any] = _itself


@dataclass(frozen=True, slots=True)
class Verb:
    """One call.

    Attributes:
        signature: The signature of the method, with resolved annotations, including `self`.
        takes: The struct of its arguments.
        form: How its result is sent.
        arrays: The arguments that are sent as arrays, whatever the caller gives.
    """

    name: str
    doc: str
    signature: inspect.Signature
    takes: type[Arguments]
    form: Form
    arrays: frozenset[str]
    traits: Traits

    @property
    def description(self) -> str:
        """The first line of the method's docstring."""
        return self.doc.partition("\n")[0]

    @property
    def gives(self) -> Any:
        """The type that its answer is decoded as."""
        return self.form.travels_as

    @property
    def result(self) -> Any:
        """The return type that the method declares."""
        return self.signature.return_annotation

    def arguments(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return all arguments of a call by name, with defaults; `self` is the first of `args`."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:  # which does not say of what
            _, *names = self.signature.parameters
            near = "".join(suggestion(name, names) for name in kwargs if name not in names)
            takes = ", ".join(names) or "nothing"
            raise TypeError(f"{self.name}: {error}; it takes {takes}{near}") from None
        bound.apply_defaults()
        _, *given = bound.arguments.items()
        request = self.traits.request
        if request is not None and isinstance(given[0][1], request):
            return msgspec.structs.asdict(given[0][1])
        return dict(given)


Verbs: TypeAlias = Mapping[str, Verb]


def verbs_of(table: type[Any], forms: Mapping[Any, Form] = MappingProxyType({})) -> Verbs:
    """Return the calls that a class declares, by name and in order, those of its bases first.

    Args:
        table: The class with the declarations.
        forms: How results of some types are sent; type variables need one.
    """
    return MappingProxyType(
        {method.__name__: _verb_of(method, forms) for method in _declared(table)}
    )


def _declared(table: type[Any]) -> Iterator[FunctionType]:
    for kind in reversed(table.__mro__):
        for each in vars(kind).values():
            if isinstance(each, FunctionType) and _TRAITS in vars(each):
                yield each


def _verb_of(method: FunctionType, forms: Mapping[Any, Form]) -> Verb:
    hints = get_type_hints(method, include_extras=True)
    signature = _resolved(inspect.signature(method), hints)
    traits: Traits = vars(method)[_TRAITS]
    own = {name: each for name, each in signature.parameters.items() if name != "self"}
    return Verb(
        name=method.__name__,
        doc=inspect.getdoc(method) or "",
        signature=signature,
        takes=_takes(method.__name__, own, traits),
        form=_form(signature.return_annotation, forms),
        arrays=frozenset(name for name in own if _AS_ARRAY in get_args(hints[name])),
        traits=traits,
    )


def _resolved(signature: inspect.Signature, hints: Mapping[str, Any]) -> inspect.Signature:
    """Return a signature whose annotations are types instead of their names."""
    parameters = [
        each.replace(annotation=hints.get(each.name, each.annotation))
        for each in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=hints["return"])


def _takes(name: str, own: Mapping[str, inspect.Parameter], traits: Traits) -> type[Arguments]:
    fields = [
        (each.name, _without(each.annotation, traits.request))
        if each.default is inspect.Parameter.empty
        else (each.name, _without(each.annotation, traits.request), each.default)
        for each in own.values()
    ]
    made = msgspec.defstruct(
        name, fields, bases=(Arguments,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    assert issubclass(made, Arguments)
    return made


def _without(hint: Any, request: type[Any] | None) -> Any:
    """Return a hint without the request struct, which is converted to arguments before sending."""
    if request is None or request not in get_args(hint):
        return hint
    return reduce(or_, (each for each in get_args(hint) if each is not request))


def _form(hint: Any, forms: Mapping[Any, Form]) -> Form:
    if hint in forms:
        return forms[hint]
    travels = {kind: form.travels_as for kind, form in forms.items()}
    return Form(_substituted(hint, travels))


def _substituted(hint: Any, types: Mapping[Any, Any]) -> Any:
    """Return a hint with types instead of its type variables."""
    if hint in types:
        return types[hint]
    free = getattr(hint, "__parameters__", ())
    return hint[tuple(types[each] for each in free)] if free else hint


class Asks(Protocol):
    """An object that can make calls."""

    def ask(self, verb: Verb, arguments: dict[str, Any]) -> Any:
        """Make a call with all its arguments by name, and return its result."""


def mirrored(verbs: Verbs, types: Mapping[Any, Any]) -> Callable[[_Class], _Class]:
    """Return a decorator that gives a class a method for each call, which calls the class's `ask`.

    Args:
        verbs: The calls.
        types: The types that the signatures show instead of type variables.
    """

    def fill(kind: _Class) -> _Class:
        for verb in verbs.values():
            setattr(kind, verb.name, _method(kind, verb, types))
        abc.update_abstractmethods(kind)
        return kind

    return fill


def _method(kind: type[Any], verb: Verb, types: Mapping[Any, Any]) -> Callable[..., Any]:
    def method(self: Asks, *args: Any, **kwargs: Any) -> Any:
        return self.ask(verb, verb.arguments(self, *args, **kwargs))

    hints = {
        name: _substituted(each.annotation, types)
        for name, each in verb.signature.parameters.items()
        if name != "self"
    }
    hints["return"] = _substituted(verb.result, types)
    method.__name__, method.__module__ = verb.name, kind.__module__
    method.__qualname__ = f"{kind.__qualname__}.{verb.name}"
    method.__doc__ = verb.doc
    method.__annotations__ = hints
    method.__signature__ = _resolved(verb.signature, hints)  # type: ignore[attr-defined]
    return method
