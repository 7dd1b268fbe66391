"""Make the environment of one peer: `peer_environments.py NAME FOLDER`.

The environment lies over the one that runs this script: it sees the same torch, NumPy and PyG, and
has the peer's packages, pinned, before them. So both sides of a comparison use one torch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

# Without their dependencies, which would bring another torch.
DGL = ["dgl==2.1.0", "torchdata==0.7.1", "pandas==2.2.3", "pytz==2024.2", "tzdata==2024.2"]
TORCH_SPARSE = "torch_sparse==0.6.18"
SAMPLER = "_neighbor_sample_cpu"
# As its own setup.py compiles it.
FLAGS = ["-O3", "-Wno-sign-compare", "-DWITH_PYTHON", "-DAT_PARALLEL_OPENMP", "-fopenmp"]


def run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True)


def environment(folder: Path) -> Path:
    """Make an environment over this one; return its interpreter."""
    run(sys.executable, "-m", "venv", "--clear", folder)
    python = folder / "bin" / "python"
    below = Path(sysconfig.get_path("purelib"))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "below.pth").write_text(f"{below}\n")
    return python


def dgl(folder: Path) -> None:
    python = environment(folder)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *DGL)


def torch_sparse(folder: Path) -> None:
    """Build the neighbour sampler of torch_sparse from its source distribution.

    The whole of torch_sparse and torch_scatter takes many times as long to compile, and PyG calls
    nothing else of it to sample.
    """
    environment(folder)
    with tempfile.TemporaryDirectory() as scratch:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        run(
            *pip,
            "--no-deps",
            "--no-build-isolation",
            "--no-binary",
            ":all:",
            "-d",
            scratch,
            TORCH_SPARSE,
        )
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        (source,) = (path for path in Path(scratch).iterdir() if path.is_dir())
        compile_sampler(source, folder / "torch_sparse")
    (folder / "torch_sparse" / "VERSION").write_text(TORCH_SPARSE.partition("==")[2])


def compile_sampler(source: Path, target: Path) -> None:
    from torch.utils.cpp_extension import load

    # torch runs ninja by its name, and this environment has it.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    target.mkdir()
    load(
        SAMPLER,
        [
            str(source / "csrc" / path)
            for path in ("neighbor_sample.cpp", "cpu/neighbor_sample_cpu.cpp")
        ],
        extra_cflags=FLAGS,
        extra_include_paths=[str(source / "csrc"), str(source / "third_party/parallel-hashmap")],
        build_directory=str(target),
        is_python_module=False,
    )


PEERS = {"dgl": dgl, "torch-sparse": torch_sparse}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    PEERS[given.peer](given.folder)


if __name__ == "__main__":
    main()
