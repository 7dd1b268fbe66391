"""`penstock status`: ranks, channels and workers, as `.statistics()` reports them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table

from penstock.cli.inspect import WIDTH_OF_A_PIPE, new_table
from penstock.cli.remote import access_options, asked
from penstock.cli.words import counted

Look: TypeAlias = Callable[[], dict[str, Any]]

# Columns with names that people chose, or with sentences.
_FOLDED: Final = ("rank", "job", "why")


@click.command()
@click.argument("address")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
@access_options
def status(address: str, as_json: bool, watch: bool, every: float, **access: Any) -> None:
    """Show ranks, channels and workers of the server, or the hub, at ADDRESS.

    With --watch there are rates, too: the changes between two looks. With --json and --watch, there
    is one line of JSON for each look.

    \b
    Examples:
      penstock status tcp://127.0.0.1:7070
      penstock status tcp://127.0.0.1:7070 --watch
      penstock status unix://penstock-4711 --json | jq .hub.pool
    """
    with _source(address, access) as look:
        if watch:
            _watch(look, every, as_json=as_json)
        elif as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(look())))
        else:
            _console().print(picture(look()))


@contextmanager
def _source(address: str, access: dict[str, Any]) -> Iterator[Look]:
    """Yield a function that gets statistics: a hub's, or a server's with those of its hub."""
    if address.startswith("unix://"):
        from penstock.client.hub.joined import connect

        with connect(address, timeout=access["timeout"]) as hub:
            yield lambda: {"hub": hub.statistics()}
        return
    with asked(address, access) as store:
        yield lambda: {
            "server": store.ask("server_statistics"),
            "hub": store.ask("hub_statistics"),
        }


def _watch(look: Look, every: float, *, as_json: bool) -> None:
    if every <= 0:
        raise click.BadParameter("expected seconds above 0", param_hint="--every")
    if as_json:
        while True:
            click.echo(msgspec.json.encode(look()))
            time.sleep(every)
    before: dict[str, Any] | None = None
    with Live(console=_console(), auto_refresh=False, transient=True) as live:
        while True:
            now = {**look(), "at": time.monotonic()}
            live.update(picture(now, before), refresh=True)
            before = now
            time.sleep(every)


def _console() -> Console:
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, WIDTH_OF_A_PIPE)
    return console


# --- showing -------------------------------------------------------------------------------------


def picture(now: dict[str, Any], before: dict[str, Any] | None = None) -> RenderableType:
    """Return everything as tables."""
    parts: list[RenderableType] = [_summary(now, before)]
    if "server" in now:
        parts.append(_sessions(now, before))
    parts += [_channels(now, before), _workers(now["hub"])]
    if losses := now["hub"]["losses"]:
        parts.append(_losses(losses))
    return Group(*parts)


def _summary(now: dict[str, Any], before: dict[str, Any] | None) -> Table:
    table, hub = Table.grid(padding=(0, 2)), now["hub"]
    if "server" in now:
        server = now["server"]
        state = "leaving" if server["draining"] else "serving"
        table.add_row("server", f"{server['address']}, {state} for {server['seconds']:.0f} s")
        moved = f"{decimal(server['bytes_out'])} out, {decimal(server['bytes_in'])} in"
        speed = _rate(now, before, lambda look: look["server"]["bytes_out"])
        table.add_row("moved", moved + (f", {decimal(int(speed))}/s" if speed is not None else ""))
        given = {"calls": "question", "refused": "refusal"}
        told = (counted(server[name], word) for name, word in given.items())
        batches = hub["scheduler"]["totals"]["delivered"]  # to ranks on this host and others
        table.add_row("given", ", ".join((counted(batches, "batch"), *told)))
    table.add_row("hub", f"{hub['hub']['address']}, {hub['hub']['age']:.0f} s old")
    table.add_row("channels", hub["describe"])
    return table


def _sessions(now: dict[str, Any], before: dict[str, Any] | None) -> Table:
    numbers = ("pid", "channel", "credits", "batches", "per s", "out")
    table = _table("rank", "from", *numbers, numbers=numbers)
    for each in now["server"]["sessions"]:
        rate = _rate(now, before, partial(_session_of, each["number"]))
        table.add_row(
            each["name"] or "somebody",
            each["peer"],
            str(each["pid"]),
            str(each["channel"] or ""),
            f"{each['credits']}/{each['slots']}" if each["channel"] else "",
            str(each["batches"]),
            "" if rate is None else f"{rate:.1f}",
            decimal(each["bytes_out"]),
        )
    return table


def _session_of(number: int, look: dict[str, Any]) -> float | None:
    """Return how many batches a session has had; None if it did not exist."""
    there = (each for each in look["server"]["sessions"] if each["number"] == number)
    return next((each["batches"] for each in there), None)


def _channels(now: dict[str, Any], before: dict[str, Any] | None) -> Table:
    numbers = ("pid", "epoch", "batches", "per s", "slots", "worked")
    table = _table("channel", "job", "phase", *numbers, numbers=numbers)
    hub = now["hub"]
    told = hub["channels"]
    for each in hub["scheduler"]["channels"]:
        more = told.get(str(each["id"]), {})
        rate = _rate(now, before, partial(_delivered_to, each["id"]))
        table.add_row(
            str(each["id"]),
            str(more.get("job", "")),
            str(each["phase"]),
            str(more.get("pid", "")),
            str(each["epoch"]),
            f"{each['delivered'] + each['failed'] + each['cancelled']}/{each['total']}",
            "" if rate is None else f"{rate:.1f}",
            str(more.get("slots", "")),
            f"{each['service']:.1f} s",
        )
    return table


def _delivered_to(number: int, look: dict[str, Any]) -> float | None:
    """Return how many batches a channel has had, in all epochs; None if it did not exist."""
    there = (each for each in look["hub"]["scheduler"]["channels"] if each["id"] == number)
    return next((each["delivered_before"] + each["delivered"] for each in there), None)


def _workers(hub: dict[str, Any]) -> Table:
    numbers = ("pid", "batches", "age", "private", "cpu")
    table = _table("worker", "state", *numbers, numbers=numbers)
    for each in hub["pool"]["workers"]:
        table.add_row(
            str(each["worker"]),
            str(each["state"]),
            str(each["pid"]),
            str(each.get("batches", "")),
            f"{each['age']:.0f} s",
            decimal(each.get("private", 0)),
            f"{each.get('cpu', 0.0):.1f} s",
        )
    return table


def _losses(losses: list[dict[str, Any]]) -> Table:
    table = _table("lost", "why")
    for loss in losses:
        table.add_row(f"worker {loss.get('worker', '?')}", str(loss.get("verdict", loss)))
    return table


def _table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """Make a table that folds only names and reasons in a narrow window."""
    table = new_table(*columns, numbers=numbers)
    for column in table.columns:
        column.no_wrap = column.header not in _FOLDED
    return table


def _rate(
    now: dict[str, Any],
    before: dict[str, Any] | None,
    number: Callable[[dict[str, Any]], float | None],
) -> float | None:
    """Return by how much a number grows per second; None if it did not exist before."""
    old = None if before is None else number(before)
    new = number(now)
    if before is None or old is None or new is None:
        return None
    return float((new - old) / (now["at"] - before["at"]))
