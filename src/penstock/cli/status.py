"""`penstock status`: ranks, channels and workers, or all servers of a store, by `.statistics()`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import click
import msgspec
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table

from penstock.cli.cluster import store_told
from penstock.cli.remote import access_options, asked, observed
from penstock.cli.tables import new_table, plain_console
from penstock.cli.words import counted
from penstock.errors import ServerGone
from penstock.store.names import is_name, resolve
from penstock.wire.host import this_host

Look: TypeAlias = Callable[[], dict[str, Any]]

# The environment variable that names the servers of a store, with commas between them.
_STORE_VARIABLE: Final = "PENSTOCK_STORE"
# Columns with names that people chose, or with sentences.
_FOLDED: Final = ("rank", "job", "why")


@click.command()
@click.argument("addresses", metavar="[ADDRESS]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
@click.option(
    "--alone", is_flag=True, help="Of a store, show the server at ADDRESS and no other one."
)
@access_options
def status(
    addresses: tuple[str, ...], as_json: bool, watch: bool, every: float, alone: bool, **access: Any
) -> None:
    """Show ranks, channels and workers of the server, or the hub, at ADDRESS.

    A server that has one part of a graph belongs to a store: then all servers of the store are
    shown, a row for each, with those that do not answer. Any one address suffices; with several, or
    none and the environment's PENSTOCK_STORE, one that answers does. --alone shows the ranks,
    channels and workers of one of them. Of 'ray:NAME', a store on Ray, it also shows where Ray has
    placed its servers, and what those wait for that do not serve.

    With --watch there are rates, too: the changes between two looks. With --json and --watch, there
    is one line of JSON for each look.

    \b
    Examples:
      penstock status tcp://127.0.0.1:7070
      penstock status tcp://127.0.0.1:7070 --watch
      penstock status unix://penstock-4711 --json | jq .hub.pool
      penstock status tcp://a:7070,tcp://b:7070 --json | jq .missing
      penstock status ray:products
    """
    with _source(_addresses(addresses), access, alone=alone) as look:
        if watch:
            _watch(look, every, as_json=as_json)
        elif as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(look())))
        else:
            plain_console().print(picture(look()))


def _addresses(given: tuple[str, ...]) -> list[str]:
    """Return the addresses that were typed, with spaces or commas between them, or are set."""
    words = given or (os.environ.get(_STORE_VARIABLE, ""),)
    found = [each.strip() for word in words for each in word.split(",") if each.strip()]
    if not found:
        raise click.UsageError(
            f"ADDRESS is missing: expected one, or the environment's {_STORE_VARIABLE}"
        )
    return found


@contextmanager
def _source(addresses: list[str], access: dict[str, Any], *, alone: bool) -> Iterator[Look]:
    """Yield a function that gets statistics: a hub's, a server's with its hub's, or a store's."""
    with ExitStack() as ends:
        if len(addresses) == 1 and addresses[0].startswith("unix://"):
            from penstock.client.hub.joined import connect

            hub = ends.enter_context(connect(addresses[0], timeout=access["timeout"]))
            yield lambda: {"hub": hub.statistics()}
            return
        if len(addresses) == 1 and is_name(addresses[0]):
            if alone:
                raise click.UsageError("--alone is for the ADDRESS of one server")
            yield ends.enter_context(_OnRay(addresses[0], access))
            return
        if len(addresses) == 1:
            server = ends.enter_context(asked(addresses[0], access))
            if alone or server.welcome.partition.of == 1:
                yield lambda: {
                    "server": server.ask("server_statistics"),
                    "hub": server.ask("hub_statistics"),
                }
                return
            ends.close()
        elif alone:
            raise click.UsageError("--alone is for one ADDRESS")
        store = ends.enter_context(observed(addresses, access))
        yield lambda: msgspec.to_builtins(store.look())


class _OnRay:
    """Looks at a store on Ray, and at those of its servers that answer."""

    def __init__(self, address: str, access: dict[str, Any]) -> None:
        self._address = address
        self._access = access
        self._ends = ExitStack()

    def __call__(self) -> dict[str, Any]:
        from penstock import cluster

        store = cluster.status(self._address.partition(":")[2])
        return {"ray": store_told(store), "store": self._asked() if store.addresses else None}

    def _asked(self) -> dict[str, Any] | None:
        """Ask the servers; None if none answers."""
        timeout = self._access["timeout"]
        try:
            with resolve(self._address, timeout) as name:
                access = {**self._access, **name.access}
                with observed(name.addresses, access) as observer:
                    looked: dict[str, Any] = msgspec.to_builtins(observer.look())
                    return looked
        except ServerGone:
            return None

    def __enter__(self) -> Look:
        from penstock.cluster import session

        self._ends.enter_context(session.session())  # once for all looks
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()


def _watch(look: Look, every: float, *, as_json: bool) -> None:
    if every <= 0:
        raise click.BadParameter("expected seconds above 0", param_hint="--every")
    if as_json:
        while True:
            click.echo(msgspec.json.encode(look()))
            time.sleep(every)
    before: dict[str, Any] | None = None
    with Live(console=plain_console(), auto_refresh=False, transient=True) as live:
        while True:
            now = {**look(), "at": time.monotonic()}
            live.update(picture(now, before), refresh=True)
            before = now
            time.sleep(every)


# --- showing -------------------------------------------------------------------------------------


def picture(now: dict[str, Any], before: dict[str, Any] | None = None) -> RenderableType:
    """Return everything as tables."""
    if "ray" in now:
        return _on_ray(now, before)
    if "servers" in now:
        return _store(now, before)
    parts: list[RenderableType] = [_summary(now, before)]
    if "server" in now:
        parts.append(_sessions(now, before))
    if now["hub"]:
        parts += [_channels(now, before), _workers(now["hub"])]
    if losses := now["hub"].get("losses"):
        parts.append(_losses(losses))
    return Group(*parts)


def _on_ray(now: dict[str, Any], before: dict[str, Any] | None) -> RenderableType:
    """Return a table with a row for each server that Ray places, and what the servers say."""
    told = now["ray"]
    summary = Table.grid(padding=(0, 2))
    servers, parts = counted(len(told["servers"]), "server"), counted(told["num_parts"], "part")
    summary.add_row("on Ray", f"{told['name']}: {servers} of {parts}, {told['folder']}")
    table = _table("part", "replica", "state", "host", "server", "starts", numbers=("starts",))
    for each in told["servers"]:
        place = (each["host"] or "", each["address"] or "", str(each["starts"] or ""))
        replica = f"{each['replica'] + 1} of {told['replicas']}"
        table.add_row(f"{each['part']} of {told['num_parts']}", replica, each["state"], *place)
    troubles = _table("part", "replica", "why")
    for each in told["servers"]:
        if each["trouble"]:
            troubles.add_row(str(each["part"]), str(each["replica"] + 1), each["trouble"])
    shown: list[RenderableType] = [summary, table]
    if troubles.row_count:
        shown.append(troubles)
    if now["store"] is not None:
        earlier = None if before is None or before["store"] is None else before
        shown.append(_store(_timed(now), None if earlier is None else _timed(earlier)))
    return Group(*shown)


def _timed(look: dict[str, Any]) -> dict[str, Any]:
    return {**look["store"], "at": look.get("at", 0.0)}


def _store(now: dict[str, Any], before: dict[str, Any] | None) -> RenderableType:
    """Return a table with a row for each server of a store, and what is wrong with some."""
    summary, servers = Table.grid(padding=(0, 2)), now["servers"]
    edges = "all edges at every server" if now["topology"] == "whole" else "edges in parts"
    parts = counted(now["num_parts"], "part")
    summary.add_row("store", f"{counted(len(servers), 'server')}, {parts}, {edges}")
    summary.add_row("graph", f"version {now['version']}")
    if now["missing"]:
        words = ", ".join(map(str, now["missing"]))
        summary.add_row("missing", f"no server answers for: part {words}")
    numbers = ("readers", "calls", "per s", "out", "in", "memory")
    table = _table("server", "part", "replica", "state", *numbers, numbers=numbers)
    for each in servers:
        table.add_row(*_server(each, _rate(now, before, partial(_calls_of, each["address"]))))
    troubles = [each for each in servers if each["trouble"]]
    return Group(summary, table, *([_troubles(troubles)] if troubles else []))


def _server(each: dict[str, Any], rate: float | None) -> Iterator[str]:
    """Yield the cells of a server's row."""
    yield each["address"]
    yield "?" if each["part"] is None else f"{each['part']} of {each['of']}"
    yield "" if each["part"] is None else f"{each['replica'] + 1} of {each['replicas']}"
    yield each["state"]
    if (told := each["statistics"]) is not None:
        yield str(_readers(told))
        yield str(told["calls"])
        yield "" if rate is None else f"{rate:.1f}"
        yield decimal(told["bytes_out"])
        yield decimal(told["bytes_in"])
        yield decimal(told["process"]["resident_bytes"]) if told["process"] else ""


def _readers(told: dict[str, Any]) -> int:
    """Return how many processes are connected besides this one: ranks, workers, other servers."""
    there = {(each["host"], each["pid"]) for each in told["sessions"]}
    return len(there - {(this_host(), os.getpid())})


def _calls_of(address: str, look: dict[str, Any]) -> float | None:
    """Return how many calls a server was asked; None if it did not answer."""
    there = (each["statistics"] for each in look["servers"] if each["address"] == address)
    return next((told["calls"] for told in there if told is not None), None)


def _troubles(servers: list[dict[str, Any]]) -> Table:
    table = _table("server", "why")
    for each in servers:
        table.add_row(each["address"], each["trouble"])
    return table


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
        # To ranks on this host and others.
        batches = hub["scheduler"]["totals"]["delivered"] if hub else server["batches"]
        table.add_row("given", ", ".join((counted(batches, "batch"), *told)))
    if not hub:
        return table
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
