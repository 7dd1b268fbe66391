"""A thread that takes snapshots of loaders' statistics now and then, and displays them.

There is one thread and one display per process for all watched loaders; both end with the last
loader. The training loop never waits for it, though a snapshot may take as long as a hub takes to
restart. It knows a loader's name and `statistics()` only, and keeps no loader alive.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from penstock.loader.watch.meter import LoaderStatistics

log = logging.getLogger(__name__)

VARIABLE: Final = "PENSTOCK_WATCH"
# Rates are shown over this window.
WINDOW_S: Final = 5.0
# Time for a last snapshot and a last line. A hub that is being replaced is not waited for.
_LEAVING_S: Final = 2.0


class Watchable(Protocol):
    """A loader that can be watched. `statistics` is called in the watcher's thread."""

    def statistics(self) -> LoaderStatistics:
        """Return a snapshot."""


@dataclass(frozen=True, slots=True)
class Look:
    """A snapshot of a loader, and its time (monotonic clock)."""

    at: float
    numbers: LoaderStatistics


@dataclass(slots=True, eq=False)
class Watched:
    """A watched loader, and its snapshots within the window, oldest first."""

    name: str
    loader: weakref.ref[Watchable]
    before: int = 0  # batches read before it was watched
    looks: deque[Look] = field(default_factory=deque)
    leaving: bool = False
    # Set when the last snapshot was shown.
    gone: threading.Event = field(default_factory=threading.Event)

    def look(self, now: float) -> bool:
        """Take a snapshot; return False if the loader is gone."""
        loader = self.loader()
        if loader is None:
            return False
        try:
            numbers = loader.statistics()
        except Exception as error:  # the hub is being replaced, or has failed otherwise
            log.debug("no statistics of %s: %s", self.name, error)
            return True
        self.looks.append(Look(now, numbers))
        while len(self.looks) > 2 and self.looks[1].at <= now - WINDOW_S:
            self.looks.popleft()
        return True


class WatchView(Protocol):
    """Displays watched loaders. Entered and used in the watcher's thread."""

    pause: float  # seconds between snapshots

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, watched: Sequence[Watched]) -> None:
        """Display the loaders, after each pause. Those that are leaving are shown a last time."""


class Watching:
    """Handle of a watched loader: it is watched until this is stopped or the loader ends."""

    def __init__(self, name: str) -> None:
        self._name = name

    def stop(self) -> None:
        """Stop, with a last snapshot. Idempotent; returns within a bounded time."""
        end(self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Watcher:
    """The thread that watches; it runs while there are loaders to watch."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.RLock()  # a signal handler may close a loader
        self._watched: dict[str, Watched] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def begin(self, loader: Watchable, name: str, before: int) -> None:
        """Watch a loader, unless it is watched already."""
        with self._lock:
            if name in self._watched:
                return
            self._watched[name] = Watched(name, weakref.ref(loader), before)
            if self._thread is not None:
                self._wake.set()
            else:
                self._wake.clear()
                self._thread = threading.Thread(
                    target=self._run, name="penstock-watch", daemon=True
                )
                self._thread.start()

    def end(self, *names: str) -> None:
        """Take a last snapshot of these loaders, then stop. Without any left, the thread ends."""
        with self._lock:
            known = [self._watched[name] for name in names if name in self._watched]
            leaving = [watched for watched in known if not watched.leaving]
            for watched in leaving:
                watched.leaving = True
            last = all(watched.leaving for watched in self._watched.values())
            thread = self._thread
            self._wake.set()
        deadline = time.monotonic() + _LEAVING_S
        for watched in leaving:
            watched.gone.wait(max(0.0, deadline - time.monotonic()))
        if leaving and last and thread not in (None, threading.current_thread()):
            assert thread is not None
            thread.join(max(0.0, deadline - time.monotonic()))

    def end_all(self) -> None:
        """Stop to watch all loaders."""
        if self.owner == os.getpid():
            self.end(*list(self._watched))

    # --- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            from penstock.loader.watch.picture import view_here

            with view_here() as view:
                while self._look_round(view):
                    self._wake.wait(view.pause)
                    self._wake.clear()
        except Exception:  # training must neither fail nor wait because of it
            log.exception("loaders cannot be watched any longer")
        finally:
            self._let_go()

    def _look_round(self, view: WatchView) -> bool:
        """Take a snapshot of all loaders and display them. Return whether any is left."""
        with self._lock:
            everybody = list(self._watched.values())
        # A loader that begins to leave from here on gets another snapshot.
        leaving = [watched for watched in everybody if watched.leaving]
        now = time.monotonic()
        away = [watched for watched in everybody if not watched.look(now)]
        view.show(everybody)
        with self._lock:
            for watched in {*leaving, *away}:
                self._watched.pop(watched.name, None)
                watched.gone.set()
            if not self._watched:
                self._thread = None
            return bool(self._watched)

    def _let_go(self) -> None:
        """Release everybody who waits for this thread if it ends because of an error."""
        with self._lock:
            if self._thread is threading.current_thread():
                self._thread = None
                for watched in self._watched.values():
                    watched.gone.set()
                self._watched.clear()


_LOCK: Final = threading.RLock()  # a signal handler may close a loader
_watcher: Watcher | None = None


def is_wanted() -> bool:
    """Return whether the environment variable asks for it."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def begin(loader: Watchable, name: str, before: int = 0) -> Watching:
    """Watch a loader from now on. `before`: batches that it has read already."""
    global _watcher
    with _LOCK:
        # A forked process has no watching thread.
        if _watcher is None or _watcher.owner != os.getpid():
            _watcher = Watcher()
            atexit.register(_watcher.end_all)
        watcher = _watcher
    watcher.begin(loader, name, before)
    return Watching(name)


def end(name: str) -> None:
    """Stop to watch a loader. Idempotent; returns within a bounded time."""
    watcher = _watcher
    if watcher is not None and watcher.owner == os.getpid():
        watcher.end(name)
