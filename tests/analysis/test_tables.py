"""The result table: numbers, text, CSV and LaTeX."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis import tables
from analysis.load import load
from nuq.registry import METHODS

STEPS = range(0, 80, 10)


def rows(final: float, relative: float) -> list[tuple[str, int, float]]:
    accuracy = [("Vacc", step, final - 1 + (step == 40) * 3 + (step == 70)) for step in STEPS]
    variance = [("est_var", step, 1e-5 * (relative if step >= 60 else 99)) for step in STEPS] + [
        ("super_var", step, 1e-5) for step in STEPS
    ]
    return [*accuracy, *variance, ("Vloss", 70, 0.5), ("comm/bits_per_coordinate", 70, 3.25), ("comm/bytes", 70, 2.5e6)]


@pytest.fixture
def demo(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    for seed, accuracy in enumerate((90.0, 92.0, 97.0), 1):
        write_run("demo", {"method": "alq", "seed": seed}, rows(accuracy, 2.0**seed), seconds=10 * seed)
    write_run("demo", {"method": "sgd", "seed": 1}, rows(80, 4))
    write_run("demo", {"method": "sgd", "seed": 2}, rows(0, 1), state="running")
    write_run("demo", {"method": "amq"}, rows(0, 1), state="diverged")
    return tmp_path / "runs"


def test_numbers_by_hand(demo: Path) -> None:
    found = tables.table(load(demo, "demo")).set_index("method")
    assert list(found.index) == ["sgd", "alq", "amq"]
    alq = found.loc["alq"]
    low, high = stats.t.interval(0.95, 2, loc=93, scale=stats.sem([90, 92, 97]))
    assert alq["final_accuracy_percent"] == pytest.approx(93)
    assert alq["final_accuracy_percent_pm"] == pytest.approx((high - low) / 2)
    assert alq["best_accuracy_percent"] == pytest.approx(95)  # at step 40, two above the end
    assert alq["relative_variance"] == pytest.approx(4)  # geometric mean of 2, 4, 8, over the last two of eight measurements
    assert (alq["final_validation_loss"], alq["bits_per_coordinate"], alq["sent_per_worker_mb"]) == (0.5, 3.25, 2.5)
    assert (alq["seconds"], alq["complete"], alq["runs"]) == (20, 3, 3)
    assert tuple(found.loc["sgd", ["final_accuracy_percent", "complete", "runs"]]) == (80, 1, 2)
    assert np.isnan(found.loc["sgd", "final_accuracy_percent_pm"])
    assert np.isnan(found.loc["amq", "final_accuracy_percent"])


def test_text_says_n_and_what_is_incomplete(demo: Path) -> None:
    lines = tables.text(tables.table(load(demo, "demo"))).splitlines()
    assert " ".join(lines[0].split()) == "method seeds final acc. % best acc. % val. loss bits MB sent variance seconds"
    assert lines[2].split()[:6] == ["SGD", "1", "of", "2", "80.00", "(n=1)"]
    assert lines[3].split()[:5] == ["ALQ", "3", "93.00", "+-", "8.96"]
    assert lines[4].split() == ["AMQ", "0", "of", "1", *"-------"]
    assert len({len(line) for line in lines[1:4]}) == 1


def test_csv_and_latex_are_written(demo: Path, tmp_path: Path) -> None:
    found = tables.table(load(demo, "demo"))
    csv, tex = tables.write(found, tmp_path / "f")
    pd.testing.assert_frame_equal(pd.read_csv(csv), found, check_dtype=False)
    text = tex.read_text()
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in body} == {8}
    assert r"ALQ & 3 & 93.00 $\pm$ 8.96 & 95.00 $\pm$ 8.96 &" in text
    assert r"final acc. \%" in text
    assert text.count(r"\begin{tabular}{lrrrrrrrr}") == text.count(r"\end{tabular}") == 1


def test_latex_escapes_everything_it_would_act_on() -> None:
    assert tables.latex_escaped(r"a_b 50% {x} #1 & $c$ ~^ \d") == (
        r"a\_b 50\% \{x\} \#1 \& \$c\$ \textasciitilde{}\textasciicircum{} \textbackslash{}d"
    )


def test_published_values_stand_beside_ours(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("cifar10_full_resnet32", {"method": "alq", "data": "cifar10", "model": "resnet32"}, rows(91, 2))
    write_run("cifar10_full_resnet32", {"method": "sgd", "data": "cifar10", "model": "resnet32"}, rows(91, 2))
    found = tables.table(load(tmp_path / "runs", "cifar10_full_resnet32")).set_index("method")
    assert found.loc["alq", "published_accuracy_percent"] == 91.35
    assert np.isnan(found.loc["sgd", "published_accuracy_percent"])
    assert "paper acc. %" in tables.text(found.reset_index())
    settings = {"method": "amq", "data": "cifar10", "model": "resnet110", "trajectory": "sgd", "measure.every": 5}
    write_run("variance", settings, rows(91, 2))
    assert tables.table(load(tmp_path / "runs", "variance")).loc[0, "published_relative_variance"] == 3.5


def test_published_methods_exist() -> None:
    from analysis import published

    named = {name for values in (*published.ACCURACY.values(), *published.RELATIVE_VARIANCE.values()) for name in values}
    assert named <= set(METHODS)


def test_columns_without_numbers_are_left_out(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq"}, [("Vacc", 0, 50.0), ("Vacc", 5, float("nan"))])
    found = tables.table(load(tmp_path / "runs", "s"))
    headings = tables.text(found).splitlines()[0]
    assert "best acc. %" in headings
    assert "final acc. %" not in headings
    assert "bits" not in headings
