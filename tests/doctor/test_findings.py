"""What follows from made-up facts and figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.doctor.facts import (
    Cores,
    Driver,
    Facts,
    HugePages,
    Limit,
    Limits,
    Memory,
    Native,
    Pinning,
    SharedMemory,
    Torch,
)
from penstock.doctor.figures import Figures, Moving, Sampling, Subject, Trouble
from penstock.doctor.findings import Finding, Severity, findings_of, summary_of
from tests.doctor.machines import CUDA, FINE, GB, machine

NVIDIA = Driver(("/dev/nvidia0",), "550.54", None)
FIGURES = Figures(Subject(500_000, 8_000_000, 512, 1024, (10, 5)), 10.0, Sampling(0, 500.0, 1e7))


def about(facts: Facts, subject: str, figures: Figures | None = None) -> Finding:
    """The finding about a subject that matters most."""
    return next(each for each in findings_of(facts, figures) if each.subject == subject)


def severities(facts: Facts, figures: Figures | None = None) -> set[Severity]:
    return {finding.severity for finding in findings_of(facts, figures)}


# --- all of them ---


def test_on_a_machine_without_fault_all_is_fine() -> None:
    assert severities(FINE, FIGURES) == {Severity.FINE}
    assert summary_of(findings_of(FINE)) == "Penstock works here; all is fine."


def test_what_matters_says_why_and_what_to_do() -> None:
    facts = machine(cores=Cores(8, 1), huge_pages=HugePages("never", "never", "/sys/x"))
    told = [each for each in findings_of(facts) if each.severity is not Severity.FINE]
    assert len(told) == 3
    assert all(each.why and each.advice for each in told)


def test_the_worst_comes_first_and_the_summary_counts() -> None:
    facts = machine(cores=Cores(1, 1), huge_pages=HugePages("never", "never", "/sys/x"))
    found = findings_of(facts)
    assert [each.severity for each in found[:3]] == ["problem", "note", "fine"]
    assert summary_of(found) == "Penstock works here; 1 problem and 1 note."


# --- the native module ---


def test_without_the_native_module_penstock_does_not_work() -> None:
    facts = machine(native=Native(trouble="no such file"), shared_memory=SharedMemory())
    finding = about(facts, "native module")
    assert (finding.severity, finding.stops) == (Severity.PROBLEM, True)
    assert "make native" in finding.advice
    assert summary_of([finding]).startswith("Penstock does not work here: the native module")


def test_instructions_that_the_machine_lacks_are_not_a_missing_module() -> None:
    facts = machine(native=Native(trouble="PENSTOCK_SIMD is 'mmx': the kernels have plain"))
    finding = about(facts, "native module")
    assert (finding.stops, finding.advice) == (True, "unset PENSTOCK_SIMD")


def test_kernels_that_are_told_to_be_slow_are_noted() -> None:
    finding = about(machine(native=Native("x.so", "", "plain", "avx2")), "native module")
    assert (finding.severity, finding.advice) == (Severity.NOTE, "unset PENSTOCK_SIMD")


# --- cores ---


@pytest.mark.parametrize(
    ("cores", "told"),
    [
        (Cores(1, 1), "a single core"),
        (Cores(8, 8, 1.5), "the time of 1.5 cores"),
        (Cores(8, 8, 0.25), "the time of 0.25 cores"),
    ],
)
def test_less_than_two_cores_are_a_problem(cores: Cores, told: str) -> None:
    finding = about(machine(cores=cores), "cores")
    assert finding.severity is Severity.PROBLEM
    assert told in finding.found


def test_a_container_with_less_time_than_cores_is_noted() -> None:
    finding = about(machine(cores=Cores(16, 16, 4.0)), "cores")
    assert finding.severity is Severity.NOTE
    assert "grants the time of 4 of 16 cores" in finding.found
    assert "torch.set_num_threads(4)" in finding.advice


def test_a_limit_above_the_cores_is_no_limit() -> None:
    assert about(machine(cores=Cores(8, 8, 12.0)), "cores").severity is Severity.FINE


def test_cores_that_may_not_be_used_are_noted() -> None:
    finding = about(machine(cores=Cores(64, 8)), "cores")
    assert (finding.severity, "8 of 64 cores" in finding.found) == (Severity.NOTE, True)


# --- memory ---


def test_hardly_any_memory_is_a_problem() -> None:
    memory = Memory(64 * GB, 48 * GB, limit=2 * GB, room=GB // 2)
    finding = about(machine(memory=memory), "memory")
    assert finding.severity is Severity.PROBLEM
    assert "536.9 MB of the limit of 2.1 GB are free" in finding.found
    assert "docker run --memory" in finding.advice


def test_a_limit_that_is_not_what_memory_is_short_of_is_not_blamed() -> None:
    memory = Memory(64 * GB, GB // 2, limit=32 * GB, room=30 * GB)
    finding = about(machine(memory=memory), "memory")
    assert finding.found.startswith("536.9 MB are free")
    assert finding.advice.startswith("free some memory")


def test_memory_for_fewer_workers_than_cores_is_noted() -> None:
    finding = about(machine(memory=Memory(64 * GB, 2 * GB)), "memory")
    assert finding.severity is Severity.NOTE
    assert "enough for 4 workers, the cores for 7" in finding.found


def test_a_limit_that_leaves_little_for_batches_made_ahead_is_noted() -> None:
    facts = machine(ranks=8, memory=Memory(64 * GB, 48 * GB, limit=20 * GB, room=18 * GB))
    finding = about(facts, "memory")
    assert (finding.severity, "for 8 ranks" in finding.found) == (Severity.NOTE, True)


def test_memory_that_the_system_does_not_tell_is_not_judged() -> None:
    assert not [each for each in findings_of(machine(memory=Memory())) if each.subject == "memory"]


# --- shared memory ---


@pytest.mark.parametrize("setting", ["never", "deny"])
def test_shared_memory_without_huge_pages_is_noted(setting: str) -> None:
    finding = about(machine(huge_pages=HugePages("always", setting, "/sys/s")), "huge pages")
    assert finding.severity is Severity.NOTE
    assert finding.advice == "echo advise | sudo tee /sys/s"


@pytest.mark.parametrize("setting", ["always", "within_size", "force"])
def test_huge_pages_for_batches_are_noted(setting: str) -> None:
    finding = about(machine(huge_pages=HugePages("always", setting, "/sys/s")), "huge pages")
    assert (finding.severity, "Batches" in finding.why) == (Severity.NOTE, True)


def test_a_small_folder_does_not_matter_with_memfd() -> None:
    shared = replace(FINE.shared_memory, size=64 << 20, free=64 << 20)
    assert about(machine(shared_memory=shared), "shared memory").severity is Severity.FINE


def test_a_small_folder_is_a_problem_without_memfd() -> None:
    shared = SharedMemory("auto", False, "/dev/shm", 64 << 20, 60 << 20)
    finding = about(machine(shared_memory=shared), "shared memory")
    assert finding.severity is Severity.PROBLEM
    assert "/dev/shm, where 62.9 MB are free" in finding.found
    assert "docker run --shm-size" in finding.advice


def test_named_memory_where_memfd_works_is_noted() -> None:
    shared = replace(FINE.shared_memory, asked="named")
    finding = about(machine(shared_memory=shared), "shared memory")
    assert (finding.severity, finding.advice) == (Severity.NOTE, "unset PENSTOCK_SHARED_MEMORY")


@pytest.mark.parametrize(
    ("shared", "told"),
    [
        (SharedMemory("mmap", True), "mmap, which is no kind of shared memory"),
        (SharedMemory("memfd", False), "memfd, which does not work here"),
    ],
)
def test_shared_memory_that_cannot_be_had_stops_penstock(shared: SharedMemory, told: str) -> None:
    finding = about(machine(shared_memory=shared), "shared memory")
    assert (finding.stops, told in finding.found) == (True, True)


# --- limits ---


def limited(**limits: Limit | int) -> Facts:
    return machine(limits=Limits(**limits))  # type: ignore[arg-type]


def test_fewer_descriptors_than_a_hub_needs_are_a_problem() -> None:
    facts = replace(limited(open_files=Limit(256, 256)), ranks=16, cores=Cores(64, 64))
    finding = about(facts, "open files")
    assert finding.severity is Severity.PROBLEM
    assert "with 16 ranks and 63 workers it needs about 477" in finding.found
    assert "nofile=512" in finding.advice


def test_a_soft_limit_of_descriptors_does_not_matter() -> None:
    """The hub raises its own."""
    assert about(limited(open_files=Limit(64, 4096)), "open files").severity is Severity.FINE


def test_too_few_processes_are_a_problem() -> None:
    finding = about(limited(processes_left=10), "processes")
    assert finding.severity is Severity.PROBLEM
    assert finding.found.startswith("10 more processes and threads may be started; 1 rank")


def test_a_small_address_space_is_a_problem() -> None:
    finding = about(limited(address_space=Limit(8 * GB, None)), "address space")
    assert (finding.severity, "8.6 GB (ulimit -v)" in finding.found) == (Severity.PROBLEM, True)


def test_any_limit_of_the_address_space_is_a_problem_for_cuda() -> None:
    facts = limited(address_space=Limit(500 * GB, None))
    assert severities(facts) == {Severity.FINE}
    finding = about(replace(facts, torch=CUDA), "address space")
    assert (finding.severity, "CUDA" in finding.why) == (Severity.PROBLEM, True)


# --- torch and GPUs ---


def test_without_torch_loaders_are_missing_and_no_more() -> None:
    finding = about(machine(torch=Torch()), "torch")
    assert finding.severity is Severity.NOTE
    assert finding.found == "torch and torch_geometric are not installed"


def test_torch_that_cannot_be_imported_is_a_problem() -> None:
    torch = Torch("2.9.0", "2.7.0", "torch cannot be imported: libcudart.so.12 is missing")
    assert about(machine(torch=torch), "torch").severity is Severity.PROBLEM


def test_old_versions_are_noted() -> None:
    finding = about(machine(torch=Torch("2.3.1+cpu", "2.7.0")), "torch")
    assert (finding.severity, finding.advice) == (Severity.NOTE, "pip install -U torch")


def test_torch_for_processors_beside_a_gpu_is_a_problem() -> None:
    finding = about(machine(driver=NVIDIA), "GPU")
    assert finding.severity is Severity.PROBLEM
    assert "(/dev/nvidia0), but torch 2.9.0 was built without CUDA" in finding.found


def test_a_gpu_without_torch_is_noted() -> None:
    assert about(machine(driver=NVIDIA, torch=Torch()), "GPU").severity is Severity.NOTE


def test_a_gpu_that_torch_cannot_use_is_a_problem_with_its_reason() -> None:
    torch = replace(CUDA, gpus=(), gpu_trouble="the driver is too old")
    finding = about(machine(driver=NVIDIA, torch=torch), "GPU")
    assert finding.severity is Severity.PROBLEM
    assert "torch cannot use it (the driver is too old)" in finding.found
    assert "CUDA 12.8; the driver is 550.54" in finding.why


def test_a_gpu_that_is_hidden_is_noted() -> None:
    facts = machine(driver=replace(NVIDIA, visible=""), torch=replace(CUDA, gpus=()))
    assert about(facts, "GPU").severity is Severity.NOTE


def test_a_gpu_that_torch_sees_is_fine() -> None:
    assert severities(machine(driver=NVIDIA, torch=CUDA)) == {Severity.FINE}


def test_what_torch_warns_of_is_noted() -> None:
    torch = replace(CUDA, gpu_trouble="NVIDIA B900 is not compatible with the current installation")
    finding = about(machine(driver=NVIDIA, torch=torch), "GPU")
    assert (finding.severity, "NVIDIA B900" in finding.found) == (Severity.NOTE, True)


def pinned(locked: int | None, trouble: str = "") -> Facts:
    limits = replace(FINE.limits, locked_memory=Limit(locked, locked))
    return machine(limits=limits, torch=replace(CUDA, pinning=Pinning(8 * GB, 64 << 20, trouble)))


def test_memory_that_cannot_be_pinned_is_a_problem() -> None:
    finding = about(pinned(64 << 10, "error 1"), "pinned memory")
    assert (finding.severity, "memlock=-1" in finding.advice) == (Severity.PROBLEM, True)


def test_a_small_limit_of_locked_memory_is_noted_if_it_may_count() -> None:
    assert about(pinned(256 << 20), "pinned memory").severity is Severity.NOTE


@pytest.mark.parametrize("locked", [8 << 20, 64 * GB, None])
def test_a_limit_that_does_not_count_or_is_large_is_fine(locked: int | None) -> None:
    """The first one is smaller than what could be locked."""
    assert about(pinned(locked), "pinned memory").severity is Severity.FINE


def test_locked_memory_does_not_matter_without_a_gpu() -> None:
    facts = limited(locked_memory=Limit(1, 1))
    assert not [each for each in findings_of(facts) if each.subject == "pinned memory"]


# --- figures ---


def test_a_part_of_the_measurement_that_failed_is_a_problem() -> None:
    figures = replace(FIGURES, troubles=(Trouble("sampling by workers", "the hub is gone"),))
    finding = about(FINE, "measurement", figures)
    assert finding.found == "sampling by workers failed: the hub is gone"
    assert summary_of([finding]) == "Penstock works here; 1 problem."


def test_workers_that_make_hardly_more_than_one_are_noted() -> None:
    figures = replace(FIGURES, pool=Sampling(7, 1000.0, 2e7))
    finding = about(FINE, "sampling", figures)
    assert finding.severity is Severity.NOTE
    assert finding.found == "7 workers make 2 times the batches that one core makes without workers"


def test_batches_that_come_slower_than_the_gpu_could_take_them_are_noted() -> None:
    finding = about(FINE, "moving", replace(FIGURES, moving=Moving(412.0, 4.1e9, 5.5e10)))
    assert finding.severity is Severity.NOTE
    assert finding.found == "batches come to the GPU at 4.1 GB/s; a bare copy reaches 55 GB/s"
    assert 'features="cuda"' in finding.advice


def test_batches_that_come_about_as_fast_as_a_bare_copy_are_fine() -> None:
    figures = replace(FIGURES, moving=Moving(4000.0, 4.1e10, 5.5e10))
    assert severities(FINE, figures) == {Severity.FINE}


def test_nothing_is_judged_by_a_moment() -> None:
    slow = Sampling(7, 1.0, 2.0), Moving(1.0, 1.0, 1e9)
    figures = replace(FIGURES, seconds=0.5, pool=slow[0], moving=slow[1])
    assert severities(FINE, figures) == {Severity.FINE}
