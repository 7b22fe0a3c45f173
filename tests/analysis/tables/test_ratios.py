"""Compression ratios of all tensors: as a column, as a figure, and SmaQ's published table beside ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import figures, published
from analysis.__main__ import main
from analysis.figures import new_figure
from analysis.groups.seed_groups import Group, groups
from analysis.logs.load import load
from analysis.plots.bits_figure import LEFT_OUT, bits_against_accuracy, ratio_against_accuracy
from analysis.plots.legends import spread_sentence
from analysis.results import of_runs
from analysis.tables import result_table, smaq_table
from grid.engine.sweeps.families import load as sweep_named
from tests.analysis.conftest import Rows
from tests.analysis.plots.test_comparisons import assert_nothing_overlaps, drawn

Write = Callable[..., Path]


def end(accuracy: float, *ratios: float, bits: float = 32.0) -> Rows:
    logged = [("compression_ratio", step, ratio) for step, ratio in enumerate(ratios, 1)]
    return [("Vacc", 0, 10.0), ("Vacc", 50, accuracy), ("comm/bits_per_coordinate", 50, bits), *logged]


def write_formats(write_run: Write, sweep: str = "s") -> None:
    for seed in (1, 2):
        write_run(sweep, {"method": "supersgd", "seed": seed}, end(88.0 + seed))
        write_run(sweep, {"method": "smaq", "tensors.all": "smaq", "seed": seed}, end(83.0 + seed, 4.8, 5.0))
        write_run(sweep, {"method": "smaq", "seed": seed}, end(87.0 + seed, bits=6.4))
        write_run(sweep, {"method": "supersgd", "tensors.activations": "smaq", "seed": seed}, end(86.0 + seed, 5.0))
        write_run(sweep, {"method": "bf16", "tensors.all": "bf16", "seed": seed}, end(87.5 + seed, 2.0))


def the_group(tmp_path: Path) -> Group:
    (group,) = groups(load(tmp_path / "runs", "s"))
    return group


def places(group: Group) -> dict[str, tuple[float, float]]:
    axes = new_figure(3.4, 2.4).add_subplot()
    assert ratio_against_accuracy(axes, group) is None
    points = {str(line.get_label()): np.asarray(line.get_xydata())[0] for line in axes.lines}
    return {
        label: (float(x), float(y)) for label, (x, y) in points.items() if not label.startswith("_")
    }  # those are bars


def write_near(write_run: Write) -> None:
    """A third and a fourth format everywhere, beside SmaQ's 4.9 and not far from it."""
    for seed in (1, 2):
        write_run("s", {"method": "fp8", "tensors.all": "fp8", "seed": seed}, end(80.0 + seed, 4.0))
        write_run(
            "s", {"method": "smaq", "tensors.all": "smaq", "tensors.master": True, "seed": seed}, end(85.0 + seed, 4.9)
        )


def test_every_setting_has_its_place(write_run: Write, tmp_path: Path) -> None:
    write_formats(write_run)
    write_near(write_run)
    found = places(the_group(tmp_path))
    assert {label: accuracy for label, (_, accuracy) in found.items()} == pytest.approx({
        "SuperSGD, FP32": 89.5, "BF16": 89.0, "FP8": 81.5, "SmaQ": 84.5, "SmaQ, master weights": 86.5,
    })  # fmt: skip
    assert [found[label][0] for label in ("SuperSGD, FP32", "BF16", "FP8")] == pytest.approx([1, 2, 4])
    close = [found[label][0] for label in ("SmaQ", "SmaQ, master weights")]
    assert close == pytest.approx([4.9] * 2, rel=0.03) and close[0] != close[1]


def test_who_keeps_some_kinds_in_float32_is_left_out_and_the_figure_says_so(write_run: Write, tmp_path: Path) -> None:
    """The ratio of activations alone is as high as that of all five kinds."""
    write_formats(write_run)
    write_run("s", {"method": "supersgd", "tensors.all": "smaq", "seed": 1}, end(70.0, 5.0))
    axes = new_figure(3.4, 2.4).add_subplot()
    assert ratio_against_accuracy(axes, the_group(tmp_path)) is None
    assert set(places(the_group(tmp_path))) == {"SuperSGD, FP32", "BF16", "SmaQ"}
    assert LEFT_OUT in axes.get_xlabel()


def test_where_all_are_whole_nothing_is_said(write_run: Write, tmp_path: Path) -> None:
    write_near(write_run)
    axes = new_figure(3.4, 2.4).add_subplot()
    assert ratio_against_accuracy(axes, the_group(tmp_path)) is None
    assert LEFT_OUT not in axes.get_xlabel()


