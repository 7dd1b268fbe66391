"""The command line as a whole: help, version, how errors are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import penstock
from penstock.cli import COMMANDS, main
from penstock.cli.lazy import LazyCommand, LazyGroup
from penstock.errors import GraphFormatError


def run_failing(error: BaseException, *options: str) -> Result:
    """Runs a group with one command that raises `error`."""

    @click.command()
    def fail() -> None:
        raise error

    class OneCommand(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            return fail

    group = OneCommand("penstock", table={}, params=[click.Option(["--traceback"], is_flag=True)])
    return CliRunner().invoke(group, [*options, "fail"])


def test_the_installed_command_prints_its_version() -> None:
    command = Path(sys.executable).with_name("penstock")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"penstock, version {penstock.__version__}\n"


def test_the_package_runs_as_a_module_like_the_installed_command() -> None:
    installed, module = [Path(sys.executable).with_name("penstock")], ["-m", "penstock"]
    told = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        for command in (installed, [sys.executable, *module])
    ]
    assert told[0] == told[1]
    assert told[0].startswith("Usage: penstock ")


def test_help_lists_every_command_with_its_summary() -> None:
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    listed = [line.split(maxsplit=1) for line in lines[lines.index("Commands:") + 1 :]]
    assert listed == [[name, COMMANDS[name].summary] for name in sorted(COMMANDS)]


def test_help_imports_no_command() -> None:
    script = (
        "import sys; from penstock.cli import main;"
        "main(['--help'], standalone_mode=False);"
        "print('numpy' in sys.modules, 'rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_of_its_own(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"], prog_name="penstock")
    assert (result.exit_code, result.output.split("\n")[0].split()[:3]) == (
        0,
        ["Usage:", "penstock", name],
    )


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["no-such-command"])
    assert (result.exit_code, "no-such-command" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "error",
    [GraphFormatError("manifest.json: cut short"), ValueError("size: -1 at 3"), OSError("no disk")],
)
def test_an_error_the_user_can_act_on_is_one_line_on_stderr(error: Exception) -> None:
    result = run_failing(error)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {error}\n")


def test_a_message_of_several_lines_is_told_in_one() -> None:
    assert run_failing(ValueError("first\n  second")).stderr == "Error: first second\n"


@pytest.mark.parametrize("command", [["build", "shop.toml", "-o", "g"], ["inspect", "shop.toml"]])
def test_an_error_of_the_system_is_told_without_its_number(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, command)
    assert result.stderr.startswith(f"Error: {tmp_path}/shop.toml: ")
    assert result.exit_code == 1


def test_an_error_of_the_system_names_both_files() -> None:
    error = OSError(18, "Invalid cross-device link", "a", None, "b")
    assert run_failing(error).stderr == "Error: a: b: Invalid cross-device link\n"


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert run_failing(ValueError()).stderr == "Error: ValueError\n"


def test_the_traceback_option_lets_the_error_through() -> None:
    error = ValueError("here")
    assert run_failing(error, "--traceback").exception is error


def test_a_mistake_of_our_own_keeps_its_traceback() -> None:
    error = ZeroDivisionError("a bug")
    assert run_failing(error).exception is error


def test_a_target_that_is_no_command_is_named() -> None:
    with pytest.raises(TypeError, match="penstock:PenstockError"):
        LazyCommand("penstock:PenstockError", "").load()
