"""Selection by settings, and which runs count as one."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.figures import named
from analysis.groups.seed_groups import groups, seed_groups
from analysis.groups.selection import select
from analysis.logs.load import Logs, load
from analysis.plots.across import trade_offs
from analysis.tables.result_table import table
from nuq.registry import METHODS
from nuq.settings import plugins
from tests import own_package
from tests.tiers import few

ROW = [("loss", 0, 1.0)]
WARMUP = METHODS["dgc"].settings().warmup_ratios


@pytest.fixture
def sweep(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., Logs]:
    def made(*settings: dict[str, object]) -> Logs:
        for one in settings:
            write_run("s", one, ROW)
        return load(tmp_path / "runs", "s")

    return made


def test_selection_reads_settings_never_names(sweep: Callable[..., Logs]) -> None:
    """The original's pattern ``32.*`` also picked bucket size 32768: a false point in a published figure."""
    logs = sweep(*({"method": "alq", "method.bucket_size": size} for size in (32, 320, 32768)), {"method": "sgd"})
    chosen = select(logs, ["method=alq", "bucket_size=32"])
    assert list(chosen.settings["method.bucket_size"]) == [32]
    assert set(chosen.scalars["run"]) == set(chosen.settings.index)


@few(
    3,
    ("conditions", "count"),
    [
        (["method=alq"], 4),
        (["method.name=alq,sgd"], 5),
        (["bits=3", "seed=1,2"], 3),
        (["method.bits=2"], 3),
        (["bits=3", "seed=2"], 1),
        (["method=alq", "bits=2"], 2),
        (["symmetric=True"], 5),
        (["optim.lr=1e-1"], 5),
        (["schedule.at=[40000,60000]"], 1),
        ([], 5),
    ],
)
def test_conditions(sweep: Callable[..., Logs], conditions: list[str], count: int) -> None:
    alq = [{"method": "alq", "method.bits": bits, "seed": seed} for bits in (2, 3) for seed in (1, 2)]
    logs = sweep(*alq, {"method": "sgd", "schedule": "step"})
    assert len(select(logs, conditions).settings) == count


def test_methods_without_a_setting_stay_beside_those_that_have_it(sweep: Callable[..., Logs]) -> None:
    """``--where bits=3`` is ALQ at 3 bits beside SuperSGD and TopK; what is only not known is not taken for absent."""
    alq = [{"method": "alq", "method.bits": bits} for bits in (2, 3)]
    logs = sweep(*alq, {"method": "supersgd"}, {"method": "topk"})
    chosen = select(logs, ["bits=3"]).settings
    assert sorted(chosen["method.name"]) == ["alq", "supersgd", "topk"]
    assert set(chosen["method.bits"].dropna()) == {3}
    logs.settings.loc[logs.settings["method.bits"] == 2, "method.bits"] = np.nan
    logs.settings.loc[logs.settings["method.name"] == "topk", "method.name"] = "unheard_of"
    assert sorted(select(logs, ["bits=3"]).settings["method.name"]) == ["alq", "supersgd"]
    with pytest.raises(ValueError, match=r"no run with bits=3 \(there are: none that read this setting\)"):
        select(logs, ["method=supersgd", "bits=3"])


def test_a_value_that_no_run_has_is_noted(sweep: Callable[..., Logs]) -> None:
    logs = sweep({"method": "alq", "method.bits": 2}, {"method": "sgd"})
    assert select(logs, ["method=alq,amq,trn", "bits=2.0,3"]).notes == (
        "no run with method=amq,trn (there are: alq, sgd)",
        "no run with bits=3 (there are: 2)",
    )


def test_seeds_and_run_folders_make_no_new_seed_group(sweep: Callable[..., Logs]) -> None:
    logs = sweep(*({"method": "alq", "seed": seed, "run_dir": f"r{seed}", "log_every": seed} for seed in (1, 2, 3)))
    (seed_group,) = seed_groups(logs.settings)
    assert (seed_group.label, len(seed_group.runs), seed_group.differs) == ("ALQ", 3, {})


