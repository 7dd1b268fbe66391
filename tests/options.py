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
    LoadingOptions,
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
    loader = _typed_dict(
        "LoaderKeywords",
        "What every loader takes beside what to sample.",
        *fields_of(LoadingOptions).values(),
        *_of_loaders(),
    )
    channel = _typed_dict(
        "ChannelKeywords",
        "What a channel can be opened with. Only `batch_size` must be given.",
        *fields_of(BatchOptions).values(),
        *fields_of(ChannelOptions).values(),
    )
    pool = _typed_dict(
        "PoolKeywords", "How the pool of a hub can be run.", *fields_of(PoolOptions).values()
    )
    head = [
        '"""The types of users\' keywords, for editors and type checkers.',
        "",
        "Written by `python -m tests.options` from the structs in `penstock.options`; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Callable, Iterable",
        "from typing import TYPE_CHECKING, Any, Literal, TypedDict",
        "",
        "if TYPE_CHECKING:",
        "    from multiprocessing.context import BaseContext",
        "",
        "    import torch",
    ]
    return "\n".join([*head, *loader, *channel, *pool]) + "\n"


def _of_loaders() -> Iterator[Field]:
    """The options of channels that are keywords of loaders, too."""
    return (each for each in fields_of(ChannelOptions).values() if each.about.for_loaders)


def page() -> str:
    """docs/options.md."""
    lines = [
        "# Options, settings and limits",
        "",
        "Written by `python -m tests.options` from `src/penstock/options.py`; a test keeps it so.",
        'Sizes are bytes, or text such as `"64MB"`; times are seconds.',
        "",
        "## Loaders",
        "",
        "What `NeighborLoader`, `LinkNeighborLoader`, `HGTLoader`, `ABLPLoader`, `PPRLoader` and",
        "`CustomLoader` take beside what to sample. The options before `seed` are those of torch's",
        "`DataLoader`; [training](guides/training.md) says more. A loader takes the options of",
        "channels with a \\* as well.",
        "",
        *_table(LoadingOptions),
        "",
        "## Channels",
        "",
        "What `register_input` takes beside the inputs. Those with a \\* are",
        "keywords of loaders, too.",
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


def _typed_dict(name: str, words: str, *fields: Field) -> Iterator[str]:
    yield from ("", "", f"class {name}(TypedDict, total=False):", f'    """{words}"""')
    for field in fields:
        for keyword in field.names:
            yield ""
            yield f"    {keyword}: {_keyword_type(field)}"
            yield from (f"    {line}" for line in wrap(f'"""{_words(field)}"""', 95))


def _words(field: Field) -> str:
    """What a field means, and what holds without it."""
    return f"{field.about.meaning} {_by_default(field)}."


def _by_default(field: Field) -> str:
    return "It must be given" if field.default is msgspec.NODEFAULT else f"Default: {_value(field)}"


def _value(field: Field) -> str:
    is_size = field.about.is_size and isinstance(field.default, int)
    return _size(field.default) if is_size else repr(field.default)


def _keyword_type(field: Field) -> str:
    """The type of what users may give, which is more than the field itself has."""
    if field.about.written:
        return field.about.written
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
    if about.written:
        return f"`{about.written}`".replace("|", "\\|")
    if about.choices is not None:
        return " or ".join(f"`{choice.value!r}`" for choice in about.choices)
    if about.most is not None:
        return f"{_type(field)}, {about.least:g} to {about.most:g}"
    return "size" if about.is_size else _type(field)


def _default(field: Field) -> str:
    if field.default is msgspec.NODEFAULT:
        return "must be given"
    is_size = field.about.is_size and isinstance(field.default, int)
    return _value(field) if is_size else f"`{_value(field)}`"


def _size(nbytes: int) -> str:
    power = next(power for power in _SIZES if nbytes >= 1 << power)
    return f"{nbytes >> power} {_SIZES[power]}"


def _type(field: Field) -> str:
    return field.kind.__name__


if __name__ == "__main__":
    TYPES.write_text(types())
    PAGE.write_text(page())
    print(f"wrote {TYPES} and {PAGE}", file=sys.stderr)
