"""Datasets of the Open Graph Benchmark, in tiny folders of the layouts that `ogb` leaves."""

from __future__ import annotations

import gzip
import io
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.graph.torch_file import read_torch_file
from tests.loader.reading import torch

pytestmark = pytest.mark.usefixtures("no_leaks")

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def write(folder: Path, **files: str) -> None:
    """Compressed CSV files; `_` in a name is the `-` of a file's name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.write(text)


def plain(folder: Path) -> Path:
    """A dataset for nodes, as ogbn-arxiv is."""
    raw = folder / "raw"
    files = {
        "edge": "0,1\n2,1\n3,3\n",
        "num-node-list": "4\n",
        "num-edge-list": "3\n",
        "node-feat": "0.5,1\n-2e-1,3\n0.0,0\n1,nan\n",
        "node-label": "3\n1\n0\n2\n",
        "node_year": "2001\n2002\n2003\n2004\n",
    }
    write(raw, **files)
    write(folder / "split" / "time", train="0\n2\n", valid="1\n", test="3\n")
    return folder


def pairs(graph: ps.Graph, edge_type: Any = None) -> list[list[int]]:
    return graph.edge_index(edge_type).T.tolist()


def test_a_dataset_for_nodes_has_features_labels_and_splits(tmp_path: Path) -> None:
    with ps.Graph.from_ogb(plain(tmp_path / "ogbn_arxiv")) as graph:
        assert graph.num_nodes() == 4
        assert pairs(graph) == [[0, 1], [2, 1], [3, 3]]
        x = graph.node_attribute("x")
        assert x.dtype == np.float32
        assert np.array_equal(x, np.float32([[0.5, 1], [-0.2, 3], [0, 0], [1, np.nan]]), True)
        assert graph.node_attribute("y").tolist() == [3, 1, 0, 2]
        assert graph.node_attribute("node_year").tolist() == [2001, 2002, 2003, 2004]
        assert {name: graph.split(name).tolist() for name in graph.splits()} == {
            "train": [0, 2],
            "val": [1],
            "test": [3],
        }


def test_undirected_datasets_get_their_reverses_as_ogb_adds_them(tmp_path: Path) -> None:
    folder = plain(tmp_path / "ogbn_products")
    write(folder / "raw", **{"edge-feat": "1,2\n3,4\n5,6\n", "species": "9\n8\n7\n6\n"})
    with ps.Graph.from_ogb(folder) as graph:
        assert pairs(graph) == [[0, 1], [1, 0], [2, 1], [1, 2], [3, 3], [3, 3]]
        assert graph.edge_attribute("edge_attr")[:, 0].tolist() == [1, 1, 3, 3, 5, 5]
        assert graph.node_attribute("node_species").tolist() == [9, 8, 7, 6]
    with ps.Graph.from_ogb(folder, reverse=False) as graph:
        assert graph.num_edges() == 3
    with ps.Graph.from_ogb(plain(tmp_path / "mine"), reverse=True) as graph:
        assert graph.num_edges() == 6


def test_labels_of_several_tasks_are_columns(tmp_path: Path) -> None:
    folder = plain(tmp_path / "ogbn_tasks")
    write(folder / "raw", **{"node-label": "1,0\n0,1\n1,1\n0,0\n"})
    with ps.Graph.from_ogb(folder) as graph:
        assert graph.node_attribute("y").shape == (4, 2)


def typed(folder: Path) -> Path:
    """A dataset with types, as ogbn-mag is."""
    raw = folder / "raw"
    write(
        raw,
        **{
            "triplet-type-list": "author,writes,paper\npaper,cites,paper\n",
            "num-node-dict": "author,paper\n2,3\n",
            "nodetype-has-feat": "author,paper\nFalse,True\n",
            "nodetype-has-label": "author,paper\nFalse,True\n",
        },
    )
    write(raw / "node-feat" / "paper", **{"node-feat": "1,2\n3,4\n5,6\n", "node_year": "1\n2\n3\n"})
    write(raw / "node-label" / "paper", **{"node-label": "0\n1\n0\n"})
    for number, (name, edges) in enumerate({WRITES: "0,2\n1,0\n", CITES: "0,1\n"}.items()):
        count = edges.count("\n")
        write(
            raw / "relations" / "___".join(name),
            **{
                "edge": edges,
                "num-edge-list": f"{count}\n",
                "edge_reltype": f"{number}\n" * count,
            },
        )
    write(folder / "split" / "time", **{"nodetype-has-split": "author,paper\nFalse,True\n"})
    write(folder / "split" / "time" / "paper", train="2\n", valid="0\n", test="1\n")
    return folder


def check_typed(graph: ps.Graph) -> None:
    assert graph.node_types == ("author", "paper")
    assert (graph.num_nodes("author"), graph.num_nodes("paper")) == (2, 3)
    assert pairs(graph, WRITES) == [[0, 2], [1, 0]]
    assert graph.edge_attribute("edge_reltype", CITES).tolist() == [1]
    assert graph.node_attribute("x", "paper").tolist() == [[1, 2], [3, 4], [5, 6]]
    assert graph.node_attribute("y", "paper").tolist() == [0, 1, 0]
    assert graph.split("train", "paper").tolist() == [2]
    assert not graph.splits("author")


def test_a_dataset_with_types_has_what_each_type_has(tmp_path: Path) -> None:
    with ps.Graph.from_ogb(typed(tmp_path / "ogbn_mag")) as graph:
        check_typed(graph)
        assert graph.node_attribute("node_year", "paper").tolist() == [1, 2, 3]


def test_binary_files_have_what_csv_files_have(tmp_path: Path) -> None:
    with ps.Graph.from_ogb(plain(tmp_path / "csv")) as graph:
        raw = tmp_path / "ogbn_papers100M" / "raw"
        raw.mkdir(parents=True)
        np.savez_compressed(
            raw / "data.npz",
            edge_index=graph.edge_index(),
            node_feat=graph.node_attribute("x"),
            node_year=graph.node_attribute("node_year")[:, None],
            num_nodes_list=[4],
            num_edges_list=[3],
        )
        np.savez(raw / "node-label.npz", node_label=graph.node_attribute("y")[:, None])
        write(raw.parent / "split" / "time", train="0\n2\n", valid="1\n", test="3\n")
        with ps.Graph.from_ogb(raw.parent) as same:
            assert same.version == graph.version


def test_binary_files_with_types_have_what_csv_files_have(tmp_path: Path) -> None:
    folder = tmp_path / "ogbn_bin"
    raw = folder / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "num_nodes_dict.npz", author=[2], paper=[3])
    np.savez(raw / "num_edges_dict.npz", **{"___".join(WRITES): [2], "___".join(CITES): [1]})
    ends = {WRITES: [[0, 1], [2, 0]], CITES: [[0], [1]]}
    reltype = {WRITES: [[0], [0]], CITES: [[1]]}
    for file, arrays in {"edge_index_dict": ends, "edge_reltype": reltype}.items():
        np.savez(raw / f"{file}.npz", **{"___".join(name): each for name, each in arrays.items()})
    np.savez(raw / "node_feat.npz", paper=[[1, 2], [3, 4], [5, 6]])
    np.savez(raw / "node-label.npz", paper=[[0], [1], [0]])
    (folder / "split" / "time").mkdir(parents=True)
    ids = {"train": {"paper": np.array([2])}, "valid": {"paper": np.array([0])}}
    torch.save(ids | {"test": {"paper": np.array([1])}}, folder / "split/time/split_dict.pt")
    with ps.Graph.from_ogb(folder) as graph:
        check_typed(graph)


# --- links ---------------------------------------------------------------------------------------


def links(folder: Path, *, old: bool = False, **splits: Any) -> Path:
    """A dataset for links: a graph and, by split, a file of torch."""
    write(folder / "raw", **{"edge": "0,1\n1,2\n2,3\n", "num-node-list": "4\n"})
    at = folder / "split" / "time"
    at.mkdir(parents=True)
    for name, given in splits.items():
        torch.save(given, at / f"{name}.pt", _use_new_zipfile_serialization=not old)
    return folder


@pytest.mark.parametrize("old", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
def test_links_to_predict_belong_to_their_edge_type(
    tmp_path: Path, old: bool, as_tensors: bool
) -> None:
    made = torch.tensor if as_tensors else np.array
    pair = made([[0, 1], [1, 2]])
    folder = links(
        tmp_path / "ogbl_collab",
        old=old,
        train={"edge": pair, "weight": made([2, 3]), "year": made([2017, 2018])},
        valid={"edge": pair[:1], "edge_neg": made([[0, 3], [3, 1], [2, 0]])},
        test={"edge": pair[1:], "edge_neg": made([[3, 0]])},
    )
    with ps.Graph.from_ogb(folder) as graph:
        assert graph.num_edges() == 6
        graph.save(tmp_path / "collab.graph")
    with ps.Graph.open(tmp_path / "collab.graph") as graph:
        found = {name: each.tolist() for name, each in graph.graph_attributes().items()}
        with ps.LinkNeighborLoader(graph, [1], "val", batch_size=2) as loader:
            assert [batch.n_id[batch.edge_label_index].tolist() for batch in loader] == [[[0], [1]]]
    assert found == {
        "train_links": [[0, 1], [1, 2]],
        "train_links_weight": [2, 3],
        "train_links_time": [2017, 2018],
        "val_links": [[0], [1]],
        "val_links_neg": [[0, 3, 2], [3, 1, 0]],
        "test_links": [[1], [2]],
        "test_links_neg": [[3], [0]],
    }


def test_links_may_have_candidates_of_their_own(tmp_path: Path) -> None:
    train = {"source_node": np.array([0, 2]), "target_node": np.array([1, 3])}
    valid = train | {"target_node_neg": np.array([[0, 1], [2, 3]], np.int16)}
    with ps.Graph.from_ogb(links(tmp_path / "ogbl_citation2", train=train, valid=valid)) as graph:
        found = graph.graph_attributes()
        assert graph.num_edges() == 3
        assert found["train_links"].tolist() == [[0, 2], [1, 3]]
        assert found["val_links_target_node_neg"].tolist() == [[0, 1], [2, 3]]


def test_links_of_several_types_are_told_by_their_relation(tmp_path: Path) -> None:
    folder = typed(tmp_path / "ogbl_biokg")
    given = {
        "head_type": ["paper", "author", "paper"],
        "head": np.array([0, 1, 2]),
        "relation": np.array([1, 0, 1]),
        "tail_type": ["paper", "paper", "paper"],
        "tail": np.array([2, 0, 1]),
        "head_neg": np.arange(6).reshape(3, 2),
    }
    at = folder / "split" / "random"
    at.mkdir()
    torch.save(given, at / "valid.pt")
    with ps.Graph.from_ogb(folder, split="random") as graph:
        of_cites, of_writes = graph.graph_attributes(CITES), graph.graph_attributes(WRITES)
        assert of_cites["val_links"].tolist() == [[0, 2], [2, 1]]
        assert of_cites["val_links_head_neg"].tolist() == [[0, 1], [4, 5]]
        assert of_writes["val_links"].tolist() == [[1], [0]]
    torch.save(given | {"relation": np.array([1, 0, 7])}, at / "valid.pt")
    with pytest.raises(ValueError, match=r"random has 3 links with relations, of which 2 are"):
        ps.Graph.from_ogb(folder, split="random")


class Evil:
    """Something that would run a command if it were loaded as Python loads it."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit",)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (Evil(), r"it has a \w+\.exec, which is not made here"),
        ({"edge": torch.nn.Linear(1, 1)}, r"it has a torch\.nn\.\S+Linear"),
    ],
)
def test_a_file_of_torch_can_do_no_harm(tmp_path: Path, given: Any, complaint: str) -> None:
    folder = links(tmp_path / "ogbl_evil", train=given)
    with pytest.raises(ValueError, match=rf"train\.pt cannot be read \({complaint}"):
        ps.Graph.from_ogb(folder)


