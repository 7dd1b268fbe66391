"""Keep results of benchmarks under docs/figures, and write docs/figures.md from them.

    python -m benchmarks.figures                           write the page
    python -m benchmarks.figures record pool -- --repeats 5  run a benchmark, keep its result, too

A result is what the benchmark prints with `--json`, with the machine and the options of the run.
Recording again replaces the figures that were measured, and keeps the others if they are of the
same machine. A test compares the page with what this script makes of the files.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "figures.md"
RESULTS = ROOT / "docs" / "figures"
# In the order of the page, with the command that runs each.
BENCHMARKS = {
    "peers": "bench-peers",
    "loader": "bench-loader",
    "small_batches": "bench-small",
    "kernels": "bench",
    "samplers": "bench-samplers",
    "pool": "bench-pool",
    "server": "bench-server",
    "build": "bench-build",
    "scheduler": "bench-scheduler",
    "calls": "bench-calls",
}
HEAD = """# Figures

What the benchmarks measured, written by `python -m benchmarks.figures` from the results in
`docs/figures`; a test keeps it so. Each ratio is of two things measured in turn, in one run: the
median of the pairs, and their quartiles. Nothing here is a promise for another machine. [How
fast](speed.md) says more about what is compared with what. `python -m benchmarks.figures record
NAME` measures one of them anew.
"""
# A name, then what it means, at least two spaces apart; or only the name, on a line of its own.
DEFINED = re.compile(r"  (\S+(?: \S+)*)(?:  +(.*))?")


class Row(NamedTuple):
    """One figure: its name, its ratio and quartiles if it has them, and what else was measured."""

    name: str
    ratio: str
    quartiles: str
    rest: str


# --- the page ------------------------------------------------------------------------------------


def page(results: Path = RESULTS) -> str:
    """Return the page made from the recorded results."""
    parts = [HEAD]
    for name, target in BENCHMARKS.items():
        path = results / f"{name}.json"
        if path.exists():
            parts.append(section(name, target, json.loads(path.read_text())))
    return "\n".join(parts)


def section(name: str, target: str, recorded: dict[str, Any]) -> str:
    source = (ROOT / "benchmarks" / f"{name}.py").read_text()
    first, *about = (ast.get_docstring(ast.parse(source)) or name).split("\n\n")
    machine, options = recorded["machine"], " ".join(recorded["options"])
    lines = [
        f"## `make {target}`",
        "",
        first.replace("\n", " "),
        "",
        "| figure | ratio | quartiles | beside it |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows(recorded["result"])),
        "",
        f"Measured on {recorded['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gigabytes']} GB, {machine['system']}, Python {machine['python']}, "
        f"torch {machine['torch']}" + (f"; options `{options}`." if options else "."),
        "",
        *(line for block in about for line in (*explained(block), "")),
    ]
    return "\n".join(lines)


def explained(block: str) -> Iterator[str]:
    """Yield a paragraph of a docstring in Markdown; its lists of names become tables."""
    lines = block.split("\n")
    if not all(line.startswith("  ") for line in lines):
        yield from textwrap.wrap(" ".join(lines), 110)
    elif all(line.startswith("    ") for line in lines):
        yield from lines  # indented code is code in Markdown, too
    else:
        yield from ("| | |", "|---|---|")
        yield from (f"| {name} | {meaning} |" for name, meaning in defined(lines))


def defined(lines: list[str]) -> Iterator[tuple[str, str]]:
    name, meaning = "", [""]
    for line in lines:
        if match := DEFINED.fullmatch(line):
            if name:
                yield name, " ".join(meaning)
            name, meaning = match[1], [match[2] or ""]
        else:
            meaning.append(line.strip())
    yield name, " ".join(meaning)


def rows(result: Any, name: str = "") -> Iterator[Row]:
    """Yield a row for each figure: a mapping with a ratio, or with nothing but values."""
    below = {key: value for key, value in result.items() if _is_figure(value)}
    values = {key: value for key, value in result.items() if key not in below}
    if values:
        yield _row(name, values)
    for key, value in below.items():
        yield from rows(value, f"{name}, {key}" if name else key)


def _is_figure(value: Any) -> bool:
    """Return whether it is a mapping of measured values, not of texts such as versions."""
    return isinstance(value, dict) and (
        "cannot" in value or not all(isinstance(one, str) for one in value.values())
    )


def _row(name: str, values: dict[str, Any]) -> Row:
    if "cannot" in values:
        return Row(name, "not measured", "", values["cannot"])
    values = dict(values)
    ratio = values.pop("ratio", None)
    low, high = values.pop("quartiles", (None, None))
    low = values.pop("ratio_quartile_low", low)
    high = values.pop("ratio_quartile_high", high)
    rest = ", ".join(f"{key.replace('_', ' ')} {_text(value)}" for key, value in values.items())
    quartiles = "" if low is None else f"{low:.2f} to {high:.2f}"
    return Row(name or "all", "" if ratio is None else f"**{ratio:.2f}**", quartiles, rest)


def _text(value: Any) -> str:
    match value:
        case bool() | str():
            return str(value)
        case dict():
            return ", ".join(f"{key} {_text(one)}" for key, one in value.items())
        case list():
            return " ".join(map(_text, value))
        case _:
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


# --- recording -----------------------------------------------------------------------------------


def record(name: str, options: list[str]) -> None:
    """Run a benchmark, and keep its result with the machine that it ran on."""
    script = ROOT / "benchmarks" / f"{name}.py"
    command = [sys.executable, str(script), "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result, machine = json.loads(done.stdout), described()
    path = RESULTS / f"{name}.json"
    if path.exists() and (before := json.loads(path.read_text()))["machine"] == machine:
        result = before["result"] | result
    # What was chosen by --only shows in the result, which may be of several runs.
    lasting = re.sub(r"--(?:only|folder)[ =]\S+ ?", "", " ".join(options)).split()
    kept = {"machine": machine, "date": time.strftime("%Y-%m-%d"), "options": lasting}
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps({**kept, "result": result}, indent=2) + "\n")


def described() -> dict[str, Any]:
    """Return the machine in words."""
    import torch

    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": found[1] if found else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gigabytes": round(memory / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command")
    recording = commands.add_parser("record", help="run a benchmark and keep its result")
    recording.add_argument("name", choices=BENCHMARKS)
    recording.add_argument("options", nargs="*", help="of the benchmark, after --")
    given = parser.parse_args()
    if given.command == "record":
        record(given.name, given.options)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
