"""Kinds of sampling: one class each, named by its spec and loaded when that is acted on."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import msgspec
import numpy as np
import pytest

from penstock.graph import Graph
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.batches import Batches
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.kinds import InputKind, SamplingKind, check, kind_of, needs_of, seconds_of
from penstock.sampling.names import Owner
from penstock.sampling.request import Request
from penstock.sampling.spec import (
    ABLPSpec,
    CustomSpec,
    Feed,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    Spec,
    SubgraphSpec,
    Taking,
    WalkSpec,
)
from penstock.workers.batch_maker import slot_bytes_for
from tests.sampling.graphs import batch_of, web

SPECS: tuple[Spec, ...] = (
    NeighborSpec(),
    LinkSpec(neighbors=NeighborSpec()),
    SubgraphSpec(),
    ABLPSpec(neighbors=NeighborSpec(), supervision=()),
    PPRSpec(),
    WalkSpec(),
    HGTSpec(),
    CustomSpec(sampler="module:Class"),
)
OTHERS = ("links", "ablp", "ppr", "walks", "hgt", "subgraph", "induced")
PROGRAM = """
import sys
from penstock.graph import Graph
from penstock.sampling.spec import NeighborSpec
from penstock.workers import worker
from penstock.workers.batch_maker import BatchMaker
with Graph.from_coo([[0, 1], [1, 0]], 2) as graph:
    BatchMaker(graph).open_backend(1, NeighborSpec(num_neighbors=(1,)))
print(*(name for name in sys.modules if name.startswith("penstock.sampling.")))
"""


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_every_spec_has_a_kind_in_the_module_of_its_noun(spec: Spec) -> None:
    kind: SamplingKind[Any] = kind_of(spec)
    module, _, name = spec.kind.partition(":")
    assert (type(kind).__module__, type(kind).__name__) == (f"penstock.sampling.{module}", name)
    assert kind_of(msgspec.structs.replace(spec)) is kind


def test_these_are_all_specs_there_are() -> None:
    assert set(map(type, SPECS)) == set(get_args(Spec))


def test_a_worker_that_samples_neighbourhoods_loads_no_other_kind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True
    )
    loaded = {name.removeprefix("penstock.sampling.") for name in done.stdout.split()}
    assert "neighbor" in loaded
    assert loaded.isdisjoint(OTHERS)


# --- a new kind ----------------------------------------------------------------------------------


class EchoSpec(Taking, frozen=True, kw_only=True, tag="echo"):
    """The seeds themselves, some times over."""

    kind: ClassVar[str] = "echo:EchoKind"

    times: int = 1


class EchoKind(SamplingKind[EchoSpec]):
    """No more than a kind must say."""

    def check(self, spec: EchoSpec, graph: Graph) -> None:
        if spec.times < 1:
            raise ValueError(f"times is {spec.times}; expected at least 1")

    def draws(self, spec: EchoSpec, graph: Graph, inputs: int, of: Owner) -> float:
        return inputs * spec.times

    def batches(self, spec: EchoSpec, graph: Graph) -> Batches:
        return BufferedBatches(graph, spec, _Echo(spec))


class _Echo:
    own: frozenset[str] = frozenset()

    def __init__(self, spec: EchoSpec) -> None:
        self._times = spec.times

    def cut(self, request: Request) -> Sampled:
        nodes: Ids = np.tile(request.seeds, self._times)
        arrays: dict[str, Array] = {"n_id": nodes, "input_id": request.positions}
        return Sampled(arrays, [nodes], [None], {"batch_size": request.num_inputs})

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        return 16 * inputs * (self._times + 1) + 128

    def likely_nodes(self, inputs: int, of: Owner) -> list[int]:
        return [inputs * self._times]

    def likely_edges(self, inputs: int, of: Owner) -> list[int]:
        return [0]


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType("penstock.sampling.echo")
    vars(module)["EchoKind"] = EchoKind
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return EchoSpec(times=2, node_attributes=("x",))


def test_a_kind_is_a_spec_and_a_class(echo: Any) -> None:
    """Nobody else has to be told of it: it is found, checked, bounded and made by these two."""
    feed = Feed(num_inputs=10, batch_size=4)
    with web() as graph:
        check(echo, graph)
        with pytest.raises(ValueError, match="times is 0; expected at least 1"):
            check(EchoSpec(times=0), graph)
        assert seconds_of(echo, graph, 4, "") > 0
        assert slot_bytes_for(echo, graph, feed) > 0
        _, arrays = batch_of(graph, echo, feed)
        assert arrays["n_id"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
        np.testing.assert_array_equal(arrays["x"], graph.node_attribute("x")[arrays["n_id"]])


def test_what_a_kind_does_not_say_is_what_most_kinds_are(echo: Any) -> None:
    kind: SamplingKind[Any] = kind_of(echo)
    nothing: Mapping[str, Any] = {}
    with web() as graph:
        assert needs_of(echo, graph) == ()
    assert InputKind.of(echo) is InputKind.NODE
    assert (kind.columns(echo), kind.tables(echo), kind.node_columns(echo)) == ((), (), {})
    assert (kind.group(echo), kind.users_code(echo), kind.is_disjoint(echo)) == ("", None, False)
    assert kind.make_tables(echo, nothing, {"a": 1}) == {"a": 1}
    assert kind.bare(echo) == EchoSpec(times=2, node_attributes=(), edge_attributes=())
    assert kind.with_options(echo, {"times": 3}).times == 3
    with pytest.raises(ValueError, match="sampler_options has 'size'; EchoSpec has "):
        kind.with_options(echo, {"size": 3})
