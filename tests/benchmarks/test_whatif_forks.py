"""The intervals of forks and of whole runs are SciPy's."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind, ttest_rel

from analysis.logs.load import Logs
from analysis.logs.parents import AT, RUN, with_parents
from analysis.logs.rows import rows
from benchmarks import whatif_forks
from tests.analysis.synthetic import many_runs


def test_intervals_of_forks_and_of_whole_runs(tmp_path):
    made = many_runs(5 * 3, tmp_path, seeds=3)  # sgd, supersgd and three others, of which one is forked to itself
    forms = ("sgd-{}", "supersgd-s{}-0123456789abcd", "qsgd-{}", "qsgdinf-{}", "fork-{}")
    names = [form.format(seed) for form in forms for seed in (1, 2, 3)]
    methods = [form.split("-")[0] for form in forms[:4] for _ in range(3)] + ["qsgd"] * 3
    settings = made.settings.set_axis(pd.Index(names, name="run")).assign(**{"method.name": methods})
    settings["method.bucket_size"] = settings["method.bits"] = np.nan
    parents = [""] * 12 + [f"runs/x/supersgd-s{seed}-0123456789abcd" for seed in (1, 2, 3)]
    settings = with_parents(settings.assign(**{RUN: parents, AT: [0] * 12 + [1000] * 3}))
    logs = Logs("x", tmp_path, rows(tuple(names), made.rows.part), settings, made.status.set_axis(names), ())
    loss = logs.of_tag("Vloss").iloc[-1]
    of = {form: np.array([loss[form.format(seed)] for seed in (1, 2, 3)]) for form in forms}
    left, whole, forked = (of[form] for form in (forms[1], "qsgd-{}", "fork-{}"))
    (row,) = whatif_forks.intervals(logs, "Vloss").values()
    paired = ttest_rel(forked, left).confidence_interval()
    apart = ttest_ind(whole, left, equal_var=False).confidence_interval()
    assert row["paired"] == pytest.approx(np.diff(paired)[0] / 2, rel=1e-3)
    assert row["whole_runs"] == pytest.approx(np.diff(apart)[0] / 2, rel=1e-3)
    assert row["ratio"] == pytest.approx(np.diff(paired)[0] / np.diff(apart)[0], rel=1e-3)
    pairs = ttest_rel(whole, left).confidence_interval()
    assert row["whole_pairs"] == pytest.approx(np.diff(pairs)[0] / 2, rel=1e-3)
    assert row["ratio_of_pairs"] == pytest.approx(np.diff(paired)[0] / np.diff(pairs)[0], rel=1e-3)
    assert whatif_forks.figures_of_intervals(logs)["paired_interval_ratio_of_pairs"] == round(row["ratio_of_pairs"], 4)
    assert row["whole_difference"] == pytest.approx(whole.mean() - left.mean(), rel=1e-3)
