"""Asks torch about itself and about GPUs: the only facts that need torch.

Torch is imported inside functions, if it is installed, and in this process alone. What goes wrong
is one of the facts.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from penstock.doctor.facts import Gpu, Pinning, Torch
from penstock.doctor.machine import version_of
from penstock.doctor.numbers import in_one_line

if TYPE_CHECKING:
    from penstock.loader.device.gpu import Gpu as Device

# Page-locked to see whether it works. Most systems let a user lock less by default, so it shows
# whether the driver counts what it locks.
_TRIED: Final = 64 << 20


def torch_facts() -> Torch:
    """Return what torch says. Importing it takes some seconds."""
    version, pyg = _installed("torch"), _installed("torch_geometric")
    if version is None:
        return Torch(pyg=pyg)
    # NumPy first: torch would import it from C++, where a Ctrl-C is lost.
    if trouble := _import_trouble("numpy") or _import_trouble("torch"):
        return Torch(version, pyg, trouble)
    if pyg is not None:
        trouble = _import_trouble("torch_geometric")
    import torch

    gpus, gpu_trouble = _gpus(torch)
    pinning = _pinning(torch) if gpus and pyg is not None and not trouble else None
    return Torch(version, pyg, trouble, _built_for(torch), gpus, gpu_trouble, pinning)


def _installed(module: str) -> str | None:
    """Return the version of an installed module, without importing it."""
    try:
        is_there = find_spec(module) is not None
    except (ImportError, ValueError):  # something blocks it, or stands in its place
        is_there = False
    return (version_of(module) or "unknown") if is_there else None


def _built_for(torch: Any) -> str:
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    return f"ROCm {torch.version.hip}" if torch.version.hip else ""


def _gpus(torch: Any) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs, and why there are none or what is wrong with them: torch warns of that."""
    gpus: tuple[Gpu, ...] = ()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            if torch.cuda.is_available():
                gpus = tuple(_gpu(torch, at) for at in range(torch.cuda.device_count()))
        except Exception as error:  # torch's own kinds of them
            return (), in_one_line(error)
    return gpus, "; ".join(in_one_line(each.message) for each in told)


def _gpu(torch: Any, index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    return Gpu(properties.name, properties.total_memory)


def _import_trouble(module: str) -> str:
    """Import a module; return why that fails, if it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module(module)
    except Exception as error:  # a broken installation may raise anything
        return f"{module} cannot be imported: {in_one_line(error)}"
    return ""


def _pinning(torch: Any) -> Pinning | None:
    """Return whether memory can be page-locked; None if the loaders cannot be imported."""
    try:
        from penstock.loader.device.gpu import CudaGpu
        from penstock.loader.device.transfer import most_locked
    except (ImportError, OSError, ValueError):  # the native module is missing, for example
        return None
    try:
        pin(CudaGpu(torch.device("cuda")), _TRIED)
    except Exception as error:  # the GPU cannot be used, there is no shared memory, …
        return Pinning(most_locked(), _TRIED, in_one_line(error))
    return Pinning(most_locked(), _TRIED)


def pin(gpu: Device, nbytes: int) -> None:
    """Page-lock shared memory, as slots are, and let go of it; RuntimeError if that is refused."""
    from penstock.graph.segment import Segment
    from penstock.loader.device.pins import address_of

    with Segment.create(nbytes) as segment:
        memory = segment.view("uint8", nbytes)
        gpu.register(address_of(memory), nbytes)
        gpu.unregister(address_of(memory))
