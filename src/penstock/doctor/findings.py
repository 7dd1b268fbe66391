"""What follows from facts and figures: what was found, why it matters, what to do about it.

Each rule is a pure function of the facts, or of the figures. This module must not read anything
from the system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rich.filesize import decimal

from penstock.doctor.facts import Facts, Limit, SharedMemory
from penstock.doctor.figures import Figures, Moving, Sampling
from penstock.doctor.numbers import counted, plain, rate, short

GIB: Final = 1 << 30
# What a hub has open beside channels and workers: the graph's arrays, sockets, standard streams.
_HUB_DESCRIPTORS: Final = 64
# Loaders that a rank has at the same time: to train, to validate, to test, and one to spare.
_CHANNELS: Final = 4
_PER_CHANNEL: Final = 3
_PER_WORKER: Final = 3
_PER_CONNECTION: Final = 2
# Threads and processes: a worker has a heartbeat beside it, a rank several threads, and torch more.
_WORKER_THREADS: Final = 2
_RANK_THREADS: Final = 32
# A batch of 1024 seeds, fan-outs 15, 10 and 5, with rows of 100 floats: what it takes, and the room
# that its slot has for the largest possible one, which is address space alone.
_BATCH_BYTES: Final = 128 << 20
_SLOT_BYTES: Final = 512 << 20
_MOST_SLOTS: Final = 64
# Below this there is hardly room for one worker, its slots and a small graph.
_LEAST_MEMORY: Final = 1 * GIB
# What a process with torch has mapped before its first batch.
_TORCH_ADDRESSES: Final = 16 * GIB
_OLDEST: Final = {"torch": (2, 4), "torch_geometric": (2, 6)}
# What makes less than this share of what it could is held back by something.
_FAIR_SHARE: Final = 0.5
# A shorter measurement says little about workers, which take a while to begin.
_LONG_ENOUGH_S: Final = 3.0
_PINNING: Final = "pinned memory"
_PYG: Final = "pip install 'penstock-gnn[pyg]'"


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"  # something does not work, or costs a lot
    NOTE = "note"  # there is something to gain, or to know
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion.

    Attributes:
        severity: How much it matters.
        subject: What it is about, in a word or two.
        found: What was found.
        why: Why it matters.
        advice: What to do, with the exact setting or command.
        stops: Whether Penstock does not work at all because of it.
    """

    severity: Severity
    subject: str
    found: str
    why: str = ""
    advice: str = ""
    stops: bool = False


