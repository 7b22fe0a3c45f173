"""The figures of ``benchmarks.whatif`` against rows by hand, its page, its errors, and the whole in small."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind, ttest_rel

from analysis.logs.load import Logs
from analysis.logs.parents import AT, RUN, with_parents
from analysis.logs.rows import rows
from analysis.prediction.runs import Setup
from benchmarks import whatif, whatif_forks
from benchmarks.rank_processes import ROOT
from benchmarks.results import blocks
from benchmarks.whatif import FULL, METHODS, figures_of, row_of
from tests.analysis.synthetic import many_runs

NEVER = math.nan


def row(predicted_s, measured_s, target=(NEVER, 1.0), method="alq", link="30 Mbit/s", every=1):
    return row_of(method, link, Setup(2, every, 3e7), (predicted_s, target[0]), (measured_s, target[1]))


def test_errors_are_relative_to_what_was_measured():
    figures = figures_of([row(11.0, 10.0), row(8.0, 10.0, (6.0, 4.0)), row(10.5, 10.0, (3.0, NEVER), every=4)])
    assert (figures["predict_median_error"], figures["predict_worst_error"]) == (0.1, -0.2)
    assert (figures["target_median_error"], figures["num_reached"], figures["num_runs"]) == (0.5, 1, 3)
    assert figures["runs"]["alq"]["30 Mbit/s"]["4"]["error"] == 0.05


def test_twelve_runs_are_measured_over_links_that_are_shaped():
    assert len(METHODS) * len(FULL.mbit) * len(FULL.every) == 12
    assert all(FULL.steps % every == 0 for every in FULL.every)
    words = whatif.words_of(FULL, "alq", 4, ROOT / "here")
    assert {"method=alq", "steps=96", "exchange.local_steps=4", f"run_dir={ROOT / 'here'}"} <= set(words)
    assert not any(word.startswith("exchange.") for word in whatif.words_of(FULL, "alq", 1, ROOT))


def test_without_root_one_sentence_says_why(monkeypatch, capsys):
    monkeypatch.setattr(whatif, "why_not", lambda: "no namespaces here")
    with pytest.raises(SystemExit, match="2"):
        whatif.main([])
    assert capsys.readouterr().err.endswith("error: no namespaces here; --quick needs none\n")
    with pytest.raises(SystemExit, match="2"):
        whatif.main(["--quick", "--steps", "6"])
    assert "--steps 6: must be a multiple of 4" in capsys.readouterr().err


def test_a_run_that_fails_is_told_with_its_last_words(tmp_path):
    with pytest.raises(RuntimeError, match=r"^main.py method=alk run_dir=.*: ended with 2: .*'alk'"):
        whatif.train(["method=alk", f"run_dir={tmp_path}"], None)


def test_the_page_can_be_written():
    rows = [
        row(9.0, 10.0, (4.0, 5.0), method, f"{rate} Mbit/s", every)
        for method, rate, every in itertools.product(METHODS, FULL.mbit, FULL.every)
    ]
    (block,) = blocks.of_page((ROOT / "docs/results/whatif.md").read_text())
    told = {"commit": "0123456789ab", "date": "2001-01-01", "hardware": "a processor"}
    way = {"difference": 0.001, "paired": 0.002, "whole_difference": -0.003, "whole_runs": 0.008, "ratio": 0.25}
    way |= {"whole_pairs": 0.004, "ratio_of_pairs": 0.5}
    forks = {"fork_unchanged_identical": True, "fork_seeds": 5, "paired_interval_ratio": 0.25}
    forks |= {"paired_interval_ratio_of_pairs": 0.5, "accuracy_interval_ratio": 0.75}
    forks["accuracy_interval_ratio_of_pairs"] = 1.25
    forks["forks"] = dict.fromkeys(("qsgdinf", "nuqsgd", "trn", "alq"), way)
    accuracy = {**way, "ratio": 0.75, "ratio_of_pairs": 1.25}
    forks["forks_accuracy"] = dict.fromkeys(forks["forks"], accuracy)
    page = block.words({**told, "figures": json.loads(json.dumps({**figures_of(rows), **forks}))})
    assert "| TRN | .0010 +- .0020 | -.0030 +- .0080 | +- .0040 | .25 | .50 | .75 | 1.2 |" in page
    assert "| median | | | | .25 | .50 | .75 | 1.2 |" in page and "end with the very parameters of" in page
    assert "off by 10 % in the median of 12 runs, by -10 % at worst" in page
    assert "| TopK | 300 Mbit/s | 4 | 9.00 s | 10.0 s | -10 % |" in page


@pytest.mark.slow
def test_the_whole_in_small(capsys):
    whatif.main(["--quick", "--methods", "alq", "--steps", "8"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["num_runs"], told["steps"]) == (2, 8)
    assert all(one["measured_s"] > 0 and one["predicted_s"] > 0 for one in told["runs"]["alq"]["loopback"].values())


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
