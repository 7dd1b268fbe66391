"""The fixtures of `tests.rpc`, for tests of what is built on connections."""

from tests.rpc.conftest import client, server, threads

__all__ = ["client", "server", "threads"]
