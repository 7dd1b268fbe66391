"""Which vector instructions the kernels use.

The native module has several versions of its hot loops, each compiled for other instructions, and
uses the best that this machine supports. The environment variable PENSTOCK_SIMD selects another
one, to measure it or to rule it out. Batches do not depend on it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from penstock.kernels import _native

VARIABLE: Final = "PENSTOCK_SIMD"
AUTO: Final = "auto"


@dataclass(frozen=True, slots=True)
class Simd:
    """The version in use, and those of this build that this machine can run, the best first.

    Versions are "avx512", "avx2", "neon" and "plain"; "plain" always exists.
    """

    in_use: str
    available: tuple[str, ...]


def simd() -> Simd:
    """Return which vector instructions the kernels use, and which they could use here."""
    return Simd(_native.simd_in_use(), tuple(_native.available_simd()))


def use_simd(name: str) -> None:
    """Make all kernels of this process use another version: for tests and benchmarks.

    Args:
        name: One of `simd().available`, or "auto" for the best of them.

    Raises:
        ValueError: This build or this machine has no such version.
    """
    _use(name, "name")


def choose_simd() -> None:
    """Use the version that the environment variable names, or the best.

    Raises:
        ValueError: This build or this machine has no such version.
    """
    if name := os.environ.get(VARIABLE):
        _use(name, VARIABLE)


def _use(name: str, source: str) -> None:
    available = simd().available
    if not _native.use_simd(available[0] if name == AUTO else name):
        raise ValueError(
            f"{source} is {name!r}: the kernels have {', '.join(available)} on this machine; "
            f"use one of them, or {AUTO}"
        )
