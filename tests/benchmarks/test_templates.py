"""The templates of blocks that wait for their files can be filled from what the measurements will give."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.__main__ import main as analysis
from benchmarks import pages, record, time_to_accuracy
from benchmarks.results import blocks, placeholders
from benchmarks.results.blocks import Block
from benchmarks.results.measurements import MEASUREMENTS, Sweep
from grid.engine.sweeps.families import load
from tests.analysis.conftest import measured, write_events

BLOCKS = {str(block): block for path in pages.pages() for block in blocks.of_page(path.read_text())}
OF = {"commit": "0123456789ab", "date": "2001-01-01", "hardware": "a processor"}
SWEEPS = [title for title, block in BLOCKS.items() if isinstance(MEASUREMENTS.get(block.name), Sweep)]


class Anything(float):
    """A number that has every name, each of which is such a number."""

    def __getitem__(self, name: object) -> Anything:
        return self


def fill(block: Block, figures: Any) -> str:
    """The block's text; ValueError where the figures lack what its template asks for."""
    return block.words({**OF, "figures": figures})


@pytest.mark.parametrize("title", sorted(set(BLOCKS) - set(SWEEPS)))
def test_templates_can_be_read(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the values are: what a template asks for is a path, and it is written by a filter or is a text."""
    text = placeholders._text
    monkeypatch.setattr(placeholders.LANGUAGE, "undefined", lambda *_, **__: Anything(0.125))
    monkeypatch.setattr(
        placeholders.LANGUAGE, "finalize", lambda value: "a text" if isinstance(value, Anything) else text(value)
    )
    own = {"measured": lambda: ".", "file": Anything(0.125)}
    assert placeholders.filled(BLOCKS[title].template.read_text(), {}, own)


@pytest.mark.slow
@pytest.mark.parametrize("title", SWEEPS)
def test_templates_of_sweeps_name_the_rows_of_their_tables(title: str, tmp_path: Path) -> None:
    block = BLOCKS[title]
    sweep = MEASUREMENTS[block.name]
    assert isinstance(sweep, Sweep)
    for number, experiment in enumerate(load(sweep.family, sweep.name).experiments()):
        for seed in (1, 2):
            config = {**experiment.config, "seed": seed}
            (folder := tmp_path / "runs" / sweep.folder / f"{number}-{seed}").mkdir(parents=True)
            (folder / "config.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False))
            last = config["steps"]
            rows = [*measured(1 + number % 7, (0, last // 2, last), seed), ("compression_ratio", last, 4.0)]
            rows.append(("relative_var_se", last, 0.1))
            write_events(folder, rows)
            (folder / "status.json").write_text(
                json.dumps({"state": "done", "step": last, "steps": last, "seconds": 1})
            )
    words = ["table", sweep.folder, "--json", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "figures")]
    with redirect_stdout(output := io.StringIO()):
        assert analysis(words) == 0
    assert "measured" not in fill(block, record.rows_of(output.getvalue()))


@pytest.mark.parametrize("title", [title for title in BLOCKS if title.startswith("time_to_accuracy")])
def test_times_to_accuracy(title: str) -> None:
    rows = [
        {"method": method, "seed": 1, "step": step, "seconds": 0.1 * step, "bytes_sent": 9 * step, "accuracy": accuracy}
        for method in time_to_accuracy.SHOWN
        for step, accuracy in ((5, 50.0), (10, 99.0))
    ]
    task = time_to_accuracy.TASKS["digits"]
    figures = time_to_accuracy.summary(time_to_accuracy.figures_of(rows, task.target), task)
    assert "1.00" in fill(BLOCKS[title], json.loads(json.dumps(figures)))
