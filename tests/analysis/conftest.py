"""Small runs, written by the library that training writes with."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml
from tensorboardX import SummaryWriter

from analysis.groups.seed_groups import Group, groups
from analysis.logs.load import Logs, load
from settings import resolving, run_identity

Rows = Sequence[tuple[str, int, float]]


def write_events(folder: Path, rows: Rows, attempt: int = 1) -> Path:
    """One event file with these (tag, step, value)."""
    writer = SummaryWriter(str(folder), filename_suffix=f".a{attempt}")
    for tag, step, value in rows:
        writer.add_scalar(tag, value, step)
    writer.close()
    (path,) = folder.glob(f"events.out.tfevents.*.a{attempt}")
    return path


def written_run(
    runs: Path,
    sweep: str,
    settings: Mapping[str, object],
    *attempts: Rows,
    state: str | None = "done",
    **told: object,
) -> Path:
    """Write ``<runs>/<sweep>/<name>/``; returns the folder."""
    config = resolving.resolve(settings)
    folder = runs / sweep / run_identity.run_name(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    for attempt, rows in enumerate(attempts, 1):
        write_events(folder, rows, attempt)
    if state:
        (folder / "status.json").write_text(json.dumps({"state": state, "seconds": 12.5, **told}))
    return folder


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes ``runs/<sweep>/<name>/`` below tmp_path, and says where."""
    return functools.partial(written_run, tmp_path / "runs")


def measured(level: float, steps: Sequence[int], seed: int = 1) -> Rows:
    """Everything that a figure or table reads, deterministic; ``level`` sets the method apart."""
    rows = []
    for step in steps:
        wave = 1 + 0.1 * ((step * 7 + seed * 3) % 5)
        rows += [
            ("est_var", step, level * 1e-5 * wave),
            ("super_var", step, 1e-5 * wave),
            ("sgd_var", step, 4e-5 * wave),
            ("nb_error", step, 0.01 * level * wave),
            ("Vloss", step, 2 / (1 + step / 100) * wave),
            ("Tloss", step, 1 / (1 + step / 100) * wave),
            ("Vacc", step, 90 - level - 50 / (1 + step / 50) + seed),
            ("comm/bits_per_coordinate", step, level),
            ("comm/bytes", step, level * 1000 * step),
            *(
                (f"levels/{k}", step, value * (1 if abs(value) == 1 else wave))
                for k, value in enumerate((-1, -0.1, 0.1, 1))
            ),
        ]
    return rows


def everything(level: float, steps: Sequence[int], seed: int = 1) -> Rows:
    """``measured``, and what else a curve or an axis needs; an epoch has 25 steps."""
    rows = list(measured(level, steps, seed))
    for step in steps:
        wave = 1 + 0.1 * ((step * 7 + seed * 3) % 5)
        rows += [
            ("est_nvar", step, 0.01 * level * wave),
            ("est_snr", step, wave),
            ("norm_var", step, 1e-3 * level * wave),
        ]
        rows += [("time/step_s", step, 0.02 * level), ("Vpearson", step, 1 - 0.01 * level - 5 / (step + 10))]
        rows += [("epoch", step, (step - 1) // 25), ("batch_idx", step, (step - 1) % 25)] if step else []
    return rows


@pytest.fixture
def one(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., tuple[Logs, Group]]:
    """A sweep of some methods and seeds, and its only group."""

    def made(
        methods: list[str], seeds: int = 2, steps: tuple[int, ...] = (0, 51, 102), **settings: object
    ) -> tuple[Logs, Group]:
        for level, method in enumerate(methods, 1):
            for seed in range(1, seeds + 1):
                write_run("s", {"method": method, "seed": seed, **settings}, everything(level, steps, seed))
        logs = load(tmp_path / "runs", "s")
        (group,) = groups(logs)
        return logs, group

    return made
