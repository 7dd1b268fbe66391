"""A server and its parent, without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster.credentials import make_credentials
from penstock.cluster.plan import plan_of
from penstock.cluster.server_process import ServerProcess, listen_at
from penstock.errors import PenstockError
from tests.store.loading import small_graph


def test_a_process_that_does_not_say_where_it_is_has_failed(tmp_path: Path) -> None:
    with small_graph() as graph:
        graph.partition(1, tmp_path / "parts")
    plan = plan_of("a", tmp_path / "parts", 1, 1, None, ["--help"])
    process = ServerProcess(plan, 0, make_credentials(), listen_at("127.0.0.1", 0), ())
    try:
        with pytest.raises(PenstockError, match=r"the server says 'Usage: .*, not where it is"):
            process.wait_until_ready()
    finally:
        process.close()
