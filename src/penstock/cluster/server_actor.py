"""The parent of a server, as an actor: starts `penstock serve`, again and again, and reports on it.

If the process ends, it is started again, at the same port if that is free, after a pause that grows
while starts fail. If this actor ends, so does the process; Ray makes the actor anew, on another
host if this one is gone. What it reports to the directory is where its server is, and why the last
one ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cluster.credentials import Credentials
from penstock.cluster.plan import StorePlan
from penstock.cluster.server_process import ServerProcess, listen_at, run_as_its_host
from penstock.cluster.session import NAMESPACE, import_ray, server_name
from penstock.cluster.states import ENDING, FAILING, SERVING, STARTING, Look, Report
from penstock.errors import PenstockError
from penstock.wire.transport import tcp

log = logging.getLogger(__name__)

# The pause after two starts in a row that failed; each is twice as long, up to the longest.
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
# A server that has served for so long has not failed: it is started again at once.
_PROVEN_S: Final = 10.0
# Seconds in which the directory answers, unless Ray is making it anew.
_ANSWER_S: Final = 5.0
# Seconds that a question to the directory waits for a change.
_WATCH_S: Final = 60.0
_TRY_AGAIN_S: Final = 0.5


class ServerActor:
    """The actor. Its calls run in threads of Ray's, the server's supervision in one of its own.

    Args:
        plan: The store.
        credentials: Those of its servers.
        part: The part that is served.
        replica: The number of this server among those that have the part.
    """

    def __init__(self, plan: StorePlan, credentials: Credentials, part: int, replica: int) -> None:
        ray = import_ray()
        self._plan, self._credentials = plan, credentials
        self._host = str(ray.util.get_node_ip_address())
        self._node = str(ray.get_runtime_context().get_node_id())
        self._report = Report(
            part=part, replica=replica, state=STARTING, address="", host=self._host,
            node=self._node, pid=0, starts=0, failures=0, niceness=0, trouble="",
        )  # fmt: skip
        self._store = _DirectoryClient(ray, plan.name)
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process: ServerProcess | None = None
        self._port = 0
        for name, work in (("supervise", self._supervise), ("report", self._report_again)):
            threading.Thread(target=self._or_end, args=(work,), name=name, daemon=True).start()

    def report(self) -> Report:
        """Return how the server is."""
        return self._report

    def end(self, grace: float) -> None:
        """End the server for good; return when it has ended.

        Args:
            grace: Seconds it has to answer what it was asked.
        """
        self._ending.set()
        with self._lock:
            process = self._process
        if process is not None:
            process.end(grace)

    # --- the server --------------------------------------------------------------------------

    def _or_end(self, work: Callable[[], None]) -> None:
        """Work; if that fails, end this process, so that Ray makes the actor anew."""
        try:
            work()
        except BaseException:
            log.exception("%s has failed", self._name)
            os._exit(1)

    @property
    def _name(self) -> str:
        return server_name(self._plan.name, self._report.part, self._report.replica)

    def _supervise(self) -> None:
        failures, niceness = 0, run_as_its_host()
        self._report = msgspec.structs.replace(self._report, niceness=niceness)
        while not self._ending.wait(_pause_after(failures)):
            began = time.monotonic()
            trouble = self._serve_once()
            if self._ending.is_set():
                break
            log.warning("%s on %s: %s", self._name, self._host, trouble)
            failures = 0 if time.monotonic() - began >= _PROVEN_S else failures + 1
            self._tell(state=FAILING, pid=0, failures=failures, trouble=trouble)
        self._tell(state=ENDING, address="", pid=0)

    def _serve_once(self) -> str:
        """Serve until the process ends, and return why it did."""
        try:
            process = self._started()
        except (OSError, PenstockError) as error:
            return str(error)
        try:
            process.wait_until_ready()
            self._tell(state=SERVING, pid=process.pid)
            return process.wait()
        except PenstockError as error:
            return str(error)
        finally:
            with self._lock:
                self._process = None
            process.close()

    def _started(self) -> ServerProcess:
        folder = Path(self._plan.part_folder(self._report.part))
        if not folder.is_dir():
            raise PenstockError(
                f"host {self._host} has no {folder}: parts must be in a folder that every host "
                "reaches by the same path"
            )
        listening = listen_at(self._host, self._port)
        self._port = listening.getsockname()[1]
        address = str(tcp.Address(tcp.ENCRYPTED, self._host, self._port))
        # Readers may connect from now on: their connections are accepted when it is ready.
        look = self._tell(state=STARTING, address=address, starts=self._report.starts + 1)
        others = () if look is None else look.addresses
        with self._lock:
            if self._ending.is_set():
                listening.close()
                raise PenstockError("it was asked to end")
            self._process = ServerProcess(
                self._plan,
                self._report.part,
                self._credentials,
                listening,
                tuple(dict.fromkeys((address, *others))),
            )
            return self._process

    # --- the directory -----------------------------------------------------------------------

    def _tell(self, **changes: Any) -> Look | None:
        """Report what has changed; return what the directory knows, if it answers."""
        self._report = msgspec.structs.replace(self._report, **changes)
        return self._store.ask("report", self._report)

    def _report_again(self) -> None:
        """Report again whenever the directory knows anything else, or nothing.

        It may have been made anew, may have missed a report, or may have heard two of them in the
        wrong order. But where Ray has taken this host for dead, it has made this actor anew
        elsewhere: then that one is right, and this one ends as soon as its host knows.
        """
        known = ""
        while not self._ending.is_set():
            look = self._store.ask("look", known, _WATCH_S, timeout=_WATCH_S + _ANSWER_S)
            if look is None:
                self._ending.wait(_TRY_AGAIN_S)
                continue
            known = look.stamp
            if self._report not in look.reports and self._store.knows_alive(self._node):
                known = ""  # what this report changes is to be looked at
                if self._store.ask("report", self._report) is None:
                    self._ending.wait(_TRY_AGAIN_S)


def _pause_after(failures: int) -> float:
    """Return how long to wait before the next start; none after one failure."""
    if failures < 2:
        return 0.0
    return float(min(_FIRST_PAUSE_S * 2 ** min(failures - 2, 20), _LONGEST_PAUSE_S))


class _DirectoryClient:
    """Questions to the directory, which Ray may be making anew. Any thread may ask."""

    def __init__(self, ray: Any, store: str) -> None:
        self._ray = ray
        self._store = store

    def ask(self, method: str, *arguments: Any, timeout: float = _ANSWER_S) -> Look | None:
        """Return its answer; None if there is none in time."""
        ray = self._ray
        try:
            directory = ray.get_actor(self._store, namespace=NAMESPACE)
            asked = getattr(directory, method).remote(*arguments)
            answer: Look = ray.get(asked, timeout=timeout)
            return answer
        except (ray.exceptions.RayError, ValueError) as error:
            log.info("the directory of %s does not answer: %s", self._store, error)
            return None

    def knows_alive(self, node: str) -> bool:
        """Return whether Ray takes a host for alive."""
        try:
            return any(each["NodeID"] == node and each["Alive"] for each in self._ray.nodes())
        except self._ray.exceptions.RayError as error:
            log.info("Ray does not say which hosts are alive: %s", error)
            return False
