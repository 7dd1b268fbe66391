"""What is asked of CUDA in a process that uses several GPUs: with a stand-in for `torch.cuda`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.loader.device import gpu as module
from penstock.loader.device.gpu import CudaGpu
from tests.loader.epochs import torch


@dataclass
class ThreeGpus:
    """As `torch.cuda` is where there are three GPUs, of which the process uses some."""

    used: set[int]
    marked: list[str] = field(default_factory=list)

    def device_count(self) -> int:
        return 3

    def current_device(self) -> int:
        return 0

    def cudart(self) -> None:
        return None

    def Stream(self, device: Any) -> str:  # noqa: N802 - torch's name
        return f"own stream of {device}"

    def current_stream(self, device: Any) -> str:
        return f"current of {device}"

    def default_stream(self, device: Any) -> str:
        return f"default of {device}"

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        marked = self.marked

        class Event:
            def record(self, stream: str) -> None:
                marked.append(stream)

        return Event()


def test_a_users_copies_may_go_to_any_gpu_that_the_process_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 75"""
    cuda = ThreeGpus(used={0, 2})
    monkeypatch.setattr(module, "_cuda", cuda)
    monkeypatch.setattr(module, "_is_used", cuda.used.__contains__)
    CudaGpu(torch.device("cuda")).user_marks()
    assert sorted(cuda.marked) == [
        "current of 0",
        "current of 2",
        "default of 0",
        "default of 2",
    ]