class EvilType:
    """Integers with the flags of objects: NumPy, which loads them, would clear them as such."""

    def __reduce__(self) -> Any:
        return np.dtype, ("i8", False, True), (3, "<", None, None, None, -1, -1, 63)


class EvilArray:
    def __reduce__(self) -> Any:
        make, given, _ = np.zeros(0).__reduce__()  # type: ignore[misc]
        return make, given, (1, (2,), EvilType(), False, bytes(16))


def test_a_file_of_torch_makes_no_types_that_there_are_not(tmp_path: Path) -> None:
    torch.save({"edge": EvilArray()}, tmp_path / "evil.pt")
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from penstock.graph.torch_file import read_torch_file\n"
        "print(read_torch_file(Path(sys.argv[1]))['edge'].dtype.flags)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "evil.pt")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize("opcode", [b"}", b"N", b"K\x01", b")"])
def test_a_pickle_that_makes_no_sense_is_named(tmp_path: Path, opcode: bytes) -> None:
    """It is called, added to or filled what cannot be."""
    path = tmp_path / "odd.pt"
    for then in (b")R", b"K\x01a", b"K\x01K\x02s", b"K\x01b"):
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            archive.writestr("a/data.pkl", b"\x80\x02" + opcode + then + b".")
        path.write_bytes(whole.getvalue())
        if (opcode, then) != (b"}", b"K\x01K\x02s"):
            with pytest.raises(ValueError, match=r"odd\.pt cannot be read"):
                read_torch_file(path)


