"""`penstock keys`: certificates and tokens for a server that other hosts can reach."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

TOKENS = "tokens"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or address by which ranks reach the server (again for more).",
)
@click.option(
    "--client", "clients", multiple=True, help="A certificate for this rank, too (again for more)."
)
@click.option(
    "--token", "tokens", multiple=True, help="A token for this rank, too (again for more)."
)
@click.option("--days", default=730, show_default=True, help="How long certificates are good for.")
@click.option("--renew", is_flag=True, help="Make the server's certificate anew.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def keys(
    folder: Path,
    hosts: tuple[str, ...],
    clients: tuple[str, ...],
    tokens: tuple[str, ...],
    days: int,
    renew: bool,
    as_json: bool,
) -> None:
    """Make certificates in FOLDER: an authority and a server's, if they are not there yet.

    ca.pem goes to every rank; server.pem and server.key to the server, whose names and addresses
    you give by --host. With --client, a server can be told to let in those ranks only (penstock
    serve --client-ca FOLDER/ca.pem); with --token, only those that send their token (penstock serve
    --tokens FOLDER/tokens). Existing files are never overwritten, except by --renew: then send the
    server SIGHUP.

    Certificates from elsewhere, such as your company's or cert-manager's, work as well: then none
    of this is needed.

    \b
    Examples:
      penstock keys keys/ --host store.example.com --host 10.0.0.7
      penstock keys keys/ --client rank-0 --client rank-1
      penstock keys keys/ --token alice
      penstock keys keys/ --renew --host store.example.com
    """
    from penstock.server.transport.access import add_token
    from penstock.server.transport.authority import Authority

    if days < 1:
        raise click.BadParameter("expected at least 1", param_hint="--days")
    authority = Authority(folder)
    if renew or not authority.has_server:
        authority.issue_server(hosts, days)
    elif hosts:
        raise click.UsageError(
            f"{folder} has the server's certificate already: give --renew to make it anew"
        )
    for name in clients:
        authority.issue_client(name, days)
    given = {name: add_token(folder / TOKENS, name) for name in tokens}
    made = [str(path) for path in authority.made]
    if as_json:
        told = {"made": made, "tokens": given, "ca": str(authority.certificate)}
        click.echo(msgspec.json.encode(told))
        return
    for path in made:
        click.echo(f"made {path}")
    for name, token in given.items():
        click.echo(f"token of {name}: {token}")
    if not made and not given:
        click.echo(f"{folder} has the server's certificate already: nothing to make")
