"""Attributes stored in a smaller type: what is stored, what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import penstock as ps
from penstock.errors import GraphFormatError
from penstock.graph import Graph
from penstock.graph.codec import Codec
from penstock.graph.format import content_version
from penstock.graph.manifest import FORMAT_VERSION
from penstock.graph.quantization import codec_of, encode, quantize
from penstock.graph.schema import ArrayKey
from penstock.graph.tensors import PlainArray, plain
from tests.graph.shapes import Array
from tests.graph.shared_children import run_child

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
WRITES = ("author", "writes", "paper")
X = np.array([[0.0, -3.0, 7.5], [0.3, 2.0, 7.5], [1.0, 1e-3, 7.5], [0.5, -1.0, 7.5]], np.float32)
KEY = ArrayKey("node", "", "x")
LARGEST = float(np.finfo(np.float32).max)


def stored(column: PlainArray, dtype: str) -> tuple[Codec, Array]:
    """An attribute's codec, and its numbers as they are stored."""
    codec = codec_of(column, quantize(dtype))
    storage = {"int8": np.int8, "float16": np.float16, "bfloat16": np.uint16}[dtype]
    out = np.empty(column.shape, storage)
    encode(column, codec, out)
    return codec, out


def there_and_back(x: Array, dtype: str = "int8", given_as: str | None = None) -> Array:
    """What is read of numbers after they were stored."""
    codec, out = stored(PlainArray("x", x, given_as or str(x.dtype)), dtype)
    return codec.decode(out)


def coded(**options: Any) -> Graph:
    given = {"x": X, "edge_attr": np.linspace(-1, 1, 5), "train": [0, 2]}
    return Graph.from_coo(EDGES, **(given | {"features": {"x": quantize("int8")}} | options))


# --- numbers -------------------------------------------------------------------------------------


def tables(elements: st.SearchStrategy[float], dtype: str = "float32") -> st.SearchStrategy[Array]:
    return hnp.arrays(dtype, st.tuples(st.integers(0, 9), st.integers(0, 4)), elements=elements)


ANY = st.floats(allow_nan=False, allow_infinity=False, width=32)
EVERYDAY = st.floats(-100, 100, width=32)


@given(st.one_of(tables(ANY), tables(EVERYDAY)))
def test_int8_is_off_by_half_a_step_at_most(x: Array) -> None:
    codec, out = stored(PlainArray("x", x, "float32"), "int8")
    error = np.abs(codec.decode(out).astype(np.float64) - x)
    # Numbers that float32 cannot tell apart are not told apart either.
    grain = 2.0**-22 * np.abs(x).max(axis=0, initial=0).astype(np.float64) + 2.0**-148
    assert (error <= codec.scales.astype(np.float64) / 2 * (1 + 1e-4) + grain).all()


@given(hnp.arrays("float32", st.integers(1, 20), elements=ANY))
def test_a_vector_is_one_column(x: Array) -> None:
    codec, out = stored(PlainArray("x", x, "float32"), "int8")
    assert codec.scales.shape == codec.offsets.shape == (1,)
    assert np.array_equal(codec.decode(out), there_and_back(x.reshape(-1, 1)).reshape(-1))


@given(ANY, st.integers(1, 5))
def test_equal_numbers_are_exact(value: float, rows: int) -> None:
    x = np.full((rows, 2), value, np.float32)
    assert np.array_equal(there_and_back(x), x)


@given(tables(st.floats(0, 1e6, width=32)))
def test_zeros_are_exact_where_nothing_is_below(x: Array) -> None:
    x = np.concatenate([x, np.zeros((1, x.shape[1]), np.float32)])
    assert (there_and_back(x)[x == 0] == 0).all()


@pytest.mark.parametrize(
    "column",
    [
        [-LARGEST, LARGEST, 0.0],
        [0.0, LARGEST, 1.0],
        [-LARGEST, LARGEST * 0.99, 3.0],
        [LARGEST, np.nextafter(np.float32(LARGEST), np.float32(0)), LARGEST / 2],
    ],
)
def test_no_number_is_read_as_infinite(column: list[float]) -> None:
    x = np.array(column, np.float32)
    codec, out = stored(PlainArray("x", x, "float32"), "int8")
    every = codec.decode(np.arange(-128, 128).astype(np.int8))
    assert np.isfinite(every).all()
    assert (np.abs(codec.decode(out) - x.astype(np.float64)) <= codec.scales * 0.5001).all()


