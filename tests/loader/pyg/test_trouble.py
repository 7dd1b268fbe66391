"""What goes wrong is said with what to do about it, and leaves nothing behind."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.core.plan import Position
from penstock.errors import ChannelClosed, SamplingError
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.options import options_of
from penstock.loader.source.inputs import node_inputs
from penstock.loader.source.sources import source_of
from penstock.sampling.spec import CustomSpec
from tests.client.graphs import small_graph
from tests.loader.epochs import digest, digests, everyday, hub_of, small_data
from tests.processes import stopped, until, wait_until_gone

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[3]
both = pytest.mark.parametrize("workers", [0, 1])

# A script as users write them, without a guard of `__main__`. Importing torch takes longer than all
# the rest, so it is done once, and each ending has a copy.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from tests.loader.epochs import *

folder = Path(sys.argv[2])
children = {}
for name, ending in json.loads(sys.argv[1]).items():
    children[name] = os.fork()
    if children[name] == 0:
        break
else:
    print(json.dumps({
        name: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for name, child in children.items()
    }))
    sys.exit()
os.setsid()
os.dup2(os.open(folder / f"{name}.stderr", os.O_CREAT | os.O_WRONLY), 2)
loader = everyday(small_data(), num_workers=1)
iterator = iter(loader)
batch = next(iterator)
(folder / f"{name}.pids").write_text(json.dumps(pids_of(loader)))
exec(ending)
"""

ENDINGS = {
    "the end of the script": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(3)", 3),
    "an exception": ("raise ValueError('mine')", 1),
    "an exception in the loop": ("for batch in iterator: 1 / 0", 1),
    # To all processes of the terminal, as a shell sends it.
    "ctrl-c": ("for batch in iterator: os.killpg(0, signal.SIGINT)", -signal.SIGINT),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); signal.pause()", -signal.SIGTERM),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[int], int, str]]:
    """For each ending the processes there had been, the exit status, and what went to stderr."""
    folder = tmp_path_factory.mktemp("endings")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    endings = json.dumps({name: ending for name, (ending, _) in ENDINGS.items()})
    done = subprocess.run(
        [sys.executable, str(script), endings, str(folder)],
        stdout=subprocess.PIPE,
        timeout=250,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return {
        name: (
            json.loads((folder / f"{name}.pids").read_text()),
            status,
            (folder / f"{name}.stderr").read_text(),
        )
        for name, status in json.loads(done.stdout).items()
    }


# --- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
def test_however_a_script_ends_it_leaves_nothing(ending: str, ended: Any) -> None:
    """CONTRACT 29: without closing, in the middle of an epoch, with a batch in its hands."""
    pids, status, _ = ended[ending]
    assert len(pids) == 2
    assert status == ENDINGS[ending][1]
    wait_until_gone(pids)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ending_is_one_traceback_at_most_and_not_a_storm(ending: str, ended: Any) -> None:
    _, _, error = ended[ending]
    raises = "exception" in ending or ending == "ctrl-c"
    assert error.count("Traceback") == raises, error
    assert bool(error) == raises, error


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
    data = small_data()
    with (
        everyday(data, num_workers=1),  # keeps the hub, which cannot end while it is stopped
        everyday(data, num_workers=1, prefetch=1, timeout=0.1) as loader,
    ):
        iterator = iter(loader)
        error: list[Exception] = []

        def read() -> None:
            try:
                next(iterator)
            except ChannelClosed as closed:
                error.append(closed)

        def waits() -> bool:
            frames = traceback.walk_stack(sys._current_frames()[reader.ident or 0])
            return any(frame.f_code.co_name == "_wait" for frame, _ in frames)

        reader = threading.Thread(target=read)
        with stopped(hub_of(loader).pid):
            with pytest.raises(TimeoutError):  # until then there are some that were made before
                list(iterator)
            loader.timeout = 0
            reader.start()
            until(waits, "the reader waits")
            loader.close()
            reader.join(60)
            assert not reader.is_alive()
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


def pickled(loader: Any) -> Any:
    return pickle.loads(pickle.dumps(loader))


@pytest.mark.parametrize("how", [pickled, copy.copy, copy.deepcopy])
def test_a_copy_is_a_loader_of_the_same_arguments(how: Any) -> None:
    """For processes that are spawned. It has a pool and epochs of its own."""
    with everyday(small_data(), num_workers=1, drop_last=True, remainder="drop") as loader:
        expected = digests(loader)
        with how(loader) as other:
            assert (other.num_workers, other.remainder) == (1, "drop")
            assert digests(other) == expected


def test_a_class_whose_arguments_are_unknown_is_not_pickled() -> None:
    class Mine(ps.NeighborLoader):  # type: ignore[misc, type-arg]
        def __init__(self, data: Any, *, fan_out: int) -> None:
            super().__init__(data, [fan_out])

    with Mine(small_data(), fan_out=3) as loader:
        with pytest.raises(TypeError, match=r"Mine cannot be pickled: fan_out.*address"):
            pickle.dumps(loader)


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


class Stars(Loader):
    """A loader of a sampler that cannot make some of its batches."""

    transform = transform_sampler_output = None
    filter_per_worker = True

    def __init__(self, graph: Any, fails: list[int], **options: Any) -> None:
        spec: Any = CustomSpec(sampler="tests.client.samplers:Stars", options={"fails": fails})
        source = source_of(graph)
        inputs = node_inputs(source, range(60))
        super().__init__(
            source, spec, inputs, options_of({"batch_size": 10, **options}, "Stars", None)
        )


@both
def test_a_batch_that_cannot_be_made_raises_and_the_next_one_comes(workers: int) -> None:
    """CONTRACT 19, 20."""
    with small_graph() as graph, Stars(graph, [0, 3], num_workers=workers) as loader:
        iterator, seen = iter(loader), []
        for step in range(6):
            if step in (0, 3):
                with pytest.raises(SamplingError, match=f"there is no batch {step}") as caught:
                    next(iterator)
                assert f"epoch 0, step {step}, batch {step}" in caught.value.__notes__[-1]
            else:
                seen.append(next(iterator).n_id[0].item() // 10)
            assert loader._state().position == Position(step // 5, 0 if step == 5 else step + 1)
        assert seen == [1, 2, 4, 5]
        assert list(iterator) == []
        assert loader.statistics().failed == 2


@both
def test_a_batch_that_cannot_be_made_may_be_stood_in_for(workers: int) -> None:
    """CONTRACT 19."""
    options: dict[str, Any] = {"num_workers": workers, "on_error": "substitute"}
    with small_graph() as graph, Stars(graph, [0], max_substitutes=2, **options) as loader:
        seen = [batch.n_id[0].item() // 10 for batch in loader]
        assert seen == [1, 1, 2, 3, 4, 5]
        assert loader.statistics().substitutes == 1


def test_a_batch_that_does_not_come_in_time_is_waited_for_again() -> None:
    data = small_data()
    with everyday(data) as inline:
        expected = digests(inline)
    with everyday(data, num_workers=1, timeout=60, prefetch=1) as loader:
        iterator = iter(loader)
        seen = digests(islice(iterator, 1))
        with stopped(hub_of(loader).pid):
            loader.timeout = 0.1
            with pytest.raises(TimeoutError, match=r"after 0\.1 s.*setting: timeout"):
                seen.extend(map(digest, iterator))
        assert len(seen) < 15
        assert loader.state_dict()["delivered"] == len(seen)
        loader.timeout = 60
        assert seen + digests(iterator) == expected
