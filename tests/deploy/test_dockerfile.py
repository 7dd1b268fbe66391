"""The Dockerfile, as far as that is possible without Docker: its form, and what its commands do."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.manifests import DEPLOY, ROOT

INSTRUCTIONS: Final = {"ARG", "CMD", "COPY", "EXPOSE", "FROM", "RUN", "USER", "WORKDIR"}


def instructions() -> list[tuple[str, str]]:
    """All instructions, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage."""
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def command(rest: str) -> str:
    """A RUN's command for the shell, without its options."""
    return re.sub(r"^(--\S+\s+)+", "", rest)


def test_it_has_two_stages_and_the_image_one_layer_over_its_base() -> None:
    build, image = stages()
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    assert build[0] == ("FROM", "${BASE} AS build")
    assert image[0] == ("FROM", "${BASE}")
    assert [name for name, _ in image if name in ("RUN", "COPY")] == ["RUN"]
    (run,) = (rest for name, rest in image if name == "RUN")
    assert "from=build" in run


def test_what_it_runs_is_the_shells_language() -> None:
    for _, rest in (each for each in instructions() if each[0] == "RUN"):
        subprocess.run(["sh", "-n", "-c", command(rest)], check=True)


def test_arguments_have_defaults_and_every_name_is_one() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    given = {rest.partition("=")[0] for name, rest in instructions() if name == "ARG"}
    assert all("=" in rest for name, rest in instructions() if name == "ARG")
    assert set(re.findall(r"\$\{(\w+)\}", text)) == given


def test_the_image_does_not_run_as_root() -> None:
    users = [rest for name, rest in stages()[-1] if name == "USER"]
    assert users[-1] == "${USER_ID}"
    (default,) = (rest for name, rest in stages()[-1] if rest.startswith("USER_ID="))
    assert int(default.partition("=")[2]) > 0


def test_what_is_sent_to_the_builder_is_what_a_build_reads() -> None:
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in patterns if line.startswith("!")}
    assert all((ROOT / each).exists() for each in kept)
    assert "*" in patterns
    for name in (".venv", ".git", "build", "tests", "deploy"):
        assert not any(fnmatch.fnmatch(name, each) for each in kept)


@pytest.mark.soak
def test_its_commands_make_an_environment_that_serves(tmp_path: Path) -> None:
    """With folders of ours for those of the image. What is compiled is compiled anew."""
    build, image = stages()
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    source.mkdir()
    kept = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    listed = subprocess.run(
        ["git", "ls-files", *kept], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    venv.create(tmp_path / "venv", with_pip=True)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}",
        "EXTRAS": "tls",
    }
    for stage, folder in ((build, source), (image, tmp_path)):
        for name, rest in stage:
            if name == "RUN" and "apt-get" not in rest:
                line = command(rest).replace("/wheels", shlex.quote(str(wheels)))
                done = subprocess.run(
                    ["sh", "-ec", line], cwd=folder, env=environment, capture_output=True, text=True
                )
                assert done.returncode == 0, done.stdout + done.stderr
    told = subprocess.run(
        ["penstock", "serve", "--help"], env=environment, capture_output=True, text=True, check=True
    )
    assert "--http-public" in told.stdout
    made = subprocess.run(
        ["penstock", "keys", "keys", "--host", "localhost"], cwd=tmp_path, env=environment
    )
    assert made.returncode == 0
    assert Path(sys.executable).parent not in (tmp_path / "venv").parents