def test_numbers_between_two_steps_go_to_the_even_one() -> None:
    x = np.array([0, 255, 0.5, 1.5, 2.5, 253.5], np.float32)  # steps of 1 from 0
    _, out = stored(PlainArray("x", x, "float32"), "int8")
    assert (out.astype(int) + 128).tolist() == [0, 255, 0, 2, 2, 254]


@given(tables(ANY))
def test_int8_is_read_by_a_product_and_a_sum_each_rounded(x: Array) -> None:
    codec, out = stored(PlainArray("x", x, "float32"), "int8")
    found = codec.decode(out)
    for row in range(len(x)):
        for column in range(x.shape[1]):
            product = np.float32(int(out[row, column])) * codec.scales[column]
            assert found[row, column] == product + codec.offsets[column]


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_numbers_are_taken_as_float32_first(dtype: str) -> None:
    x = np.random.default_rng(1).normal(size=(50, 3)).astype(dtype)
    assert np.array_equal(there_and_back(x), there_and_back(x.astype(np.float32)))


def test_bfloat16_can_be_stored_as_int8() -> None:
    bits = np.array([[0x3F80], [0x4000]], np.uint16)  # 1 and 2
    np.testing.assert_allclose(there_and_back(bits, "int8", "bfloat16"), [[1], [2]], rtol=1e-6)


@given(tables(st.floats(-65504, 65504, width=32)))
def test_float16_is_the_nearest_number(x: Array) -> None:
    assert np.array_equal(there_and_back(x, "float16"), x.astype(np.float16).astype(np.float32))


@given(tables(st.floats(-(2.0**126), 2.0**126, width=32)))
def test_bfloat16_is_the_nearest_number(x: Array) -> None:
    found = there_and_back(x, "bfloat16")
    bits = found.view(np.uint32)
    assert (bits & 0xFFFF == 0).all()
    for towards in (-np.inf, np.inf):
        other = np.nextafter(found, np.float32(towards)).view(np.uint32)
        other = np.where(other > bits, bits + 0x10000, bits - 0x10000)
        with np.errstate(invalid="ignore"):
            other_error = np.abs(other.view(np.float32).astype(np.float64) - x)
        assert (np.abs(found.astype(np.float64) - x) <= other_error)[found != 0].all()