def test_labels_say_what_differs_within_a_method(sweep: Callable[..., Logs]) -> None:
    logs = sweep(
        {"method": "alq"},
        {"method": "alq", "method.fit": "mixture", "method.solver": "paper"},
        {"method": "amq", "method.symmetric": True, "method.bits": 2},
        {"method": "amq", "method.bits": 10 // 2},
        {"method": "nuqsgd", "method.p": 0.25},
        {"method": "nuqsgd", "method.p": 0.5},
        {"method": "sgd"},
    )
    assert [seed_group.label for seed_group in seed_groups(logs.settings)] == [
        "SGD",
        "NUQSGD (p 0.25)",
        "NUQSGD (p 0.5)",
        "ALQ (histogram fit)",
        "ALQ (mixture fit)",
        "AMQ (2 bits)",
        "AMQ (5 bits)",
    ]


def test_seed_groups_come_in_the_order_of_the_table(sweep: Callable[..., Logs]) -> None:
    logs = sweep(*({"method": name} for name in sorted(METHODS)))
    assert [seed_group.method for seed_group in seed_groups(logs.settings)] == list(METHODS)


def test_trajectories_and_bits_get_figures_of_their_own(sweep: Callable[..., Logs]) -> None:
    quantized = [{"method": method, "method.bits": bits} for method in ("alq", "qsgd") for bits in (8, 2)]
    measured = {"method": "alq", "trajectory": "sgd", "measure.every": 5}
    found = groups(sweep(*quantized, {"method": "sgd"}, measured))
    assert [
        (group.trajectory, group.name, [seed_group.label for seed_group in group.seed_groups]) for group in found
    ] == [
        ("method", "bits=2", ["SGD", "QSGD", "ALQ"]),
        ("method", "bits=8", ["SGD", "QSGD", "ALQ"]),
        ("sgd", "sgd_trajectory", ["ALQ"]),
    ]
    assert all(
        set(group.logs.settings.index) == {run for seed_group in group.seed_groups for run in seed_group.runs}
        for group in found
    )


def test_methods_that_differ_alone_in_bits_share_a_figure(sweep: Callable[..., Logs]) -> None:
    (group,) = groups(
        sweep(*({"method": "alq", "method.bits": bits} for bits in (8, 2)), {"method": "qsgd", "method.bits": 2})
    )
    assert [seed_group.label for seed_group in group.seed_groups] == ["QSGD", "ALQ (2 bits)", "ALQ (8 bits)"]


def test_runs_whose_settings_no_other_has_get_a_figure_of_their_own(sweep: Callable[..., Logs]) -> None:
    quantized = [{"method": method, "method.bits": bits} for method in ("alq", "qsgd") for bits in (3, 4)]
    logs = sweep(*quantized, *({"method": "supersgd", "workers": workers} for workers in (2, 4)))
    found = groups(logs)
    assert [(group.name, [seed_group.label for seed_group in group.seed_groups]) for group in found] == [
        ("bits=3-workers=4", ["SuperSGD", "QSGD", "ALQ"]),
        ("bits=4-workers=4", ["SuperSGD", "QSGD", "ALQ"]),
        ("workers=2", ["SuperSGD"]),
    ]
    assert {run for group in found for seed_group in group.seed_groups for run in seed_group.runs} == set(
        logs.settings.index
    )


def test_labels_leave_out_what_follows_from_the_rest() -> None:
    rows = [
        {"method.fit": "histogram", "method.solver": "exact", "method.weights": "norm2", "method.num_components": 350},
        {"method.fit": "mixture", "method.solver": "exact", "method.weights": "norm", "method.num_components": 80},
        {"method.fit": "mixture", "method.solver": "paper", "method.weights": "norm", "method.num_components": 80},
        {"method.fit": "mixture", "method.solver": "paper", "method.weights": "norm2", "method.num_components": 80},
    ]
    settings = pd.DataFrame([{"method.name": "alq", **row} for row in rows], index=list("abcd"))
    labels = {seed_group.runs[0]: seed_group.label for seed_group in seed_groups(settings)}
    assert labels == {
        "a": "ALQ (histogram fit, exact solver)",  # which reads no weights
        "b": "ALQ (mixture fit, exact solver, weights norm)",
        "c": "ALQ (mixture fit, original's solver, weights norm)",
        "d": "ALQ (mixture fit, original's solver, weights norm2)",
    }


def test_no_label_shows_a_value_without_what_it_is_of() -> None:
    """Settings are told in words: no ``update_at [10,20,100]``, no bare ``stochastic`` or ``none``."""
    varied = {
        "method.rounding": ("stochastic", "correlated"),
        "method.update_at": ((10, 20, 100), (100,)),
        "method.dither": ("none", "subtractive"),
        "method.objective": ("mean", "message"),
        "method.norm": ("l2", "linf"),
        "method.num_samples": (5, 10),
        "method.symmetric": (True, False),
    }
    for name, values in varied.items():
        settings = pd.DataFrame([{"method.name": "alq", name: value} for value in values], index=["a", "b"])
        for seed_group, value in zip(seed_groups(settings), values, strict=True):
            told = seed_group.label.partition("(")[2].rstrip(")")
            assert told not in ("", str(value)) and "_" not in told and "[" not in told, seed_group.label


def test_labels_leave_out_what_a_run_does_not_read() -> None:
    rows = [
        {"feedback.kind": "auto", "feedback.masking": True, "method.warmup_every": 0, "method.warmup_ratios": WARMUP},
        {"feedback.kind": "auto", "feedback.masking": False, "method.warmup_every": 10, "method.warmup_ratios": WARMUP},
        {"feedback.kind": "error", "feedback.masking": True, "method.warmup_every": 10, "method.warmup_ratios": WARMUP},
        {"feedback.kind": "auto", "feedback.masking": True, "method.warmup_every": 10, "method.warmup_ratios": WARMUP},
    ]
    settings = pd.DataFrame([{"method.name": "dgc", **row} for row in rows], index=list("abcd"), dtype=object)
    labels = {seed_group.runs[0]: seed_group.label for seed_group in seed_groups(settings)}
    assert labels == {
        "a": "DGC (its paper's feedback, masking=true, warmup every 0)",
        "b": "DGC (its paper's feedback, masking=false, warmup every 10)",
        "c": "DGC (error feedback, warmup every 10)",
        "d": "DGC (its paper's feedback, masking=true, warmup every 10)",
    }


def test_runs_that_failed_without_a_log_rename_nothing(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for method in ("alq", "qsgd"):
        for seed in (1, 2):
            write_run(
                "s", {"method": method, "seed": seed}, [("Vacc", 0, 1.0), ("Vacc", 1000, 2.0)], steps=1000, step=1000
            )
    before = load(tmp_path / "runs", "s", cache=False)
    write_run("s", {"method": "alq", "optim.lr": 5.0, "model": "mlp"}, state="failed")
    write_run("s", {"method": "qsgd", "method.bits": 5}, state="diverged")
    write_run("s", {"method": "qsgd", "seed": 3}, state="failed")  # a seed of a setting that others have
    after = load(tmp_path / "runs", "s", cache=False)
    assert [group.name for group in groups(after)] == [group.name for group in groups(before)] == [""]
    assert (
        [seed_group.label for seed_group in groups(after)[0].seed_groups]
        == [seed_group.label for seed_group in groups(before)[0].seed_groups]
        == ["QSGD", "ALQ"]
    )
    found = table(after)
    assert list(found["label"]) == list(table(before)["label"])
    assert list(found["runs"]) == [3, 2]
    assert found.attrs["notes"] == (
        "2 runs failed before they logged anything, in settings of their own, and have no row.",
    )
    assert [figure.name for figure in named(after, 3.3)] == [figure.name for figure in named(before, 3.3)]


def test_where_nothing_was_logged_all_are_told_apart(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("s", {"method": "alq", "method.bits": 2}, state="failed")
    write_run("s", {"method": "alq", "method.bits": 5}, state="failed")
    assert [seed_group.label for seed_group in groups(load(tmp_path / "runs", "s"))[0].seed_groups] == [
        "ALQ (2 bits)",
        "ALQ (5 bits)",
    ]


def test_a_rate_chosen_for_each_method_parts_no_figures(sweep: Callable[..., Logs]) -> None:
    base = {"data": "cifar10", "optim.lr": 0.1}
    bits = [{**base, "method": name, "method.bits": each} for name in ("alq", "amq") for each in (2, 3)]
    chosen = sweep({**base, "method": "sgd"}, {**bits[0], "optim.lr": 0.05}, *bits[1:])
    assert [dict(group.differs) for group in groups(chosen)] == [{"method.bits": 2}, {"method.bits": 3}]
    (panel,) = trade_offs(chosen)
    assert [len(series.points) for series in panel.series] == [1, 2, 2]
    more = sweep(bits[0])
    assert [dict(panel.group.differs) for panel in trade_offs(more)] == [{"optim.lr": 0.05}, {"optim.lr": 0.1}]


def test_what_only_one_method_has_does_not_part_it_from_the_others(sweep: Callable[..., Logs]) -> None:
    (group,) = groups(
        sweep(
            {"method": "alq", "method.bits": 3},
            {"method": "qsgd", "method.bits": 3},
            {"method": "eden", "method.bits": 3, "method.bucket_size": 8192},
            {"method": "eden", "method.bits": 3, "method.bucket_size": 1 << 20},
            {"method": "topk", "method.ratio": 0.01},
            {"method": "topk", "method.ratio": 0.1},
            {"method": "powersgd", "method.rank": 2},
        )
    )
    assert len(group.seed_groups) == 7


def test_methods_of_ones_own_are_compared_with_ours(
    sweep: Callable[..., Logs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one figure, by the title; two versions of a package are told apart."""
    own_package.write(tmp_path / "own")
    monkeypatch.syspath_prepend(tmp_path / "own")
    with own_package.restored():
        plugins.load("my_package")
        sweep({"method": "mine"}, {"method": "qsgd", "method.bits": 4})
        (one,) = groups(sweep())
        assert [each.label for each in one.seed_groups] == ["QSGD", "My method"]
        monkeypatch.setattr(sys.modules["my_package"], "__version__", "1.3")
        (one,) = groups(sweep({"method": "mine"}))
        assert [each.label for each in one.seed_groups] == [
            "QSGD",
            "My method (my_package==1.2)",
            "My method (my_package==1.3)",
        ]
