"""Servers and clients in processes of their own: `python -m tests.server.processes serve …`."""

from __future__ import annotations

import sys

from penstock.client.remote.dist_server import RemoteDistServer
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.server.ops.lifecycle import init_server, wait_and_shutdown_server
from tests.client.graphs import small_graph
from tests.server.stores import backend, channel


def serve(grace: str) -> int:
    """Until somebody says exit; the lease is longer than any test."""
    server = init_server(small_graph(), "tcp://127.0.0.1:0", num_workers=1, lease=600.0)
    print(server.address, flush=True)
    return wait_and_shutdown_server(grace=float(grace))


def rpc_session(address: str) -> int:
    """Has a channel, until it is killed."""
    server = RemoteDistServer(RemoteServer(Endpoint(address)))
    number = channel(server, backend(server), worker_key="doomed")
    server.start_new_epoch_sampling(number, 0)
    server.fetch_one_sampled_message(number)
    print(number, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit({"serve": serve, "visit": rpc_session}[sys.argv[1]](sys.argv[2]))
