"""What goes wrong is said with what to do about it, and leaves nothing behind."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ChannelClosed
from tests.client.ranks import rank
from tests.loader.epochs import digest, digests, everyday, small_data, torch
from tests.processes import stopped, wait_until_gone

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[2]
both = pytest.mark.parametrize("workers", [0, 1])

UP = """
from tests.loader.epochs import *
from tests.loader.test_hubs import pids_of
loader = everyday(small_data(), num_workers=1)
iterator = iter(loader)
batch = next(iterator)
say(pids_of(loader))
"""


# --- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError('mine')", 1), ("os._exit(3)", 3)],
    ids=["the script's end", "sys.exit", "an exception", "os._exit"],
)
def test_a_script_that_ends_without_closing_leaves_nothing(ending: str, status: int) -> None:
    """CONTRACT 29: in the middle of an epoch, with a batch in its hands."""
    with rank(UP + ending) as started:
        pids = started.hear()
        assert started.end() == status
        wait_until_gone(pids)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_script_that_is_struck_leaves_nothing(how: signal.Signals) -> None:
    """CONTRACT 29."""
    with rank(UP + "for batch in iterator: pass\nsay('read')\nsignal.pause()") as started:
        pids = started.hear()
        assert started.hear() == "read"
        started.process.send_signal(how)
        assert started.end() in (-how, 1)
        wait_until_gone(pids)


INTERRUPTED = """
import os, signal, sys
from tests.loader.epochs import *

if __name__ == "__main__":
    pass  # needed by nobody: what follows stands outside
for batch in everyday(small_data(), num_workers=2):
    print("one", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_is_one_traceback_and_not_a_storm(tmp_path: Path) -> None:
    """Sent to all processes of the terminal, as a shell does."""
    script = tmp_path / "train.py"
    script.write_text(INTERRUPTED.replace("os.kill(os.getpid()", "os.killpg(os.getpgid(0)"))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines() == ["one"]
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.returncode == -signal.SIGINT


@both
def test_a_closed_loader_says_so(workers: int) -> None:
    loader = everyday(small_data(), num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    loader.close()
    with pytest.raises(ChannelClosed, match="this NeighborLoader was closed"):
        next(iterator)
    with pytest.raises(ChannelClosed, match="closed"):
        iter(loader)
    with pytest.raises(ChannelClosed, match="closed"):
        loader([0])


def test_another_thread_may_close_a_loader_that_waits() -> None:
    with everyday(small_data(), num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        waiting = threading.Event()
        with stopped(loader._supply.hub().pid):
            error: list[Exception] = []

            def read() -> None:
                waiting.set()
                try:
                    list(iterator)
                except ChannelClosed as closed:
                    error.append(closed)

            reader = threading.Thread(target=read)
            reader.start()
            waiting.wait(60)
            loader._supply._channel.close()
            reader.join(60)
        assert len(error) == 1


def test_an_exception_in_the_loop_leaves_nothing() -> None:
    def train() -> None:
        for _ in everyday(small_data(), num_workers=1):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()


# --- processes -------------------------------------------------------------------------------


@both
def test_a_fork_is_refused_with_advice(workers: int) -> None:
    with everyday(small_data(), num_workers=workers) as loader:
        iterator = iter(loader)
        expected = digest(next(iterator))
        child = os.fork()
        if child == 0:
            os._exit(_what_a_fork_finds(loader, iterator))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        loader.set_epoch(0)
        assert digest(next(iter(loader))) == expected


def _what_a_fork_finds(loader: Any, iterator: Any) -> int:
    for attempt in (lambda: next(iterator), lambda: iter(loader), lambda: loader.address):
        try:
            attempt()
            return 1
        except RuntimeError as error:
            if "does not survive a fork" not in str(error) or "'spawn'" not in str(error):
                return 2
    if loader([0]).batch_size != 1:  # needs no process but this
        return 3
    loader.close()
    return 0


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_is_refused_with_advice(how: Any) -> None:
    with everyday(small_data()) as loader:
        with pytest.raises(TypeError, match=r"NeighborLoader cannot be pickled.*address"):
            how(loader)


# --- batches ---------------------------------------------------------------------------------


@both
def test_an_error_in_a_transform_names_the_batch_and_the_next_one_comes(workers: int) -> None:
    """CONTRACT 64."""
    steps = iter(range(100))

    def transform(batch: Any) -> Any:
        if next(steps) == 2:
            raise ZeroDivisionError("mine")
        return batch

    data = small_data()
    with everyday(data) as plain:
        expected = digests(plain)
    with everyday(data, transform=transform, num_workers=workers) as loader:
        iterator = iter(loader)
        seen = digests(islice(iterator, 2))
        with pytest.raises(ZeroDivisionError, match="mine") as caught:
            next(iterator)
        assert "epoch 0, step 2, batch 2" in caught.value.__notes__[-1]
        assert loader.state_dict()["delivered"] == 3
        assert seen + digests(iterator) == expected[:2] + expected[3:]
        assert loader.statistics().failed == 1


def test_a_transform_cannot_end_an_epoch() -> None:
    def transform(batch: Any) -> Any:
        raise StopIteration

    with everyday(small_data(), transform=transform) as loader:
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            list(loader)


@both
def test_a_batch_that_cannot_be_made_raises_and_the_next_one_comes(workers: int) -> None:
    """CONTRACT 20, 21: it needs more than it may have; the others do not."""
    hub = torch.stack([torch.arange(400), torch.zeros(400, dtype=torch.long)])
    data = ps_data(hub)
    options: dict[str, Any] = {"max_batch_bytes": 4000, "num_workers": workers}
    with ps.NeighborLoader(data, [-1], range(40), batch_size=1, **options) as loader:
        iterator = iter(loader)
        with pytest.raises(ps.BatchTooLarge, match="max_batch_bytes") as caught:
            next(iterator)
        assert "epoch 0, step 0, batch 0" in caught.value.__notes__[-1]
        assert loader.state_dict()["delivered"] == 1
        assert [batch.n_id[0].item() for batch in iterator] == list(range(1, 40))


@both
def test_a_batch_that_cannot_be_made_may_be_stood_in_for(workers: int) -> None:
    """CONTRACT 19."""
    hub = torch.stack([torch.arange(400), torch.zeros(400, dtype=torch.long)])
    options: dict[str, Any] = {
        "max_batch_bytes": 4000,
        "num_workers": workers,
        "on_error": "substitute",
        "max_substitutes": 2,
    }
    with ps.NeighborLoader(ps_data(hub), [-1], range(40), batch_size=1, **options) as loader:
        seeds = [batch.n_id[0].item() for batch in loader]
        assert len(seeds) == 40
        assert seeds[1:] == list(range(1, 40))
        assert seeds[0] != 0
        assert loader.statistics().substitutes == 1


def ps_data(edge_index: Any) -> Any:
    from tests.loader.epochs import Data

    return Data(edge_index=edge_index, num_nodes=400)


def test_a_batch_that_does_not_come_in_time_is_waited_for_again() -> None:
    data = small_data()
    with everyday(data) as inline:
        expected = digests(inline)
    with everyday(data, num_workers=1, timeout=0.2, prefetch=1) as loader:
        iterator = iter(loader)
        seen = digests(islice(iterator, 1))
        with stopped(loader._supply.hub().pid), pytest.raises(TimeoutError, match=r"after 0\.2 s"):
            seen += digests(iterator)
        taken = loader.state_dict()["delivered"]
        assert seen == expected[: len(seen)]
        loader.timeout, loader._options = 0, type(loader._options)(batch_size=16, shuffle=True)
        assert digests(iterator) == expected[taken:]
