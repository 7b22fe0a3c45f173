"""Accuracy against measured bits, layer-wise beside entire-model, and what counts as part of a method."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis import figures
from analysis.groups.seed_groups import groups, of_the_method
from analysis.logs.load import load
from analysis.plots.accuracy_per_bit import KNOBS, accuracy_per_bit
from analysis.plots.comparisons import against_setting
from analysis.plots.style import DASHES
from analysis.tables import result_table
from nuq.registry import METHODS
from tests.analysis.conftest import Rows
from tests.analysis.plots.test_comparisons import assert_nothing_overlaps, drawn, means

Write = Callable[..., Path]


def end(accuracy: float, bits: float) -> Rows:
    return [("Vacc", 0, 10.0), ("Vacc", 50, accuracy), ("comm/bits_per_coordinate", 50, bits)]


def write_ratios(write_run: Write, accuracies: Sequence[float] = (60, 70, 80)) -> None:
    for scope, worse in (("model", 0), ("tensor", 5)):
        for ratio, accuracy in zip((0.001, 0.01, 0.1), accuracies, strict=True):
            settings = {"method": "topk", "method.ratio": ratio, "method.scope": scope, "feedback.kind": "none"}
            write_run("s", settings, end(accuracy - worse, 40 * ratio))
        write_run(
            "s",
            {"method": "qsgd", "method.bits": 8, "method.scope": scope, "feedback.kind": "none"},
            end(85 - worse, 8.1),
        )
    write_run("s", {"method": "supersgd"}, end(90, 32))


def test_lines_run_along_ratio_and_bits_at_their_measured_place(write_run: Write, tmp_path: Path) -> None:
    write_ratios(write_run)
    for bits, accuracy in ((2, 75.0), (4, 82.0)):
        for seed in (1, 2):
            write_run("s", {"method": "alq", "method.bits": bits, "seed": seed}, end(accuracy + seed, bits + 0.5))
    figure = drawn(accuracy_per_bit(load(tmp_path / "runs", "s"), 7.0))
    found = means(figure.axes[0])
    np.testing.assert_allclose(found["TopK (entire model)"], [(0.04, 60), (0.4, 70), (4, 80)], rtol=1e-6)
    np.testing.assert_allclose(found["TopK (layer-wise)"], [(0.04, 55), (0.4, 65), (4, 75)], rtol=1e-6)
    np.testing.assert_allclose(found["ALQ"], [(2.5, 76.5), (4.5, 83.5)])
    assert {y for _, y in found["SuperSGD"]} == {90.0}, "full precision is a line across"
    assert figure.axes[0].get_xscale() == "log"
    assert_nothing_overlaps(figure)


def test_accuracy_per_bit_says_why_there_is_none(write_run: Write, tmp_path: Path) -> None:
    write_run("s", {"method": "alq"}, end(80, 3))
    assert str(accuracy_per_bit(load(tmp_path / "runs", "s"), 3.4)).startswith(
        "no method has several values of bits, ratio"
    )
    write_run("s", {"method": "alq", "method.bits": 4}, end(80, 3), state="running")
    write_run("s", {"method": "alq", "method.bits": 5}, [("Vacc", 50, 1.0)])
    (tmp_path / "t").mkdir()
    write_run("t", {"method": "alq", "method.bits": 4}, [("Vacc", 50, 1.0)])
    write_run("t", {"method": "alq", "method.bits": 5}, [("Vacc", 50, 1.0)])
    assert (
        accuracy_per_bit(load(tmp_path / "runs", "t"), 3.4)
        == "no complete run has logged Vacc and comm/bits_per_coordinate"
    )


def test_entire_model_is_solid_and_layer_wise_dashed_for_every_method(write_run: Write, tmp_path: Path) -> None:
    write_ratios(write_run)
    for scope in ("model", "tensor"):
        for ratio in (0.01, 0.1):
            write_run(
                "s",
                {"method": "randomk", "method.ratio": ratio, "method.scope": scope, "feedback.kind": "none"},
                end(50, 1),
            )
    axes = drawn(against_setting(load(tmp_path / "runs", "s"), 7.0, "method.ratio")).axes[0]
    lines = {str(line.get_label()): line for line in axes.lines if line.get_gid() == "mean"}
    assert set(lines) == {
        "TopK (entire model)", "TopK (layer-wise)", "RandomK (entire model)", "RandomK (layer-wise)",
        "QSGD (entire model)", "QSGD (layer-wise)", "SuperSGD",
    }  # fmt: skip
    for label, line in lines.items():
        if "(" in label:
            assert line.is_dashed() == ("layer-wise" in label)
    assert DASHES[0] == "-"
    assert axes.get_xlabel() == "share of the coordinates that travel" and axes.get_xscale() == "log"


def test_the_sweep_draws_both(write_run: Write, tmp_path: Path) -> None:
    write_ratios(write_run)
    named = {figure.name: figure for figure in figures.named(load(tmp_path / "runs", "s"), 3.4, axes=["step"])}
    for name in ("against_ratio", "accuracy_per_bit"):
        assert not isinstance(named[name].make(), str)


def test_memories_share_a_figure_and_are_compared_with_supersgd(write_run: Write, tmp_path: Path) -> None:
    for kind in ("error", "none"):
        for seed in (1, 2):
            write_run("s", {"method": "topk", "feedback.kind": kind, "seed": seed}, end(70 + seed, 1))
    for seed in (1, 2):
        write_run("s", {"method": "supersgd", "seed": seed}, end(80 + seed, 32))
    logs = load(tmp_path / "runs", "s")
    (group,) = groups(logs)
    assert [seed_group.label for seed_group in group.seed_groups] == [
        "SuperSGD",
        "TopK (error feedback)",
        "TopK (no feedback)",
    ]
    found = result_table.table(logs).set_index("label")
    assert list(found["difference_percent"].iloc[1:]) == [pytest.approx(-10), pytest.approx(-10)]
    assert (
        of_the_method("feedback.kind")
        and of_the_method("method.bits")
        and of_the_method("layers")
        and not of_the_method("workers")
    )


def test_knobs_are_settings_of_methods() -> None:
    from dataclasses import fields

    known = {f"method.{part.name}" for entry in METHODS.values() for part in fields(entry.settings)}
    assert set(KNOBS) <= known
