"""A hub's process: how it is founded, what it refuses to be, and all the ways it ends."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.graph.handles import FileHandle
from penstock.graph.sharing import GraphHandle
from penstock.hub.process import EXIT_INTERNAL, EXIT_REFUSED
from penstock.sampling.spec import NeighborSpec
from penstock.wire.messages import PROTOCOL, Hello, HubConfig, Refused, Stop, Welcome
from penstock.wire.transport.unix import UnixListener
from tests.hub.raw import (
    PATIENCE_S,
    HubProcess,
    Rank,
    running_hub,
    small_graph,
    start_hub,
    wait_until_gone,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_the_founder_is_welcomed() -> None:
    with small_graph() as graph:
        hub = HubProcess(graph)
        welcome = hub.founder.greet()
        assert welcome.protocol == PROTOCOL
        assert welcome.pid == hub.process.pid
        assert welcome.address == hub.address
        hub.close()


def test_no_worker_is_started_before_somebody_needs_one() -> None:
    with running_hub(workers=3) as hub:
        assert hub.founder.worker_pids() == []


def test_every_boot_has_a_name_of_its_own() -> None:
    with small_graph() as graph:
        boots = set()
        for _ in range(2):
            hub = HubProcess(graph)
            boots.add(hub.founder.greet().boot)
            hub.close()
        assert len(boots) == 2


def test_a_hub_ends_when_it_is_told_to_stop() -> None:
    with small_graph() as graph:
        hub = HubProcess(graph).greet()
        hub.founder.say(Stop())
        assert hub.process.wait(PATIENCE_S) == 0
        hub.close()


def test_a_hub_ends_with_its_founders_connection() -> None:
    with small_graph() as graph:
        hub = HubProcess(graph).greet()
        hub.founder.close()
        assert hub.process.wait(PATIENCE_S) == 0
        hub.close()


def test_a_hub_ends_when_its_founder_left_before_saying_anything() -> None:
    founder, process, log = start_hub()
    founder.close()
    assert process.wait(PATIENCE_S) == 0
    log.close()


def test_ctrl_c_is_not_for_the_hub() -> None:
    with running_hub() as hub:
        os.kill(hub.process.pid, signal.SIGINT)
        with Rank.join(hub.address) as other:
            assert other.statistics()["hub"]["connections"] == 2


def test_a_hub_that_is_terminated_ends_with_its_workers() -> None:
    with small_graph() as graph:
        hub = HubProcess(graph, workers=2).greet()
        hub.founder.workers()
        pids = hub.founder.worker_pids()
        hub.process.terminate()
        assert hub.process.wait(PATIENCE_S) == 0, hub.logged()
        for pid in pids:
            wait_until_gone(pid)
        hub.close()


def test_a_hub_that_is_killed_leaves_no_worker() -> None:
    """CONTRACT 29: nothing is left, however it ends."""
    with small_graph() as graph:
        hub = HubProcess(graph, workers=2).greet()
        hub.founder.workers()
        pids = hub.founder.worker_pids()
        assert len(pids) == 2
        hub.process.kill()
        hub.process.wait(PATIENCE_S)
        for pid in pids:
            wait_until_gone(pid)
        hub.close()


def test_a_hub_and_its_workers_end_with_a_founder_that_is_killed() -> None:
    """CONTRACT 29: also when the parent is SIGKILLed."""
    program = """
