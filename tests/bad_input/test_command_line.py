"""Bad input on the command line: one line that names what is wrong, and nothing left behind.

A case is a command line and a piece of what it must say. `NAME` in braces is a file of `files.py`.
Nothing here trains or compiles: input that gets as far as that was accepted, and fails the case.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from pathlib import Path

import pytest
from accepting import refused

from taciturn.__main__ import main

# What every number on the command line refuses; `taciturn` itself says 1, its parser 2.
NUMBERS = {
    "rounds": "0 -1 1.5 x nan 1e3 10000001 1000000000000 ''",
    "cohort": "0 -1 1.5 x 101 1000000000000 ''",
    "choice": "0 -1 1.5 x 9 101 1000000000000 ''",
    "epochs": "0 -1 0.5 x 1000000000 99999999999999999999 ''",
    "batch": "0 -1 0.5 x 1000000000 99999999999999999999 ''",
    "lr": "-0.1 -1e-30 nan inf -inf x 1e400 ''",
    "clip": "0 -1 nan -inf x ''",
    "dropout": "-0.1 1 2 nan x ''",
    "stragglers": "-0.1 1.1 nan x ''",
    "prox": "-1 nan inf x ''",
    "lr-decay": "0 -1 1.1 nan x ''",
    "lr-schedule": "linear Cosine ''",
    "server-lr": "-1 nan inf x ''",
    "seed": "-1 1.5 x 4294967296 18446744073709551616 ''",
    "seeds": "0 -1 1.5 x 1000001 1000000000000 4294967296 '1 1' '0 -1' '1 4294967296' ''",
    "evaluate-every": "0 -1 1.5 x ''",
    "devices": "0 -1 x 1000 1.5",
    "lanes": "0 -1 x 1000000000 1.5",
}
OPTIONS = [
    (f"run synthetic --{name} {value or empty}", name)
    for name, values in NUMBERS.items()
    for value in shlex.split(values)
    for empty in ("''",)
] + [
    ("run synthetic --option clients=5 --option hidden=3", "`--option` is there 2 times"),
    ("run synthetic --lr 0.1 --rounds 3 --lr=0.2", "`--lr` is there 2 times"),
]

POLICIES = [
    (f"run synthetic --policy {shlex.quote(text)}", needle)
    for text, needle in [
        ("", "There is no rule, stand-in or codec called ``"),
        ("adaptve", "`adaptve`. Did you mean `adaptive`"),
        ("adaptive+", "called ``"),
        ("+ou", "called ``"),
        ("adaptive ou", "`adaptive ou`"),
        ("Adaptive", "`Adaptive`"),
        ("adaptive+adaptive", "one rule, got two"),
        ("ou+zero", "one stand-in, got two"),
        ("float16+eden:1", "one codec, got two"),
        ("fixed", "`fixed` needs `threshold`"),
        ("fixed:", "`threshold` must be a number"),
        ("fixed:-1", "`threshold` must be in [0, inf]"),
        ("fixed:nan", "`threshold` must be in"),
        ("fixed:x", "`threshold` must be a number"),
        ("fixed:1,2", "key=value, got `2`"),
        ("fixed:1,threshold=2", "`threshold` is given twice"),
        ("fixed:true", "`threshold`"),
        ("full:1", "`full` takes no value"),
        ("full,k=1", "`full` takes no arguments"),
        ("adaptive,q=1", "argument of `adaptive` called `q`"),
        ("adaptive,k", "key=value, got `k`"),
        ("adaptive,k=", "`k` must be a number"),
        ("adaptive,k=inf", "`k` must be in"),
        ("adaptive,k=nan", "`k` must be in"),
        ("adaptive,weighted=1", "`weighted` must be true or false"),
        ("adaptive,weighted=maybe", "`weighted` must be true or false"),
        ("random", "`random` needs `probability`"),
        ("random:2", "`probability` must be in [0, 1]"),
        ("random:-0.1", "`probability`"),
        ("random:nan", "`probability`"),
        ("random:half", "`probability`"),
        ("adaptive+ou,mode=best", "`mode` must be constrained or paper"),
        ("adaptive+ou,cap=1", "`cap` must be true or false"),
        ("adaptive+zero:1", "`zero` takes no value"),
        ("full+quantize", "`quantize` needs `bits`"),
        ("full+quantize:0", "bits"),
        ("full+quantize:33", "bits"),
        ("full+quantize:1.5", "bits"),
        ("full+quantize:x", "bits"),
        ("full+eden:0", "bits"),
        ("full+eden:-1", "bits"),
        ("full+eden:9", "bits"),
        ("full+eden:nan", "bits"),
        ("full+top_k:0", "share"),
        ("full+top_k:2", "share"),
        ("full+top_k:x", "share"),
        ("full+sparse_ternary:0", "share"),
        ("full+sparse_ternary:1.5", "share"),
        ("full+eden:1,feedback=true", "`feedback` of `eden` is for the way down alone"),
        ("full+peaks:31B", "`length` must be at least 32 bytes, got 31B"),
        ("full+peaks:0", "`length` must be in (0, 32], got 0"),
        ("full+peaks:40", "`length` must be in (0, 32], got 40"),
        ("full+peaks:4 parsecs", "have a unit, as in 1%, 200kB or 2GB, got '4 parsecs'"),
        ("full+down=peaks:0.1", "`down` needs a codec whose `error` is below 1, got `peaks:0.1`"),
        ("budget:4", "must be above 0 and have a unit, as in 1%, 200kB or 2GB, got 4"),
        ("budget:-1kB", "must be above 0 and have a unit, as in 1%, 200kB or 2GB, got '-1kB'"),
        ("budget:4kB,per=week", "`per` must be round or client or run, got 'week'"),
        ("budget,per=run", "`per=run` needs an amount"),
        ("budget:1kB+eden:1", "`budget` and `eden` do not go together"),
        ("full+draw_k:0.01", "called `draw_k`"),
        ("adaptive+peers", "called `peers`"),
        ("full+float16:1", "`float16` takes no value"),
        ("x" * 5000, "There is no rule, stand-in or codec called `xxx"),
        ("füll", "`füll`"),
    ]
]

OTHERS = [
    ("", "run"),
    ("walk", "walk"),
    ("run --rouns 3", "--rouns"),
    ("run synthetic extra", "extra"),
    ("run synthetc", "task called `synthetc`. Did you mean `synthetic`"),
    ("run ''", "task called ``"),
    (f"run {'x' * 300}", "task called `xxx"),
    ("run synthetic --rule adaptve", "rule called `adaptve`"),
    ("run synthetic --rule zero", "rule called `zero`"),
    ("run synthetic --rule ''", "rule called ``"),
    ("run synthetic --stand-in zeros", "stand-in called `zeros`"),
    ("run synthetic --stand-in full", "stand-in called `full`"),
    ("run synthetic --policy full --rule full", "`--policy` takes the place of"),
    ("run synthetic --policy full --stand-in ou", "`--policy` takes the place of"),
    ("run synthetic --budget 4", "must be above 0 and have a unit"),
    ("run synthetic --budget 4kB --rule full", "`--budget` takes the place of"),
    ("run synthetic --precision float64", "precision called `float64`"),
    ("run synthetic --precision ''", "precision called ``"),
    ("run synthetic --client-optimizer adm", "optimizer called `adm`"),
    ("run synthetic --server-optimizer ''", "optimizer called ``"),
    ("run synthetic --seed 1 --seeds 2", "`seed` is one run"),
    ("run synthetic --rounds 1000000 --seeds 1000", "`rounds` must be at most 10000"),
    ("run synthetic --split iid", "`synthetic` has no option `split`"),
    ("run synthetic --alpha 1", "`synthetic` has no option `alpha`"),
    ("run synthetic --data .", "`synthetic` has no option `data`"),
    ("run synthetic --hold-out last", "`hold_out` cannot be chosen"),
    ("run glyphs --hold-out last", "`hold_out` cannot be chosen"),
    ("run synthetic-niid --hold-out first", "`hold_out` must be random or last"),
    ("run synthetic --plain --lanes 2", "`lanes` is the engine's"),
    ("run synthetic --plain --devices 1", "`devices` is the engine's"),
    ("run synthetic --plain --precision half", "precision called `half`"),
    ("run synthetic --out {text}", "is already there and not an empty folder"),
    ("run synthetic --out {folder}", "is already there and not an empty folder"),
    ("run synthetic --out {text}/below", "cannot be made"),
    (f"run synthetic --out {'x' * 5000}", "`out` cannot be"),
    ("run synthetic --out /proc/none/x", "cannot be made"),
    ("run synthetic --out {not_utf8}", "`out` cannot be"),
    ("run synthetic --out", "--out"),
    ("run synthetic --baseline maybe", "maybe"),
    ("run synthetic --json yes", "yes"),
    ("data", "list"),
    ("data look", "look"),
    ("data fetch", "needs a name"),
    ("data check", "needs a name"),
    ("data show", "needs a name"),
    ("data fetch mnist", "data set called `mnist`"),
    ("data check ''", "data set called ``"),
    ("data show nothing", "task called `nothing`"),
    ("data show npz", "needs `data`"),
    ("data fetch emnist --data {empty}", "were not found in"),
    ("data check emnist --data {empty}", "were not found in"),
    ("data check emnist --data {missing}", "`data` must be a folder"),
    ("data list --data {missing}", "`data` must be a folder"),
    ("data list --data {text}", "`data` must be a folder"),
    ("data show synthetic --out {missing}/a/b.png", "cannot be written"),
    (f"data show synthetic --out {'x' * 5000}", "`out` cannot be"),
    ("data show synthetic --out {folder}", "cannot be written"),
    ("report", "A run folder is needed"),
    ("watch {empty} --port 80000", "`port` must be in [0, 65535], got 80000"),
    ("report {missing}", "has no metrics.csv"),
    ("report {text}", "has no metrics.csv"),
    ("report {empty}", "has no metrics.csv"),
    (f"report {'x' * 5000}", "`folders` cannot be"),
    ("report {run_without_rows}", "has no rounds yet"),
    ("report {run_of_other_columns}", "no column 'seed'"),
    ("report {run_cut_in_the_middle}", "at row 2 with 6 columns"),
    ("report {run_without_bytes}", "no `bytes_up` in row 1"),
    ("report {run_with_words}", "could not convert"),
    ("report {run_in_latin}", "cannot be read"),
    ("report {run} --out {missing}/a/b.png", "cannot be written"),
    ("report {run} --out {folder}", "`--out` must end in .html or .png"),
    ("frontier nothing --out {new}", "`nothing`"),
    ("frontier glyphs --seeds 0", "`seeds`"),
    ("frontier glyphs --lr x", "--lr"),
    ("frontier glyphs --side-by-side 0", "`side_by_side`"),
    ("frontier glyphs --policies nobody --out {new}", "`nobody`"),
    ("frontier glyphs --option clients --out {new}", "`--option` is KEY=VALUE"),
    ("frontier list --out {text}", "`--out` must be a folder"),
    ("paper", "list"),
    ("paper table", "needs a name"),
    ("paper figure", "needs a name"),
    ("paper table nothing --out {new}", "`nothing`"),
    ("paper figure 99 --out {new}", "`99`"),
    ("paper table main --seeds 0", "`--seeds`"),
    ("paper table main --rounds 0", "`--rounds`"),
    ("paper table main --seeds x", "--seeds"),
    ("paper table main --precision half", "precision called `half`"),
    ("paper all --quick", "`all` has no quick form"),
    ("paper all --page {folder}", "`--page` must be a file"),
    ("paper list --out {text}", "`--out` must be a folder"),
    (f"paper list --out {'x' * 5000}", "`out` cannot be"),
    ("list extra", "extra"),
    ("compare synthetic", "needs policies"),
    ("compare synthetic --arms ''", "called ``"),
    ("compare synthetic --arms 'full; full'", "is there twice"),
    ("compare synthetic --arms 'full; fulll'", "`fulll`"),
    ("compare synthetic --arms 'full;'", "called ``"),
    ("compare synthetic --arms full --policy full", "--policy"),
    ("resume", "RUN"),
    ("resume {missing}", "is not a folder"),
    ("resume {empty}", "has no config.toml"),
    ("resume {text}", "is not a folder"),
    ("run --config {missing}", "cannot be used"),
    ("run --config {text}", "cannot be used"),
    ("run --config {folder}", "cannot be used"),
    ("run --config {toml_unknown}", "setting called `rouns`"),
    ("run --config {toml_word}", "`rounds` must be a whole number"),
    ("run --config {toml_empty_list}", "`lr` has no value"),
    ("run synthetic --sweep lr", "name=value,value"),
    ("run synthetic --sweep lr=", "`lr` must be a number"),
    ("run synthetic --sweep lr=0.1,x", "`lr` must be a number"),
    ("run synthetic --sweep learning=1", "setting called `learning`"),
    ("run synthetic --sweep seeds=1,2", "A sweep is written"),
    ("run synthetic --sweep rounds=0,1", "`rounds` must be at least 1"),
    ("list --data x", "--data"),
]

# A data file that is wrong is named, with what is wrong in it.
NPZ = [
    (f"run npz --data {{{name}}}", needle)
    for name, needle in [
        ("missing", "is not there"),
        ("empty", "cannot be read: Is a directory"),
        ("text", "is no whole npz file"),
        ("npz_cut", "is no whole npz file"),
        ("npz_zero_bytes", "is no whole npz file"),
        ("npz_of_nothing", "has no array `x`"),
        ("npz_without_y", "has no array `y`"),
        ("npz_without_client", "has no array `client`"),
        ("npz_scalar_x", "`x` must be numbers, one entry per example"),
        ("npz_scalar_y", "labels must be whole numbers"),
        ("npz_scalar_client", "`client` must be a number or a name for each example"),
        ("npz_no_examples", "has no client with a training example"),
        ("npz_no_features", "has no numbers"),
        ("npz_text_x", "`x` must be numbers"),
        ("npz_complex_x", "`x` must be numbers"),
        ("npz_nan_x", "`x` must be finite"),
        ("npz_large_x", "`x` must be finite"),
        ("npz_float_y", "labels must be whole numbers"),
        ("npz_matrix_y", "labels must be whole numbers"),
        ("npz_negative_y", "labels must be in 0 to"),
        ("npz_y_2_40", "labels must be in 0 to"),
        ("npz_y_2_31", "number the classes from 0"),
        ("npz_y_5e6", "number the classes from 0"),
        ("npz_short_y", "6 `x` and 5 `y`"),
        ("npz_short_client", "has 6 `x` and the clients of 5"),
        ("npz_float_client", "`client` must be a number or a name"),
        ("npz_x_test_alone", "has `x_test` and no `y_test`"),
        ("npz_y_test_alone", "has `y_test` and no `x_test`"),
        ("npz_test_lengths", "6 `x` and 5 `y`"),
        ("npz_test_shape", "`x` is float32 of (1,), that of others"),
        ("npz_test_labels", "labels must be in 0 to 2"),
        ("npz_test_empty", "have no examples"),
        ("npz_pickle", "holds Python objects"),
        ("npz_giant_header", "its header says"),
        ("npz_giant_rank", "is no whole npz file"),
        ("npz_bomb", "more than 100 times as much"),
        ("npz_encrypted", "is no whole npz file"),
        ("folder", "cannot be read: Is a directory"),
    ]
]
FOLDERS = [
    (f"run {task} --data {{{name}}}", needle)
    for task, name, needle in [
        ("folder", "missing", "is not there"),
        ("folder", "empty", "has no folders with x.npy and y.npy"),
        ("folder", "text", "has no folders with x.npy and y.npy"),
        ("folder", "folder_without_y", "y.npy cannot be read"),
        ("folder", "folder_of_text", "cannot be read"),
        ("folder", "folder_giant_header", "its header says"),
        ("folder", "folder_test_alone", "x_test.npy cannot be read"),
        ("folder", "folder_shapes", "that of others"),
        ("folder", "folder_empty_clients", "has no client with a training example"),
        ("idx", "missing", "`data` must be a folder"),
        ("idx", "text", "`data` must be a folder"),
        ("idx", "empty", "has no file called *train-images*"),
        ("idx", "idx_cut", "must have"),
        ("idx", "idx_longer", "must have"),
        ("idx", "idx_text", "is no idx file"),
        ("idx", "idx_giant_header", "must have"),
        ("idx", "idx_giant_rank", "is cut short"),
        ("idx", "idx_bomb", "more than 100 times as much"),
        ("idx", "idx_longer_gzip", "must have"),
        ("idx", "idx_half_gzip", "cannot be read"),
        ("idx", "idx_no_gzip", "cannot be read"),
        ("idx", "idx_labels", "number the classes from 0"),
        ("idx", "idx_lengths", "labels for the"),
        ("idx", "idx_no_images", "labels for the"),
        ("idx", "idx_twice", "has several files"),
        ("idx", "idx_floats", "must hold images of bytes"),
        ("fashion", "empty", "were not found in"),
        ("fashion", "missing", "`data` must be a folder"),
        ("emnist", "empty", "were not found in"),
        ("emnist", "text", "`data` must be a folder"),
        ("emnist", "tff_text", "is no whole HDF5 file"),
        ("emnist", "tff_no_group", "has no group `examples`"),
        ("emnist", "tff_no_label", "pixels or label is missing"),
        ("emnist", "tff_shapes", "must have the shape"),
        ("emnist", "tff_labels", "labels must be in 0 to 61"),
        ("emnist", "tff_nan", "pixels must be in [0, 1]"),
        ("shakespeare", "empty", "were not found in"),
        ("shakespeare", "shakespeare_numbers", "snippets must be"),
        ("shakespeare-leaf", "empty", "No train/*.json"),
        ("shakespeare-leaf", "leaf_null", "has no `users`"),
        ("shakespeare-leaf", "leaf_text", "is no whole JSON file"),
        ("shakespeare-leaf", "leaf_deep", "is no whole JSON file"),
        ("shakespeare-leaf", "leaf_null_users", "`users` must be a list"),
        ("shakespeare-leaf", "leaf_null_counts", "`num_samples` must be a list"),
        ("shakespeare-leaf", "leaf_null_data", "has no lists `x` and `y`"),
        ("shakespeare-leaf", "leaf_null_x", "has no lists `x` and `y`"),
        ("shakespeare-leaf", "leaf_null_text", "every `x` must be 80 characters"),
        ("shakespeare-leaf", "leaf_short_text", "every `x` must be 80 characters"),
        ("shakespeare-leaf", "leaf_counts", "must have 2 examples"),
        ("shakespeare-leaf", "leaf_few_counts", "names 1 users and the row counts of 0"),
        ("emnist", "leaf_ragged_labels", "every `x` must be 784 numbers"),
        ("emnist", "leaf_null_pixels", "pixels must be in [0, 1]"),
    ]
]
OF_TASKS = [
    ("run npz", "`npz` needs `data`"),
    ("run folder", "`folder` needs `data`"),
    ("run idx", "`idx` needs `data`"),
    (f"run npz --data {'x' * 5000}", "`data` cannot be"),
    ("run npz --data {not_utf8}", "`data` cannot be"),
    ("run npz --data ''", "cannot be read: Is a directory"),
    ("run npz --data {npz} --cohort 3", "at most the population of 2 clients"),
    ("run npz --data {npz} --hold-out never", "`hold_out` must be random or last"),
    ("run npz --data {npz_one_row_each} --cohort 1", "No client has two examples"),
    ("run npz --data {npz} --split iid", "`npz` has no option `split`"),
    ("run table", "`table` needs `data`"),
    ("run table --data {csv}", "`table` needs `client`"),
    ("run table --data {csv} --client user", "`table` needs `label`"),
    ("run table --data {csv} --client usr --label y", "called `usr`"),
    ("run table --data {csv} --client user --label z", "called `z`"),
    ("run table --data {csv} --client user --label user", "must be two columns"),
    ("run table --data {csv} --client user --label y --leave-out z", "called `z`"),
    ("run table --data {csv} --client user --label y --leave-out a", "no column to learn from"),
    ("run table --data {csv} --client user --label y --option hidden=0", "`hidden` must be"),
    ("run table --data {csv} --client user --label y --option hiden=3", "no option `hiden`"),
    ("run table --data {csv} --client user --label y --option hidden", "KEY=VALUE"),
    ("run table --data {csv} --client user --label y --option label=a", "KEY=VALUE, each once"),
    ("run table --data {missing} --client user --label y", "is not there, or no file"),
    ("run table --data {folder} --client user --label y", "is not there, or no file"),
    ("run table --data {text} --client user --label y", "has no rows below its names"),
    ("run table --data {npz} --client user --label y", "cannot be read as a table"),
    ("run table --data {csv_cut} --client user --label y", "must have 3 cells, got 2"),
    ("run table --data {csv_empty_cell} --client user --label y", "no finite number in row 2"),
    ("run synthetic --client user", "`synthetic` has no option `client`"),
    ("run synthetic --option seed=-1", "`seed` must be at least 0"),
    ("data show table --data {csv}", "`table` needs `client`"),
    ("run idx --data {idx} --split even", "`split` must be iid or dirichlet"),
    ("run idx --data {idx} --split dirichlet --alpha 0", "`alpha` must be in"),
    ("run idx --data {idx} --split dirichlet --alpha nan", "`alpha` must be in"),
    ("run idx --data {idx} --alpha x", "--alpha"),
    ("run idx --data {idx}", "`clients` must be at most 3 examples"),
]
CASES = [*OPTIONS, *POLICIES, *OTHERS, *NPZ, *FOLDERS, *OF_TASKS]


@pytest.mark.parametrize(("line", "needle"), CASES, ids=[line[:70] for line, _ in CASES])
def test_it_is_one_line_that_says_what_is_wrong(
    line: str,
    needle: str,
    places: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [word.format_map(places) for word in shlex.split(line)]
    monkeypatch.setattr(sys, "argv", ["taciturn", *arguments])
    with refused(monkeypatch), pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert stop.value.code in (1, 2), err
    assert "Traceback" not in err
    assert out == ""
    plain = " ".join(err.replace("│", " ").split())
    assert needle in plain or needle in plain.replace("_", "-")
    if stop.value.code == 1:
        assert err.startswith("taciturn: ")
        assert err.count("\n") == 1
        assert len(err) < 1_000
    assert not Path("runs").exists()


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the start; `tests/test_resume.py` fills the disk later on."""

    def fsync(descriptor: int) -> None:
        raise FULL

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(sys, "argv", ["taciturn", "run", "synthetic", "--out", "there"])
    with refused(monkeypatch), pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("taciturn: there/config.toml cannot be written: No space left on device")
