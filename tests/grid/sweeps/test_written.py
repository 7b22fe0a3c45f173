"""Sweeps that a command line writes out: what their words mean, what they are called, and which words are refused."""

from __future__ import annotations

import itertools

import pytest

from grid.engine.sweep import load
from grid.engine.sweeps import written
from settings import resolving, run_identity

WORDS = ["method=qsgd,alq", "method.bits=2,3", "data=digits"]


def made(*words: str, name: str | None = None) -> written.Written:
    sweep = load(written.GRID, written.run_name(words, name))
    assert isinstance(sweep, written.Written)
    return sweep


def test_the_experiments_are_all_combinations() -> None:
    sweep = made(*WORDS)
    expected = [
        run_identity.identity(resolving.resolve({"method": method, "method.bits": bits, "data": "digits"}))
        for method, bits in itertools.product(("qsgd", "alq"), (2, 3))
    ]
    assert [item.identity for item in sweep.experiments()] == expected
    assert [item.label for item in sweep.experiments()][::3] == ["QSGD bits=2", "ALQ bits=3"]
    assert {item.folder for item in sweep.experiments()} == {sweep.home}
    assert [item.label for item in made("method=topk,alq_n").experiments()] == ["TopK", "ALQ-N"]
    assert [item.label for item in made("method=topk", "steps=2,4").experiments()] == ["TopK steps=2", "TopK steps=4"]


@pytest.mark.parametrize(
    "words",
    [
        *itertools.permutations(WORDS),
        ("method=choice(qsgd, alq)", "method.bits=range(2,4)", "data='digits'"),
    ],
)
def test_the_same_settings_are_the_same_sweep_however_they_are_written(words: tuple[str, ...]) -> None:
    assert made(*words).home == "qsgd-alq_bits-2-3-597c1265"  # a folder with runs in it: it never moves


@pytest.mark.parametrize(
    ("words", "readable"),
    [
        (["method=qsgd,alq"], "qsgd-alq"),
        (["method=qsgd", "data=digits"], "qsgd_digits"),  # nothing has several values
        (["steps=5"], "steps-5"),
        (["optim.lr=0.1,1e-3", "workers=4"], "lr-0.1-0.001"),
        (["data_dir='/a b/ä',/c"], "data-dir-a-b-c"),
        (["workers=range(1,60)"], "workers-" + "-".join(map(str, range(1, 60)))[:52].rstrip("-")),
    ],
)
def test_a_name_says_what_is_compared(words: list[str], readable: str) -> None:
    name = made(*words).home
    assert name.rpartition("-")[0] == readable
    assert written.FOLDER.fullmatch(name) and len(name) <= 69


def test_other_words_have_another_name() -> None:
    several = [WORDS, WORDS[:2], ["method=alq,qsgd", *WORDS[1:]], [*WORDS, "steps=7"]]
    assert len({made(*words).home for words in several}) == len(several)
    assert made(*WORDS, name="study").home == "study"
    assert made(*WORDS, name="study").title == "--sweep method=qsgd,alq data=digits method.bits=2,3 --name study"


def test_commas_within_quotes_and_brackets_are_values() -> None:
    sweep = made("schedule=step", "schedule.at=[100,200],[300]", "data_dir='a,b; \"c\" $d'", "label_smoothing=0,0.5")
    settings = [(item.config["schedule"]["at"], item.config["label_smoothing"]) for item in sweep.experiments()]
    assert sorted(settings) == [([100, 200], 0.0), ([100, 200], 0.5), ([300], 0.0), ([300], 0.5)]
    assert {item.config["data_dir"] for item in sweep.experiments()} == {'a,b; "c" $d'}


def test_labels_leave_out_what_the_method_does_not_read() -> None:
    found = made("method=qsgd,supersgd", "method.bits=2,3", "data=digits").experiments()
    assert [(item.label, item.aliases) for item in found] == [
        ("QSGD bits=2", ()),
        ("QSGD bits=3", ()),
        ("SuperSGD", ()),
    ]


def test_a_methods_setting_is_kept_where_it_is_read() -> None:
    settings = [item.settings for item in made("method=trn,qsgd", "method.bits=2,3").experiments()]
    assert [(one["method"], one.get("method.bits")) for one in settings] == [("trn", None), ("qsgd", 2), ("qsgd", 3)]
    (only,) = made("method=topk,alq", "method.ratio=0.5").experiments()[:1]
    assert only.settings["method.ratio"] == 0.5


@pytest.mark.parametrize("name", ["", "../x", "a b", ".x", "-x", "a/b"])
def test_a_name_that_is_no_folder(name: str) -> None:
    with pytest.raises(ValueError, match=r"must be one name of letters, digits"):
        made(*WORDS, name=name)
