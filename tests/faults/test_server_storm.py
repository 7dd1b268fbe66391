"""Everything at once, for a while: servers, hubs, workers and ranks are struck at random."""

from __future__ import annotations

import random
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from penstock.graph import Graph
from tests.cli.servers import Running, serving
from tests.client.graphs import small_graph
from tests.faults.far_rank import FarRank, Line, due
from tests.processes import strike
from tests.server.transport.strangers import place_of

EPOCHS = 300


class _Finishing(threading.Thread):
    """Reads what a rank says to its end."""

    def __init__(self, rank: FarRank) -> None:
        super().__init__(daemon=True)
        self.rank = rank
        self.lines: list[Line] | None = None
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.lines = self.rank.finish()
        except BaseException as error:
            self.failure = error


def _strike_somebody(random_: random.Random, running: Running, ranks: list[FarRank]) -> None:
    """A hub, a worker, or a rank that is stopped for a moment; not the server."""
    processes = psutil.Process(running.process.pid).children(recursive=True)
    if random_.random() < 0.5 and processes:
        strike(random_.choice(processes).pid)
        return
    pid = random_.choice(ranks).pid
    if strike(pid, signal.SIGSTOP):
        time.sleep(random_.uniform(0.0, 1.5))  # sometimes longer than the lease
        strike(pid, signal.SIGCONT)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
def test_a_storm_over_a_server_costs_no_rank_a_batch(tmp_path: Path, seed: int) -> None:
    """CONTRACT 18, CONTRACT 22, CONTRACT 40, CONTRACT 41: none lost, none twice, same bytes."""
    random_ = random.Random(seed)
    folder = tmp_path / "graph"
    with small_graph() as made:
        made.save(folder)
    with ExitStack() as stack:
        running = stack.enter_context(serving(folder, "--workers", 2, "--lease", 1))
        port = place_of(running.address)[1]
        ranks = [
            stack.enter_context(
                FarRank(running.address, same_host=number % 3 == 2, epochs=EPOCHS, name=str(number))
            )
            for number in range(6)
        ]
        readers = [_Finishing(rank) for rank in ranks]
        for reader in readers:
            reader.start()
        while any(reader.is_alive() for reader in readers):
            time.sleep(random_.uniform(0.1, 1.0))
            if random_.random() < 0.2:
                running.process.kill()
                running.process.communicate()
                running = stack.enter_context(
                    serving(folder, "--workers", 2, "--lease", 1, port=port)
                )
            else:
                _strike_somebody(random_, running, ranks)
        with Graph.open(folder) as graph:
            wanted = due(graph, EPOCHS)
        for reader in readers:
            assert reader.failure is None, reader.failure
            assert reader.lines == wanted
