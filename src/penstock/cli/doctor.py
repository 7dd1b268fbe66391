"""`penstock doctor`: what this machine could do, what holds it back, and what to do about it.

The report goes to standard output, progress to standard error. Nothing here imports the native
module before it is known to be there: a report without it is worth most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap

import click
import msgspec
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock.cli.interrupts import interruptible_once
from penstock.cli.tables import plain_console
from penstock.doctor.facts import Facts
from penstock.doctor.figures import Figures
from penstock.doctor.findings import Finding, Severity, findings_of, summary_of
from penstock.doctor.machine import facts_of
from penstock.doctor.numbers import plain
from penstock.doctor.torch_facts import torch_facts
from penstock.doctor.words import Row, facts_in_words, figures_in_words


@dataclass(frozen=True, slots=True)
class Report:
    """All that the doctor says, and the JSON. `figures` is None if nothing was measured."""

    works: bool
    summary: str
    workers: int
    facts: Facts
    figures: Figures | None
    findings: tuple[Finding, ...]


@click.command()
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, 600, min_open=True),
    help="How long to measure, about; a short time takes a smaller graph.",
)
@click.option("--no-measure", is_flag=True, help="Only look, and measure nothing.")
@click.option(
    "--ranks",
    type=click.IntRange(1, 1024),
    help="How many ranks (training processes) this machine is to have.  [default: one for each "
    "GPU, at least one]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def doctor(seconds: float, no_measure: bool, ranks: int | None, as_json: bool) -> None:
    """Say what this machine could do, what holds it back, and what to do about it.

    Looks at cores, memory, huge pages, limits, GPUs and versions as this user has them, in this
    container. Then generates a graph, and measures for about ten seconds how fast it is sampled,
    how fast features are gathered, and how fast batches come to the GPU, if there is one. The
    findings come last, the worst of them first: what was found, why it matters, and what to do.

    The exit status is 1 if Penstock does not work here at all, otherwise 0.

    \b
    Examples:
      penstock doctor
      penstock doctor --no-measure --ranks 8
      penstock doctor --json | jq '.findings[] | select(.severity == "problem")'
    """
    with interruptible_once(), _progress() as tell:
        report = _report(None if no_measure else seconds, ranks, tell)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        _show(report)
    if not report.works:
        raise click.exceptions.Exit(1)


def _report(seconds: float | None, ranks: int | None, tell: Callable[[str], object]) -> Report:
    tell("looking at the machine")
    facts, figures = facts_of(torch_facts(), ranks), None
    if seconds is not None and facts.native.file is not None:
        figures = _measured(facts, seconds, tell)
    findings = findings_of(facts, figures)
    works = not any(finding.stops for finding in findings)
    return Report(works, summary_of(findings), facts.workers, facts, figures, findings)


def _measured(facts: Facts, seconds: float, tell: Callable[[str], object]) -> Figures:
    from penstock.doctor.measure import Measurement

    device = "cuda" if facts.torch.pinning is not None else None
    return Measurement(seconds, facts.memory.available, device, tell).run()


@contextmanager
def _progress() -> Iterator[Callable[[str], object]]:
    """Yield what is to be told what is done now; silent unless standard error is a terminal."""
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda what: progress.update(task, description=what)


# --- showing -------------------------------------------------------------------------------------

_STYLES = {Severity.PROBLEM: "bold red", Severity.NOTE: "yellow", Severity.FINE: "green"}


def _show(report: Report) -> None:
    console = plain_console()
    _show_rows(console, "This machine", facts_in_words(report.facts))
    if report.figures is not None:
        took = f"Measured in {plain(report.figures.seconds)} s"
        _show_rows(console, took, figures_in_words(report.figures, report.facts.torch))
    _show_findings(console, report.findings)
    console.print(report.summary, style="bold", soft_wrap=True)


def _show_rows(console: Console, title: str, rows: list[Row]) -> None:
    console.print(title, style="bold")
    width = max(len(heading) for heading, _ in rows)
    for heading, words in rows:
        _show_entry(console, heading.ljust(width), words)
    console.print()


def _show_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Print the findings: below each what it means, and what to do."""
    console.print("Findings", style="bold")
    width = max(map(len, Severity))
    for finding in findings:
        heading, style = finding.severity.ljust(width), _STYLES[finding.severity]
        _show_entry(console, heading, f"{finding.subject}: {finding.found}", style)
        if finding.why:
            _show_entry(console, " " * width, finding.why)
        if finding.advice:  # in one line, which can be copied
            console.print(f"  {'':{width}}  -> {finding.advice}", soft_wrap=True)
    console.print()


def _show_entry(console: Console, heading: str, words: str, style: str = "") -> None:
    """Print words beside a heading, broken between them only."""
    left = f"  {heading}  "
    lines = wrap(
        words,
        console.width,
        initial_indent=left,
        subsequent_indent=" " * len(left),
        break_long_words=False,
        break_on_hyphens=False,
    )
    text = Text("\n".join(lines))
    text.stylize(style, 0, len(left))
    console.print(text, soft_wrap=True)
