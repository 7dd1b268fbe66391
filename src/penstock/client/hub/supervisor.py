"""The supervisor: a thread that starts a hub, watches it, and starts another one when it dies.

The kernel ends a hub together with the thread that started it, and the hub ends itself when its
control socket closes. So this thread lives exactly as long as there is to be a hub. When a hub dies
without being asked to, another follows at the same address: the first time at once, then after
pauses that double. After too many deaths in a row, without a batch in between, the supervisor gives
up. The thread owns the listening socket and passes it to each hub. So between two hubs nobody else
can take the address, and clients that connect wait for the next hub.

The hub reports each worker that died over the control socket, and the supervisor logs it.

The thread keeps no reference to objects that users may drop. It ends when it is asked to.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from penstock.client.hub import restart_log
from penstock.client.hub.child import Child
from penstock.errors import HubGone
from penstock.rpc.deadline import Deadline
from penstock.wire.messages import HubConfig
from penstock.wire.transport.unix import UnixListener

log = logging.getLogger(__name__)

# A hub that lived longer than this worked: its death counts as the first.
_LONG_LIFE_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
# Longer than `Stop`, SIGTERM and SIGKILL take together.
_STOPPING_S: Final = 30.0


class ConfigSource(Protocol):
    """Makes a hub's configuration, and its descriptors, of which the listening socket is first."""

    address: str

    def __call__(self, listener: int) -> tuple[HubConfig, Sequence[int]]: ...


class HubPhase(Enum):
    """The phase that the supervisor is in."""

    STARTING = "starting"  # for the first time, or again
    UP = "up"
    STOPPED = "stopped"  # because somebody asked for it
    GONE = "gone"  # the supervisor has given up


@dataclass(frozen=True, slots=True)
class HubStatus:
    """What is known of the hub. `boots` counts the hubs that came up."""

    phase: HubPhase = HubPhase.STARTING
    boots: int = 0
    pid: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class _HubFailure:
    """Why there is no hub. `hopeless`: if the first start fails so, another would fail, too."""

    cause: str
    hopeless: bool = False


class Supervisor:
    """Keeps one hub running. `config_source` is called at each start to configure the new hub."""

    def __init__(self, config_source: ConfigSource, *, restarts: int, start_timeout: float) -> None:
        self._config_source = config_source
        self._restarts = restarts
        self._start_timeout = start_timeout
        self._news = threading.Condition()  # reentrant, for finalizers in the same thread
        self._state = HubStatus()
        self._stopping = False
        self._deaths = 0
        self._owner = os.getpid()
        self.served = False  # readers set it when a batch came; earlier deaths then do not count
        self._listener: UnixListener | None = None
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._run, name="penstock-supervisor", daemon=True)
        _running.add(self)
        self._thread.start()

    @property
    def state(self) -> HubStatus:
        """The current status of the hub."""
        return self._state

    def wait_for(self, wanted: Callable[[HubStatus], bool], deadline: Deadline) -> HubStatus:
        """Return the first status that `wanted` accepts, or the one at the deadline."""
        with self._news:
            self._news.wait_for(lambda: wanted(self._state), deadline.remaining)
            return self._state

    def ask_to_stop(self) -> None:
        """Have the hub ended, without waiting. Any thread may call this, any number of times."""
        if os.getpid() != self._owner:
            return  # a fork has the same pipe, but the hub belongs to its parent
        with self._news:
            if not self._stopping:
                self._stopping = True
                if self._waker >= 0:
                    os.write(self._waker, b"!")

    def stop(self) -> None:
        """End the hub, and wait for its end, in bounded time."""
        self.ask_to_stop()
        if os.getpid() == self._owner and self._thread is not threading.current_thread():
            self._thread.join(_STOPPING_S)

    # --- in the thread ---

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            # The hub inherits this mask: SIGINT must not reach it before it ignores SIGINT itself.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._listen()
            while not self._stopping and self._listener is not None and self._keep_one():
                pass
            self._tell(HubPhase.GONE if self._state.cause else HubPhase.STOPPED, self._state.cause)
        except BaseException as error:
            # This thread has no caller that would see the error: those who wait for the hub get it.
            log.exception("the supervisor of a hub failed")
            self._tell(HubPhase.GONE, f"its supervisor failed: {error!r}")
        finally:
            self._let_go()

    def _listen(self) -> None:
        try:
            self._listener = UnixListener(self._config_source.address)
        except OSError as error:
            self._tell(HubPhase.GONE, f"it could not be started: {error}")

    def _keep_one(self) -> bool:
        """Start a hub and watch it until it ends; return whether to start another."""
        born = time.monotonic()
        try:
            child = Child()
        except OSError as error:  # no descriptors or no processes left: try again later
            return self._after_death("a hub", _HubFailure(f"it could not be started: {error}"))
        try:
            failure = self._bring_up(child)
            if failure is None and not child.watch(self._wake, restart_log.tell):
                child.stop()
        finally:
            how = child.reap()
        if self._stopping:
            return False
        if self.served or time.monotonic() - born > _LONG_LIFE_S:
            self._deaths = 0
        self.served = False
        failure = failure or _HubFailure(f"it ended {how}")
        return self._after_death(f"the hub (pid {child.pid})", failure)

    def _bring_up(self, child: Child) -> _HubFailure | None:
        """Configure the hub; return why it did not come up, or None if it did."""
        assert self._listener is not None
        message, fds = self._config_source(self._listener.fileno())
        try:
            child.configure(message, fds, Deadline(self._start_timeout))
        except TimeoutError:
            bound = f"{self._start_timeout:g} s (setting: start_timeout)"
            return _HubFailure(f"it was not up within {bound}", hopeless=True)
        except ConnectionError:
            how = child.reap()
            return _HubFailure(f"it ended {how} before it was up", hopeless=not child.was_killed)
        except OSError as error:
            return _HubFailure(f"it could not be told what to be: {error}")
        except HubGone as error:
            return _HubFailure(str(error), hopeless=True)
        with self._news:
            boots = self._state.boots + 1
            self._state = HubStatus(HubPhase.UP, boots, child.pid)
            self._news.notify_all()
        return None

    def _after_death(self, who: str, failure: _HubFailure) -> bool:
        """Return whether to start another hub; if so, first wait until it is time for it."""
        self._deaths += 1
        never_up = failure.hopeless and not self._state.boots
        if never_up or self._deaths > self._restarts:
            self._tell(HubPhase.GONE, failure.cause)
            return False
        self._tell(HubPhase.STARTING)
        pause = _pause_before(self._deaths)
        restart_log.tell_of_hub(who, failure.cause, pause)
        return not self._woken_within(pause)

    def _woken_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _tell(self, phase: HubPhase, cause: str = "") -> None:
        with self._news:
            self._state = HubStatus(phase, self._state.boots, None, cause)
            self._news.notify_all()

    def _let_go(self) -> None:
        with self._news:
            os.close(self._wake)
            os.close(self._waker)
            self._wake = self._waker = -1
        if self._listener is not None:
            self._listener.close()
        _running.discard(self)


def _pause_before(death: int) -> float:
    return 0.0 if death == 1 else min(_FIRST_PAUSE_S * 2.0 ** (death - 2), _LONGEST_PAUSE_S)


# At exit, the interpreter would stop these threads wherever they are, and the kernel would kill
# their hubs; so `_stop_all` asks the hubs to end first.
_running: set[Supervisor] = set()


@atexit.register
def _stop_all() -> None:
    for supervisor in list(_running):
        supervisor.stop()
