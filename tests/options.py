"""What is made from the declarations in `penstock.options`: the keywords' types, and a page.

`python -m tests.options` writes src/penstock/option_types.py and docs/options.md anew, and a test
compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

import msgspec

from penstock.options import (
    BatchOptions,
    ChannelOptions,
    Field,
    Limits,
    Options,
    PoolOptions,
    fields_of,
)

ROOT = Path(__file__).parents[1]
TYPES = ROOT / "src" / "penstock" / "option_types.py"
PAGE = ROOT / "docs" / "options.md"

_SIZES = {40: "TiB", 30: "GiB", 20: "MiB", 10: "KiB"}


def types() -> str:
    """src/penstock/option_types.py."""
    channel = _typed_dict(
        "ChannelKeywords",
        "What a channel can be opened with. Only `batch_size` must be given.",
        BatchOptions,
        ChannelOptions,
    )
    pool = _typed_dict("PoolKeywords", "How the pool of a hub can be run.", PoolOptions)
    head = [
        '"""The types of users\' keywords, for editors and type checkers.',
        "",
        "Written by `python -m tests.options` from the structs in `penstock.options`; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal, TypedDict",
    ]
    return "\n".join([*head, *channel, *pool]) + "\n"


def page() -> str:
    """docs/options.md."""
    lines = [
        "# Options, settings and limits",
        "",
        "Written by `python -m tests.options` from `src/penstock/options.py`; a test keeps it so.",
        'Sizes are bytes, or text such as `"64MB"`; times are seconds.',
        "",
        "## Channels",
        "",
        "What `register_input` takes beside the inputs. Those with a \\* are",
        "keywords of loaders, too, which have torch's words for the others",
        "([training](guides/training.md)).",
        "",
        *_table(BatchOptions),
        *_table(ChannelOptions)[2:],
        "",
        "## Pools",
        "",
        "What `HubProcess`, `SharedDistSamplingBackend`, `DistServer` and `serve` take, and",
        "`penstock serve --pool NAME=VALUE`.",
        "",
        *_table(PoolOptions),
        "",
        "## Limits of a server",
        "",
        "Fields of `penstock.Limits`, which `serve` and `DistServer` take as `limits`; on the",
        "command line `penstock serve --limit NAME=VALUE`. A refusal (`Overloaded`) names it.",
        "",
        *_table(Limits),
    ]
    return "\n".join(lines) + "\n"


def _typed_dict(name: str, words: str, *structs: type[Options]) -> Iterator[str]:
    yield from ("", "", f"class {name}(TypedDict, total=False):", f'    """{words}"""')
    for field in (field for struct in structs for field in fields_of(struct).values()):
        yield ""
        yield from (f"    # {line}" for line in wrap(field.about.meaning, 92))
        yield from (f"    {name}: {_keyword_type(field)}" for name in field.names)


def _keyword_type(field: Field) -> str:
    """The type of what users may give, which is more than the field itself has."""
    found = _type(field)
    if field.about.choices is not None:
        words = ", ".join(f'"{choice.value}"' for choice in field.about.choices)
        found = f"Literal[{words}]"
    if field.about.is_size:
        found += " | str"
    return found + (" | None" if field.is_optional else "")


def _table(struct: type[Options]) -> list[str]:
    rows = ["| name | type | default | meaning |", "|---|---|---|---|"]
    return rows + [_row(field, struct) for field in fields_of(struct).values()]


def _row(field: Field, struct: type[Options]) -> str:
    aliases = "".join(f", or `{alias}`" for alias in field.about.aliases)
    mark = " \\*" if struct is ChannelOptions and field.about.for_loaders else ""
    kind = _page_type(field) + (", or None" if field.is_optional else "")
    name, default = f"`{field.name}`{aliases}{mark}", _default(field)
    return f"| {name} | {kind} | {default} | {field.about.meaning} |"


def _page_type(field: Field) -> str:
    about = field.about
    if about.choices is not None:
        return " or ".join(f"`{choice.value!r}`" for choice in about.choices)
    if about.most is not None:
        return f"{_type(field)}, {about.least:g} to {about.most:g}"
    return "size" if about.is_size else _type(field)


def _default(field: Field) -> str:
    if field.default is msgspec.NODEFAULT:
        return "must be given"
    if field.about.is_size and isinstance(field.default, int):
        return _size(field.default)
    return f"`{field.default!r}`"


def _size(nbytes: int) -> str:
    power = next(power for power in _SIZES if nbytes >= 1 << power)
    return f"{nbytes >> power} {_SIZES[power]}"


def _type(field: Field) -> str:
    return field.kind.__name__


if __name__ == "__main__":
    TYPES.write_text(types())
    PAGE.write_text(page())
    print(f"wrote {TYPES} and {PAGE}", file=sys.stderr)
