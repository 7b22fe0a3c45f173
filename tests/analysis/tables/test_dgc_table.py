"""DGC's published table beside ours: every row of it, ours where runs exist, a dash where not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import published
from analysis.__main__ import main
from analysis.logs.load import load
from analysis.tables import dgc_table, result_table
from grid.engine.sweeps.families import load as sweep_named

Write = Callable[..., Path]
GRIDS = ("imagenet_resnet50", "imagenet_vgg16bn")


def test_the_sweeps_hold_every_published_row(tmp_path: Path) -> None:
    for run_name, folder, model in zip(GRIDS, published.DGC_SWEEPS, published.DGC_MODELS, strict=True):
        found = []
        for item in sweep_named("dgc", run_name).experiments():
            assert (item.folder, item.config["model"]["name"]) == (folder, model)
            settings = {f"method.{name}": value for name, value in item.config["method"].items()}
            settings |= {f"{group}.name": item.config[group]["name"] for group in ("data", "model", "schedule")}
            settings |= {name: item.config[name] for name in ("workers", "batch_size")}
            settings["compute.accumulate"] = item.config["compute"]["accumulate"]
            theirs = published.accuracy(folder, settings)
            assert theirs is not None
            if item.config["method"]["name"] in theirs:
                found.append(theirs[item.config["method"]["name"]])
        column = published.DGC_MODELS.index(model)
        assert sorted(found) == sorted(
            [*(row[column] for row in published.DGC.values()), *[published.DGC_DENSE[column]] * 2]
        )


def test_runs_from_before_accumulation_keep_their_row() -> None:
    """They took a machine's batch in one pass."""
    older = {"workers": 8.0, "batch_size": 256.0, "schedule.name": "step"}
    assert (
        published.dgc_row(older) == published.dgc_row(older | {"compute.accumulate": float("nan")}) == (64, 8, "step")
    )
    assert published.dgc_row(older | {"batch_size": 32, "compute.accumulate": 8}) == (64, 8, "step")


def test_ours_stand_in_their_rows_and_a_dash_where_there_are_none(
    write_run: Write, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    experiments = {item.label: item for item in sweep_named("dgc", "imagenet_resnet50").experiments()}
    for label, accuracies in (
        ("gpus=8 DGC wm5", (76.0, 77.0)),
        ("gpus=64 as 8 nodes DGC wm5", (75.5,)),
        ("gpus=32 DGC wm0", (1.0,)),
        ("gpus=8 SuperSGD", (76.2,)),
    ):
        for seed, accuracy in enumerate(accuracies, 1):
            write_run(published.DGC_SWEEPS[0], {**experiments[label].settings, "seed": seed}, [("Vacc", 5, accuracy)])
    found = dgc_table.table(tmp_path / "runs")
    rows = {(row["trained on"], row["workers that compress"], row["schedule"]): row for row in found.to_dict("records")}
    assert rows["8 GPUs", "8", "step"]["resnet50 ours"] == pytest.approx(76.5)
    assert rows["8 GPUs", "8", "step"]["resnet50 paper"] == 76.6
    assert rows["64 GPUs", "8 nodes of 8", "step"]["resnet50 ours"] == pytest.approx(75.5)
    assert rows["dense", "", ""]["resnet50 ours"] == pytest.approx(76.2)
    assert sum(found["resnet50 ours_n"].tolist()) == 4, "a run without warm-up is no published one"
    assert sum(found["vgg16_bn ours_n"].tolist()) == 0
    assert main(["dgc", "--runs", str(tmp_path / "runs")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split() == ["8", "GPUs", "8", "step", "76.6", "76.50", "+-", "6.35", "(n=2)", "74.1", "-"]
    assert lines[10].split() == ["256", "GPUs", "32", "nodes", "of", "8", "step", "75.9", "-", "71.7", "-"]


def test_the_result_table_has_them_too(write_run: Write, tmp_path: Path) -> None:
    experiments = {item.label: item for item in sweep_named("dgc", "imagenet_vgg16bn").experiments()}
    write_run(
        published.DGC_SWEEPS[1],
        {**experiments["gpus=256 as 32 nodes DGC wm5"].settings, "seed": 1},
        [("Vacc", 5, 71.0)],
    )
    found = result_table.table(load(tmp_path / "runs", published.DGC_SWEEPS[1]))
    assert found.loc[0, "published_accuracy_percent"] == 71.7
    assert found.loc[0, "difference_from_published_percent"] == pytest.approx(-0.7)