def findings_of(facts: Facts, figures: Figures | None = None) -> tuple[Finding, ...]:
    """Return all findings, the worst first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    if figures is not None:
        found += about_figures(figures)
    return tuple(sorted(found, key=lambda each: list(Severity).index(each.severity)))


def summary_of(findings: Iterable[Finding]) -> str:
    """Return one line that says whether Penstock works here, and how many findings matter."""
    findings = tuple(findings)
    if stopping := [each for each in findings if each.stops]:
        return f"Penstock does not work here: {stopping[0].found}."
    counts = {
        severity: sum(each.severity is severity for each in findings)
        for severity in (Severity.PROBLEM, Severity.NOTE)
    }
    told = " and ".join(counted(count, name) for name, count in counts.items() if count)
    return f"Penstock works here; {told}." if told else "Penstock works here; all is fine."


# --- Penstock itself -----------------------------------------------------------------------------


def about_native(facts: Facts) -> Iterator[Finding]:
    """Judge the native module."""
    native = facts.native
    if native.file is None:
        yield Finding(
            Severity.PROBLEM,
            "native module",
            f"the native module cannot be used ({native.trouble})",
            "It has all kernels: nothing can be sampled or gathered without it.",
            "unset PENSTOCK_SIMD"
            if "PENSTOCK_SIMD" in native.trouble
            else "pip install --force-reinstall penstock-gnn; in a checkout: make native",
            stops=True,
        )
    elif native.simd != native.best_simd:
        yield Finding(
            Severity.NOTE,
            "native module",
            f"the kernels use {native.simd}, although this machine has {native.best_simd}",
            "Sampling is slower with it; batches are the same.",
            "unset PENSTOCK_SIMD",
        )
    else:
        yield _fine("native module", f"the kernels use the best this machine has: {native.simd}")


# --- cores ---------------------------------------------------------------------------------------


def about_cores(facts: Facts) -> Iterator[Finding]:
    """Judge how many cores there are, and what limits them."""
    cores = facts.cores
    if cores.quota is not None and cores.quota < cores.allowed:
        yield Finding(
            Severity.NOTE,
            "cores",
            f"the control group (container) grants the time of {short(cores.quota)} of "
            f"{cores.allowed} cores",
            "Programs that count cores, torch among them, start a thread for each, and are all "
            'stopped when the time is used up. num_workers="auto" respects the limit.',
            f"torch.set_num_threads({max(1, int(cores.quota))}), or raise the limit: docker run "
            f"--cpus={cores.machine}, in Kubernetes resources.limits.cpu",
        )
    if cores.allowed < cores.machine:
        yield Finding(
            Severity.NOTE,
            "cores",
            f"this process may run on {cores.allowed} of {counted(cores.machine, 'core')}",
            "Workers and training share them.",
            "if that is not meant: taskset, docker run --cpuset-cpus=…, srun --cpus-per-task=…",
        )
    yield _by_cores(facts)


def _by_cores(facts: Facts) -> Finding:
    if facts.cores.usable >= 2:
        workers = counted(facts.workers, "worker")
        return _fine(
            "cores", f'num_workers="auto" starts {workers} and leaves the rest to training'
        )
    return Finding(
        Severity.PROBLEM,
        "cores",
        "there is a single core"
        if facts.cores.usable == 1
        else f"there is the time of {short(facts.cores.usable)} cores",
        "Workers and the training take turns on it, so workers gain nothing.",
        "num_workers=0, or more cores",
    )


# --- memory --------------------------------------------------------------------------------------


def about_memory(facts: Facts) -> Iterator[Finding]:
    """Judge whether workers and slots have room."""
    available = facts.memory.available
    if available is None:
        return
    free = f"{decimal(available)}{_of_the_limit(facts)}"
    if available < _LEAST_MEMORY:
        yield Finding(
            Severity.PROBLEM,
            "memory",
            f"{free} are free: too little for workers and their batches",
            "The graph, workers and the batches that they make ahead have to fit. Where memory "
            "runs out, the kernel kills a process.",
            f"{_more_memory(facts)}, or num_workers=0 and small batches",
        )
        return
    if facts.workers < facts.workers_by_cores:
        yield _few_workers(facts, available)
    if _slots_bytes(facts) > available / 2:
        yield _large_slots(facts, available)
    else:
        yield _fine("memory", f"{free} are free")


def _few_workers(facts: Facts, available: int) -> Finding:
    return Finding(
        Severity.NOTE,
        "memory",
        f"{decimal(available)} of free memory are enough for {counted(facts.workers, 'worker')}, "
        f"the cores for {facts.workers_by_cores}",
        'num_workers="auto" takes half of the free memory at most, 256 MiB for each worker.',
        f"{_more_memory(facts)}, or name a number: num_workers={facts.workers_by_cores}",
    )


def _large_slots(facts: Facts, available: int) -> Finding:
    return Finding(
        Severity.NOTE,
        "memory",
        f"batches that are made ahead for {counted(facts.ranks, 'rank')} may take "
        f"{decimal(_slots_bytes(facts))}, at {decimal(_BATCH_BYTES)} each; {decimal(available)}"
        f"{_of_the_limit(facts)} are free",
        "They are made into slots of shared memory, which count as used until a loader is closed.",
        "prefetch_factor=1 on loaders, or smaller batches, or fewer workers",
    )


def _slots_bytes(facts: Facts) -> int:
    """Return what slots are likely to take: each rank has one loader at work."""
    return facts.ranks * _slots(facts) * _BATCH_BYTES


def _slots(facts: Facts) -> int:
    return min(2 * facts.workers + 2, _MOST_SLOTS)


def _of_the_limit(facts: Facts) -> str:
    limit = facts.memory.limit
    return f" of the limit of {decimal(limit)}" if limit and facts.memory.is_limited else ""


def _more_memory(facts: Facts) -> str:
    if not facts.memory.is_limited:
        return "free some memory"
    return "raise the limit: docker run --memory=…, in Kubernetes resources.limits.memory"


# --- shared memory -------------------------------------------------------------------------------


def about_huge_pages(facts: Facts) -> Iterator[Finding]:
    """Judge the setting for shared memory, which graphs and slots are in."""
    pages = facts.huge_pages
    advise = f"echo advise | sudo tee {pages.shared_file}"
    if pages.shared in ("never", "deny"):
        yield Finding(
            Severity.NOTE,
            "huge pages",
            f'shared memory gets no huge pages (shmem_enabled is "{pages.shared}")',
            "A graph in shared memory is read at random; with small pages nearly every read also "
            "looks up where its page is. Graphs that are opened from files are not concerned.",
            advise,
        )
    elif pages.shared in ("always", "within_size", "force"):
        yield Finding(
            Severity.NOTE,
            "huge pages",
            f'all shared memory gets huge pages (shmem_enabled is "{pages.shared}")',
            "Batches are in shared memory, too, and each of their arrays may hold 2 MiB that it "
            "does not need. Penstock asks for huge pages where they help: for graphs.",
            advise,
        )
    elif pages.shared is not None:
        yield _fine("huge pages", "graphs in shared memory get huge pages, which Penstock asks for")


def about_shared_memory(facts: Facts) -> Iterator[Finding]:
    """Judge what shared memory is made of: a small /dev/shm matters without memfd only."""
    shared = facts.shared_memory
    if shared.has_memfd is None:
        return
    if shared.trouble:
        yield Finding(
            Severity.PROBLEM,
            "shared memory",
            f"PENSTOCK_SHARED_MEMORY={shared.asked}, which {shared.trouble}",
            "There is no memory for graphs and batches.",
            "unset PENSTOCK_SHARED_MEMORY",
            stops=True,
        )
    elif not shared.is_named:
        yield _fine(
            "shared memory",
            f"it is anonymous (memfd): Penstock does not need a large {shared.folder}",
        )
    elif shared.has_memfd:
        yield Finding(
            Severity.NOTE,
            "shared memory",
            f"PENSTOCK_SHARED_MEMORY=named: shared memory is files in {shared.folder}",
            "Anonymous memory (memfd) works here: it needs no folder, and leaves nothing behind.",
            "unset PENSTOCK_SHARED_MEMORY",
        )
    is_small = shared.free is not None and shared.free < _LEAST_MEMORY
    if shared.is_named and is_small and not shared.trouble:
        yield _small_folder(shared)


def _small_folder(shared: SharedMemory) -> Finding:
    return Finding(
        Severity.PROBLEM,
        "shared memory",
        f"shared memory is files in {shared.folder}, where {decimal(shared.free or 0)} are free",
        "Graphs and batches have to fit there. A worker that fills it is killed by a bus error.",
        "docker run --shm-size=8g, sudo mount -o remount,size=8g /dev/shm, or "
        "PENSTOCK_SHARED_MEMORY_DIR=/a/larger/folder",
    )


# --- limits --------------------------------------------------------------------------------------


def about_open_files(facts: Facts) -> Iterator[Finding]:
    """Judge whether a hub can have all the descriptors that it needs."""
    hard, needed = facts.limits.open_files.hard, descriptors_needed(facts)
    if hard is None or hard >= needed:
        most = "any number of" if hard is None else f"{hard:,}"
        yield _fine(
            "open files",
            f"the hub, which runs workers, may open {most}, and needs about {needed:,}",
        )
        return
    yield Finding(
        Severity.PROBLEM,
        "open files",
        f"the hub, which runs workers, may open {hard:,}; with {counted(facts.ranks, 'rank')} and "
        f"{counted(facts.workers, 'worker')} it needs about {needed:,}",
        "Each worker takes three, and each loader. A hub that has none left refuses ranks.",
        f"raise the hard limit: ulimit -Hn {_rounded_up(needed)} (as root), docker run --ulimit "
        f"nofile={_rounded_up(needed)}, LimitNOFILE={_rounded_up(needed)} in a systemd unit",
    )


def descriptors_needed(facts: Facts) -> int:
    """Return about how many descriptors one hub for all ranks needs."""
    a_rank = _PER_CONNECTION + _CHANNELS * _PER_CHANNEL
    return _HUB_DESCRIPTORS + facts.workers * _PER_WORKER + facts.ranks * a_rank


def about_processes(facts: Facts) -> Iterator[Finding]:
    """Judge whether hub, workers and ranks can be started."""
    left, needed = facts.limits.processes_left, processes_needed(facts)
    if left is None or left >= needed:
        return
    yield Finding(
        Severity.PROBLEM,
        "processes",
        f"{left:,} more processes and threads may be started; {counted(facts.ranks, 'rank')} and "
        f"{counted(facts.workers, 'worker')} need about {needed:,}",
        "Threads count. A worker or a thread that cannot be started is an error.",
        "raise the limit: ulimit -u, docker run --pids-limit=…, TasksMax= in a systemd unit; or "
        "start fewer workers (num_workers=…)",
    )


def processes_needed(facts: Facts) -> int:
    """Return about how many processes and threads a training takes."""
    return _WORKER_THREADS * (facts.workers + 1) + _RANK_THREADS * facts.ranks


def about_address_space(facts: Facts) -> Iterator[Finding]:
    """Judge whether slots, which are large and mostly empty, can be mapped."""
    most, needed = facts.limits.address_space.soft, addresses_needed(facts)
    if most is None or (most >= needed and not facts.torch.gpus):
        return
    for_cuda = " CUDA reserves as much as all memory of host and GPU." if facts.torch.gpus else ""
    yield Finding(
        Severity.PROBLEM,
        "address space",
        f"a process may map {decimal(most)} (ulimit -v)",
        "Batches that are made ahead have room for the largest possible one each. That takes "
        f"addresses, not memory: with torch {decimal(needed)} for a common loader.{for_cuda}",
        "ulimit -v unlimited, or fewer workers (num_workers=…)",
    )


def addresses_needed(facts: Facts) -> int:
    """Return about how many bytes of address space a process maps."""
    return _TORCH_ADDRESSES + _slots(facts) * _SLOT_BYTES


def _rounded_up(number: int) -> int:
    """Return the next power of two, which is how such limits are written."""
    return 1 << (number - 1).bit_length()


# --- torch and GPUs ------------------------------------------------------------------------------


def about_torch(facts: Facts) -> Iterator[Finding]:
    """Judge whether the loaders can be used."""
    torch = facts.torch
    missing = [name for name, there in _loaders_need(facts) if there is None]
    if missing:
        yield Finding(
            Severity.NOTE,
            "torch",
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            "The loaders need torch and PyG. Graphs, pools and servers do without.",
            _PYG,
        )
    elif torch.trouble:
        yield Finding(
            Severity.PROBLEM, "torch", torch.trouble, "The loaders need torch and PyG.", _PYG
        )
    else:
        yield from _old_versions(facts)


def _loaders_need(facts: Facts) -> tuple[tuple[str, str | None], ...]:
    return (("torch", facts.torch.version), ("torch_geometric", facts.torch.pyg))


def _old_versions(facts: Facts) -> Iterator[Finding]:
    for name, version in _loaders_need(facts):
        oldest = _OLDEST[name]
        if version is not None and _numbers(version) < oldest:
            yield Finding(
                Severity.NOTE,
                "torch",
                f"{name} {version} is older than {'.'.join(map(str, oldest))}",
                "The loaders are tested with that version and later ones.",
                f"pip install -U {name}",
            )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; large ones if it has none."""
    words = version.split(".")[:2]
    return tuple(map(int, words)) if all(word.isdigit() for word in words) else (1 << 30,)


