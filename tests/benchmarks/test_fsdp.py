"""The benchmark of FSDP2's steps over slow links, in small."""

import json
from pathlib import Path

import pytest

from benchmarks import fsdp


@pytest.mark.slow
def test_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fsdp.main(["--quick", "--out", str(tmp_path / "rows.json")])
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["rate"], row["variant"]) for row in rows] == [("loopback", name) for name in fsdp.VARIANTS]
    assert all(row["step_s"]["median"] > 0 and row["speedup_vs_bf16"]["median"] > 0 for row in rows)
    assert capsys.readouterr().out.startswith("rate      variant  ms a step  of bf16's speed")
