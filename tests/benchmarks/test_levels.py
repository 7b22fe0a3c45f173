"""The benchmark of levels: two versions in turns."""

import pytest

from benchmarks import levels
from benchmarks.levels import OURS, RIVAL, ROOT


@pytest.mark.slow
def test_versions_are_measured_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "TURNS", 1)
    checkouts = {OURS: ROOT, RIVAL: ROOT}
    lives = levels.in_versions(checkouts, 0, {"amq": {"do": "life", "method": "amq"}})
    assert set(lives["amq"]) == {OURS, RIVAL, "ratio", "same_bits"} and lives["amq"]["same_bits"]
    case = {"do": "all_reduce", "method": "qsgdinf", "size": 500}
    found = levels.in_versions(checkouts, 2, {"qsgdinf": case})["qsgdinf"]
    assert found["calls"][OURS] == found["calls"][RIVAL] <= 400
    assert 0 < found[OURS]["low"] <= found[OURS]["median"] <= found[OURS]["high"]
