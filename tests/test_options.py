"""Options, settings and limits are declared in one place, and the rest is made from there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.options import (
    BatchOptions,
    ChannelOptions,
    Limits,
    LoadingOptions,
    Options,
    PoolOptions,
    fields_of,
)
from penstock.wire.messages import Register
from tests.options import PAGE, TYPES, page, types

STRUCTS: list[type[Options]] = [BatchOptions, ChannelOptions, PoolOptions, Limits]
SOURCE = Path(TYPES).parent
# These words are fields of other things, too.
COMMON = {"batch_size", "shuffle", "drop_last", "seed", "rank", "world_size", "remainder", "slots",
          "weight", "deadline", "job"}  # fmt: skip
# What the users of `DistServer` know by these names; a request, which is not what a channel has.
REQUESTS = {("wire/requests.py", "buffer_size"), ("wire/requests.py", "worker_concurrency")}


def test_the_types_of_keywords_are_current() -> None:
    assert TYPES.read_text() == types(), "run: python -m tests.options"


def test_the_page_of_options_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.options"


def test_no_other_class_declares_them() -> None:
    names = {name for struct in STRUCTS for name in fields_of(struct)} - COMMON
    found = {
        (str(path.relative_to(SOURCE)), node.target.id)
        for path in SOURCE.rglob("*.py")
        if path.name not in ("options.py", "option_types.py") or path.parent != SOURCE
        for owner in ast.walk(ast.parse(path.read_text()))
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if node.target.id in names
    }
    assert found == REQUESTS


@pytest.mark.parametrize("struct", [*STRUCTS, LoadingOptions])
def test_every_field_says_what_it_means(struct: type[Options]) -> None:
    assert set(fields_of(struct)) == set(struct.__struct_fields__)
    for field in fields_of(struct).values():
        assert field.about.meaning.endswith("."), field.name


@pytest.mark.parametrize("struct", [ChannelOptions, PoolOptions, Limits])
def test_what_holds_by_default_makes_sense(struct: type[Options]) -> None:
    struct().check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ChannelOptions(slots=0), "slots is 0; expected 1 to 1024"),
        (ChannelOptions(weight=float("nan")), "weight is nan; expected 0.0001 to 10000"),
        (ChannelOptions(deadline=float("inf")), "deadline is inf; expected a number above 0"),
        (ChannelOptions(max_attempts=True), "max_attempts is True; expected an integer"),
        (ChannelOptions(on_error="shrug"), "on_error is 'shrug'; expected 'raise' or 'substitute'"),
        (
            ChannelOptions(on_error="substitute", max_substitutes=0),
            "max_substitutes is 0; expected at least 1 with",
        ),
        (ChannelOptions(retry_errors=-1), "retry_errors is -1; expected 0 to 1000"),
        (ChannelOptions(retry_on=()), r"retry_on is \(\); expected 1 to 64 of classes"),
        (ChannelOptions(retry_on=(3,)), r"retry_on is \(3,\); expected classes, or their names"),
        (PoolOptions(max_age=0.0), "max_age is 0.0; expected a number above 0"),
        (PoolOptions(silence=1.0), "silence is 1 s and beat_every 1 s"),
    ],
    ids=str,
)
def test_values_that_make_no_sense_are_refused_by_name(options: Options, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        options.check()


def test_what_comes_over_the_wire_is_decoded_before_it_is_checked() -> None:
    """So that a request is refused in words, and its connection goes on."""
    said: dict[str, Any] = {"type": "Register", "request": 1, "options": {"slots": -1}}
    said["feed"] = {"num_inputs": 0, "batch_size": 1}
    heard = msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=Register)
    with pytest.raises(ValueError, match="slots is -1; expected 1 to 1024"):
        heard.options.check()


@pytest.mark.parametrize(
    ("options", "slot_bytes"),
    [
        (ChannelOptions(), None),
        (ChannelOptions(slots=3), None),
        (ChannelOptions(buffer_size=4096), 1024),
        (ChannelOptions(buffer_size=4096, slots=2), 2048),
        (ChannelOptions(buffer_size=1, slots=2), 1),
    ],
    ids=str,
)
def test_a_buffer_is_divided_among_its_slots(
    options: ChannelOptions, slot_bytes: int | None
) -> None:
    assert options.slot_bytes == slot_bytes
