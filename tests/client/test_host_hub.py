"""Ranks of a job on one host find the hub that the first of them has started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.client.hub.host_hub import HostJob
from penstock.graph import Graph

RUN = {
    "TORCHELASTIC_RUN_ID": "7",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
}
RANK = """
import json, sys
import penstock as ps
with ps.connect(sys.argv[1].split(","), num_workers=2, cache="1MB") as data:
    with ps.NeighborLoader(data, [4, 3], "train", batch_size=16, shuffle=True, seed=1) as loader:
        batches = iter(loader)
        found = [next(batches).n_id.tolist()]
        print(json.dumps(type(data.provider).__name__), flush=True)
        sys.stdin.readline()
        found += [batch.n_id.tolist() for batch in batches]
        print(json.dumps(found), flush=True)
"""


def test_one_rank_alone_or_without_torchrun_is_no_job() -> None:
    assert HostJob.found({}) is None
    assert HostJob.found({**RUN, "LOCAL_WORLD_SIZE": "1"}) is None
    assert HostJob.found({key: RUN[key] for key in RUN if key != "MASTER_PORT"}) is None


def test_ranks_of_a_job_agree_on_the_address_of_their_hub_and_other_jobs_have_others() -> None:
    first, second = HostJob.found(RUN), HostJob.found({**RUN, "LOCAL_RANK": "1"})
    other = HostJob.found({**RUN, "MASTER_PORT": "29501"})
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.is_first
    assert not second.is_first
    assert first.address("a") == second.address("a") != first.address("b")
    assert other.address("a") != first.address("a")


@pytest.mark.usefixtures("no_leaks")
def test_ranks_of_a_host_read_a_store_through_one_hub_and_go_on_without_it(tmp_path: Path) -> None:
    """CONTRACT 66, 70: one hub, and so one cache and one pool, for the ranks of a host."""
    import penstock as ps

    rng = np.random.default_rng(2)
    with Graph.from_coo(
        rng.integers(0, 200, (2, 2000)),
        200,
        x=rng.random((200, 4), np.float32),
        train=rng.permutation(200)[:64],
    ) as graph:
        first, second = graph.partition(2, tmp_path / "parts")
        with ps.NeighborLoader(
            graph, [4, 3], "train", batch_size=16, shuffle=True, seed=1
        ) as loader:
            expected = [batch.n_id.tolist() for batch in loader]
    with ps.serve(first) as one, ps.serve(second) as other:
        addresses = f"{one.address},{other.address}"
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, addresses],
                env={**RUN, "LOCAL_RANK": str(rank), "PATH": ""},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in (1, 0)  # the first rank need not be there first
        ]
        told = []
        for rank in ranks:
            assert rank.stdout is not None
            told.append(json.loads(rank.stdout.readline()))
        later, first_rank = ranks
        # The rank that has the hub is done before the other one, which goes on by itself.
        found = [
            json.loads(first_rank.communicate("\n")[0]),
            json.loads(later.communicate("\n")[0]),
        ]
    assert told == ["HostHub", "HubProcess"]
    assert found == [expected, expected]
