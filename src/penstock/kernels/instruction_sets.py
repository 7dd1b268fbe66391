"""Which vector instructions the kernels use.

The native module has the loops that matter several times, each compiled for other instructions, and
takes the best way that this machine has. The environment variable PENSTOCK_SIMD names another one,
to measure it or to rule it out. Batches do not depend on it.
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
    """The way in use, and those that this build has and this machine can run, the best first.

    Ways are "avx512", "avx2", "neon" and "plain"; "plain" is always there.
    """

    in_use: str
    available: tuple[str, ...]


def simd() -> Simd:
    """Tells which vector instructions the kernels use, and which they could use here."""
    return Simd(_native.simd_in_use(), tuple(_native.available_simd()))


def use_simd(name: str) -> None:
    """Has all kernels of this process use another way from now on: for tests and benchmarks.

    Args:
        name: One of `simd().available`, or "auto" for the best of them.

    Raises:
        ValueError: This build or this machine has no such way.
    """
    _use(name, "name")


def choose_simd() -> None:
    """Takes the way that the environment names, or the best.

    Raises:
        ValueError: This build or this machine has no such way.
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
