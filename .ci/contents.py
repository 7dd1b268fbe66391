"""Looks into distributions before anybody installs them; ends with what is wrong, if anything is.

python .ci/contents.py BUILD_FOLDER FILE…

A wheel has the package, its native module and the licences of all that is in it, and nothing else;
its name says truly for which interpreters it is. A source distribution has what the repository has.
BUILD_FOLDER is where the native module was compiled: for any machine, not for the one at hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
INFO = r"penstock_gnn-[^/]*\.dist-info"
ONCE = [
    r"penstock/kernels/_native\.[^/]*so",
    rf"{INFO}/entry_points\.txt",
    rf"{INFO}/licenses/LICENSE",
    rf"{INFO}/licenses/native/licenses/nanobind\.txt",
    rf"{INFO}/licenses/native/licenses/robin-map\.txt",
]
# The tags of wheels, and how their native module is called: for one version, or from one on.
MODULES = {
    r"-cp311-cp311-": r"_native\.cpython-311-.*\.so",
    r"-cp312-abi3-": r"_native\.abi3\.so",
}
# The one option for a machine that any has: how nanobind finds a thread's memory.
HARMLESS = "-mtls-dialect="


def of_wheel(path: Path) -> Iterator[str]:
    """Say what is wrong with a wheel."""
    names = [name for name in zipfile.ZipFile(path).namelist() if not name.endswith("/")]
    for once in ONCE:
        if (times := sum(bool(re.fullmatch(once, name)) for name in names)) != 1:
            yield f"{once} is in it {times} times"
    package = {name for name in names if name.startswith("penstock/") and not name.endswith(".so")}
    sources = {
        file.relative_to(ROOT / "src").as_posix()
        for file in (ROOT / "src" / "penstock").rglob("*")
        if file.is_file() and file.suffix in {".py", ".pyi", ".typed"}
    }
    yield from (f"{name} is missing" for name in sources - package)
    foreign = [name for name in names if not re.match(rf"penstock/|{INFO}/", name)]
    yield from (f"{name} does not belong in it" for name in [*foreign, *(package - sources)])
    native = [PurePosixPath(name).name for name in names if name.endswith(".so")]
    fit = [module for tag, module in MODULES.items() if tag in path.name]
    if not (fit and all(re.fullmatch(fit[0], name) for name in native)):
        yield f"{native} does not fit the tag in its name"


def of_source(path: Path) -> Iterator[str]:
    """Say what is wrong with a source distribution."""
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in listed.splitlines() if (ROOT / name).is_file()} | {"PKG-INFO"}
    yield from (f"{name} is missing" for name in sorted(wanted - names))
    yield from (f"{name} does not belong in it" for name in sorted(names - wanted))


def of_compilation(folder: Path) -> Iterator[str]:
    """Say which options made the native module one for some machines only."""
    words = (folder / "compile_commands.json").read_text().split()
    options = {word for word in words if word.startswith("-m") and not word.startswith(HARMLESS)}
    yield from (f"was compiled with {option}" for option in sorted(options))


def main(build: str, *files: str) -> None:
    wrong = [f"{build}: {what}" for what in of_compilation(Path(build))]
    for file in map(Path, files):
        found = of_wheel(file) if file.suffix == ".whl" else of_source(file)
        wrong += [f"{file.name}: {what}" for what in found]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
