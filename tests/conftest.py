"""Fixtures of every test: one thread, no windows, quick properties, and the real CIFAR-10 where it is at hand."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

from nuq import native

# Before numpy and torch are imported: results are compared at one thread, and the machine has few cores.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"

# The same examples every time: a red run is red again when it is repeated.
settings.register_profile("nuq", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("nuq")

# Shapes and types in the annotations of these modules are checked at every call that a test makes.
install_import_hook(["nuq.kernels.reference", "nuq.kernels.bit_packing"], "beartype.beartype")

ROOT = Path(__file__).parent.parent

# Warnings are errors, and the library warns where its kernels are not built: then everything is tested without them.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    KERNELS = native.library() is not None
if not KERNELS:
    os.environ["NUQ_CPU"] = "off"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One thread again: a training in this process sets the threads of its own settings, and sums depend on them."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def pytest_report_header() -> str:
    """The kernels under test, as a line of the report."""
    return f"C++ kernels: {', '.join(native.instruction_sets()) if KERNELS else 'not built, so not tested'}"


@pytest.fixture(scope="session")
def real_data_dir() -> Path:
    """The data directory (``NUQ_DATA``, else ``data`` in the checkout) that holds CIFAR-10 as an ImageFolder tree;
    skips without.
    """
    folder = Path(os.environ.get("NUQ_DATA", ROOT / "data"))
    missing = [split for split in ("train", "test") if not (folder / "cifar10" / split).is_dir()]
    if missing:
        pytest.skip(
            f"no real CIFAR-10: {folder / 'cifar10' / missing[0]} is not there (NUQ_DATA names another data directory)"
        )
    return folder
