"""What all tests share: Hypothesis profiles, watches for leaks and crashes, proof of sanitizers."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.leaks import (
    MARK,
    Holdings,
    leaks_since,
    marked_processes,
    own_threads,
    threads_since,
)

# Threads that a library makes for itself, whenever it likes, would be taken for leaks. It looks at
# this when it is loaded, which no test has done yet.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadlines anywhere: how fast a test runs says nothing about whether the code is right.
settings.register_profile(
    "default", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
_default = settings.get_profile("default")
settings.register_profile("ci", _default, max_examples=40, derandomize=True, print_blob=True)
# Under sanitizers, which see each access: whether results are right is known by then.
settings.register_profile("sanitized", settings.get_profile("ci"), max_examples=20)
settings.register_profile("soak", _default, max_examples=5000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def no_leaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that leaves a process, thread, file descriptor or shared memory behind.

    A test, class or module asks for it: `pytestmark = pytest.mark.usefixtures("no_leaks")`.
    Whatever is still running is killed, so that one failure stays one.
    """
    yield from _watched(monkeypatch)


@pytest.fixture(scope="module")
def no_leaks_in_all() -> Iterator[None]:
    """As `no_leaks`, but over all tests of a module: they share servers and hubs."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _watched(patch)


@pytest.fixture(scope="module", autouse=True)
def _no_threads_left() -> Iterator[None]:
    """Fails any module that leaves a thread of ours behind, for the next ones to stumble over.

    It is the first fixture of a module, and so looks when the servers of all others have ended.
    """
    before = own_threads()
    yield
    if left := threads_since(before):
        pytest.fail("left behind by this module:\n  " + "\n  ".join(left), pytrace=False)


def _watched(patch: pytest.MonkeyPatch) -> Iterator[None]:
    mark = uuid.uuid4().hex
    patch.setenv(MARK, mark)
    before = Holdings.now(mark)
    yield
    leaks = leaks_since(before, mark)
    if leaks:
        for process in marked_processes(mark):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        pytest.fail("left behind:\n  " + "\n  ".join(leaks), pytrace=False)


# Where tests start processes. Such files are few and long: one that begins last keeps all waiting.
LONG = frozenset(
    {
        *("benchmarks", "client", "compat", "demo", "docs", "examples", "faults", "hub"),
        *("loader", "server", "store", "wheel", "workers"),
    }
)
TESTS = Path(__file__).parent
MANY = 100


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the folders with the longest tests first; all else stays in its order."""
    items.sort(key=lambda item: os.path.relpath(item.path, TESTS).split(os.sep)[0] not in LONG)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempts what is loaded from collections of garbage: all tests, and PyG if many need it.

    Else each collection would look at all of it, which takes longer than most tests. Later it would
    be too late: what tests have left in cycles would be exempt, too, and never end.
    """
    if sum("loader" in item.path.parts for item in session.items) > MANY and find_spec("torch"):
        import torch_geometric.loader  # noqa: F401
    gc.collect()
    gc.freeze()


CRASHED = pytest.StashKey[str]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Remembers a process of xdist's, made to run tests, that ended before its time."""
    if error:
        node.config.stash[CRASHED] = node.gateway.id


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Fails a run in which such a process crashed, whatever it was doing.

    To xdist only the test that it was running has failed. Where it was running none, because it was
    still collecting them or had done them all, a run that left out every test would pass.
    """
    ran = yield
    if crashed := session.config.stash.get(CRASHED, None):
        pytest.exit(f"{crashed} crashed, and tests may have been left out", returncode=1)
    return ran


def pytest_configure(config: pytest.Config) -> None:
    """Refuses to run when told to expect the sanitized module and another one is loaded."""
    site = os.environ.get("PENSTOCK_EXPECT_SANITIZED")
    if site is not None and (doubt := doubts_about_sanitizers(Path(site))):
        pytest.exit(f"not a sanitized run: {doubt}", returncode=3)


def doubts_about_sanitizers(site: Path) -> str | None:
    """Why the native module in this process is not the sanitized one in `site`; None if it is."""
    from penstock.kernels import _native

    path = Path(str(_native.__file__)).resolve()
    if not path.is_relative_to(site.resolve()):
        return f"{path} was loaded, which does not lie in {site}"
    image = path.read_bytes()
    for symbol in (b"__asan_report_", b"__ubsan_handle_"):
        if symbol not in image:
            return f"{path} never calls {symbol.decode()}…: built without the sanitizer"
    if (
        "libasan" not in (maps := Path("/proc/self/maps").read_text())
        and "clang_rt.asan" not in maps
    ):
        return "the sanitizer's library is not loaded"
    return None