@pytest.mark.parametrize("size", [0, 10, 300, -30])
def test_a_file_of_torch_that_is_cut_short_is_named(tmp_path: Path, size: int) -> None:
    for old in (False, True):
        folder = links(tmp_path / f"ogbl_{old}", old=old, train={"edge": torch.arange(40)})
        path = folder / "split" / "time" / "train.pt"
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(ValueError, match=r"train\.pt cannot be read"):
            ps.Graph.from_ogb(folder)


def test_a_tensor_that_reaches_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    made = torch.arange(4).as_strided((2, 2), (2, 1))
    folder = links(tmp_path / "ogbl_far", old=True, train={"edge": made})
    path = folder / "split" / "time" / "train.pt"
    strides, worse = (pickle.dumps(each, 2)[2:-1] for each in ((2, 1), (9, 1)))
    data = path.read_bytes()
    assert data.count(strides[:4]) == 1
    path.write_bytes(data.replace(strides[:4], worse[:4]))
    with pytest.raises(ValueError, match="a tensor reaches beyond its storage"):
        ps.Graph.from_ogb(folder)


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"edge": "0,1\n0,x\n"}, r"edge\.csv\.gz, lines 1 to 2: .*'x'.*expected numbers"),
        ({"edge": "0,1,2\n"}, r"edge\.csv\.gz has \[1, 3\] int64; expected two integers a row"),
        ({"edge": "0,9\n"}, r"ogbn_arxiv: edge_index\[1\]\[0\] is 9; expected"),
        ({"num-node-list": "2\n2\n"}, r"raw has 2 graphs; a dataset for nodes or links has one"),
        ({"node-label": "1\n"}, r"ogbn_arxiv: node_attrs\['y'\] has 1"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(
    tmp_path: Path, files: dict[str, str], complaint: str
) -> None:
    folder = plain(tmp_path / "ogbn_arxiv")
    write(folder / "raw", **files)
    with pytest.raises(ValueError, match=complaint):
        ps.Graph.from_ogb(folder)


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = plain(tmp_path / "ogbn_arxiv") / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=r"node-feat\.csv\.gz is damaged or cut short"):
        ps.Graph.from_ogb(path.parents[1])


