"""The test vectors in docs/random.md, digest.md and id-table.md hold for native code and twin."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import Adjacency, KHop, Relation, _native, reference
from penstock.kernels.arrays import Array
from penstock.kernels.id_table import Keys, Text, fill_slots
from penstock.kernels.random import _GROUPS_DOMAIN
from penstock.kernels.twins import id_table
from penstock.sampling.inputs import positions_of
from penstock.sampling.spec import Feed
from tests.kernels.strategies import Rows, assert_same, rows_of

DOCS = Path(__file__).parents[2] / "docs"
Vector = dict[str, str]


def vectors(page: str, heading: str) -> list[Vector]:
    """The rows of the table under a heading, by the names of its columns."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^### {heading}\n(?:(?!\|).*\n)*((?:\|.*\n)+)", text, re.MULTILINE)
    assert found, f"{page} has no table under {heading}"
    lines = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in found[1].splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def number(text: str) -> int:
    return int(text, 0)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def each(page: str, heading: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One test for each vector."""
    found = vectors(page, heading)
    return pytest.mark.parametrize(
        "vector", found, ids=["-".join(list(vector.values())[:-1])[:60] for vector in found]
    )


def test_every_table_of_vectors_is_read_here() -> None:
    page = (DOCS / "random.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for heading in re.findall(r"^### (.+)$", page, re.MULTILINE):
        assert f'"random.md", "{heading}")' in tests


@pytest.mark.parametrize(
    ("page", "constant", "value"),
    [
        ("random.md", "GAMMA", reference.GAMMA),
        ("random.md", "SAMPLE", reference.SAMPLE_DOMAIN),
        ("random.md", "PERMUTE", reference.PERMUTE_DOMAIN),
        ("random.md", "NAME", reference.NAME_DOMAIN),
        ("random.md", "GROUPS", _GROUPS_DOMAIN),
        ("digest.md", "DIGEST", reference.DIGEST_DOMAIN),
        ("digest.md", "FACTOR", reference.DIGEST_FACTOR),
        ("id-table.md", "IDTAB", id_table.ID_DOMAIN),
    ],
)
def test_the_constants_are_those_of_the_twin(page: str, constant: str, value: int) -> None:
    assert f"| `{constant}` | `{value:#x}` |" in (DOCS / page).read_text(encoding="utf-8")


@each("random.md", "mix")
def test_mix(vector: Vector) -> None:
    word, expected = number(vector["word"]), number(vector["mix"])
    assert _native.mix(word) == expected
    assert reference.mix(word).tolist() == [expected]


@each("random.md", "fold")
def test_fold(vector: Vector) -> None:
    key, word = number(vector["key"]), number(vector["word"])
    assert _native.fold(key, word) == number(vector["fold"])
    assert reference.fold(key, word) == number(vector["fold"])


@each("random.md", "name_hash")
def test_name_hash(vector: Vector) -> None:
    parts = json.loads(vector["parts"])
    assert len("\0".join(parts).encode()) == number(vector["L"])
    assert kernels.name_hash(parts) == number(vector["name_hash"])
    assert reference.name_hash(parts) == number(vector["name_hash"])


@each("random.md", "batch_key")
def test_batch_key(vector: Vector) -> None:
    words = [number(vector[name]) for name in ("seed", "epoch", "index")]
    assert kernels.batch_key(*words) == number(vector["batch_key"])
    assert reference.batch_key(*words) == number(vector["batch_key"])


@each("random.md", "hop_key")
def test_hop_key(vector: Vector) -> None:
    words = [number(vector[name]) for name in ("batch_key", "hop", "name_hash")]
    assert kernels.hop_key(*words) == number(vector["hop_key"])
    assert reference.hop_key(*words) == number(vector["hop_key"])


# The native code makes node keys and draws where it needs them, and has no face for them: `choose`
# and `batch` below show that they are the same, and the C++ tests hold a vector each.


@each("random.md", "node_key")
def test_node_key(vector: Vector) -> None:
    words = [number(vector[name]) for name in ("hop_key", "node", "tree")]
    assert reference.node_key(*words) == number(vector["node_key"])


@each("random.md", "draw")
def test_draw(vector: Vector) -> None:
    key, j = number(vector["key"]), number(vector["j"])
    assert int(reference.draws(key, j + 1)[j]) == number(vector["draw"])


@each("random.md", "bounded")
def test_bounded(vector: Vector) -> None:
    words = np.array([number(vector["word"])], np.uint64)
    assert reference.bounded(words, number(vector["bound"])).tolist() == [number(vector["bounded"])]


@each("random.md", "choose")
def test_choose_by_the_twin(vector: Vector) -> None:
    key = reference.node_key(_hop_key(), 0)
    replacement = vector["replacement"] == "yes"
    offsets = reference.choose(number(vector["d"]), number(vector["k"]), replacement, key)
    assert offsets.tolist() == numbers(vector["offsets"])


@each("random.md", "choose")
def test_choose_by_the_native_code(vector: Vector, tmp_path: Path) -> None:
    degree = number(vector["d"])
    replacement = vector["replacement"] == "yes"
    adjacency = Adjacency(np.array([0, degree], np.int64), sparse_zeros(tmp_path, degree))
    _, _, offsets = kernels.draw_hop(
        adjacency, np.array([0]), number(vector["k"]), _hop_key(), replace=replacement
    )
    assert offsets.tolist() == numbers(vector["offsets"])


def sparse_zeros(folder: Path, size: int) -> np.memmap:
    """Zeros that take no room on the disk: a node of four billion edges fits in a test."""
    path = folder / "zeros"
    with path.open("wb") as file:
        file.truncate(4 * size or 4)
    return np.memmap(path, np.int32, "r", shape=(size or 1,))[:size]


def _hop_key() -> int:
    return kernels.hop_key(kernels.batch_key(0, 0, 0), 0, kernels.name_hash(("", "", "")))


@each("random.md", "batch")
def test_batch(vector: Vector) -> None:
    """CONTRACT 5."""
    rows = _documented_graph()
    fanouts = tuple(numbers(vector["fan-outs"]))
    seeds = [np.array(numbers(vector["seeds"]))]
    key, replacement = number(vector["batch_key"]), vector["replacement"] == "yes"
    sampler = KHop([6], [Relation(rows.adjacency, fanouts)], replace=replacement)
    relation = reference.Relation(rows.indptr, rows.neighbors, rows.edge_ids, fanouts)
    expected = _documented_batch(vector)
    assert_same(sampler.sample(key, seeds), expected)
    assert_same(reference.khop(1, [relation], seeds, key, replace=replacement), expected)


def _documented_graph() -> Rows:
    graph = vectors("random.md", "graph")[0]
    sources, destinations = numbers(graph["source"]), numbers(graph["destination"])
    return rows_of(np.array(sources), np.array(destinations), 6, paired=True, dtype="int32")


def _documented_batch(vector: Vector) -> kernels.Sample:
    columns = ("nodes", "neighbours", "expanded", "edge ids")
    nodes, rows, cols, edge_ids = ([np.array(numbers(vector[name]))] for name in columns)
    counts = [numbers(vector["node counts"])], [numbers(vector["edge counts"])]
    return kernels.Sample(nodes, rows, cols, edge_ids, *counts)


@each("random.md", "permutation")
def test_permutation(vector: Vector) -> None:
    """CONTRACT 4."""
    arguments = [number(vector[name]) for name in ("seed", "epoch", "n", "start", "stop")]
    expected = numbers(vector["permutation"])
    assert kernels.permutation(*arguments).tolist() == expected
    assert reference.permutation(*arguments).tolist() == expected


@each("random.md", "parts")
def test_batches_by_part(vector: Vector) -> None:
    seed, epoch, index = (number(vector[name]) for name in ("seed", "epoch", "index"))
    sizes, batch_size = tuple(numbers(vector["sizes"])), number(vector["batch_size"])
    expected = numbers(vector["positions"])
    total = sum(-(-size // batch_size) for size in sizes)
    parts_seed = reference.fold(_GROUPS_DOMAIN, seed)
    (place,) = reference.permutation(parts_seed, epoch, total, index, index + 1).tolist()
    part, first = 0, 0
    while place >= (batches := -(-sizes[part] // batch_size)):
        part, first, place = part + 1, first + sizes[part], place - batches
    start = place * batch_size
    stop = min(start + batch_size, sizes[part], start + 8)
    seed_of_part = reference.fold(parts_seed, part)
    twin = first + reference.permutation(seed_of_part, epoch, sizes[part], start, stop)
    assert twin.tolist() == expected
    feed = Feed(num_inputs=sum(sizes), batch_size=batch_size, shuffle=True, seed=seed, groups=sizes)
    assert positions_of(feed, epoch, index, 8).tolist() == expected


@each("digest.md", "digest")
def test_digest(vector: Vector) -> None:
    data = np.frombuffer(_bytes(vector["bytes"], number(vector["length"])), np.uint8)
    assert kernels.digest(data).hex() == vector["digest"]
    assert reference.digest(data).hex() == vector["digest"]


@each("id-table.md", "hash of a number")
def test_hash_of_a_number(vector: Vector) -> None:
    key, expected = number(vector["number"]), int(vector["hash"], 16)
    assert id_table.hash_number(key) == expected
    assert _home(np.array([key])) == expected >> 44


@each("id-table.md", "hash of text")
def test_hash_of_text(vector: Vector) -> None:
    key, expected = vector["text"], int(vector["hash"], 16)
    assert id_table.hash_text(key.encode()) == expected
    assert _home(Text.of([key])) == expected >> 44


def _home(key: Keys) -> int:
    slots: Array = np.empty(2**20, np.int32)
    assert fill_slots(key, slots) == -1
    (home,) = np.flatnonzero(slots == 0).tolist()
    return int(home)


def _bytes(what: str, length: int) -> bytes:
    patterns = {
        "none": b"",
        "zero": bytes(length),
        "counting": bytes(i % 256 for i in range(length)),
    }
    data = patterns.get(what, what.encode())
    assert len(data) == length
    return data
