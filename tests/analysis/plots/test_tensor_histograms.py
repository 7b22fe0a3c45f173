"""The histograms of all kinds of tensors: what they show, and that nothing covers anything."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf

from analysis import figures
from analysis.groups.seed_groups import Group, groups
from analysis.groups.tensor_formats import KINDS
from analysis.logs.load import load
from analysis.plots.style import WIDTHS
from analysis.plots.tensor_histograms import tensor_histograms
from nuq.settings.quantized_training import FORMATS as SETTINGS
from nuq.settings.quantized_training import QuantizedTraining
from tests.analysis.plots.test_comparisons import assert_nothing_overlaps, drawn
from train.logs.run_log import Log

Write = Callable[..., Path]
EDGES = np.linspace(-6, 6, 241)
NORMAL = np.diff((1 + erf(EDGES / np.sqrt(2))) / 2)


def with_histograms(
    write_run: Write, method: str, kinds: Sequence[str] = KINDS, seed: int = 1, steps: Sequence[int] = (0, 100)
) -> None:
    ratio = 2.0 if method == "bf16" else 5.0
    folder = write_run("s", {"method": method, "tensors.all": method, "seed": seed}, [("compression_ratio", 0, ratio)])
    log = Log(folder, attempt=2)
    for step in steps:
        for number, kind in enumerate(kinds):
            log.histogram(step, f"tensors/{kind}", EDGES, NORMAL * (1 + step * np.abs(EDGES[1:]) ** number))
    log.close()


def the_group(tmp_path: Path) -> Group:
    (group,) = groups(load(tmp_path / "runs", "s"))
    return group


def test_the_kinds_are_those_of_the_settings() -> None:
    assert set(KINDS) == {*SETTINGS, "gradients"}
    assert hasattr(QuantizedTraining, "all") and hasattr(QuantizedTraining, "master")


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS.values())
def test_a_panel_for_each_kind_with_the_normal_distribution(write_run: Write, tmp_path: Path, width: float) -> None:
    with_histograms(write_run, "smaq")
    with_histograms(write_run, "bf16", seed=2, steps=[0])
    with_histograms(write_run, "bf16", seed=1)
    figure = drawn(tensor_histograms(the_group(tmp_path), width))
    assert [axes.get_title() for axes in figure.axes] == [
        "weights",
        "gradients",
        "activations",
        "activation gradients",
        "moments",
    ]
    for number, axes in enumerate(figure.axes):
        (filled,) = axes.patches
        values, edges, _ = filled.get_data()  # type: ignore[attr-defined]
        np.testing.assert_allclose(edges, EDGES)
        by_hand = NORMAL * (1 + 100 * np.abs(EDGES[1:]) ** number)
        np.testing.assert_allclose(values, by_hand / by_hand.sum() / 0.05, rtol=1e-9)
        (distribution,) = axes.lines
        x, y = np.asarray(distribution.get_xydata()).T
        assert y.max() == pytest.approx(0.39894, abs=1e-5) and np.trapezoid(y, x) == pytest.approx(1, abs=1e-5)
        assert axes.get_yscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["BF16, step 100", "standard normal"]
    assert_nothing_overlaps(figure)


def test_the_setting_with_the_most_kinds_is_shown_and_missing_kinds_have_no_panel(
    write_run: Write, tmp_path: Path
) -> None:
    with_histograms(write_run, "bf16", kinds=["activations"])
    with_histograms(write_run, "smaq", kinds=["weights", "moments"])
    figure = drawn(tensor_histograms(the_group(tmp_path), 3.4))
    assert [axes.get_title() for axes in figure.axes] == ["weights", "moments"]
    assert "SmaQ, step 100" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_without_histograms_there_is_a_sentence(write_run: Write, tmp_path: Path) -> None:
    write_run("s", {"method": "smaq", "tensors.all": "smaq"}, [("loss", 0, 1.0)])
    assert tensor_histograms(the_group(tmp_path), 3.4) == "no run has logged tensors/weights or another kind of tensor"


@pytest.mark.slow
def test_the_sweep_draws_it(write_run: Write, tmp_path: Path) -> None:
    with_histograms(write_run, "smaq")
    (named,) = (
        item
        for item in figures.named(load(tmp_path / "runs", "s"), 3.4, axes=["step"])
        if item.name == "tensor_histograms"
    )
    assert not isinstance(named.make(), str)
