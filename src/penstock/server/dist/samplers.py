"""The sampling that requests ask for: which is allowed, and which workers it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_process import HubProcess
from penstock.client.naming import Where, name_of, spec_of
from penstock.graph import Graph
from penstock.sampling.kinds import InputKind, kind_of
from penstock.sampling.spec import Spec
from penstock.wire.requests import InitSamplingBackendRequest, WorkerOptions


def names_of(samplers: Sequence[str | type[Any]]) -> tuple[str, ...]:
    """Return the names of samplers that ranks may ask for; a class has one, too."""
    if isinstance(samplers, str | type):
        raise ValueError(f"samplers is {samplers!r}; expected a list of them: [{samplers!r}]")
    return tuple(name if isinstance(name, str) else name_of(name) for name in samplers)


def wanted_spec(request: InitSamplingBackendRequest, samplers: Sequence[str]) -> Spec:
    """Return the spec of a request with its options; `ValueError` if its sampler is not allowed."""
    spec = spec_of(request.sampling_config, Where.SERVER)
    if request.sampler_options:
        spec = spec_of(kind_of(spec).with_options(spec, request.sampler_options), Where.SERVER)
    code = kind_of(spec).users_code(spec)
    if code is not None and code not in samplers:
        there = ", ".join(map(repr, samplers)) or "none"
        raise ValueError(
            f"sampler is {code!r}; the server was started with: {there} (setting: samplers)"
        )
    return spec


def check_key(key: Any) -> str:
    """Return the key; raise `ValueError` unless it is text."""
    if not isinstance(key, str) or not key:
        raise ValueError(f"backend_key is {key!r}; expected text")
    return key


def backend_for(
    graph: Graph, hub: Hub | None, spec: Spec, options: WorkerOptions, start_timeout: float
) -> SharedDistSamplingBackend:
    """Return a backend that is up: of the hub's pool or, without a hub, in this process."""
    if options.input_kind is not None:
        InputKind.named(options.input_kind)  # raises if unknown
    _check_pool(hub, options)
    group = None if kind_of(spec).users_code(spec) is None else options.num_workers
    backend = SharedDistSamplingBackend(
        graph if hub is None else hub,
        spec,
        num_workers=0 if hub is None else group,
        input_kind=options.input_kind,
        start_timeout=start_timeout,
    )
    try:
        backend.init_backend()
    except BaseException:
        backend.shutdown()
        raise
    return backend


def _check_pool(hub: Hub | None, options: WorkerOptions) -> None:
    """Raise `ValueError` if a request asks for more workers than the pool has.

    All requests share the pool, and none can enlarge it. The worker group of a user's sampler
    cannot be larger than the pool either.
    """
    has = hub.num_workers if isinstance(hub, HubProcess) else None
    for name in ("num_workers", "worker_concurrency"):
        wanted = getattr(options, name)
        if wanted is not None and wanted < 1:
            raise ValueError(f"worker_options.{name} is {wanted}; expected at least 1")
    if has is not None and options.num_workers is not None and options.num_workers > has:
        raise ValueError(
            f"worker_options.num_workers is {options.num_workers}; the server's pool has {has} "
            "(setting: num_workers of the server)"
        )
