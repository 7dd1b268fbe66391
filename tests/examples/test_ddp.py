"""Data-parallel training under torchrun: two ranks read from one pool."""

from __future__ import annotations

import sys

import pytest

from tests.examples.running import EXAMPLES, number_in, run

pytestmark = pytest.mark.usefixtures("no_leaks")

# What torchrun is, by a name that does not depend on where scripts are installed.
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def test_two_ranks_share_an_epoch_of_one_pool() -> None:
    """CONTRACT 6: each batch is for one rank; the odd one out is made up for."""
    printed = run([*TORCHRUN, str(EXAMPLES / "ddp.py"), "--epochs", "2"], GLOO_SOCKET_IFNAME="lo")
    # 280 nodes in batches of 16 are 18 batches: nine for each.
    assert [line.partition(",")[0] for line in printed] == [
        f"epoch {epoch}: 18 batches" for epoch in range(2)
    ]
    assert number_in(printed[-1].removesuffix(" right")) > 0.5  # of seven classes
