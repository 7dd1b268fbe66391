"""Machines that are folders of files: control groups of both versions."""

from __future__ import annotations

from pathlib import Path


def machine(tmp_path: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A folder that stands for /proc, and beside it the mount points that it speaks of."""
    proc = tmp_path / "proc"
    for name, text in {
        "proc/self/cgroup": cgroup,
        "proc/self/mountinfo": mounts.replace("@", str(tmp_path)),
        **files,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return proc


def version_2(tmp_path: Path, files: dict[str, str], root: str = "/") -> Path:
    mounts = f"30 23 0:26 {root} @/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    return machine(tmp_path, "0::/user/job\n", mounts, files)


def version_1(tmp_path: Path, files: dict[str, str]) -> Path:
    mounts = (
        "31 23 0:27 / @/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 23 0:28 / @/memory rw - cgroup cgroup rw,memory\n"
        "33 23 0:29 / @/unified rw - cgroup2 cgroup2 rw\n"
    )
    return machine(tmp_path, "4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n", mounts, files)
