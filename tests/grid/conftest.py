"""SLURM's commands as stand-ins, and a clock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.grid.slurm_answers import ACCOUNTS, CONFIG, QUEUE, Commands


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    folder = tmp_path / "bin with 'quote"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("SLURM_CLUSTERS", "SLURM_CLUSTER_NAME"):
        monkeypatch.delenv(name, raising=False)
    conf = tmp_path / "slurm.conf"
    conf.write_text("# ClusterName=no\n clustername = here # the name\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    made = Commands(folder)
    made.say("squeue", QUEUE)
    made.say("sacct", ACCOUNTS)
    made.say("scontrol", CONFIG)
    made.say("scancel", "")
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_795_280_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now
