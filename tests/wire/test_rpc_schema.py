"""A table of calls: what follows from the signatures of a class."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import inspect
from abc import ABC
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
import numpy as np
import pytest

from penstock.wire.rpc_schema import Form, IdsLike, Verb, call, mirrored, verbs_of

ArrayT = TypeVar("ArrayT")


class Point(msgspec.Struct, frozen=True):
    x: int = 0
    name: str = ""


class Parts(msgspec.Struct, frozen=True):
    value: str


class Asked(ABC, Generic[ArrayT]):
    @call(reads=True, request=Point)
    def rows(self, x: int | Point = 0, name: str = "") -> ArrayT:
        """Return rows.

        Any number of them.
        """

    @call(makes=True)
    def make(self, ids: IdsLike, *, count: int | None = None) -> complex:
        """Make one."""


class More(Asked[int]):
    @call(permission="may_stop")
    def stop(self) -> None:
        """Stop."""


FORMS = {
    ArrayT: Form(np.ndarray),
    complex: Form(Parts, lambda value: Parts(str(value)), lambda parts: complex(parts.value)),
}
VERBS = verbs_of(More, FORMS)


@mirrored(VERBS, {ArrayT: bytes})
class Mirror(More):
    """Tells what it was asked."""

    def ask(self, verb: Verb, arguments: dict[str, Any]) -> Any:
        return verb.name, arguments


def test_calls_come_in_their_order_with_what_they_are_like() -> None:
    assert list(VERBS) == ["rows", "make", "stop"]
    assert [verb.traits.reads for verb in VERBS.values()] == [True, False, False]
    assert [verb.traits.makes for verb in VERBS.values()] == [False, True, False]
    assert VERBS["stop"].traits.permission == "may_stop"
    assert VERBS["make"].arrays == {"ids"}
    assert VERBS["rows"].description == "Return rows."


@pytest.mark.parametrize(
    ("verb", "given", "words"),
    [
        ("rows", {"x": "1"}, "Expected `int`"),
        ("rows", {"x": {"x": 1}}, "Expected `int`"),
        ("rows", {"y": 1}, "unknown field"),
        ("make", {}, "missing required field"),
        ("make", {"ids": [], "count": 1.5}, "Expected `int"),
        ("stop", {"self": 1}, "unknown field"),
    ],
    ids=["type", "request", "unknown", "missing", "keyword", "self"],
)
def test_arguments_are_read_strictly(verb: str, given: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(given, VERBS[verb].takes)


def test_arguments_have_the_defaults_of_the_signature() -> None:
    taken = msgspec.convert({"ids": 3}, VERBS["make"].takes)
    assert msgspec.structs.asdict(taken) == {"ids": 3, "count": None}


def test_results_travel_in_their_form() -> None:
    form = VERBS["make"].form
    assert VERBS["make"].gives is Parts
    assert form.together(form.apart(1 + 2j)) == 1 + 2j
    assert VERBS["rows"].gives is np.ndarray
    assert VERBS["stop"].gives is type(None)


def test_a_mirror_hands_on_all_arguments_by_name() -> None:
    mirror: Any = Mirror()
    assert mirror.rows(3) == ("rows", {"x": 3, "name": ""})
    assert mirror.make([1], count=2) == ("make", {"ids": [1], "count": 2})
    assert mirror.stop() == ("stop", {})


def test_a_request_stands_for_all_arguments() -> None:
    mirror: Any = Mirror()
    assert mirror.rows(Point(5, "five")) == ("rows", {"x": 5, "name": "five"})


def test_a_mirror_refuses_arguments_that_the_signature_does_not_have() -> None:
    mirror: Any = Mirror()
    for ask in (mirror.make, lambda: mirror.make(1, 2), lambda: mirror.stop(now=True)):
        with pytest.raises(TypeError):
            ask()


def test_a_mirrors_methods_look_as_if_somebody_had_written_them() -> None:
    assert str(inspect.signature(Mirror.rows)) == (
        f"(self, x: int | {Point.__module__}.Point = 0, name: str = '') -> bytes"
    )
    assert get_type_hints(Mirror.rows)["return"] is bytes
    assert inspect.getdoc(Mirror.rows) == "Return rows.\n\nAny number of them."
    assert (Mirror.rows.__name__, Mirror.rows.__qualname__) == ("rows", "Mirror.rows")
    assert Mirror.rows.__module__ == __name__


def test_whoever_does_not_implement_a_call_cannot_be_made() -> None:
    class Half(More):
        def stop(self) -> None:
            pass

    with pytest.raises(TypeError, match=r"abstract methods.* make, rows"):
        Half()
