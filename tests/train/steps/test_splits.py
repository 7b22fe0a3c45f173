"""One process that hosts four workers, two that host two each, three, and four real ones: the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.train import split_run
from tests.train.trainings import TRAININGS

pytestmark = pytest.mark.slow  # four processes train every method
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=4",
        "--standalone",
        split_run.__file__,
        str(folder),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize("name", TRAININGS)
def test_every_split_gives_the_same_bits(name, ranks):
    alone = split_run.train(TRAININGS[name], None)
    found = {
        f"rank {rank}: {case}": value
        for rank, result in enumerate(ranks)
        for case, value in result.items()
        if case.startswith(f"{name} on ")
    }
    assert len(found) == 4 + (5 if name in split_run.FEWER else 0)
    assert found == dict.fromkeys(found, alone)


@pytest.mark.parametrize(
    ("name", "size"), [("hierarchical", 4), ("hierarchical local", 4), ("first of three", 3), ("first two of three", 3)]
)
def test_all_ranks_end_alike_where_a_simulation_cannot_know(name, size, ranks):
    found = [result[f"{name} among {size}"] for result in ranks[:size]]
    assert all(of == found[0] for of in found)


def test_what_is_handed_to_the_network_is_counted(ranks):
    control = 2 * 2 * 8  # the first parameter that is not finite and the loss, one worker's and the stop, in float64
    for result in ranks:
        encoded, sent = result["sent"]
        assert sent == 3 * (encoded + control)
    assert split_run.sent_in_a_step(None) == [encoded, 0]