def test_who_keeps_some_kinds_alone_is_no_figure(write_run: Write, tmp_path: Path) -> None:
    write_run("s", {"method": "supersgd"}, end(88.0))
    write_run("s", {"method": "supersgd", "tensors.activations": "smaq"}, end(86.0, 5.0))
    problem = ratio_against_accuracy(new_figure(3.4, 2.4).add_subplot(), the_group(tmp_path))
    assert problem is not None and problem.endswith("tensors of all kinds in a format or of none")


def test_a_long_interval_does_not_squeeze_the_rest(write_run: Write, tmp_path: Path) -> None:
    write_formats(write_run)
    write_near(write_run)
    for seed, accuracy in enumerate((35.0, 102.0, 102.0, 102.0)):  # t(3) = 3.2: 53 points on either side of 85
        write_run("s", {"method": "fp16", "tensors.all": "fp16", "seed": seed}, end(accuracy, 2.0))
    axes = new_figure(3.4, 2.4).add_subplot()
    assert ratio_against_accuracy(axes, the_group(tmp_path)) is None
    low, high = axes.get_ylim()
    assert 60 < low < 81 and 90 < high < 105, "the other ranges, of two seeds, are whole"


def test_bars_are_ranges_below_four_seeds_and_the_legend_says_so(write_run: Write, tmp_path: Path) -> None:
    methods = {"qsgd": (4, (80.0, 86.0)), "alq": (3, (80.0, 82.0, 84.0, 86.0)), "trn": (2, (70.0,))}
    for method, (bits, accuracies) in methods.items():
        for seed, accuracy in enumerate(accuracies):
            write_run("s", {"method": method, "seed": seed}, end(accuracy, bits=bits))
    figure = new_figure(3.4, 2.4)
    axes = figure.add_subplot()
    assert bits_against_accuracy(axes, the_group(tmp_path)) is None
    places = [np.asarray(path.vertices)[:, 1] for bar in axes.collections for path in bar.get_paths()]
    ends = sorted(sorted(place.tolist()) for place in places)
    half = 3.1824463 * 2.5819889 / 2  # t(3), the deviation
    np.testing.assert_allclose(ends, sorted([[80, 86], [83 - half, 83 + half]]), rtol=1e-6)
    assert spread_sentence(figure).startswith("Bars: ")


def test_the_ratio_is_the_mean_over_a_run_and_that_of_the_messages_where_gradients_alone_are_compressed(
    write_run: Write, tmp_path: Path
) -> None:
    write_formats(write_run)
    found = result_table.table(load(tmp_path / "runs", "s")).set_index("label")
    assert found["compression_ratio"].to_dict() == pytest.approx(
        {"SuperSGD, FP32": 1, "BF16": 2, "SmaQ": 4.9, "SmaQ, gradients only": 5, "SmaQ, activations only": 5}
    )
    assert found.loc["SmaQ, activations only", "difference_percent"] == pytest.approx(-2), (
        "full precision is the baseline"
    )


def test_a_sweep_of_compressors_has_no_ratios(write_run: Write, tmp_path: Path) -> None:
    for method in ("supersgd", "qsgd"):
        write_run("s", {"method": method}, end(80, bits=4))
    logs = load(tmp_path / "runs", "s")
    assert of_runs(logs)["ratio"].isna().to_numpy().all()
    axes = new_figure(3.4, 2.4).add_subplot()
    assert (
        ratio_against_accuracy(axes, the_group(tmp_path))
        == "fewer than two settings have both a compression_ratio and a Vacc or Vpearson"
    )


@pytest.mark.parametrize("width", [3.4, 7.0])
def test_the_sweep_draws_it_and_nothing_overlaps(write_run: Write, tmp_path: Path, width: float) -> None:
    write_formats(write_run)
    (named,) = (
        item
        for item in figures.named(load(tmp_path / "runs", "s"), width, axes=["step"])
        if item.name == "ratio_accuracy"
    )
    assert_nothing_overlaps(drawn(named.make()))


def test_scores_stand_where_there_is_no_accuracy(write_run: Write, tmp_path: Path) -> None:
    for method, tensors, score in (("supersgd", "", 0.8), ("smaq", "smaq", 0.7)):
        rows = [("Vpearson", 0, 0.0), ("Vpearson", 9, score), ("compression_ratio", 9, 4.9)]
        write_run("s", {"method": method, "tensors.all": tensors}, rows[: 3 if tensors else 2])
    axes = new_figure(3.4, 2.4).add_subplot()
    assert ratio_against_accuracy(axes, the_group(tmp_path)) is None
    assert axes.get_ylabel() == "final correlation"
    assert result_table.table(load(tmp_path / "runs", "s"))["final_correlation"].to_list() == pytest.approx([0.8, 0.7])


