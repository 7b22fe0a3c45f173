"""The benchmark of the cost model says which steps it is far off from, and refuses rows of no commit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from analysis.prediction import profile, validate
from benchmarks import prediction

ROW: dict[str, Any] = {
    "commit": "abc",
    "ranks": 2,
    "model": "mlp",
    "batch": 32,
    "rate_mbit": 1000,
    "raw_mbit": 950.0,
    "variant": "bf16",
    "step_s": 0.25,
    "compute_s": 0.08,
}


def test_far_off_steps_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = validate.validated([ROW], profile.read(profile.DEFAULT)).predictions
    near, far = ROW | {"step_s": found.step_s * 1.1}, ROW | {"step_s": found.step_s * 2, "batch": 8}
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (near, far)))
    prediction.main([str(file), "--commit", "abc"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["far_off"] == ["mlp of batch 8 on 2 ranks at 1 Gbit/s (-50 %)"]
    assert told["of_commit"]["worst_error"] == pytest.approx(0.5)
    assert told["of_all"]["rows"] == 2
    even = [math.inf if found == "always" else found for found in told["break_even"].values()]
    assert even == sorted(even, reverse=True)
    with pytest.raises(SystemExit):
        prediction.main([str(file), "--commit", "def"])
    assert "no row is of a method" in capsys.readouterr().err