def test_a_tie_goes_to_the_even_bfloat16() -> None:
    x = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
    _, out = stored(PlainArray("x", x, "float32"), "bfloat16")
    assert [hex(bits) for bits in out] == ["0x3f80", "0x3f82", "0x3f81"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_keep_what_is_not_finite(dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    x.view(np.uint32)[0] = 0xFFFFFFFF  # a NaN that carries over if it is rounded as a number
    assert np.array_equal(there_and_back(x, dtype), x, equal_nan=True)


def test_blocks_make_no_difference() -> None:
    """Longer than a block, with strides of its own, and in pieces."""
    x = np.random.default_rng(2).normal(size=(90_000, 6)).astype(np.float32)[:, ::2]
    column = PlainArray("x", x, "float32")
    codec, whole = stored(column, "int8")
    assert np.array_equal(codec.scales.argsort(), (x.max(0) - x.min(0)).argsort())
    piece = np.empty((1000, 3), np.int8)
    encode(column, codec, piece, first=60_123)
    assert np.array_equal(piece, whole[60_123:61_123])


# --- graphs --------------------------------------------------------------------------------------


def test_queries_are_answered_in_float32() -> None:
    with coded() as graph:
        codec = graph.node_codec("x")
        assert codec is not None
        assert (codec.stored, codec.dtype) == ("int8", "float32")
        kept = graph.node_attributes()["x"]
        assert kept.dtype == "int8"
        expected = kept.array * codec.scales + codec.offsets
        assert expected.dtype == np.float32
        assert np.array_equal(graph.node_attribute("x"), expected)
        source = graph.node_features("x")
        assert (source.dtype, source.row_shape, source.num_rows) == ("float32", (3,), 4)
        ids, out = np.array([3, 0, 3]), np.empty((3, 3), np.float32)
        assert source.gather(ids, out) is out
        assert np.array_equal(out, expected[ids])
        with pytest.raises(ValueError, match=r"out must be float32 of shape \[3, 3\], not int8"):
            source.gather(ids, np.empty((3, 3), np.int8))
        stored_rows = graph.node_features("x", stored=True)
        assert (stored_rows.dtype, stored_rows.gather(ids).dtype) == ("int8", np.int8)
        assert graph.edge_codec("edge_attr") is None
        assert graph.edge_attribute("edge_attr").dtype == np.float64


def test_a_name_alone_means_all_attributes_that_are_called_so() -> None:
    names = {"author": np.ones((2, 2), np.float32), "paper": np.ones((3, 4), np.float32)}
    edges = {WRITES: [[0, 1, 1], [0, 0, 2]]}
    with Graph.from_coo(edges, x=names, features={"x": quantize("float16")}) as graph:
        assert {graph.node_attributes(name)["x"].dtype for name in names} == {"float16"}


def test_attributes_are_named_by_type_and_name() -> None:
    names = {"author": np.ones((2, 2), np.float32), "paper": np.ones((3, 4), np.float32)}
    edges = {WRITES: [[0, 1, 1], [0, 0, 2]]}
    features: Any = {
        ("author", "x"): quantize("bfloat16"),
        (WRITES, "edge_attr"): quantize("int8"),
    }
    rows = np.array([0.0, 0.5, 1.0])
    with Graph.from_coo(edges, x=names, edge_attr={WRITES: rows}, features=features) as graph:
        assert graph.node_attributes("author")["x"].dtype == "bfloat16"
        assert graph.node_codec("x", "paper") is None
        assert graph.node_attribute("x", "author").tolist() == [[1.0, 1.0]] * 2
        found = graph.edge_attribute("edge_attr", WRITES)
        np.testing.assert_allclose(found, rows, atol=1 / 510 + 1e-6)
        assert repr(graph).splitlines() == [
            "Graph(",
            "  'author': 2 nodes, x=bfloat16 → float32[2, 2]",
            "  'paper': 3 nodes, x=float32[3, 4]",
            f"  {WRITES!r}: 3 edges, edge_attr=int8 → float32[3]",
            ")",
        ]


def test_a_graph_without_nodes_can_be_quantized() -> None:
    none = np.empty((0, 3), np.float32)
    with Graph.from_coo(np.empty((2, 0), np.int64), x=none, features={"x": quantize("int8")}) as g:
        assert g.node_attribute("x").shape == (0, 3)


def test_another_process_reads_the_same(tmp_path: Path) -> None:
    with coded() as graph:
        expected = graph.node_attribute("x").tolist()
        graph.save(tmp_path / "x.graph")
    program = """
from penstock.graph import Graph
graph = Graph.open(sys.argv[1])
say([graph.node_attribute("x").tolist(), graph.handle().schema.codecs[0].codec.stored])
"""
    assert run_child(program, str(tmp_path / "x.graph")) == [expected, "int8"]


def test_a_handle_says_how_attributes_are_read() -> None:
    with coded() as graph:
        handle = graph.handle()
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(handle), type=type(handle))
        assert again.schema == graph.schema
        assert again.schema.codecs[0].codec == graph.node_codec("x")


def test_a_saved_graph_is_of_a_format_that_older_readers_refuse(tmp_path: Path) -> None:
    with coded() as graph:
        graph.save(tmp_path / "coded.graph")
        (part, _) = graph.partition(2, tmp_path / "parts")
    for folder in (tmp_path / "coded.graph", part):
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["format_version"] == 3 <= FORMAT_VERSION
    with coded(features=None) as graph:
        graph.save(tmp_path / "plain.graph")
    text = (tmp_path / "plain.graph" / "manifest.json").read_text()
    assert json.loads(text)["format_version"] == 1
    assert "codecs" not in text


def test_how_attributes_are_read_is_part_of_the_version(tmp_path: Path) -> None:
    with coded() as graph, coded(x=X * 2) as other:
        bytes_of = [each.node_attributes()["x"].array.tobytes() for each in (graph, other)]
        assert bytes_of[0] == bytes_of[1]
        assert graph.version != other.version
        graph.save(tmp_path / "x.graph")
        with Graph.open(tmp_path / "x.graph") as opened:
            assert opened.version == content_version(opened.schema, opened.arrays)


@pytest.mark.parametrize("edges", ["destination", "source"])
@pytest.mark.parametrize("method", ["range", "hash"])
def test_parts_read_the_rows_of_the_whole(tmp_path: Path, method: Any, edges: Any) -> None:
    features = {"x": quantize("int8"), "edge_attr": quantize("float16")}
    with coded(features=features) as graph:
        whole, weights = graph.node_attribute("x"), graph.edge_attribute("edge_attr")
        for path in graph.partition(2, tmp_path / "parts", method, edges):
            with Graph.open(path) as part:
                ids = part.node_ids()
                assert part.node_attributes()["x"].dtype == "int8"
                assert np.array_equal(part.node_attribute("x"), whole[ids])
                assert np.array_equal(part.node_features("x").gather(ids[::-1]), whole[ids[::-1]])
                members = part.edge_members()
                assert members is not None
                mine = members.ids()
                assert np.array_equal(part.edge_features("edge_attr").gather(mine), weights[mine])
                with part.within() as alone:
                    assert np.array_equal(alone.node_features("x").gather(ids), whole[ids])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scale": b""}, "its codec's scale has 0 bytes; 12 are needed"),
        ({"offset": b"12345678"}, "its codec's offset has 8 bytes; 12 are needed"),
        ({"stored": "float16", "scale": b"", "offset": b""}, "it is to be read from float16"),
        ({"offset": b"\xff" * 12}, "numbers that are not finite"),
        ({"scale": b"\0" * 12}, "a scale that is not above 0"),
    ],
)
def test_a_codec_that_does_not_fit_is_refused(change: dict[str, Any], said: str) -> None:
    with coded() as graph:
        (entry,) = graph.schema.codecs
        codec = msgspec.structs.replace(entry.codec, **change)
        codecs = (msgspec.structs.replace(entry, codec=codec),)
        schema = msgspec.structs.replace(graph.schema, codecs=codecs)
        with pytest.raises(GraphFormatError, match=f"node/x is int8.*{said}"):
            Graph(schema, graph.arrays)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int4", "int16", 8, np.int32])