# --- SmaQ's table -------------------------------------------------------------------------------------------------


def test_the_sweeps_hold_every_published_row_once() -> None:
    for run_name, folder in (("cifar10_resnet34", published.SMAQ_SWEEPS[0]), ("bert_stsb", published.SMAQ_SWEEPS[1])):
        found = {}
        for item in sweep_named("smaq", run_name).experiments():
            assert item.folder == folder
            settings: dict[str, Any] = {
                f"{group}.{name}": value
                for group in ("method", "tensors")
                for name, value in item.config[group].items()
            }
            settings |= {f"{group}.name": item.config[group]["name"] for group in ("data", "model")}
            if row := published.smaq_row(folder, settings):
                assert row not in found
                found[row] = item.label
        assert found == {
            "supersgd": "FP32",
            "fp16": "FP16",
            "bf16": "BF16",
            "fp8": "FP8",
            "s2fp8": "S2FP8",
            "smaq": "SmaQ, zeros coded",
        }


def test_ours_stand_in_their_rows_and_a_dash_where_there_are_none(
    write_run: Write, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    experiments = {item.label: item for item in sweep_named("smaq", "cifar10_resnet34").experiments()}
    others = (("SmaQ", (50.0,)), ("SmaQ master weights", (89.0,)), ("FP8 e4m3 scaled", (1.0,)), ("FP8", (12.0,)))
    for label, accuracies in (("SmaQ, zeros coded", (84.0, 85.0)), *others):
        for seed, accuracy in enumerate(accuracies, 1):
            write_run(published.SMAQ_SWEEPS[0], {**experiments[label].settings, "seed": seed}, end(accuracy, 4.9))
    sentences = {item.label: item for item in sweep_named("smaq", "bert_stsb").experiments()}
    write_run(published.SMAQ_SWEEPS[1], {**sentences["FP32"].settings, "seed": 1}, [("Vpearson", 5, 0.8125)])
    found = smaq_table.table(tmp_path / "runs").set_index("format")
    assert found.loc["SmaQ", "resnet34 score ours"] == pytest.approx(84.5)
    assert found.loc["SmaQ", "resnet34 ratio ours"] == pytest.approx(4.9)
    assert found.loc["FP8", "resnet34 score ours"] == pytest.approx(12)
    assert sum(found["resnet34 score ours_n"].to_list()) == 3, (
        "masks of zeros, master weights and scaled e4m3 are no published rows"
    )
    assert main(["smaq", "--runs", str(tmp_path / "runs")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [
        "SmaQ", "84.74", "84.50", "+-", "6.35", "(n=2)", "4.92", "4.90", "+-", "0.00", "(n=2)",
        "0.794", "-", "4.95", "-",
    ]  # fmt: skip
    assert lines[3].split() == ["S2FP8", "20.32", "-", "3.87", "-", "-", "-", "-", "-"]
    assert "zeros=coded" in lines[-1] and "5.33" in lines[-1]
    assert lines[7].split() == ["FP32", "89.20", "-", "1.00", "-", "0.793", "0.812", "(n=1)", "-", "-"]


def test_the_result_table_has_them_too(write_run: Write, tmp_path: Path) -> None:
    experiments = {item.label: item for item in sweep_named("smaq", "cifar10_resnet34").experiments()}
    for label in ("SmaQ", "SmaQ, zeros coded", "SmaQ master weights"):
        write_run(published.SMAQ_SWEEPS[0], {**experiments[label].settings, "seed": 1}, end(85.74, 4.9))
    found = result_table.table(load(tmp_path / "runs", published.SMAQ_SWEEPS[0])).set_index("label")
    assert found.loc["SmaQ (zeros coded)", "difference_from_published_percent"] == pytest.approx(1.0, rel=1e-4)
    for label in ("SmaQ (zeros masked)", "SmaQ, master weights (zeros masked)"):
        assert np.isnan(found.loc[label, "published_accuracy_percent"])


def test_runs_of_its_own_code_have_their_rows() -> None:
    theirs = {"system": "smaq", "data.name": "cifar10", "model.name": "resnet34"}
    for method, row in (("smaq", "smaq"), ("fp32", "supersgd"), ("fp8", "fp8"), ("other", "")):
        assert published.smaq_row(published.SMAQ_SWEEPS[0], {**theirs, "method.name": method}) == row
    assert (
        published.smaq_row(published.SMAQ_SWEEPS[0], {**theirs, "method.name": "smaq", "model.name": "resnet18"}) == ""
    )
