"""The wheel: built from the working tree, installed in an environment of its own, and used there.

Nothing is compiled or downloaded that is there: the native module is the one in `build/native`, and
dependencies are those of the environment that runs the tests.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import pytest

import penstock

pytest.importorskip("torch_geometric")
pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[2]
CORA = ROOT.parent / "shared" / "data" / "cora.npz"


def run(*command: object, cwd: Path, umask: int = -1) -> str:
    """What a command printed, if all went well; no module of ours is on its path by accident."""
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    line = [str(word) for word in command]
    done = subprocess.run(
        line, cwd=cwd, env=environment, umask=umask, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(output: Path, umask: int = 0o022) -> Path:
    """A wheel of the working tree. Takes turns with `make`, by the same lock."""
    with open(ROOT / "CMakeLists.txt") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(".ci/wheel", sys.executable, ROOT / "build" / "native", output, cwd=ROOT, umask=umask)
    (built,) = output.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "dist")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment in which pip has installed the wheel, and all else is there already."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib", "venv", vars={"base": str(folder)})
    (Path(packages) / "dependencies.pth").write_text(f"{dependencies(folder)}\n")
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-index"]
    constraints = ["--constraint", ROOT / "constraints.txt"]
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    run(*pip, *install, *constraints, f"{wheel}[pyg]", cwd=folder)
    return folder


def dependencies(folder: Path) -> Path:
    """A folder with links to all packages that are installed here, but none to ours."""
    links = folder / "dependencies"
    links.mkdir()
    for kind in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(kind).iterdir():
            if "penstock" not in path.name and path.suffix != ".pth":
                (links / path.name).symlink_to(path)
    return links


def test_a_wheel_built_again_has_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Also for somebody whose files others may not read."""
    again = build(tmp_path / "dist", umask=0o077)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_tag_is_that_of_published_wheels(wheel: Path) -> None:
    """An index takes no wheel for `linux`: which one could mean any."""
    assert re.search(r"-(cp311-cp311|cp312-abi3)-manylinux_\d+_\d+_\w+\.whl$", wheel.name)


def test_licences_of_what_is_linked_are_those_that_came_with_it() -> None:
    files = metadata.files("nanobind") or []
    (licence,) = [file for file in files if file.name == "LICENSE"]
    assert (ROOT / "native/licenses/nanobind.txt").read_text() == licence.read_text()


def test_the_first_epoch_is_trained_by_what_was_installed(
    environment: Path, tmp_path: Path
) -> None:
    cora = [CORA] if CORA.exists() else []
    said = said_by(environment, tmp_path, "train_cora.py", *cora)
    assert said["nodes"] == (2708 if cora else 1400)
    assert said["version"] == penstock.__version__
    check_modules(said, environment)
    assert len(said["workers"]) == 1
    assert said["made by workers"] == len(said["losses"]) == said["batches"]
    assert all(map(math.isfinite, said["losses"]))
    assert min(said["losses"]) < said["losses"][0]


def test_batches_of_a_worker_are_those_of_its_own_process(
    environment: Path, tmp_path: Path
) -> None:
    """By the script that tries wheels for other interpreters and machines, without torch."""
    check_modules(said_by(environment, tmp_path, "first_batches.py"), environment)


def said_by(environment: Path, folder: Path, script: str, *arguments: object) -> dict[str, Any]:
    """What a script says of itself that runs by what was installed, outside of the repository."""
    scripts = ["tests/wheel/first_batches.py", "tests/wheel/train_cora.py", "examples/graphs.py"]
    for file in scripts:
        shutil.copy(ROOT / file, folder)
    said = run(environment / "bin" / "python", script, *arguments, cwd=folder)
    return cast("dict[str, Any]", json.loads(said))


def check_modules(said: dict[str, Any], environment: Path) -> None:
    """All that ran was installed: here, and in one worker, which is another process."""
    for file in (said["package"], said["module"], *said["modules of workers"]):
        assert Path(file).resolve().is_relative_to(environment.resolve())
    assert len(said["modules of workers"]) == 1
    assert said["pid"] not in said["workers"]


def test_the_command_is_installed(environment: Path, tmp_path: Path) -> None:
    said = run(environment / "bin" / "penstock", "--version", cwd=tmp_path)
    assert said == f"penstock, version {penstock.__version__}\n"


# --- what must not be published ----------------------------------------------------------------


def contents(build: Path, *files: Path) -> str:
    """What is wrong with distributions."""
    command = [sys.executable, ROOT / ".ci" / "contents.py", build, *files]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == bool(done.stderr)
    return done.stderr


@pytest.mark.usefixtures("wheel")  # which compiles, where nobody has
@pytest.mark.parametrize("option", ["-march=native", "-mavx2", "-mtune=native"])
def test_a_module_for_some_machines_only_is_refused(option: str, tmp_path: Path) -> None:
    commands = (ROOT / "build/native/compile_commands.json").read_text()
    (tmp_path / "compile_commands.json").write_text(commands.replace(" -O3 ", f" -O3 {option} "))
    assert contents(tmp_path) == f"{tmp_path}: was compiled with {option}\n"


@pytest.mark.parametrize("name", ["tests/test_wheel.py", "penstock/cli/__pycache__/demo.pyc"])
def test_a_wheel_with_other_files_is_refused(name: str, wheel: Path, tmp_path: Path) -> None:
    shutil.copy(wheel, tmp_path)
    with zipfile.ZipFile(tmp_path / wheel.name, "a") as archive:
        archive.writestr(name, "")
    refused = contents(ROOT / "build/native", tmp_path / wheel.name)
    assert refused == f"{wheel.name}: {name} does not belong in it\n"


@pytest.mark.usefixtures("wheel")
def test_the_source_distribution_has_what_the_repository_has(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("there is no repository to compare with")
    program = "import sys, scikit_build_core.build as build; build.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", program, tmp_path, cwd=ROOT)
    (built,) = tmp_path.iterdir()
    assert contents(ROOT / "build/native", built) == ""
