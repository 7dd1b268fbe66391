"""What tests of a rank's end share: a server that says what it is told to, and who asks it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from penstock.client.remote.switchboard import AT_ONCE, Switchboard
from tests.client.remote.puppets import Puppet, greeted, puppet


@pytest.fixture
def server() -> Iterator[Puppet]:
    with puppet() as made:
        yield made


@pytest.fixture
def board(server: Puppet) -> Iterator[Switchboard]:
    with greeted(server) as connection, closing(Switchboard(connection)) as made:
        yield made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(AT_ONCE + 2) as found:
        yield found