def about_gpu(facts: Facts) -> Iterator[Finding]:
    """Judge whether batches can be moved to a GPU."""
    torch, files = facts.torch, facts.driver.files
    if torch.gpus and torch.gpu_trouble:
        yield Finding(
            Severity.NOTE,
            "GPU",
            f"torch warns: {torch.gpu_trouble}",
            "Batches may come to the GPU, and the model fail there.",
            "install torch for this GPU: https://pytorch.org/get-started/locally says how",
        )
    elif torch.gpus:
        yield _fine("GPU", f'loaders with device="cuda" move batches to {torch.gpus[0].name}')
    elif not files:
        yield _fine("GPU", "there is no GPU here; batches stay in this machine's memory")
    elif torch.version is None or (torch.trouble and not torch.built_for):
        yield Finding(
            Severity.NOTE,
            "GPU",
            f"there is a GPU ({files[0]}), and no torch that could use it",
            "Loaders move batches to a GPU by torch.",
            _PYG,
        )
    else:
        yield _unused_gpu(facts)


def _unused_gpu(facts: Facts) -> Finding:
    torch, driver = facts.torch, facts.driver
    there = f"there is a GPU ({driver.files[0]}), but"
    if not torch.built_for:
        return Finding(
            Severity.PROBLEM,
            "GPU",
            f"{there} torch {torch.version} was built without CUDA",
            'device="cuda" is refused, and models train on this machine\'s cores.',
            "install torch for CUDA: https://pytorch.org/get-started/locally says how",
        )
    if driver.visible is not None and driver.visible.strip() in ("", "-1"):
        return Finding(
            Severity.NOTE,
            "GPU",
            f"{there} CUDA_VISIBLE_DEVICES={driver.visible!r} hides it",
            "No GPU can be used by this process.",
            "unset CUDA_VISIBLE_DEVICES, if that is not meant",
        )
    told = f" ({torch.gpu_trouble})" if torch.gpu_trouble else ""
    return Finding(
        Severity.PROBLEM,
        "GPU",
        f"{there} torch cannot use it{told}",
        f"torch was built for {torch.built_for}; the driver is {driver.version or 'not known'}. A "
        "driver that is too old, or a container that was not given the GPU, shows like this.",
        "nvidia-smi shows the driver and which CUDA it can do; docker run --gpus all",
    )


