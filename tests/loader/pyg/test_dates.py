"""Dates, with time zones and without, wherever times go: nanoseconds since 1970, in UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.reading import Data, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = torch.tensor([[1, 2, 3], [0, 0, 0]])
EAST = timezone(timedelta(hours=9))
DAYS = [datetime(2024, 5, day, 12, 30, 0, 5) for day in (1, 2, 3, 4)]
EXPECTED = [int(day.replace(tzinfo=UTC).timestamp()) * 10**9 + 5000 for day in DAYS]


def zoned(days: list[datetime]) -> list[datetime]:
    """The same moments on clocks of the east, by turns."""
    whole = [day.replace(tzinfo=UTC) for day in days]
    return [day.astimezone(EAST) if at % 2 else day for at, day in enumerate(whole)]


FORMS: dict[str, Any] = {
    "numpy's": np.array(DAYS, "datetime64[us]"),
    "python's": DAYS,
    "with time zones": zoned(DAYS),
    "an array of objects": np.array(DAYS, object),
    "a list of numpy's": list(np.array(DAYS, "datetime64[us]")),
}


def pandas_forms() -> dict[str, Any]:
    pandas = pytest.importorskip("pandas", reason="pandas' dates are read without importing it")
    series = pandas.Series(DAYS)
    return {"naive": series, "zoned": series.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")}


@pytest.mark.parametrize("form", FORMS)
def test_a_graph_has_nanoseconds(form: str) -> None:
    with ps.Graph.from_coo(EDGES, 4, node_time=FORMS[form]) as graph:
        assert graph.node_attribute("time").tolist() == EXPECTED
    with ps.Graph.from_coo(EDGES, 4, edge_time=FORMS[form][:3]) as graph:
        assert graph.edge_attribute("edge_time").tolist() == EXPECTED[:3]
    data = Data(x=torch.rand(4, 1), edge_index=EDGES, time=FORMS[form])
    with ps.Graph.from_pyg(data) as graph:
        assert graph.node_attribute("time").tolist() == EXPECTED


def assert_data_are_sampled_by(dates: Any) -> None:
    data = Data(x=torch.rand(4, 1), edge_index=EDGES, time=dates)
    with ps.NeighborLoader(data, [-1], [0], input_time=DAYS[2:3], time_attr="time") as loader:
        batch = next(iter(loader))
    assert batch.n_id.tolist() == [0, 1, 2]
    assert batch.time.tolist() == EXPECTED[:3]


@pytest.mark.parametrize("form", FORMS)
def test_data_may_have_dates(form: str) -> None:
    assert_data_are_sampled_by(FORMS[form])


@pytest.mark.parametrize("form", ["naive", "zoned"])
def test_so_it_is_with_pandas(form: str) -> None:
    dates = pandas_forms()[form]
    with ps.Graph.from_coo(EDGES, 4, node_time=dates) as graph:
        assert graph.node_attribute("time").tolist() == EXPECTED
    with ps.Graph.from_pyg(Data(x=torch.rand(4, 1), edge_index=EDGES, time=dates)) as graph:
        assert graph.node_attribute("time").tolist() == EXPECTED
    assert_data_are_sampled_by(dates)


class Column:
    """Dates as pandas has them: neither a list nor an array, and NumPy makes one of it."""

    def __init__(self, dates: list[datetime]) -> None:
        self.dates = dates

    def __len__(self) -> int:
        return len(self.dates)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.dates, object)


def test_dates_of_other_libraries_have_rows_like_arrays() -> None:
    assert_data_are_sampled_by(Column(zoned(DAYS)))
    data = Data(x=torch.rand(4, 1), edge_index=EDGES, edge_time=Column(DAYS[:3]))
    with ps.Graph.from_pyg(data) as graph:
        assert graph.edge_attribute("edge_time").tolist() == EXPECTED[:3]
    square = Data(
        x=torch.rand(3, 1), edge_index=EDGES - 1 + (EDGES == 0), edge_time=Column(DAYS[:3])
    )
    with ps.Graph.from_pyg(square) as graph:
        assert graph.edge_attribute("edge_time").tolist() == EXPECTED[:3]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_later_than_the_date_of_an_input_is_sampled(form: str) -> None:
    when = np.array(DAYS, "datetime64[us]")
    data = Data(x=torch.rand(4, 1), edge_index=EDGES, time=when)
    given: dict[str, Any] = {"time_attr": "time", "batch_size": 1}
    with ps.NeighborLoader(data, [-1], [0], input_time=FORMS[form][2:3], **given) as loader:
        batch = next(iter(loader))
    assert batch.n_id.tolist() == [0, 1, 2]
    assert batch.seed_time.tolist() == EXPECTED[2:3]
    with ps.LinkNeighborLoader(
        data, [-1], torch.tensor([[0], [0]]), edge_label_time=FORMS[form][1:2], **given
    ) as links:
        batch = next(iter(links))
    assert set(batch.n_id.tolist()) == {0, 1}


def test_dates_without_hours_begin_at_midnight() -> None:
    with ps.Graph.from_coo(
        EDGES, 4, node_time=[date(1970, 1, day) for day in (1, 2, 3, 4)]
    ) as made:
        assert made.node_attribute("time").tolist() == [day * 86_400 * 10**9 for day in range(4)]


def test_dates_of_which_some_have_a_time_zone_are_refused_by_position() -> None:
    mixed = [*DAYS[:2], *zoned(DAYS[2:])]
    complaint = r"node_time\[2\] is '2024-05-03 .*' and has a time zone, node_time\[0\] is .* none"
    with pytest.raises(ValueError, match=complaint):
        ps.Graph.from_coo(EDGES, 4, node_time=mixed)
    data = Data(x=torch.rand(4, 1), edge_index=EDGES, time=torch.arange(4))
    with pytest.raises(ValueError, match=r"input_time\[0\] is .*time zone, input_time\[2\] is"):
        ps.NeighborLoader(data, [1], input_time=[*zoned(DAYS[:2]), *DAYS[2:]], time_attr="time")


def test_dates_that_nanoseconds_cannot_tell_are_refused() -> None:
    with pytest.raises(ValueError, match=r"node_time\[1\] is 3000-01-01 .* nanoseconds can tell"):
        ps.Graph.from_coo(EDGES, 4, node_time=[DAYS[0], datetime(3000, 1, 1), *DAYS[2:]])
