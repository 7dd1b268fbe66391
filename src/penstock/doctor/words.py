"""Facts and figures in words: a heading and a line for each."""

from __future__ import annotations

from collections import Counter

from rich.filesize import decimal

from penstock.doctor.facts import Facts, HugePages, Limit, Memory, SharedMemory, Torch
from penstock.doctor.figures import Figures, Gathering, Moving, Sampling, Subject
from penstock.doctor.numbers import counted, many, plain, rate, short

Row = tuple[str, str]


def facts_in_words(facts: Facts) -> list[Row]:
    """Return what is known of the machine."""
    return [
        ("versions", _versions(facts)),
        ("native module", _native(facts)),
        ("cores", _cores(facts)),
        ("memory", _memory(facts.memory)),
        ("huge pages", _huge_pages(facts.huge_pages)),
        ("shared memory", _shared_memory(facts.shared_memory)),
        ("limits", _limits(facts)),
        ("GPU", _gpu(facts)),
        *_pinned_memory(facts),
    ]


def figures_in_words(figures: Figures, torch: Torch) -> list[Row]:
    """Return what was measured."""
    inline, pool, gathering = figures.inline, figures.pool, figures.gathering
    return [
        ("graph", _subject(figures.subject)),
        ("sampling, no workers", _sampling(inline) if inline else "failed"),
        (_by_workers(pool), _sampling(pool) if pool else "failed"),
        ("gathering rows", _gathering(gathering) if gathering else "failed"),
        ("moving to a GPU", _moved(figures, torch)),
    ]


# --- the machine ---------------------------------------------------------------------------------


def _versions(facts: Facts) -> str:
    versions = facts.versions
    always = f"Penstock {versions.penstock}, Python {versions.python}, NumPy {versions.numpy}"
    return f"{always}, {_torch_version(facts.torch)}"


def _torch_version(torch: Torch) -> str:
    pyg = "no PyG" if torch.pyg is None else f"PyG {torch.pyg}"
    if torch.version is None:
        return f"no torch, {pyg}"
    built = f" for {torch.built_for}" if torch.built_for else " without CUDA"
    return f"torch {torch.version}{'' if torch.trouble else built}, {pyg}"


def _native(facts: Facts) -> str:
    native = facts.native
    return f"fails: {native.trouble}" if native.file is None else f"uses {native.simd}"


def _cores(facts: Facts) -> str:
    cores = facts.cores
    words = [counted(cores.machine, "core")]
    if cores.allowed < cores.machine:
        words.append(f"this process may run on {cores.allowed}")
    if cores.quota is not None:
        quota = short(cores.quota)
        words.append(f"the control group (container) grants the time of {quota}")
    return f'{", ".join(words)}; num_workers="auto" starts {counted(facts.workers, "worker")}'


def _memory(memory: Memory) -> str:
    words = []
    if memory.free is not None:
        total = "" if memory.total is None else f" of {decimal(memory.total)}"
        words.append(f"{decimal(memory.free)}{total} free")
    if memory.limit is not None and memory.room is not None:
        limit = f"{decimal(memory.limit)} that the control group (container) allows"
        words.append(f"{decimal(memory.room)} left of {limit}")
    return "; ".join(words) or "the system does not say"


def _huge_pages(pages: HugePages) -> str:
    if pages.private is None and pages.shared is None:
        return "the system does not say"
    private, shared = pages.private or "not known", pages.shared or "not known"
    return f'"{shared}" for shared memory, "{private}" for other memory'


def _shared_memory(shared: SharedMemory) -> str:
    if shared.has_memfd is None:
        return "not known without the native module"
    kind = f"files in {shared.folder}" if shared.is_named else "anonymous (memfd)"
    if shared.size is None or shared.free is None:
        return f"{kind}; there is no {shared.folder}"
    return f"{kind}; {shared.folder} has {decimal(shared.free)} of {decimal(shared.size)} free"


def _limits(facts: Facts) -> str:
    limits = facts.limits
    return ", ".join(
        (
            f"open files {_count_limit(limits.open_files)}",
            f"processes {_count_limit(limits.processes)}",
            f"locked memory {_size_limit(limits.locked_memory)}",
            f"address space {_size_limit(limits.address_space)}",
        )
    )


def _count_limit(limit: Limit) -> str:
    if limit.soft is None:
        return "unlimited"
    if limit.hard == limit.soft:
        return f"{limit.soft:,}"
    return f"{limit.soft:,} (up to {'any number' if limit.hard is None else f'{limit.hard:,}'})"


def _size_limit(limit: Limit) -> str:
    return "unlimited" if limit.soft is None else decimal(limit.soft)


def _gpu(facts: Facts) -> str:
    gpus, driver = facts.torch.gpus, facts.driver
    told = f"driver {driver.version}" if driver.version else ""
    if gpus:
        kinds = Counter(f"{gpu.name} ({decimal(gpu.memory)})" for gpu in gpus)
        names = ", ".join(name if n == 1 else f"{n} x {name}" for name, n in kinds.items())
        return "; ".join(filter(None, (names, told)))
    if driver.files:
        there = f"{counted(len(driver.files), 'GPU')}, which torch does not use"
        return "; ".join(filter(None, (there, told)))
    return "none"


def _pinned_memory(facts: Facts) -> list[Row]:
    """Return what is known of page-locked memory, where there is a GPU."""
    if not facts.torch.gpus:
        return []
    if (pinning := facts.torch.pinning) is None:
        return [("pinned memory", "not tried: the loaders cannot be used")]
    works = f"works ({decimal(pinning.tried)} tried)"
    words = f"fails: {pinning.trouble}" if pinning.trouble else works
    return [("pinned memory", f"{words}; a loader pins {decimal(pinning.most)} at most")]


# --- figures -------------------------------------------------------------------------------------


def _subject(subject: Subject) -> str:
    hops = " and ".join(map(str, subject.fan_outs))
    return (
        f"{many(subject.nodes)} nodes, {many(subject.edges)} edges (RMAT); batches of "
        f"{subject.seeds} seeds, fan-outs {hops}; rows of {subject.row_bytes} bytes"
    )


def _by_workers(pool: Sampling | None) -> str:
    return f"sampling, {'workers' if pool is None else counted(pool.workers, 'worker')}"


def _sampling(sampling: Sampling) -> str:
    return f"{plain(sampling.batches)} batches a second, {many(sampling.edges)} edges a second"


def _gathering(gathering: Gathering) -> str:
    return f"{rate(gathering.gathered)}, by one thread; a plain copy: {rate(gathering.copied)}"


def _moved(figures: Figures, torch: Torch) -> str:
    if not torch.gpus:
        return (
            "not measured: torch sees none" if torch.version else "not measured: there is no torch"
        )
    if torch.pinning is None:
        return "not measured: the loaders cannot be used"
    return "failed" if figures.moving is None else _moving(figures.moving)


def _moving(moving: Moving) -> str:
    return (
        f"{plain(moving.batches)} batches a second with their rows, {rate(moving.moved)}; a bare "
        f"copy: {rate(moving.copied)}"
    )
