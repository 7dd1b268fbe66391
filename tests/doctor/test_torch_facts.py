"""What torch says, and a stand-in for a GPU that page-locks memory or refuses to."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

pytest.importorskip("torch_geometric")

import torch

from penstock.doctor import torch_facts as torch_facts_module
from penstock.doctor.facts import Gpu, Torch
from penstock.doctor.torch_facts import torch_facts
from tests.loader.device.standin import StandIn

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_torch_tells_its_version_and_what_it_was_built_for() -> None:
    found = torch_facts()
    assert (found.version, found.trouble) == (torch.__version__, "")
    assert found.built_for == (f"CUDA {torch.version.cuda}" if torch.version.cuda else "")
    assert len(found.gpus) == torch.cuda.device_count()


def test_torch_that_is_not_installed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    assert torch_facts() == Torch()


def test_torch_whose_import_is_blocked_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_facts_module, "find_spec", Mock(side_effect=ModuleNotFoundError))
    assert torch_facts() == Torch()


def test_torch_that_cannot_be_imported_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = OSError("libcudart.so.12:\n cannot open")
    monkeypatch.setattr(torch_facts_module, "import_module", Mock(side_effect=[None, broken]))
    found = torch_facts()
    assert found.trouble == "torch cannot be imported: libcudart.so.12: cannot open"
    assert (found.version, found.gpus) == (torch.__version__, ())


# --- a GPU that there is not ---


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch sees two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    properties = SimpleNamespace(name="NVIDIA H200", total_memory=141 * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, two_gpus: None) -> StandIn:
    """Loaders use a stand-in for the first of them."""
    standin = StandIn()
    monkeypatch.setattr("penstock.loader.device.gpu.CudaGpu", lambda _: standin)
    return standin


def test_memory_that_can_be_page_locked_is_let_go_of(gpu: StandIn) -> None:
    found = torch_facts()
    assert found.gpus == (Gpu("NVIDIA H200", 141 * 10**9),) * 2
    assert found.pinning is not None
    assert (found.pinning.tried, found.pinning.trouble) == (64 << 20, "")
    assert (gpu.registered, gpu.locked) == (1, {})


def test_a_refusal_to_page_lock_is_told(gpu: StandIn) -> None:
    gpu.most_bytes = 0
    pinning = torch_facts().pinning
    assert pinning is not None
    assert pinning.trouble == "no more memory can be page-locked"


def test_memory_that_cannot_be_had_is_told(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", "paper")
    pinning = torch_facts().pinning
    assert pinning is not None
    assert "paper" in pinning.trouble


def test_without_the_loaders_nothing_is_page_locked(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the native module is missing."""
    monkeypatch.setitem(sys.modules, "penstock.loader.device.gpu", None)
    found = torch_facts()
    assert (len(found.gpus), found.pinning) == (2, None)


def test_what_torch_warns_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_available() -> bool:
        warnings.warn("the driver is too old\n(12010)", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    found = torch_facts()
    assert (found.gpus, found.gpu_trouble) == ((), "the driver is too old (12010)")


def test_a_gpu_that_fails_is_told(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Mock(side_effect=RuntimeError("CUDA error: all devices are busy"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", failing)
    found = torch_facts()
    assert (found.gpus, found.gpu_trouble) == ((), "CUDA error: all devices are busy")
