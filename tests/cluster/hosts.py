"""Ray clusters of several hosts on this machine, whose hosts are killed.

Each host is a raylet with its workers. The first of them, which stays, has Ray's control plane. All
of it is on loopback, has no dashboard, and is gone after the test, whatever became of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import psutil

from tests.processes import wait_until_gone

# Read when Ray is imported, and by all that is started. The second makes hosts use loopback.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TMPDIR": tempfile.gettempdir(),
}

# A raylet that was killed is known to be dead after five of the first; one that is slow has five
# times the second.
_HEALTH: Final = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 200,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 5,
}
_HOST: Final[dict[str, Any]] = {
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
    "include_log_monitor": False,
    "node_ip_address": "127.0.0.1",
    "resources": {},
}
# In the environment of all that belongs to one cluster.
MARK: Final = "PENSTOCK_RAY_CLUSTER"


class RayHosts:
    """A cluster: a head, and other hosts that come and go.

    Args:
        hosts: How many hosts there are at first, the head included.
        cpus: How many CPUs Ray believes each of them to have.
    """

    def __init__(self, hosts: int, cpus: int = 4) -> None:
        self._cpus = cpus
        self._mark = uuid.uuid4().hex
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets: short paths
        self._before = {name: os.environ.get(name) for name in (MARK, "RAY_TMPDIR", "RAY_ADDRESS")}
        self._cluster: Any = None
        self.hosts: list[Any] = []  # but the head
        os.environ |= {MARK: self._mark, "RAY_TMPDIR": str(self._folder)}
        os.environ.pop("RAY_ADDRESS", None)
        try:
            self._start(hosts)
        except BaseException:
            self.close()
            raise

    def _start(self, hosts: int) -> None:
        from ray.cluster_utils import Cluster

        head = {**_HOST, "num_cpus": self._cpus, "_system_config": _HEALTH}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        os.environ["RAY_ADDRESS"] = self._cluster.address
        for _ in range(hosts - 1):
            self.add_host(wait=False)
        self._cluster.wait_for_nodes()

    @property
    def head(self) -> Any:
        """The host that stays."""
        return self._cluster.head_node

    def add_host(self, *, wait: bool = True) -> Any:
        """One more."""
        host = self._cluster.add_node(wait=wait, num_cpus=self._cpus, **_HOST)
        self.hosts.append(host)
        return host

    def kill(self, host: Any) -> list[int]:
        """Kills all of Ray's processes of a host; returns its servers, which end by themselves."""
        raylet = self.raylet_of(host)
        all_of_it = [raylet, *raylet.children(recursive=True)]
        servers = [each.pid for each in all_of_it if _is_ours(each)]
        for each in all_of_it:
            if each.pid not in servers:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        self.hosts.remove(host)
        self._cluster.remove_node(host, allow_graceful=False)
        return servers

    def host_of(self, node: str) -> Any:
        """The host that Ray knows by this id."""
        return next(host for host in self.hosts if host.node_id == node)

    def raylet_of(self, host: Any) -> psutil.Process:
        """Ray's own process of a host, whose children are its actors."""
        return psutil.Process(host.all_processes["raylet"][0].process.pid)

    def servers(self) -> list[psutil.Process]:
        """All `penstock serve` processes."""
        return self.called("-m penstock serve")

    def called(self, words: str) -> list[psutil.Process]:
        """All processes of this cluster that have these words in their command lines."""
        return [each for each in self._processes() if words in _words(each)]

    def workers(self) -> list[psutil.Process]:
        """The processes in which hosts perform tasks."""
        found: list[psutil.Process] = []
        for host in [self.head, *self.hosts]:
            with suppress(psutil.Error):
                raylet = psutil.Process(host.all_processes["raylet"][0].process.pid)
                found += [each for each in raylet.children() if "ray::" in _words(each)]
        return found

    def _processes(self) -> Iterator[psutil.Process]:
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if each.pid != os.getpid() and each.environ().get(MARK) == self._mark:
                    yield each

    def close(self) -> None:
        """Nothing of it is left."""
        try:
            if self._cluster is not None:
                self._cluster.shutdown()
        finally:
            left = [*self._processes()]
            for each in left:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            wait_until_gone([each.pid for each in left])
            shutil.rmtree(self._folder, ignore_errors=True)
            for name, value in self._before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_ours(process: psutil.Process) -> bool:
    return "-m penstock" in _words(process)


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
