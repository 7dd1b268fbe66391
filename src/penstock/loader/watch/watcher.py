"""Watching loaders: a thread that looks at their statistics now and then, and has them shown.

One thread and one picture per process, however many loaders are watched; both end with the last of
them. The loop that reads never waits for it: a look may take as long as a hub takes to come back.
Nothing is known of loaders but their names and what `statistics()` says, and none is kept alive.
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
# Numbers are shown as they were over so long.
WINDOW_S: Final = 5.0
# For a last look and a last line. A hub that is just being replaced is not waited for.
_LEAVING_S: Final = 2.0


class Watchable(Protocol):
    """What can be watched. `statistics` is called in a thread of ours."""

    def statistics(self) -> LoaderStatistics:
        """A snapshot."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a loader said, and when (by the monotonic clock)."""

    at: float
    numbers: LoaderStatistics


@dataclass(slots=True, eq=False)
class Watched:
    """A loader that is watched, and the looks at it within the window, oldest first."""

    name: str
    loader: weakref.ref[Watchable]
    before: int = 0  # batches that it had read already
    looks: deque[Look] = field(default_factory=deque)
    leaving: bool = False
    gone: threading.Event = field(default_factory=threading.Event)  # nobody looks any more

    def look(self, now: float) -> bool:
        """Looks; whether there is still something to look at."""
        loader = self.loader()
        if loader is None:
            return False
        try:
            numbers = loader.statistics()
        except Exception as error:  # the hub is being replaced, or is not ours to blame
            log.debug("no statistics of %s: %s", self.name, error)
            return True
        self.looks.append(Look(now, numbers))
        while len(self.looks) > 2 and self.looks[1].at <= now - WINDOW_S:
            self.looks.popleft()
        return True


class WatchView(Protocol):
    """Who shows it. Entered and used in the watching thread."""

    pause: float  # between looks

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, watched: Sequence[Watched]) -> None:
        """Time has gone by. Those that are leaving are shown for the last time."""


class Watching:
    """A loader is being watched, until this is stopped or left, or the loader ends."""

    def __init__(self, name: str) -> None:
        self._name = name

    def stop(self) -> None:
        """Ends it, with a last look. Idempotent, within a bound."""
        end(self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Watcher:
    """The thread, while there is somebody to watch."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.RLock()  # a signal's handler may close a loader
        self._watched: dict[str, Watched] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def begin(self, loader: Watchable, name: str, before: int) -> None:
        """Watches a loader; one that is watched already is left alone."""
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
        """Has these looked at once more, and no longer. With nobody left, the thread ends."""
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
        """Nobody is watched any more."""
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
        except Exception:  # of no interest to those who train; and they must not wait for us
            log.exception("loaders cannot be watched any longer")
        finally:
            self._let_go()

    def _look_round(self, view: WatchView) -> bool:
        """Looks at everybody and has it shown. Whether anybody is left."""
        with self._lock:
            everybody = list(self._watched.values())
        # Whoever asks to leave from here on gets another look.
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
        """If something went wrong: nobody waits for a thread that is not there."""
        with self._lock:
            if self._thread is threading.current_thread():
                self._thread = None
                for watched in self._watched.values():
                    watched.gone.set()
                self._watched.clear()


_LOCK: Final = threading.RLock()  # a signal's handler may close a loader
_watcher: Watcher | None = None


def is_wanted() -> bool:
    """Whether the environment asks for it."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def begin(loader: Watchable, name: str, before: int = 0) -> Watching:
    """Watches a loader, from now on. `before`: batches that it has read already."""
    global _watcher
    with _LOCK:
        if _watcher is None or _watcher.owner != os.getpid():  # a fork has no thread of its parent
            _watcher = Watcher()
            atexit.register(_watcher.end_all)
        watcher = _watcher
    watcher.begin(loader, name, before)
    return Watching(name)


def end(name: str) -> None:
    """Watches it no longer. Idempotent, within a bound."""
    watcher = _watcher
    if watcher is not None and watcher.owner == os.getpid():
        watcher.end(name)
