"""Forks in tables and figures: seed groups, branches, and differences seed by seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind, ttest_rel

from analysis.forks import branches, unfinished, welch, with_left
from analysis.groups.seed_groups import groups, seed_groups
from analysis.logs.load import Logs
from analysis.logs.parents import AT, OF, RUN, with_parents
from analysis.logs.rows import rows
from analysis.plots.branches import forks
from analysis.plots.legends import spread_sentence
from analysis.tables import fork_table
from tests.analysis.synthetic import many_runs

SEEDS = 3
PARENT = "supersgd-cnn-digits-s{}-0123456789abcd"
FORK = "nuqsgd-cnn-digits-s{}-0123456789abcd"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """Three seeds each of SGD, SuperSGD, and forks from SuperSGD to NUQSGD at step 1000; their losses are made up."""
    made = many_runs(3 * SEEDS, tmp_path_factory.mktemp("logs"), seeds=SEEDS)
    names = [form.format(seed) for form in ("sgd-{}", PARENT, FORK) for seed in range(1, SEEDS + 1)]
    settings = made.settings.set_axis(pd.Index(names, name="run"))
    forked = settings["method.name"] == "nuqsgd"
    parents = [f"runs/x/{PARENT.format(seed)}" for seed in settings["seed"]]
    settings = settings.assign(**{RUN: np.where(forked, parents, ""), AT: np.where(forked, 1000, 0)})
    status = made.status.set_axis(settings.index)
    return Logs(made.sweep, made.folder, rows(tuple(names), made.rows.part), with_parents(settings), status, ())


def test_forks_of_all_seeds_are_one_seed_group(logs: Logs) -> None:
    found = {group.label: len(group.runs) for group in seed_groups(logs.settings)}
    assert found == {"SGD": 3, "SuperSGD": 3, "NUQSGD": 3}
    assert list(logs.settings[OF]) == [*[""] * 2 * SEEDS, *["supersgd-cnn-digits"] * SEEDS]


def test_a_fork_is_told_from_the_run_with_its_settings(logs: Logs) -> None:
    """SuperSGD forked to itself, and parents that differ in more than their seeds."""
    settings = logs.settings.drop(columns=OF)
    more = settings.iloc[SEEDS : 2 * SEEDS].copy()
    more.index = pd.Index([f"x-s{seed}-0123456789abcd" for seed in (1, 2, 3)])
    more[RUN], more[AT] = list(settings[RUN].iloc[-SEEDS:]), 500
    wide = more.assign(workers=8, **{RUN: np.nan, AT: 0}).set_axis([PARENT.format(seed) + "0" for seed in (1, 2, 3)])
    of_wide = more.assign(**{RUN: [f"runs/x/{name}" for name in wide.index]}).set_axis(["p", "q", "r"])
    found = with_parents(pd.concat([settings, more, wide, of_wide]))
    assert len(set(found[OF])) == 5  # none, SuperSGD, and three whose names end otherwise: their seeds are not known
    labels = {group.label for group in seed_groups(with_parents(pd.concat([settings, more])))}
    assert labels == {"SGD", "SuperSGD (from the start)", "SuperSGD (from step 500)", "NUQSGD"}


def test_forks_of_runs_in_another_folder_are_one_seed_group(logs: Logs) -> None:
    forked = logs.settings.iloc[-SEEDS:].drop(columns=OF)
    assert set(with_parents(forked)[OF]) == {"supersgd-cnn-digits"}
    other = PARENT.format(1).replace("abcd", "abce")  # of the first seed, too, with settings that nobody knows
    twice = pd.concat([forked, forked.iloc[:1].assign(**{RUN: f"runs/y/{other}"}).set_axis(["x"])])
    assert set(with_parents(twice)[OF]) == {"supersgd-cnn-digits", PARENT.format(1), other}


def test_what_forks_left_is_chosen_with_them(logs: Logs) -> None:
    chosen = logs.keep([FORK.format(1)])
    assert list(with_left(chosen, logs).settings.index) == [PARENT.format(1), FORK.format(1)]
    no_fork = logs.keep([PARENT.format(1)])
    assert list(with_left(no_fork, logs).settings.index) == [PARENT.format(1)]


def test_forks_that_have_not_finished_are_told(logs: Logs) -> None:
    status = logs.status.copy()
    status.loc[FORK.format(2), ["state", "complete", "step"]] = ["diverged", False, 1500.0]
    stopped = replace(logs, status=status)
    steps = f"{status['steps'].iloc[0]:g}"
    assert unfinished(stopped) == [f"NUQSGD: not finished: seed 2 (diverged at step 1500 of {steps})"]
    found = fork_table.table(stopped)
    assert not isinstance(found, str) and [(row["pairs"], row["forks"]) for row in found] == [(2, 3)] * 2
    assert not unfinished(logs)
    mine = [FORK.format(seed) for seed in range(1, SEEDS + 1)]
    status.loc[mine, ["state", "logged", "complete", "step"]] = ["diverged", False, False, 1000.0]
    at = ", ".join(f"seed {seed} (diverged at step 1000 of {steps})" for seed in range(1, SEEDS + 1))
    assert unfinished(replace(logs, status=status)) == [f"nuqsgd: not finished: {at}"]


def test_without_forks_nothing_of_them_is_left(logs: Logs) -> None:
    assert not {RUN, AT, OF} & set(with_parents(logs.settings.iloc[: 2 * SEEDS].drop(columns=OF)))


def test_branches_are_compared_seed_by_seed(logs: Logs) -> None:
    found = branches(logs, seed_groups(logs.settings), "Vloss")
    assert not isinstance(found, str)
    (branch,) = found
    loss = logs.of_tag("Vloss")
    ours, theirs = ([loss[form.format(seed)].iloc[-1] for seed in (1, 2, 3)] for form in (FORK, PARENT))
    assert branch.at == 1000 and branch.ours.index.min() == 1100 and branch.parents == tuple(loss.columns[3:6])
    paired, apart = ttest_rel(ours, theirs), ttest_ind(ours, theirs, equal_var=False)
    assert branch.final.mean == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert branch.final.half_width == pytest.approx(np.diff(paired.confidence_interval())[0] / 2)
    assert branch.final.p == pytest.approx(paired.pvalue)
    assert branch.unpaired_half_width == pytest.approx(np.diff(apart.confidence_interval())[0] / 2)


def test_intervals_of_equal_and_of_single_numbers() -> None:
    assert welch(np.array([1.0, 1.0]), np.array([2.0, 2.0])) == 0
    assert np.isnan(welch(np.array([1.0]), np.array([2.0, 3.0])))


def test_the_figure_of_forks(logs: Logs) -> None:
    (group,) = groups(logs)
    figure = forks(group, 3.3)
    assert not isinstance(figure, str)
    losses, differences = figure.axes
    assert [label for line in losses.lines if not (label := str(line.get_label())).startswith("_")] == [
        "SuperSGD",
        "NUQSGD",
    ]
    step, difference = map(np.asarray, differences.lines[-1].get_data())
    assert step[0] == 1000 and difference[0] == 0
    loss = logs.of_tag("Vloss")
    last = np.mean([loss[FORK.format(s)].iloc[-1] - loss[PARENT.format(s)].iloc[-1] for s in (1, 2, 3)])
    assert difference[-1] == pytest.approx(last)
    (band,) = differences.collections  # of three seeds: their range
    ours, theirs = ([loss[form.format(seed)].iloc[-1] for seed in (1, 2, 3)] for form in (FORK, PARENT))
    heights = np.asarray(band.get_paths()[0].vertices)
    assert heights[heights[:, 0] == step[-1], 1].max() == pytest.approx(max(np.subtract(ours, theirs)))
    assert spread_sentence(figure) == "Bands: the range of two or three seeds"


def test_the_table_of_forks(logs: Logs) -> None:
    found = fork_table.table(logs)
    assert not isinstance(found, str)
    loss, accuracy = found
    (branch,) = [] if isinstance(of := branches(logs, seed_groups(logs.settings), "Vacc"), str) else of
    assert (loss["fork"], loss["left"], loss["step"], loss["pairs"]) == ("NUQSGD", "supersgd-cnn-digits", 1000, 3)
    assert accuracy["difference"] == branch.final.mean and accuracy["unpaired"] == branch.unpaired_half_width
    assert fork_table.text(found).count("\n") == 3
    assert str(fork_table.table(logs.keep([PARENT.format(1)]))).startswith("no fork has ")


def test_a_parent_without_logs_leaves_out_its_seed_alone(logs: Logs) -> None:
    logged = [run for run in logs.settings.index if run != PARENT.format(2)]
    found = fork_table.table(replace(logs, rows=logs.rows.keep(logged)))
    assert not isinstance(found, str)
    assert [(row["pairs"], row["forks"]) for row in found] == [(2, 3)] * 2
    assert "2 of 3" in fork_table.text(found)


def test_p_is_corrected_for_the_number_of_forks(logs: Logs) -> None:
    """The same forks from two steps: twice the p."""
    names = list(logs.settings.index)
    twice = many_runs(4 * SEEDS, logs.folder, seeds=SEEDS)
    again = logs.settings.iloc[-SEEDS:].assign(**{AT: 500}).set_axis([f"again{seed}" for seed in (1, 2, 3)])
    settings = pd.concat([logs.settings, again])
    made = rows((*names, *again.index), twice.rows.part)
    both = Logs("both", logs.folder, made, settings, twice.status.set_axis(settings.index), ())
    found = fork_table.table(both)
    assert not isinstance(found, str)
    each = branches(both, seed_groups(settings), "Vloss")
    assert not isinstance(each, str)
    alone = [branch.final.p for branch in each]
    told = [row["p"] for row in found if row["quantity"] == "validation loss"]
    assert max(told) == pytest.approx(max(*alone, 2 * min(alone)))


def test_what_has_no_branches(logs: Logs) -> None:
    alone = logs.keep([name for name in logs.settings.index if "super" not in name])
    (group,) = groups(alone)
    assert forks(group, 3.3) == "no fork has Vloss at a step at which the run that it left has it, too"
    (group,) = groups(many_runs(30, logs.folder))
    assert forks(group, 3.3) == "no run is a fork of another"
