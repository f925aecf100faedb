"""How tests run: JAX on the CPU, the same examples every time, no silent promotion in the core.

Strict dtype and rank promotion hold in the tests of the core, which is written for any array
library. Tasks are user code and Optax's adam and yogi mix dtypes, so simulations run without.

Programs of tests run for milliseconds and are compiled for seconds, so XLA optimises little unless
XLA_FLAGS says otherwise; `make test-slow` leaves it as users have it for federations and real data,
`make test-nightly` for all.

Tests marked `gpu` need JAX to have one: `JAX_PLATFORMS=cuda,cpu`, as `tests/gpu.py` sets it. With
TACITURN_GPU_TESTS=cpu they run on a CPU, kernels interpreted, to see that the tests are right.
"""

import os
import signal
import sys
import zlib
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # tests run side by side
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from hypothesis import settings

_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
if jax.__version_info__ >= (0, 10, 2):
    _FLAGS += " --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
if os.environ["JAX_PLATFORMS"] == "cpu":
    os.environ.setdefault("XLA_FLAGS", _FLAGS)  # before JAX compiles anything

# Tests that are run in the background have Ctrl-C ignored, and so has all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs that are the same in many tests are compiled once, and not again in the next run.
_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

settings.register_profile("taciturn", derandomize=True, deadline=None, database=None)
settings.load_profile("taciturn")


def pytest_addoption(parser):
    parser.addoption(
        "--every", type=int, default=1, metavar="N", help="run one test in N, by a hash of its id"
    )


def pytest_collection_modifyitems(config, items):
    every = config.getoption("--every")
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % every == 0]


@pytest.fixture(autouse=True)
def strict_promotion(request):
    if request.path.parent.name not in ("core", "contract"):
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def taciturn(tmp_path, monkeypatch, capsys):
    """Exit code, stdout and stderr of `taciturn …`, called in this process and an empty folder."""
    from taciturn.__main__ import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["taciturn", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def every_round_is_saved(monkeypatch):
    """Every round is a chunk, and every chunk a checkpoint."""
    from taciturn.sim import checkpoint, engine

    monkeypatch.setattr(engine, "_CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_LONGEST", 0.0)


@pytest.fixture
def loud(taciturn):
    """Writes parts.py with a rule `loud` that speaks where a condition holds; it does not stay."""
    from taciturn.core import policy

    def write(condition):
        policy.RULES.pop("loud", None)  # as in a new process
        Path("parts.py").write_text(
            "import taciturn\n"
            "def loud(share: float = 1.0) -> taciturn.Rule:\n"
            "    return taciturn.Rule('loud', (('share', share),), init=lambda *_: (share,),\n"
            f"        speaks=lambda own, context: {condition},\n"
            "        learn=lambda state, tally: state, looks_at=('norm',))\n"
            "taciturn.register('rule', loud)\n"
        )

    yield write
    policy.RULES.pop("loud", None)
    policy.OWN.clear()


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is None or os.environ.get("TACITURN_GPU_TESTS") == "cpu":
        return
    # Where the CPU alone was asked for, JAX is not started to find that out: simulations still
    # have to make every core a device.
    if os.environ["JAX_PLATFORMS"] == "cpu" or jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here: `make test-gpu` where there is one")