def test_a_folder_that_is_no_dataset_is_said_to_be_none(tmp_path: Path) -> None:
    plain(tmp_path / "ogbn_arxiv")
    with pytest.raises(FileNotFoundError, match=r"there is ogbn_arxiv"):
        ps.Graph.from_ogb(tmp_path)
    (tmp_path / "other" / "raw").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"raw has none of edge\.csv\.gz"):
        ps.Graph.from_ogb(tmp_path / "other")


def test_several_ways_to_split_are_named(tmp_path: Path) -> None:
    folder = plain(tmp_path / "ogbn_arxiv")
    write(folder / "split" / "random", train="3\n")
    with pytest.raises(ValueError, match=r"has random, time: say which, by split="):
        ps.Graph.from_ogb(folder)
    with pytest.raises(ValueError, match="split is 'tiem'; there are: random, time"):
        ps.Graph.from_ogb(folder, split="tiem")
    with ps.Graph.from_ogb(folder, split="random") as graph:
        assert graph.splits().keys() == {"train"}


def test_progress_tells_of_all_bytes_of_the_files(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    folder = plain(tmp_path / "ogbn_arxiv")
    ps.Graph.from_ogb(folder, progress=lambda *now: told.append(now)).close()
    size = sum(each.stat().st_size for each in folder.rglob("*.gz"))
    read = [done for done, total in told if total == size]
    assert read == sorted(read)
    assert 0 < read[0] <= read[-1] <= size
