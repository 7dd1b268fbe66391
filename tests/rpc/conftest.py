"""What tests of a rank's end share: a server that says what it is told to, and who calls it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from penstock.rpc.rpc_client import AT_ONCE, RpcClient
from tests.rpc.puppets import Puppet, opened, puppet


@pytest.fixture
def server() -> Iterator[Puppet]:
    with puppet() as made:
        yield made


@pytest.fixture
def client(server: Puppet) -> Iterator[RpcClient]:
    with closing(RpcClient(opened(server, driven=True))) as made:
        yield made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(AT_ONCE + 2) as found:
        yield found