def about_pinning(facts: Facts) -> Iterator[Finding]:
    """Judge whether memory can be pinned (page-locked): GPUs copy from it beside the model."""
    torch, locked = facts.torch, facts.limits.locked_memory
    if not torch.gpus:
        return
    if torch.pinning is not None and torch.pinning.trouble:
        yield Finding(
            Severity.PROBLEM,
            _PINNING,
            f"shared memory cannot be pinned ({torch.pinning.trouble})",
            "Batches are copied once more on their way to the GPU, through small buffers.",
            _more_locked(locked),
        )
    elif _may_be_short(locked, 0 if torch.pinning is None else torch.pinning.tried):
        yield Finding(
            Severity.NOTE,
            _PINNING,
            f"this process may lock {decimal(locked.soft or 0)} of memory (ulimit -l)",
            "Some drivers count memory that is pinned for a GPU. Batches beyond the limit are "
            "copied once more on their way there.",
            _more_locked(locked),
        )
    elif torch.pinning is not None:
        yield _fine(_PINNING, "memory can be pinned (page-locked) for the GPU")


def _may_be_short(locked: Limit, tried: int) -> bool:
    """Return whether the limit may be met: it is small, and no larger range could be locked."""
    return locked.soft is not None and tried <= locked.soft < GIB


