"""Calls as a table: classes whose annotated methods say what can be asked of a server.

    class Questions(ABC):
        @call(reads=True)
        def get_node_types(self) -> list[str] | None:
            ...  # its docstring describes the call

`verbs_of` reads such a class. From a method's signature follow the struct that its arguments are
decoded with, the type that its answer is read as, and, by `mirrored`, the method of a class that
asks over a wire. Results that cannot travel as they are have a `Form`. Which calls there are is not
known here.
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

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type[Any])

_AS_ARRAY: Final = "as array"
# Ids as users write them: an array, a tensor, a list. They travel as an array.
IdsLike: TypeAlias = Annotated[Any, _AS_ARRAY]

_TRAITS: Final = "__call_traits__"


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes with a call; with most, nothing does."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a call is like, beside its signature.

    Attributes:
        reads: It changes nothing, and may be made again after a loss.
        makes: It makes something that belongs to the session and goes with it. The server's method
            takes the session's number as `holder`.
        permission: The server's setting that must be true for ranks to make this call.
        request: A struct that may be given in place of the first argument, with all of them.
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
    """Declares a method to be a call; for the arguments see `Traits`. It is abstract from then on.

    Type checkers are not told so: the methods of a mirror are made when its class is.
    """

    def declare(method: _Method) -> _Method:
        vars(method)[_TRAITS] = Traits(reads, makes, permission, request)
        return abc.abstractmethod(method)

    return declare


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Form:
    """How a result travels: `apart` makes what is sent of it, `together` makes it again."""

    travels_as: Any
    apart: Callable[[Any], Any] = _itself
    together: Callable[[Any], Any] = _itself


@dataclass(frozen=True, slots=True)
class Verb:
    """One call.

    Attributes:
        signature: The method's, with resolved annotations, `self` included.
        takes: The struct of its arguments.
        form: How its result travels.
        arrays: The arguments that travel as arrays, whatever they are given as.
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
        """What it does, in a line."""
        return self.doc.partition("\n")[0]

    @property
    def gives(self) -> Any:
        """What its answer is read as."""
        return self.form.travels_as

    @property
    def result(self) -> Any:
        """What the method is declared to return."""
        return self.signature.return_annotation

    def arguments(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """All arguments of a call by name, defaults included; `self` is the first of `args`."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        _, *given = bound.arguments.items()
        request = self.traits.request
        if request is not None and isinstance(given[0][1], request):
            return msgspec.structs.asdict(given[0][1])
        return dict(given)


Verbs: TypeAlias = Mapping[str, Verb]


def verbs_of(table: type[Any], forms: Mapping[Any, Form] = MappingProxyType({})) -> Verbs:
    """The calls that a class declares, by name and in their order, those of its bases first.

    `forms` says how results of some types travel; type variables need one.
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
    """A signature whose annotations are types, not their names."""
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
    """A hint without the request that a caller may give: it is taken apart before it travels."""
    if request is None or request not in get_args(hint):
        return hint
    return reduce(or_, (each for each in get_args(hint) if each is not request))


def _form(hint: Any, forms: Mapping[Any, Form]) -> Form:
    if hint in forms:
        return forms[hint]
    travels = {kind: form.travels_as for kind, form in forms.items()}
    return Form(_substituted(hint, travels))


def _substituted(hint: Any, types: Mapping[Any, Any]) -> Any:
    """A hint with types in place of its type variables."""
    if hint in types:
        return types[hint]
    free = getattr(hint, "__parameters__", ())
    return hint[tuple(types[each] for each in free)] if free else hint


class Asks(Protocol):
    """Whoever has a way to make calls."""

    def ask(self, verb: Verb, arguments: dict[str, Any]) -> Any:
        """What a call comes to, with all its arguments by name."""


def mirrored(verbs: Verbs, types: Mapping[Any, Any]) -> Callable[[_Class], _Class]:
    """Gives a class a method for each call, which hands it to the class's own `ask`.

    `types` says what the table's type variables stand for, as signatures show them.
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
