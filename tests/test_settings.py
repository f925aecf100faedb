"""Settings: one dataclass is the command line, the Python arguments and a program's key."""

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from taciturn import cli
from taciturn.settings import Settings
from taciturn.sim.defaults import fill_in
from taciturn.tasks import load


def test_every_setting_is_an_option_of_the_command():
    line = (
        "--rounds 7 --cohort 3 --choice 5 --dropout 0.1 --stragglers 0.2 --epochs 2 --batch 4 "
        "--lr 0.5 --clip 2.0 --client-optimizer adam --prox 0.5 --lr-decay 0.9 --lr-schedule "
        "cosine --server-optimizer yogi --server-lr 0.1 --kept-messages 8 --seeds 3 --seed 9 "
        "--evaluate-every 2 --precision tf32 --devices 1 --lanes 2"
    )
    command, usual = cli.read(["run", *line.split()]), cli.read(["run"])
    found = [f"--{f.name.replace('_', '-')} {getattr(command, f.name)}" for f in fields(Settings)]
    assert " ".join(found) == line
    assert cli.read(["run", "--seeds", "3", "5"]).seeds == (3, 5)
    assert all(getattr(usual, f.name) == f.default for f in fields(Settings))


def test_a_programs_key_is_the_static_fields_and_the_number_of_seeds():
    task = load("synthetic")
    base = fill_in(Settings(seeds=2), task)
    numbers = Settings(seeds=(8, 9), rounds=7, lr=0.3, clip=2.0, server_lr=0.5, evaluate_every=3)
    assert fill_in(numbers, task).form == base.form
    assert hash(fill_in(numbers, task).form) == hash(base.form)
    for other in ({"seeds": 3}, {"cohort": 9}, {"client_optimizer": "adam"}, {"prox": 0.1}):
        assert fill_in(Settings(**({"seeds": 2} | other)), task).form != base.form, other


@pytest.mark.parametrize("seeds", [2, [0, 1], range(2), np.arange(2), np.int64(2)])
def test_numbers_in_any_form_come_out_as_pythons(seeds):
    given = Settings(seeds=seeds, rounds=np.int64(2), lr=np.float32(0.5))
    filled = fill_in(given, load("synthetic"))
    assert (filled.all_seeds, filled.rounds, filled.lr) == ((0, 1), 2, 0.5)
    assert {type(value) for value in (*filled.all_seeds, filled.rounds)} == {int}
    assert type(filled.lr) is float


def test_a_library_leaves_the_callers_jax_as_it_was():
    """Only `taciturn.prepare`, which the command line calls, sets JAX up."""
    code = (
        "import jax, taciturn\n"
        "names = ('jax_num_cpu_devices', 'jax_compilation_cache_dir',\n"
        "         'jax_persistent_cache_min_compile_time_secs', 'jax_enable_x64')\n"
        "def seen(): return [getattr(jax.config, name) for name in names]\n"
        "before = seen()\n"
        "taciturn.compare('synthetic', {'a': 'full'}, rounds=1, cohort=2)\n"
        "assert seen() == before, seen()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
