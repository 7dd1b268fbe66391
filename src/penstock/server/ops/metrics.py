"""Statistics in Prometheus' text format: every number, named by its path.

    {"server": {"opened": 3}}                     penstock_server_opened 3
    {"workers": [{"worker": 1, "cpu": 0.5}]}      penstock_workers_cpu{worker="1"} 0.5
    {"sessions": [{"number": 7, "calls": 2}]}     penstock_sessions_calls{session="7"} 2
    {"channels": {"4": {"slots": 6}}}             penstock_channels_slots{channel="4"} 6

Each element of a list, or of a mapping by numbers, becomes one line, labelled by its number or by
the fields in `LABELS`. Metric names never contain a number that comes and goes. Text is left out,
except in labels. Nothing is counted here; the caller's numbers are only formatted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

PREFIX: Final = "penstock"
# Fields with an element's number, where that is not its key.
_NUMBERS: Final = ("number", "id")
# Fields that label other elements; the first few that an element has become its labels.
LABELS: Final = ("worker", "channel", "session", "backend", "group", "name", "job", "pid", "kind")
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_]+")
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_Sample = tuple[str, dict[str, str], float]


def metrics_of(numbers: Mapping[str, Any]) -> str:
    """Return all numbers in the text format, grouped by name, as the format requires."""
    by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in _samples((PREFIX,), {}, numbers):
        by_name.setdefault(name, []).append((labels, value))
    return "".join(_family(name, samples) for name, samples in by_name.items())


def _family(name: str, samples: list[tuple[dict[str, str], float]]) -> str:
    lines = [f"# TYPE {name} gauge"]
    seen: set[str] = set()
    for labels, value in samples:
        words = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
        sample = f"{name}{{{words}}}" if words else name
        if sample not in seen:  # two equal lines would invalidate the whole answer
            seen.add(sample)
            lines.append(f"{sample} {_number(value)}")
    return "\n".join(lines) + "\n"


def _samples(path: tuple[str, ...], labels: dict[str, str], value: Any) -> Iterator[_Sample]:
    match value:
        case bool() | int() | float():
            yield "_".join(path), labels, float(value)
        case Mapping() if value and all(str(key).isdigit() for key in value):
            for key, found in value.items():
                yield from _samples(path, {**labels, _one_of(path): str(key)}, found)
        case Mapping():
            for key, found in value.items():
                yield from _samples((*path, _word(key)), labels, found)
        case str():
            return
        case Sequence():
            for place, found in enumerate(value):
                told = _labels_of(_one_of(path), found) if isinstance(found, Mapping) else {}
                yield from _samples(path, {**labels, **(told or {"place": str(place)})}, found)


def _labels_of(kind: str, thing: Mapping[Any, Any]) -> dict[str, str]:
    for key in _NUMBERS:
        if isinstance(thing.get(key), int):
            said = thing.get("name") or thing.get("worker_key")
            name = {"name": str(said)} if said else {}
            return {kind: str(thing[key]), **name}
    there = [key for key in LABELS if isinstance(thing.get(key), str | int)]
    return {key: str(thing[key]) for key in there[:3]}


def _one_of(path: tuple[str, ...]) -> str:
    """Return the singular of a group's name: "channel" for channels."""
    return path[-1].removesuffix("s")


def _word(key: Any) -> str:
    return _NO_NAME.sub("_", str(key)).strip("_") or "of"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
