"""The templates of blocks that wait for their files can be filled from what the measurements will give."""

from __future__ import annotations

import argparse
import io
import itertools
import json
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from analysis.__main__ import main as analysis
from benchmarks import pages, record
from benchmarks.errors import gradients, mean, mean_levels
from benchmarks.errors.gradients import Gradients
from benchmarks.links import time_to_accuracy
from benchmarks.results import blocks
from benchmarks.results.blocks import Block
from benchmarks.results.measurements import MEASUREMENTS, Sweep
from grid.engine.sweeps.families import load
from tests.analysis.conftest import measured, write_events

BLOCKS = {str(block): block for path in pages.pages() for block in blocks.of_page(path.read_text())}
OF = {"commit": "0123456789ab", "date": "2001-01-01", "hardware": "a processor"}
SWEEPS = [title for title, block in BLOCKS.items() if isinstance(MEASUREMENTS.get(block.name), Sweep)]


def fill(block: Block, figures: Any) -> str:
    """The block's text; ValueError where the figures lack what its template asks for."""
    return block.words({**OF, "figures": figures})


@pytest.mark.slow
@pytest.mark.parametrize("title", SWEEPS)
def test_templates_of_sweeps_name_the_rows_of_their_tables(title: str, tmp_path: Path) -> None:
    block = BLOCKS[title]
    sweep = MEASUREMENTS[block.name]
    assert isinstance(sweep, Sweep)
    one = {json.dumps({**each.config, "seed": 0}): each.config for each in load(sweep.family, sweep.name).experiments()}
    for number, of_all_seeds in enumerate(one.values()):
        for seed in (1, 2):
            config = {**of_all_seeds, "seed": seed}
            (folder := tmp_path / "runs" / sweep.folder / f"{number}-{seed}").mkdir(parents=True)
            (folder / "config.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False))
            last = config["steps"]
            rows = [*measured(1 + number % 7, (0, last // 2, last), seed), ("compression_ratio", last, 4.0)]
            rows = [row for row in rows if row[0] != "Vacc"]  # whose differences to SuperSGD would be alike
            rows += [("relative_var_se", last, 0.1), ("Vacc", last, 50 + 0.01 * number * seed)]
            write_events(folder, rows)
            (folder / "status.json").write_text(
                json.dumps({"state": "done", "step": last, "steps": last, "seconds": 1})
            )
    words = ["table", sweep.folder, "--json", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "figures")]
    with redirect_stdout(output := io.StringIO()):
        assert analysis(words) == 0
    assert "measured" not in fill(block, record.rows_of(output.getvalue(), 2))


@pytest.mark.parametrize("title", [title for title in BLOCKS if title.startswith("mean_levels")])
def test_levels_for_the_mean(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the benchmark finds, of made-up ratios."""
    moments = [[torch.ones(2)] * 4] * 3
    monkeypatch.setattr(mean, "recorded_or_digits", lambda title: Gradients(title, moments=moments))
    monkeypatch.setattr(mean, "measured", lambda *_: SimpleNamespace(of_mean=0.5))
    monkeypatch.setattr(mean_levels, "fitted", lambda *_: (None, SimpleNamespace(agreement=0.875)))
    ratios = itertools.cycle([0.5, 0.7, 0.6])
    for name in ("error_of_mean", "ratio", "left_over", "blind"):
        monkeypatch.setattr(mean_levels, name, lambda *_: next(ratios))
    monkeypatch.setattr(mean_levels, "refit_ms", lambda _: {bits: {"median": 3.0 * bits} for bits in mean_levels.BITS})
    monkeypatch.setattr(gradients, "NUM_COORDINATES", 64)
    text = fill(BLOCKS[title], json.loads(json.dumps(mean_levels.run(argparse.Namespace()))))
    assert {"": ".600 (.500-.700)", "methods": ".600 (.500-.700)", "refit": "6.0 ms"}[BLOCKS[title].part] in text


def test_errors_of_the_mean() -> None:
    errors = [mean.Error(of_mean, 1.0, 3.0, 1.0) for of_mean in (0.5, 0.7, 0.6)]
    alone = [mean.Error(1.0, 1.0, 3.0, 1.0)] * 3
    found = {(title, "correlated"): errors for title in mean.QUANTIZERS}
    found |= {(title, "stochastic"): alone for title in mean.QUANTIZERS}
    costs = dict.fromkeys(mean.QUANTIZERS, (1.0, 0.9, 1.2))
    text = fill(BLOCKS["mean_error"], json.loads(json.dumps(mean.figures(found, costs, "ResNet-8 on CIFAR-10"))))
    assert "gradients (ResNet-8 on CIFAR-10, " in text and text.count(".60 (.50-.70)") == 2


@pytest.mark.parametrize("title", [title for title in BLOCKS if title.startswith("time_to_accuracy")])
def test_times_to_accuracy(title: str) -> None:
    rows = [
        {"method": method, "seed": 1, "step": step, "seconds": 0.1 * step, "bytes_sent": 9 * step, "accuracy": accuracy}
        for method in time_to_accuracy.SHOWN
        for step, accuracy in ((5, 50.0), (10, 99.0))
    ]
    figures = time_to_accuracy.summary(time_to_accuracy.figures_of(rows, 96.0), "digits", 96.0)
    assert "1.00" in fill(BLOCKS[title], json.loads(json.dumps(figures)))
