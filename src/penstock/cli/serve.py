"""`penstock serve`: a server in the foreground, until a signal or a rank ends it."""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from penstock.cli.asked import Asked, signals
from penstock.cli.serve_parts import serve_parts
from penstock.cli.words import (
    chosen,
    counted,
    named_values,
    samplers_of,
    setting,
    told_in_options,
    workers_of,
)
from penstock.graph.partition.partition import parts_in
from penstock.options import Limits, PoolOptions

if TYPE_CHECKING:
    from penstock.option_types import PoolKeywords
    from penstock.server.serving import Server

PORT: Final = 7070
# How often the server's health is checked.
_LOOK_S: Final = 5.0
_FAILED: Final = 1


@click.command()
@click.argument("graph", type=click.Path(path_type=Path))
@click.option(
    "--bind",
    metavar="ADDRESS",
    default=f"tcp://127.0.0.1:{PORT}",
    show_default=True,
    help="Where to listen; port 0: any that is free.",
)
@click.option("--workers", default="auto", show_default=True, help="How many sample, or 'auto'.")
@click.option("--http", metavar="HOST:PORT", help="Pages for people and probes: see above.")
@click.option("--http-public", is_flag=True, help="Let other hosts read those pages.")
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    help="The server's certificate, in PEM: all is encrypted then.",
)
@click.option("--key", type=click.Path(path_type=Path), help="Its private key.")
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path),
    help="Let in only those whose certificate this authority has signed.",
)
@click.option("--tokens", type=click.Path(path_type=Path), help="Let in only those with a token.")
@click.option("--allow-plaintext", is_flag=True, help="Go beyond this host without a certificate.")
@click.option("--allow-anyone", is_flag=True, help="Let in whoever can reach it, beyond this host.")
@click.option(
    "--proxy",
    "proxies",
    metavar="HOST",
    multiple=True,
    help="A host through which many ranks come (again for more).",
)
@click.option(
    "--sampler",
    "samplers",
    metavar="MODULE:CLASS",
    multiple=True,
    help="A sampler of yours that ranks may ask for (again for more).",
)
@click.option(
    "--files",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of files that ranks may name as inputs (again for more).",
)
@click.option(
    "--store",
    metavar="ADDRESS,…",
    multiple=True,
    help="The servers of all parts and replicas, this one included.",
)
@click.option(
    "--store-ca",
    type=click.Path(path_type=Path),
    help="The authority that has signed their certificates, if it is not --client-ca.",
)
@click.option(
    "--store-server-name",
    metavar="NAME",
    help="The name in their certificates, if it is not that of their hosts.",
)
@click.option(
    "--part-only",
    is_flag=True,
    help="Let ranks sample a part of a graph without its neighbours in other parts.",
)
@click.option("--unix", metavar="ADDRESS", help="Where ranks on this host join: unix://….")
@click.option("--lease", default=5.0, show_default=True, help="Seconds a silent rank is kept for.")
@click.option("--grace", default=30.0, show_default=True, help="Seconds ranks have at the end.")
@setting("worker_concurrency")
@setting("soft_memory")
@setting("hard_memory")
@click.option(
    "--pool",
    metavar="NAME=VALUE",
    multiple=True,
    help="How the pool is run: silence=30, max_age=3600, … (again for more).",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    help="What the server takes on: max_channels=64, max_input_bytes=2GB, … (again for more).",
)
@click.option("--listen-fd", type=int, hidden=True, help="A socket that listens already.")
@click.option("--until-eof", is_flag=True, hidden=True, help="End with whoever writes to stdin.")
@click.option("--exit-by-ranks", is_flag=True, help="Let a rank end the server (`exit`).")
@click.option("--json", "as_json", is_flag=True, help="Say where it is in JSON, for programs.")
@click.option("--verbose", "-v", is_flag=True, help="Log what happens, not only what goes wrong.")
@click.pass_context
def serve(context: click.Context, /, graph: Path, **given: Any) -> None:
    """Serve the graph, or the part of one, in the folder GRAPH to ranks on any host.

    If GRAPH is a folder of parts, each part gets a server of its own, at the next port, and all of
    them are a store. They are ready, and end, together.

    Ranks on this host get batches by shared memory, others over the network. Ctrl-C or SIGTERM ends
    it: no new ranks are let in, and those that are connected have some seconds to leave; a second
    one ends it at once. The exit status is 3 if ranks had left channels behind.

    Beyond this host it requires a certificate (see 'penstock keys') with --tokens, --client-ca or
    --allow-anyone; or --allow-plaintext. On SIGHUP it reads the certificate's files again; ranks
    are not affected.

    With --http there are /healthz, /readyz, /metrics for Prometheus, and a page at /.

    \b
    Examples:
      penstock serve products.graph
      penstock serve products.graph --workers 8 --http 127.0.0.1:7071
      penstock serve products.graph --bind tcp://0.0.0.0:7070 \\
          --certificate keys/server.pem --key keys/server.key --tokens keys/tokens
      penstock serve parts/
      penstock serve parts/part-0 --bind tcp://a:7070 --store tcp://a:7070,tcp://b:7070 \\
          --allow-plaintext
    """
    logging.basicConfig(
        level=logging.INFO if given["verbose"] else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if parts := parts_in(graph):
        with signals() as asked, told_in_options(given):
            sys.exit(serve_parts(context, graph, parts, asked))
    sys.exit(_serve(graph, given))


def _serve(graph: Path, given: dict[str, Any]) -> int:
    """Serve one graph, or part of one, in this process; return the exit status."""
    from penstock.server.ops.malloc import share_arenas

    share_arenas()
    _take_descriptors()
    with ExitStack() as ends:
        asked = ends.enter_context(signals())
        with told_in_options(given):
            server = ends.enter_context(_served(graph, given))
            pages = _pages(server, graph, given, ends)
        asked.reloads = server.reload_certificates
        _announce(server, graph, pages, as_json=given["as_json"])
        if given["until_eof"]:
            threading.Thread(target=_end_with_stdin, args=(asked,), daemon=True).start()
        return _wait(server, asked, float(given["grace"]))


def _end_with_stdin(asked: Asked) -> None:
    """Have the server end, at once, when whoever started it has gone."""
    while os.read(0, 1):
        pass
    for _ in ("leave", "do not wait for ranks"):
        asked.ask("whoever started it has gone")


def _take_descriptors() -> None:
    """Raise the limit of open files: every rank needs one, and every channel two more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _served(graph: Path, given: dict[str, Any]) -> Server:
    from penstock.server.serving import serve as start

    return start(
        graph,
        given["bind"],
        num_workers=workers_of(given["workers"]),
        lease=given["lease"],
        store=[each for word in given["store"] for each in word.split(",") if each],
        store_ca=given["store_ca"],
        store_server_name=given["store_server_name"],
        certificate=given["certificate"],
        key=given["key"],
        client_ca=given["client_ca"],
        proxies=given["proxies"],
        tokens=given["tokens"],
        allow_plaintext=given["allow_plaintext"],
        allow_anyone=given["allow_anyone"],
        samplers=samplers_of(given["samplers"]),
        limits=Limits(**named_values(Limits, given["limits"], "--limit")),
        files=given["files"],
        unix=given["unix"],
        listener=None if (fd := given["listen_fd"]) is None else socket.socket(fileno=fd),
        part_only=given["part_only"],
        store_options={"exit_by_ranks": given["exit_by_ranks"]},
        **_pool(given),
    )


def _pool(given: dict[str, Any]) -> PoolKeywords:
    """Return the settings of the pool; three of them have options of their own."""
    own = chosen(given, "worker_concurrency", "soft_memory", "hard_memory")
    named = named_values(PoolOptions, given["pool"], "--pool")
    return {**named, **own}  # type: ignore[typeddict-item]


def _pages(server: Server, graph: Path, given: dict[str, Any], ends: ExitStack) -> str | None:
    from penstock.server.ops.http import Pages, PageSource

    if given["http"] is None:
        return None
    source = PageSource(
        server.overview, server.trouble, server.check_ready, f"{graph.name} · Penstock"
    )
    pages = Pages(given["http"], source, public=given["http_public"])
    ends.callback(pages.close)
    return pages.address


def _announce(server: Server, graph: Path, pages: str | None, *, as_json: bool) -> None:
    where = {"address": server.address, "unix": server.hub.address, "http": pages}
    if as_json:
        click.echo(msgspec.json.encode({**where, "pid": os.getpid(), "graph": str(graph)}))
    else:
        told = f"{graph} at {server.address}, {counted(server.hub.num_workers, 'worker')}"
        click.echo(f"serving {told}" + (f"; pages at {pages}/" if pages else ""))
        click.echo("Ctrl-C ends it")


def _wait(server: Server, asked: Asked, grace: float) -> int:
    """Wait until somebody wants the server to end; return the exit status."""
    from penstock.server.ops.lifecycle import ended

    threading.Thread(target=_hear_exit, args=(server, asked), daemon=True).start()
    while not asked.wait(_LOOK_S):
        if (trouble := server.trouble()) is not None:
            click.echo(f"the server has failed: {trouble}", err=True)
            return _FAILED
    click.echo(f"leaving ({asked.why}); ranks have {grace:g} s", err=True)
    # The next signal ends it at once.
    threading.Thread(target=_drain, args=(server, grace, asked), daemon=True).start()
    while not asked.wait(None):
        pass
    return ended(server.store, server)


def _hear_exit(server: Server, asked: Asked) -> None:
    if server.store.wait_for_exit():
        asked.ask("a rank said so")


def _drain(server: Server, grace: float, asked: Asked) -> None:
    server.drain(grace)
    asked.ask("all have left, or had their time")