import sys
from tests.hub.raw import HubProcess, small_graph
hub = HubProcess(small_graph(), workers=2).greet()
hub.founder.workers()
print(hub.process.pid, *hub.founder.worker_pids(), flush=True)
sys.stdin.read()
"""
    root = Path(__file__).parents[2]
    rank = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    with rank:
        assert rank.stdout is not None
        pids = [int(pid) for pid in rank.stdout.readline().split()]
        assert len(pids) == 3
        rank.kill()
        for pid in pids:
            wait_until_gone(pid)


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"worker_concurrency": 0}, "worker_concurrency is 0; expected an integer above 0"),
        ({"silence": -1.0}, "silence is -1.0; expected a number above 0"),
        ({"silence": 1.0, "beat_every": 1.5}, "silence is 1 s and beat_every 1.5 s"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(told: dict[str, object], complaint: str) -> None:
    with small_graph() as graph:
        hub = HubProcess(graph, **told)
        report = hub.founder.hear(Refused).report
        assert report.kind == "ValueError"
        assert complaint in report.message
        assert hub.end() == EXIT_REFUSED
        assert complaint in hub.logged()
        hub.close()


def test_a_graph_that_is_not_there_is_refused() -> None:
    with small_graph() as graph:
        handle = graph.handle()
    lost = GraphHandle(handle.schema, (FileHandle("/nowhere/graph"),), handle.arrays)
    founder, process, log = start_hub()
    listener = UnixListener(f"unix://@penstock-test-{uuid.uuid4().hex}")
    told = HubConfig(address=listener.address, graph=lost, workers=1)
    founder.say(told, [listener.fileno()])
    listener.close()
    assert "/nowhere/graph" in founder.hear(Refused).report.message
    founder.close()
    assert process.wait(PATIENCE_S) == EXIT_REFUSED
    log.close()


def test_a_hub_without_a_socket_to_listen_on_is_refused() -> None:
    founder, process, log = start_hub()
    with small_graph() as graph:
        founder.say(HubConfig(address="unix://@penstock-test", graph=graph.handle(), workers=1))
    assert "without a socket" in founder.hear(Refused).report.message
    founder.close()
    assert process.wait(PATIENCE_S) == EXIT_REFUSED
    log.close()


def test_the_first_word_must_be_found() -> None:
    founder, process, log = start_hub()
    founder.say(Hello(protocol=PROTOCOL, pid=os.getpid()))
    report = founder.hear(Refused).report
    assert report.kind == "ProtocolError"
    founder.close()
    assert process.wait(PATIENCE_S) == EXIT_REFUSED
    log.close()


def test_a_hub_can_listen_at_a_path_and_takes_it_away_again(tmp_path: Path) -> None:
    path = tmp_path / "hub"
    with running_hub(address=f"unix://{path}") as hub:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Rank.join(hub.address):
            pass
    assert not path.exists()


def test_the_path_of_a_hub_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "hub"
    abandoned = socket.socket(socket.AF_UNIX)
    abandoned.bind(str(path))
    abandoned.close()
    with running_hub(address=f"unix://{path}") as hub, Rank.join(hub.address):
        pass


def test_a_hub_may_open_as_many_files_as_the_system_allows() -> None:
    with running_hub() as hub:
        limits = Path(f"/proc/{hub.process.pid}/limits").read_text().splitlines()
        soft, hard = next(line.split()[3:5] for line in limits if line.startswith("Max open files"))
        assert soft == hard


def test_a_hub_knows_neither_torch_nor_pyarrow() -> None:
    program = """
import sys, penstock.hub.process
heavy = ("torch", "torch_geometric", "pyarrow", "duckdb", "ray")
print([name for name in heavy if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "[]\n"


def test_a_quiet_hub_says_nothing_on_the_terminal() -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        rank.register(rank.backend()).epoch(0)
        hub.end()
        assert hub.logged() == ""


def test_a_hub_does_not_end_by_a_warning_that_somebody_made_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error::UserWarning")
    lonely = NeighborSpec(num_neighbors=(2,), subgraph_type="bidirectional")
    kinds = {("a", "to", "b"): np.zeros((2, 1), np.int64)}
    with Graph.from_coo(kinds, {"a": 1, "b": 1}) as graph, running_hub(graph, workers=0) as hub:
        assert hub.founder.backend(lonely) == 1
        assert hub.logged() == ""


def test_welcome_is_the_answer_to_hello() -> None:
    with running_hub() as hub, Rank.knock(hub.address) as rank:
        rank.say(Hello(protocol=PROTOCOL, pid=os.getpid()))
        assert isinstance(rank.next(), Welcome)


def test_a_hub_in_doubt_says_so_and_ends() -> None:
    """Something impossible: the story is logged, workers go, and nobody is left waiting."""
    program = """
import sys
from penstock.core import scheduler
from penstock.core.events import EpochStarted
from penstock.hub import process

handle = scheduler.Scheduler.handle

def doubt(self, event):
    if isinstance(event, EpochStarted):
        raise scheduler.SchedulerError("two and two are five", self.story(event.channel))
    return handle(self, event)

scheduler.Scheduler.handle = doubt
sys.exit(process.main(sys.argv[1:]))
"""
    with small_graph() as graph:
        hub = HubProcess(graph, workers=1, program=["-c", program]).greet()
        rank = hub.founder
        channel = rank.register(rank.backend())
        channel.start(0)
        assert rank.waits_for_end() == []
        assert hub.process.wait(PATIENCE_S) == EXIT_INTERNAL
        logged = hub.logged()
        assert "two and two are five" in logged
        assert "ChannelRegistered" in logged
        hub.close()
