"""What the doctor knows about a machine and an installation: plain data, read by others.

None stands for "no such limit" or "the system does not say". This module must not import the native
module, nor anything that does: it may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.workers.limits import Readings, auto_workers


@dataclass(frozen=True, slots=True)
class Cores:
    """Processors: those of the machine, and what this process may use of them.

    Attributes:
        machine: What `os.cpu_count` says.
        allowed: Those that the process may run on.
        quota: Processor time granted to the control group, in processors.
    """

    machine: int
    allowed: int
    quota: float | None = None

    @property
    def usable(self) -> float:
        """How many processors' time this process may use."""
        return self.allowed if self.quota is None else min(self.allowed, self.quota)


@dataclass(frozen=True, slots=True)
class HugePages:
    """What transparent huge pages are used for: the kernel's words.

    Attributes:
        private: For memory of a process.
        shared: For shared memory, which graphs and slots are in.
        shared_file: The file that sets `shared`.
    """

    private: str | None = None
    shared: str | None = None
    shared_file: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes: of the machine, and of the control group.

    Attributes:
        total: What the machine has.
        free: What is available of that.
        limit: What the control group may use.
        room: What is left of that.
    """

    total: int | None = None
    free: int | None = None
    limit: int | None = None
    room: int | None = None

    @property
    def available(self) -> int | None:
        """The bytes that may still be used."""
        known = [size for size in (self.free, self.room) if size is not None]
        return min(known, default=None)

    @property
    def is_limited(self) -> bool:
        """Whether it is the control group that leaves no more."""
        return self.room is not None and self.room == self.available


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """What shared memory is made of.

    Attributes:
        asked: What PENSTOCK_SHARED_MEMORY says: "auto", "memfd" or "named".
        has_memfd: Whether memfd works. None: not known, since Penstock cannot be imported.
        folder: Where named memory would be.
        size: Bytes of the file system there.
        free: How many of them are free.
    """

    asked: str = "auto"
    has_memfd: bool | None = None
    folder: str = "/dev/shm"
    size: int | None = None
    free: int | None = None

    @property
    def trouble(self) -> str:
        """Why what was asked for cannot be had, in words that follow "which"."""
        if self.asked not in ("auto", "memfd", "named"):
            return "is no kind of shared memory"
        return "does not work here" if self.asked == "memfd" and self.has_memfd is False else ""

    @property
    def is_named(self) -> bool:
        """Whether shared memory takes room in the folder."""
        return self.asked == "named" or self.has_memfd is False


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of this process (`ulimit`), and how far the process may raise it."""

    soft: int | None = None
    hard: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the system limits.

    Attributes:
        open_files: Descriptors.
        locked_memory: Bytes of locked memory.
        address_space: Bytes of address space.
        processes: Processes and threads of the user.
        processes_left: How many more may be started, by this limit and by the control group's.
    """

    open_files: Limit = Limit()
    locked_memory: Limit = Limit()
    address_space: Limit = Limit()
    processes: Limit = Limit()
    processes_left: int | None = None


@dataclass(frozen=True, slots=True)
class Driver:
    """What the system shows of NVIDIA's GPUs, without torch.

    Attributes:
        files: Their device files.
        version: The driver's version.
        visible: What CUDA_VISIBLE_DEVICES says. None: it is not set.
    """

    files: tuple[str, ...] = ()
    version: str | None = None
    visible: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that torch sees, and its memory in bytes."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Pinning:
    """Whether shared memory can be page-locked for a GPU.

    Attributes:
        most: Bytes that a loader locks at most.
        tried: Bytes that were locked to see whether it works.
        trouble: Why that failed.
    """

    most: int
    tried: int
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Torch:
    """What torch says of itself and of GPUs.

    Attributes:
        version: The installed version. None: torch is not installed.
        pyg: The installed version of PyG.
        trouble: Why one of the two cannot be imported.
        built_for: What it was built for, such as "CUDA 12.8". Empty: processors alone.
        gpus: The GPUs that it sees.
        gpu_trouble: Why it cannot use any, or what it warns of.
        pinning: Whether memory can be page-locked. None: it was not tried.
    """

    version: str | None = None
    pyg: str | None = None
    trouble: str = ""
    built_for: str = ""
    gpus: tuple[Gpu, ...] = ()
    gpu_trouble: str = ""
    pinning: Pinning | None = None


@dataclass(frozen=True, slots=True)
class Native:
    """The native module.

    Attributes:
        file: Where it is. None: it cannot be used.
        trouble: Why it cannot be used.
        simd: The vector instructions in use.
        best_simd: The best that the machine has.
    """

    file: str | None = None
    trouble: str = ""
    simd: str = ""
    best_simd: str = ""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of what Penstock always needs."""

    penstock: str
    python: str
    numpy: str


@dataclass(frozen=True, slots=True)
class Facts:
    """All that findings follow from. `ranks` are those that would train on this machine."""

    ranks: int
    versions: Versions
    native: Native
    cores: Cores
    memory: Memory = Memory()
    huge_pages: HugePages = HugePages()
    shared_memory: SharedMemory = SharedMemory()
    limits: Limits = Limits()
    driver: Driver = Driver()
    torch: Torch = Torch()

    @property
    def workers(self) -> int:
        """How many workers `num_workers="auto"` starts."""
        return auto_workers(self._readings)

    @property
    def workers_by_cores(self) -> int:
        """How many it would start if there were any amount of memory."""
        return auto_workers(Readings(self.cores.allowed, self.cores.quota))

    @property
    def _readings(self) -> Readings:
        memory = self.memory
        return Readings(self.cores.allowed, self.cores.quota, memory.free, memory.room)
