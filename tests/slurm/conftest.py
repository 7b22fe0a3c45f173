"""One real cluster for all tests of this folder, which are collected only with NUQ_SLURM=1: they need root and SLURM's
packages.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster

collect_ignore_glob = [] if os.environ.get("NUQ_SLURM") == "1" else ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """A real cluster takes its time: none of these tests is quick (``tests/budget.py``)."""
    item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def slurm() -> Iterator[cluster.Slurm]:
    """A cluster with accounting: nodes n1 and n2, partitions p100 (default), cpu, short, low and high."""
    # Not tmp_path: sockets need a short path.
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        cluster.started(Path(folder)) as running,
    ):
        yield running


@pytest.fixture
def quiet(slurm: cluster.Slurm) -> Iterator[cluster.Slurm]:
    """The cluster with no job waiting or running, before and after the test."""
    slurm.cancel_all()
    yield slurm
    slurm.cancel_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the ends of the daemons' logs."""
    report = yield
    running = getattr(item, "funcargs", {}).get("slurm")
    if report.failed and isinstance(running, cluster.Slurm):
        report.sections.append(("SLURM's logs", running.logs()))
    return report
