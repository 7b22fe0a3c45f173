"""The figures of a slow link by case are those of its rows, over all runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import wire_cases
from benchmarks.results import result_file

ROW: dict[str, Any] = {
    **dict.fromkeys(("compute_s", "exposed_s"), 0.1),
    **dict.fromkeys(("bytes_sent_per_step", "interface_bytes_per_step"), 4e6),
    "ranks": 2,
    "model": "mlp",
    "batch": 32,
    "rate_mbit": 1000,
    "raw_mbit": 950.0,
    "variant": "alq",
    "rounds": 3,
    "step_s": 0.2,
    "bytes_disagree": 0.01,
    "speedup_vs_bf16": [1.0, 2.0, 4.0],
    "efficiency": [0.5],
    "level_update_s": 0.07,
}


def test_runs_of_a_case_are_taken_together() -> None:
    more = {"turn": "second", "step_s": 0.4, "speedup_vs_bf16": [3.0, 5.0], "rounds": 2, "level_update_s": 0.09}
    other = {**ROW, "variant": "fp32", "bytes_disagree": 0.5, "turn": "second", "level_update_s": 0.09}
    figures = wire_cases.figures([ROW, ROW | more, other])
    alq = figures["cases"]["2 ranks, mlp, batch 32"]["1 Gbit/s"]["alq"]
    assert alq["step_s"] == pytest.approx(0.3)
    assert alq["speedup_vs_bf16"] == {"median": 3.0, "low": 1.0, "high": 5.0}
    assert (alq["runs"], alq["rounds"]) == (2, 5)
    assert "speedup_vs_fp32" not in alq
    assert figures["bytes_disagree"] == 0.01
    assert figures["level_update_s"] == {"2 ranks": {"median": 0.08, "low": 0.07, "high": 0.09}}


def test_the_kept_file_is_of_the_kept_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    values = result_file.read("wire")
    *_, last = values["command"].split("; ")
    if "wire_cases" not in last:
        pytest.skip("it was measured in one run, whose last line it is")
    monkeypatch.chdir(result_file.ROOT)
    wire_cases.main(last.split()[3:])
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == values["figures"]


def test_a_commit_without_rows_says_the_legal_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(result_file.ROOT)
    with pytest.raises(SystemExit):
        wire_cases.main(["results/wire/turns.jsonl", "--commit", "abc"])
    assert "--commit abc: must be one of 02ff1e8, 7f31e67" in capsys.readouterr().err
