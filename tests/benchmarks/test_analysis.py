"""The benchmark of loading: its sweep is what it says, and a small turn of it agrees with TensorBoard."""

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.logs.load import load
from benchmarks import analysis


@pytest.mark.slow
def test_a_small_turn_measures_everything_and_agrees_with_tensorboard(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    analysis.main(["--runs", "21", "--steps", "20", "--turns", "2", "--sample", "2", "--folder", str(tmp_path)])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last) == {"load_21_cold_s", "load_21_warm_s", "speedup_vs_tensorboard", "peak_gb", "figures"}
    assert last["figures"]["rows"] == 21 * 20 * len(analysis.TAGS)
    assert last["figures"]["values_that_differ"] == 0
    assert last["peak_gb"] > 0
    assert not list(tmp_path.iterdir())


def test_runs_of_the_made_sweep_differ_and_some_were_requeued(tmp_path: Path) -> None:
    analysis.make(tmp_path / analysis.SWEEP, 20, 30, np.random.default_rng(0))
    logs = load(tmp_path, analysis.SWEEP, cache=False)
    assert logs.notes == ()
    assert logs.of_tag("Vacc").shape == (30, 20)
    assert logs.of_tag("Vacc").nunique(axis=1).tolist() == [20] * 30
    assert set(logs.scalars.loc[logs.scalars["attempt"] > 0, "run"]) == {logs.settings.index[-1]}
    assert set(logs.settings["seed"]) == set(range(1, 11))
