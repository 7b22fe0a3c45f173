"""No history at random breaks a promise, and each fault that was put back is found by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual_slurm import faults, histories
from tests.virtual_slurm.faults import FAULTS

QUICK, MANY, ENOUGH = 40, 1200, 1000


def test_nothing_is_lost_and_nothing_begun_twice() -> None:
    for seed in range(QUICK):
        told = histories.play(seed)
        assert not told, told


@pytest.mark.slow
def test_nor_in_thousands_of_histories() -> None:
    for seed in range(QUICK, MANY):
        told = histories.play(seed)
        assert not told, told


@pytest.mark.slow
@pytest.mark.parametrize("loss", FAULTS)
def test_a_fault_that_is_put_back_is_found(tmp_path: Path, loss: str) -> None:
    assert "BROKEN: " in faults.found(FAULTS[loss], tmp_path, 0, ENOUGH)


def test_a_seed_plays_the_same_history_again(tmp_path: Path) -> None:
    told = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with histories.quickly():
            history = histories.History(7, folder)
            with history.slurm.in_place():
                history.run()
        told.append([line.partition("->")[0].replace(str(folder), "") for line in history.told])
    assert told[0] == told[1]