def _more_locked(locked: Limit) -> str:
    if locked.soft is None:
        return "look for the cause in the driver's log: sudo dmesg | grep -i nvrm"
    return (
        "ulimit -l unlimited, docker run --ulimit memlock=-1, LimitMEMLOCK=infinity in a systemd "
        "unit, memlock in /etc/security/limits.conf"
    )


# --- figures -------------------------------------------------------------------------------------


def about_figures(figures: Figures) -> Iterator[Finding]:
    """Judge what was measured."""
    for trouble in figures.troubles:
        yield Finding(
            Severity.PROBLEM,
            "measurement",
            f"{trouble.part} failed: {trouble.error}",
            "What fails here fails in a training, too.",
            "see the other findings; PENSTOCK_LOG=DEBUG penstock doctor shows what a hub says",
            stops=trouble.stops,
        )
    if figures.seconds >= _LONG_ENOUGH_S:
        yield from _about_workers(figures.inline, figures.pool)
        yield from _about_moving(figures.moving)


def _about_workers(inline: Sampling | None, pool: Sampling | None) -> Iterator[Finding]:
    if inline is None or pool is None or pool.workers < 2:
        return
    gain = pool.batches / inline.batches
    if gain < _FAIR_SHARE * pool.workers:
        yield Finding(
            Severity.NOTE,
            "sampling",
            f"{counted(pool.workers, 'worker')} make {plain(gain)} times the batches that "
            "one core makes without workers",
            "Other programs may use the cores; or cores share caches, memory or, as hyper-threads, "
            "everything.",
            "look at the load (uptime, top), and try fewer workers: num_workers="
            f"{max(1, pool.workers // 2)}",
        )


def _about_moving(moving: Moving | None) -> Iterator[Finding]:
    if moving is not None and moving.moved < _FAIR_SHARE * moving.copied:
        yield Finding(
            Severity.NOTE,
            "moving",
            f"batches come to the GPU at {rate(moving.moved)}; a bare copy reaches "
            f"{rate(moving.copied)}",
            "Most of a batch are the rows of its nodes, which workers gather first. A model that "
            f"takes more than {plain(moving.batches)} such batches a second waits for them.",
            'features="cuda" keeps all rows on the GPU, feature_cache="20GB" those that are read '
            "most; or more workers",
        )


def _fine(subject: str, found: str) -> Finding:
    return Finding(Severity.FINE, subject, found)


RULES: Final = (
    about_native,
    about_cores,
    about_memory,
    about_huge_pages,
    about_shared_memory,
    about_open_files,
    about_processes,
    about_address_space,
    about_torch,
    about_gpu,
    about_pinning,
)