def test_only_some_types_can_be_stored(dtype: Any) -> None:
    with pytest.raises(ValueError, match="expected one of int8, float16, bfloat16"):
        ps.quantize(dtype)
    assert quantize(np.int8) == quantize("int8")
    with pytest.raises(ValueError, match="did you mean 'bfloat16'"):
        quantize("bfloat")


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"X": quantize("int8")}, "features has 'X', and there is no .* 'edge_attr'.*mean 'x'?"),
        ({"x": "int8"}, r"features\['x'\] is 'int8'; expected penstock.quantize"),
        ({("paper", "x"): quantize("int8")}, r"features has \('paper', 'x'\), and there is no"),
        ("int8", "features is str; expected a mapping"),
        ({"x": quantize("int8"), ("", "x"): quantize("int8")}, "given twice"),
        ({"y": quantize("int8")}, "y are labels, which are stored as they are"),
        ({"edge_weight": quantize("int8")}, "edge_weight are weights, which"),
        ({"time": quantize("int8")}, "node_time are times, which"),
        ({"rank": quantize("float16")}, r"node_attrs\['rank'\] is int64; only float32 or float64"),
        ({"half": quantize("bfloat16")}, r"node_attrs\['half'\] is float16; only float32 or"),
        ({"cube": quantize("int8")}, r"node_attrs\['cube'\] has shape \[4, 2, 2\]; expected one"),
        ({"wide": quantize("int8")}, "has 40000 columns; int8 takes at most 32768"),
    ],
)
def test_what_cannot_be_stored_smaller_is_named(features: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        coded(
            y=np.zeros(4, np.float32),
            node_time=np.arange(4.0),
            edge_weight=np.ones(5),
            node_attrs={
                "rank": np.arange(4),
                "half": np.zeros(4, np.float16),
                "cube": np.zeros((4, 2, 2), np.float32),
                "wide": np.zeros((4, 40_000), np.float32),
            },
            features=features,
        )


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        ("int8", np.nan, r"x\[2, 1\] is nan; expected a number that is finite as float32"),
        ("int8", -np.inf, r"x\[2, 1\] is -inf; expected a number"),
        ("int8", 1e300, r"x\[2, 1\] is 1e\+300; expected a number"),
        ("float16", 70_000.0, r"x\[2, 1\] is 70000.0; expected at most 65504"),
        ("bfloat16", -3.4e38, r"x\[2, 1\] is -3.4e\+38; expected at most 3.38953e\+38"),
        ("bfloat16", 1e300, r"x\[2, 1\] is 1e\+300; expected at most"),
    ],
)
def test_a_number_that_has_no_place_is_named(dtype: str, value: float, said: str) -> None:
    x = X.astype(np.float64)
    x[2, 1] = value
    with pytest.raises(ValueError, match=said):
        coded(x=x, features={"x": quantize(dtype)})


def test_a_number_of_a_vector_is_named() -> None:
    column = plain("x", np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match=r"x\[1\] is nan"):
        codec_of(column, quantize("int8"))


def test_weights_and_times_are_not_made_of_what_is_stored_smaller() -> None:
    with coded(features={"edge_attr": quantize("int8")}) as graph:
        with pytest.raises(ValueError, match="edge/edge_attr is stored as int8"):
            graph.weight_sums(None, "edge_attr")
        with pytest.raises(ValueError, match="edge/edge_attr is stored as int8"):
            graph.by_time(None, "edge_attr", of_nodes=False)
