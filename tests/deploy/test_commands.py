"""The command lines of the StatefulSet's pods, run as they stand: copy, serve, probe, read, end.

Only their environment is another: folders and ports of this test for those of a pod.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import penstock as ps
from tests.cli.servers import WAIT_S, save_small
from tests.deploy.manifests import resource
from tests.store.servers import free_port

pytest.importorskip("torch_geometric")  # now, since torch starts a thread of its own
pytestmark = pytest.mark.usefixtures("no_leaks")

PODS: Final = 3  # of two parts: the last one is a replica of the first
BIN: Final = Path(sys.executable).parent


@dataclass
class Pod:
    """One pod: its environment, and what runs in it."""

    environment: dict[str, str]
    port: int
    pages: int
    spec: dict[str, Any]

    def command(self, container: str) -> list[str]:
        (found,) = (
            each
            for each in [*self.spec["initContainers"], *self.spec["containers"]]
            if each["name"] == container
        )
        return [*found["command"], *found["args"]]

    def copy(self) -> str:
        """Run the init container; return what it said."""
        done = subprocess.run(
            self.command("copy"), env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[str]]:
        """Run the server's container until the block ends."""
        process = subprocess.Popen(
            self.command("server"), env=self.environment, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def probe(self, name: str) -> int:
        """The status that a probe of the server gets; 0 if nobody answers."""
        (container,) = self.spec["containers"]
        get = container[name]["httpGet"]
        assert get["port"] == "pages"
        try:
            with urlopen(f"http://127.0.0.1:{self.pages}{get['path']}", timeout=5) as answer:
                return int(answer.status)
        except URLError as error:
            return int(getattr(error, "code", 0))

    def wait_until(self, name: str) -> None:
        """Probe as the kubelet does, as often as the manifest lets it."""
        (container,) = self.spec["containers"]
        probe = container[name]
        until = time.monotonic() + probe.get("failureThreshold", 3) * probe["periodSeconds"]
        while self.probe(name) != 200:
            assert time.monotonic() < until, name
            time.sleep(0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The volume with the parts, and the keys."""
    there = tmp_path_factory.mktemp("deploy")
    with ps.Graph.open(save_small(there / "small.graph")) as graph:
        graph.partition(2, there / "source")
    subprocess.run(
        [BIN / "penstock", "keys", there / "keys", "--host", "127.0.0.1", "--token", "ranks"],
        check=True,
        capture_output=True,
    )
    return there


@pytest.fixture(scope="module")
def pods(folder: Path) -> list[Pod]:
    settings = resource("statefulset.yaml", "ConfigMap")["data"]
    spec = resource("statefulset.yaml", "StatefulSet")["spec"]["template"]["spec"]
    ports = [(free_port(), free_port()) for _ in range(PODS)]
    made = []
    for index, (port, pages) in enumerate(ports):
        (folder / f"disk-{index}").mkdir()
        own = {
            "INDEX": str(index),
            "STORE": ",".join(f"tls://127.0.0.1:{each}" for each, _ in [*ports[:2], ports[index]]),
            "BIND": f"tcp://127.0.0.1:{port}",
            "PAGES": f"127.0.0.1:{pages}",
            "SOURCE": str(folder / "source"),
            "PARTS": str(folder / f"disk-{index}"),
            "KEYS": str(folder / "keys"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        names = {each["name"] for each in spec["containers"][0]["env"]} | settings.keys()
        assert own.keys() - {"PATH"} <= names
        made.append(Pod({**settings, **own}, port, pages, spec))
    return made


def test_pods_copy_serve_answer_probes_and_end(pods: list[Pod], folder: Path) -> None:
    for pod in pods:
        pod.copy()
    token = re.findall(r"^ranks (\S+)", (folder / "keys" / "tokens").read_text(), re.MULTILINE)[0]
    ca = str(folder / "keys" / "ca.pem")
    with ExitStack() as ends:
        servers = [ends.enter_context(pod.server()) for pod in pods]
        for pod in pods:
            pod.wait_until("startupProbe")
            pod.wait_until("readinessProbe")
            assert pod.probe("livenessProbe") == 200
        assert [each.environment["PARTS"][-1] for each in pods] == ["0", "1", "2"]
        store = f"tls://127.0.0.1:{pods[2].port}"  # the replica knows the others, and they it
        with (
            ps.connect(store, ca=ca, token=token, num_workers=1) as data,
            ps.NeighborLoader(data, [3], "train", batch_size=50, seed=0) as loader,
            ps.NeighborLoader(
                str(folder / "small.graph"), [3], "train", batch_size=50, seed=0
            ) as whole,
        ):
            for batch, same in zip(loader, whole, strict=True):
                assert batch.n_id.tolist() == same.n_id.tolist()
                assert batch.x.tolist() == same.x.tolist()
            known = {each["address"]: each["part"] for each in data.statistics()["servers"]}
        assert sorted(known.values()) == [0, 0, 1]
        with pytest.raises(ps.AccessDenied):
            ps.connect(store, ca=ca, token="a stranger's", timeout=5)
        for server in servers:
            server.send_signal(signal.SIGTERM)
        grace = pods[0].spec["terminationGracePeriodSeconds"]
        for server in servers:
            server.communicate(timeout=min(grace, WAIT_S))
            assert server.returncode == 0


def test_a_part_is_copied_once_and_again_when_it_is_another(
    pods: list[Pod], folder: Path, tmp_path: Path
) -> None:
    pod = pods[1]
    pod.copy()
    here = Path(pod.environment["PARTS"], "part-1")
    before = here.stat().st_ino
    assert pod.copy() == ""
    assert here.stat().st_ino == before
    with ps.Graph.open(folder / "small.graph") as graph:
        graph.partition(2, tmp_path / "source", method="hash")
    (Path(pod.environment["PARTS"]) / "part-1.new").mkdir()  # what a crash has left
    other = Pod({**pod.environment, "SOURCE": str(tmp_path / "source")}, 0, 0, pod.spec)
    other.copy()
    assert here.stat().st_ino != before
    manifests = [path / "manifest.json" for path in (here, tmp_path / "source" / "part-1")]
    assert manifests[0].read_bytes() == manifests[1].read_bytes()
    assert [each.name for each in here.parent.iterdir()] == ["part-1"]
