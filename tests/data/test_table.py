"""Tables with a client column: files, frames, and what is wrong with them."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas
import polars
import pytest
from matplotlib.figure import Figure

from taciturn.data import layouts
from taciturn.data.table import read
from taciturn.errors import DataError, InputError, MissingExtra
from taciturn.report.task_plots import _sheet
from taciturn.tasks import load, table
from taciturn.tasks.task import how_tested

CSV = """user,activity,a,b
zoe,walk,1,0.5
anna,sit,2,1.5
zoe,sit,3,2.5
anna,walk,4,3.5
anna,run,5,4.5
"""
COLUMNS = {
    "user": ["zoe", "anna", "zoe", "anna", "anna"],
    "activity": ["walk", "sit", "sit", "walk", "run"],
    "a": [1, 2, 3, 4, 5],
    "b": [0.5, 1.5, 2.5, 3.5, 4.5],
}
MANY = {"user": np.ones(400), "a": np.ones(400), "activity": np.arange(400)}
WHO = {"client": "user", "label": "activity"}


class HubTable(dict[str, Any]):
    """As `datasets` has a table."""

    column_names = property(list)


class Splits(dict[str, Any]):
    """As `datasets` has all splits of a set."""

    column_names = {"train": list(COLUMNS)}  # noqa: RUF012


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(CSV)
    return path


@pytest.mark.parametrize(
    "data",
    [COLUMNS, pandas.DataFrame(COLUMNS), polars.DataFrame(COLUMNS), HubTable(COLUMNS),
     ",", "\t", ";"],
    ids=["dict", "pandas", "polars", "hub", "commas", "tabs", "semicolons"],
)  # fmt: skip
def test_rows_are_grouped_by_client_in_one_call(data, file):
    if isinstance(data, str):
        file.write_text(CSV.replace(",", data))
        data = file
    task = table(data, standardise=False, **WHO)
    assert task.clients.names == ("anna", "zoe")
    assert task.clients.rows.tolist() == [3, 2]
    np.testing.assert_array_equal(
        task.clients.arrays["x"], [[2, 1.5], [4, 3.5], [5, 4.5], [1, 0.5], [3, 2.5]]
    )
    assert task.clients.arrays["y"].tolist() == [1, 2, 0, 2, 1]  # run, sit, walk
    assert how_tested(task) == "a tenth of each client's rows, at random by label"


def test_columns_are_chosen_and_left_out(file):
    for asked in ({"leave_out": ["b"]}, {"features": "a"}):
        assert load("table", data=file, **asked, **WHO).clients.arrays["x"].shape == (5, 1)
    assert load("table", data=str(file), hold_out="last", **WHO).hold_out == "last"


def test_numbers_with_fractions_are_predicted(file):
    task = table(file, client="user", label="b", leave_out="activity", standardise=False)
    assert task.clients.arrays["y"].tolist() == [1.5, 3.5, 4.5, 0.5, 2.5]
    batch = {"x": np.array([[1.0], [3.0]]), "y": np.array([1.0, 5.0])}
    metrics = task.metrics(lambda x, key: x, batch)
    squares, weights = metrics.pop("loss")
    assert (squares.tolist(), weights.tolist(), metrics) == ([0, 4], [1, 1], {})
    whole = table(file, client="user", label="a", leave_out=["activity"], number=True)
    assert whole.clients.arrays["y"].dtype == np.float32


def test_numbers_are_standardised_by_what_is_trained_on():
    rng = np.random.default_rng(0)
    columns = {
        "who": np.repeat(np.arange(4), 50),
        "y": rng.normal(30, 9, 200),
        "x": rng.normal(1000, 200, 200),
        "same": np.ones(200),
    }
    task = table(columns, client="who", label="y")
    train, test, _ = task.clients.hold_out(task.hold_out)
    for array in (train.arrays["x"][:, 0], train.arrays["y"]):
        assert abs(array.mean()) < 1e-5
        assert array.std() == pytest.approx(1, abs=1e-5)
    assert abs(test["x"][:, 0].mean()) > 1e-3
    assert (train.arrays["x"][:, 1] == 0).all()
    assert task.clients.names == ("0", "1", "2", "3")
    assert str(task.encode) == "2 numbers and the label, standardised"
    first = columns["who"] == 0
    own = task.encode({name: column[first] for name, column in columns.items()})
    np.testing.assert_array_equal(own, task.clients.arrays["x"][:50])
    y = task.clients.arrays["y"].astype(float) * task.encode.label[1] + task.encode.label[0]
    np.testing.assert_allclose(y, columns["y"], rtol=1e-5)


MIXED = {  # a table as people have them: text, gaps, dates and notes
    "user": [f"user{k % 3}" for k in range(60)],
    "activity": ["walk", "run"] * 30,
    "pace": [None if k % 7 == 0 else k + 0.5 for k in range(60)],
    "steps": [10 * k for k in range(60)],
    "shoe": ["old", "new", ""] * 20,
    "date": [f"2024-0{1 + k % 9}-1{k % 10} 12:30" for k in range(60)],
    "day": [f"{1 + k % 2}/3/2024" for k in range(60)],
    "notes": [f"run number {k}" for k in range(60)],
    "nothing": [None] * 60,
}


def test_text_gaps_and_dates_are_dealt_with_and_said(tmp_path):
    task = table(MIXED, **WHO)
    assert str(task.encode) == ("2 numbers, standardised; 1 text as 3 columns; "
                                "left out: date, day, notes, nothing; 9 gaps filled")  # fmt: skip
    assert task.encode.names == ("pace", "steps", "pace is missing", "shoe=", "shoe=new",
                                 "shoe=old")  # fmt: skip
    assert task.encode.classes == ("run", "walk")
    train, *_ = task.clients.hold_out(task.hold_out)
    raw = read(MIXED, **WHO)
    rows = np.isin(task.clients.arrays["x"][:, 1], train.arrays["x"][:, 1])  # steps differ
    pace = raw.train["numbers"][rows, 0]
    (gap,) = np.unique(train.arrays["x"][train.arrays["x"][:, 2] == 1, 0])
    filled = gap * task.encode.deviations[0] + task.encode.means[0]
    assert filled == pytest.approx(np.nanmedian(pace))
    # As a file, with an empty cell for what is not there, and as a frame with its own gaps.
    frame = pandas.DataFrame(MIXED)
    frame.to_csv(tmp_path / "a.csv", index=False)
    for data in (*[tmp_path / "a.csv"] * 2, frame.convert_dtypes()):  # again from the cache
        again = table(data, **WHO)
        assert str(again.encode) == str(task.encode)
        np.testing.assert_array_equal(again.clients.arrays["x"], task.clients.arrays["x"])


def test_own_rows_are_encoded_as_those_that_were_trained_on():
    encode = table(MIXED, **WHO).encode
    found = encode({"pace": [None, 8.5], "steps": [70, 80], "shoe": ["torn", "new"]})
    assert found[0, 2:].tolist() == [1, 0, 0, 0]  # a gap, and a value that nobody trained on
    others = MIXED | {"shoe": ["new"] * 60}
    np.testing.assert_array_equal(found[1], encode({n: [c[8]] for n, c in others.items()})[0])
    with pytest.raises(InputError, match="no column in the table called `shoe`"):
        encode({"pace": [1.5], "steps": [70]})
    late = MIXED | {"shoe": ["old"] * 59 + ["new"]}
    encode = table(late, hold_out="last", **WHO).encode
    assert encode.names[3:] == ("shoe=old",)
    assert encode({name: cells[-2:] for name, cells in late.items()})[:, 3:].tolist() == [[1], [0]]


def test_each_default_can_be_turned_off():
    made = str(table(MIXED, categories=0, **WHO).encode)
    assert "shoe" in made.partition("left out")[2]
    assert "1 text" not in made
    days = table(MIXED, features=["day", "steps"], **WHO).encode
    assert days.names == ("steps", "day=1/3/2024", "day=2/3/2024")
    plain = table(MIXED, standardise=False, **WHO)
    assert sorted(plain.clients.arrays["x"][:, 1]) == MIXED["steps"]


def test_a_column_of_arrays_is_an_input():
    windows = np.arange(5 * 4 * 3.0).reshape(5, 4, 3)
    nested = np.empty(5, object)  # as a Parquet file has them: cells of arrays of arrays
    for row, window in enumerate(windows):
        nested[row] = np.array([None] * 4)
        nested[row][:] = list(window)
    for column in (windows, nested):
        data = COLUMNS | {"window": column}
        found = table(data, features="window", standardise=False, **WHO).clients.arrays
        np.testing.assert_array_equal(found["x"], windows[[1, 3, 4, 0, 2]])


def test_parquet_is_read_with_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(MissingExtra, match=r"`pyarrow\.parquet` is not installed"):
        table(tmp_path / "a.parquet", **WHO)
    parquet = SimpleNamespace(read_table=lambda path: HubTable(COLUMNS))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    assert table(tmp_path / "a.parquet", **WHO).clients.names == ("anna", "zoe")


def test_a_set_of_the_hub(monkeypatch):
    monkeypatch.setattr(layouts, "load_table", {"owner/name": HubTable(COLUMNS)}.__getitem__)
    for place in ("hf://owner/name", Path("hf://owner/name")):  # a command has the second
        assert table(place, **WHO).clients.names == ("anna", "zoe")


WRONG = [  # text: the CSV's second line, or all of it
    ("zoe,walk,1", {"label": 5}, "`label` must be the name of a column, got 5"),
    ("zoe,walk,1", {"client": "b", "leave_out": ["user"]},
     "csv: `b` must name a client in every row, got float64"),
    ("zoe,walk,1", {"features": ["activity"], "label": "a"},
     "`activity` must be numbers, or text with at most 20 values, .* got 3 values"),
    ("zoe,walk,1", {"leave_out": ["a", "b"]},
     "no column to learn from beside `user` and `activity`."),
    ("zoe,walk,1", {"categories": -1}, "`categories` must be at least 0"),
    ("zoe,walk,1", {"features": [1]}, "`features` must be names of columns"),
    ("zoe,walk,1", {"number": True}, "`activity` must be numbers, got"),
    ("zoe,walk,1", {"features": "c"}, "no column in .*csv called `c`"),
    ("zoe,walk,1e300", {}, "csv: features must be finite in float32"),
    (",walk,1", {}, "`user` must be there.*not in row 1 of the data"),
    ("zoe,walk,NA", {"fill_gaps": False}, "`a` has no finite number in row 1"),
    ("zoe,walk,inf", {}, "`a` has no finite number in row 1"),
    ("zoe,walk,red", {}, "`a` has numbers, but for 'red' in row 1 of the data"),
    ("zoe,walk,NA", {"label": "a", "leave_out": ["activity"]}, "`a` must be there.*in row 1"),
    ("zoe,walk,1,1", {}, "row 2: must have 4 cells, got 5"),
    ("\udcff", {}, "cannot be read as a table"),
    ("user,activity,a,a\nzoe,walk,1,1\n", {}, "two columns of one name"),
    (Path("nowhere.csv"), {}, "is not there, or no file"),
    (5, {}, "`data` must be a path, got 5"),
    ({"user": [], "activity": []}, {}, "has no rows"),
    (COLUMNS | {"a": [1]}, {}, "columns must be of one length"),
    (COLUMNS | {"a": np.full(5, None)}, {"leave_out": "b"}, "no column .*, left out: a"),
    (MANY, {}, "400 classes .* `number` .--option number=true"),
    (MANY | {"activity": MANY["activity"].astype(str)}, {}, "400 classes in 400 rows.$"),
    (COLUMNS | {"activity": ["walk"] * 5}, {}, "`activity` is walk in all rows"),
    (COLUMNS | {"a": np.zeros((5, 2))}, {}, "a column of arrays must be the only one"),
    (Splits(train=COLUMNS), {}, "one split of a data set, got all: train"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "asked", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(file, data, asked, message):
    if isinstance(data, str):
        text = data if "\n" in data else CSV.replace("zoe,walk,1", data)
        file.write_bytes(text.encode(errors="surrogateescape"))
        data = file
    with pytest.raises((DataError, InputError), match=message):
        load("table", **{"data": data} | WHO | asked)


@pytest.mark.parametrize(("shape", "curves"), [((50, 3), 2 * 3), ((3, 50), 2 * 3), ((), 0)])
def test_a_picture_shows_names_and_a_curve_for_each_channel(shape, curves):
    axes = Figure().subplots()
    x = np.arange(2 * np.prod(shape, dtype=int), dtype=float).reshape(2, *shape)
    _sheet(axes, "table", (), ["anna", "a very long name of bert"], [{"x": x[:1]}, {"x": x[1:]}])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["anna", "a very long nam…"]
    assert len(axes.lines) == curves
    assert all(np.ptp(line.get_xdata()) == pytest.approx(0.9) for line in axes.lines)


def test_a_picture_of_a_table_names_its_columns(file):
    axes, task = Figure().subplots(), table(file, **WHO)
    rows = np.split(task.clients.arrays["x"], [3])
    _sheet(axes, "table", task.encode.names, ["anna", "zoe"], [{"x": x} for x in rows])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b"]
    # Ranks of 2, 4, 5 and 1, 3 in the first column, with a gap between the clients.
    assert axes.images[0].get_array()[:, 0].tolist() == [2, 4, 5, None, 1, 3]


def test_sets_of_hugging_face_as_the_library_makes_them():
    datasets = pytest.importorskip("datasets", reason="Hugging Face's library is not installed")
    made = datasets.Dataset.from_dict(COLUMNS)
    wanted = read(COLUMNS, **WHO)
    for one in (made, made.with_format("numpy"), made.with_format("pandas"),
                made.to_iterable_dataset(), made.select(range(5))):  # fmt: skip
        found = read(one, **WHO)
        assert found.names == wanted.names
        for name, array in wanted.train.items():
            np.testing.assert_array_equal(found.train[name], array)
    with pytest.raises(InputError, match="one split of a data set, got all: train, test"):
        read(datasets.DatasetDict({"train": made, "test": made}), **WHO)
