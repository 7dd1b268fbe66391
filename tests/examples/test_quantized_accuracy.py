"""Features in fewer bytes cost no accuracy that could be told from luck: half a point, at most.

Cora and Citeseer with their public split; features as a graph reads them that stores them so.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.examples.running import nn, torch
from tests.examples.test_accuracy import Study, on_whole_graph

pytestmark = pytest.mark.usefixtures("no_leaks")

F = torch.nn.functional
HALF_A_POINT = 0.005
STORED = ("int8", "float16", "bfloat16")


def data_of(name: str, model: str = "gcn", seeds: int = 1) -> tuple[Study, Any]:
    study = Study(name, model, seeds=seeds, epochs=100, batch_size=70)
    return study, study.data()


def stored(data: Any, dtype: str) -> Any:
    """The data with features as they are read that were stored in a smaller type."""
    how = {"x": ps.quantize(dtype)}
    with ps.Graph.from_coo(data.edge_index, data.num_nodes, x=data.x, features=how) as graph:
        assert graph.node_attributes()["x"].dtype == dtype
        x = np.array(graph.node_attribute("x"))
    assert not np.array_equal(x, data.x)
    found = data.clone()
    found.x = torch.from_numpy(x)
    return found


def convex_accuracy(data: Any) -> float:
    """Test accuracy of a linear model over features of two hops, which training finds exactly."""
    conv = nn.SGConv(data.num_features, data.num_features, K=2, add_self_loops=False)
    conv.lin = torch.nn.Identity()
    with torch.no_grad():
        x = conv(data.x, data.edge_index, data.edge_weight)
    weight = torch.zeros(int(data.y.max()) + 1, x.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=60, line_search_fn="strong_wolfe")
    seen, labels = x[data.train_mask], data.y[data.train_mask]

    def loss() -> Any:
        optimizer.zero_grad()
        found = F.cross_entropy(seen @ weight.T, labels) + 1e-4 * weight.square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    right = (x @ weight.T).argmax(1) == data.y
    return float(right[data.test_mask].float().mean())


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_a_linear_model_is_as_accurate(name: str) -> None:
    """No seeds: the loss has one minimum, so that nothing but the features differs."""
    _, data = data_of(name)
    plain = convex_accuracy(data)
    assert plain > 0.6  # it has learnt something
    for dtype in STORED:
        assert abs(convex_accuracy(stored(data, dtype)) - plain) <= HALF_A_POINT, dtype


@pytest.mark.soak
@pytest.mark.parametrize("name", ["cora", "citeseer"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_networks_are_as_accurate_on_average(
    name: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study, data = data_of(name, model, seeds=8)

    def accuracies(data: Any) -> list[float]:
        return [on_whole_graph(study, data, seed) for seed in range(study.seeds)]

    plain, small = accuracies(data), accuracies(stored(data, "int8"))
    story = f"{study}\n  float32: {plain}\n  int8: {small}"
    with capsys.disabled():
        print("\n" + story)
    assert abs(statistics.mean(small) - statistics.mean(plain)) <= HALF_A_POINT, story
