"""Sweeps: expansion, aliases, names, resources, families, and errors."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grid.engine.sweep import Sweep, axis, needs, point, product, union, when, where_read
from grid.engine.sweeps import written
from grid.engine.sweeps.families import find, load, makers, parse_seeds

METHODS_OF_TWO_KINDS = union(point("SGD", method="sgd"), point("QSGD", method="qsgd"))


def test_points_that_mean_the_same_run_are_aliases() -> None:
    bits = {item.label: item.aliases for item in load("abl", "bits").experiments()}
    assert bits["TRN bits=2"] == tuple(f"TRN bits={value}" for value in range(3, 8))
    assert sum(map(len, bits.values())) == 5
    interval = {item.label: item.aliases for item in load("abl", "interval").experiments()}
    assert interval["QSGDinf once"] == ("QSGDinf rarely", "QSGDinf often")
    assert interval["ALQ once"] == ()
    assert {label for label, also in interval.items() if also} == {
        f"{name} once" for name in ("SGD", "SuperSGD", "QSGDinf", "TRN", "NUQSGD")
    }


def test_product_union_and_later_settings_win() -> None:
    points = product(point("a", steps=1, workers=2), union(point("b", steps=2), axis("workers", [3, 4])))
    assert [item.label for item in points] == ["a b", "a workers=3", "a workers=4"]
    assert [dict(item.settings) for item in points] == [
        {"steps": 2, "workers": 2},
        {"steps": 1, "workers": 3},
        {"steps": 1, "workers": 4},
    ]


def test_optional_settings_are_dropped_only_where_the_method_does_not_read_them() -> None:
    methods = union(point("SGD", method="sgd"), point("QSGD", method="qsgd"), point("TRN", method="trn"))
    made = Sweep(product(methods, where_read({"method.bits": 5, "method.bucket_size": 64})), folder="x").experiments()
    assert [item.config["method"].get("bits") for item in made] == [None, 5, None]
    assert [item.config["method"].get("bucket_size") for item in made] == [None, 64, 64]
    strict = Sweep(product(methods, point("", {"method.bits": 5})))
    with pytest.raises(ValueError, match=r"point 'SGD'.*unknown setting of method=sgd 'method\.bits'"):
        strict.experiments()
    with pytest.raises(ValueError, match="no setting of the method"):
        where_read({"workers": 3})


def test_a_later_plain_setting_makes_an_optional_one_required() -> None:
    made = Sweep(product(where_read({"method.bits": 5}), point("SGD", {"method.bits": 6}, method="sgd")))
    with pytest.raises(ValueError, match=r"method\.bits"):
        made.experiments()


def test_seeds_multiply_and_override_reaches_every_experiment() -> None:
    made = load("nuq", "mnist", seeds=(1, 2, 5)).override({"data_dir": "/elsewhere", "method.bits": 6})
    experiments = made.experiments()
    assert len(experiments) == 57
    assert {item.seed for item in experiments} == {1, 2, 5}
    assert {item.config["data_dir"] for item in experiments} == {"/elsewhere"}
    assert {item.config["method"].get("bits") for item in experiments} == {None, 6}
    plain = {item.name for item in load("nuq", "mnist", seeds=(1, 2, 5)).override({"data_dir": "/x"}).experiments()}
    assert plain == {item.name for item in load("nuq", "mnist", seeds=(5, 2, 1)).experiments()}, (
        "a path is no part of the identity"
    )


def test_a_method_for_all_is_named_in_every_label() -> None:
    whole = Sweep(union(point("", steps=3), point("short", steps=2)), seeds=(1,))
    assert [item.label for item in whole.override({"method": "trn"}).points] == ["method=trn", "short method=trn"]


@pytest.mark.parametrize(("text", "seeds"), [("3", (1, 2, 3)), ("1,2,5", (1, 2, 5)), ("7,", (7,)), ("4,4,0", (4, 0))])
def test_parse_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "", ",", "a", "1,b", "-1", "1.5", "1001"])
def test_parse_seeds_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds"):
        parse_seeds(text)


def test_find_by_number_label_alias_name_and_identity() -> None:
    experiments = load("abl", "bits").experiments()
    trn = next(item for item in experiments if item.config["method"]["name"] == "trn")
    assert find(experiments, "1") == experiments[:1]
    assert find(experiments, "trn bits=6") == [trn]
    assert find(experiments, trn.name) == [trn]
    assert find(experiments, trn.name[-14:][:6]) == [trn]
    seeds = dataclasses.replace(load("abl", "bits"), seeds=(1, 2, 3)).experiments()
    assert [item.seed for item in find(seeds, "trn bits=6")] == [1, 2, 3], "a label is all its seeds"
    with pytest.raises(ValueError, match="did you mean 'TRN bits=2'"):
        find(experiments, "TNR bits=2")


# --- resources, seeds, reports ------------------------------------------------------------------------------------


def test_resources_of_sweep_and_points() -> None:
    points = product(axis("workers=2,4"), when("workers=4", needs(gpus=4)))
    made = Sweep(points, resources={"gpus": 1, "time": "1:00:00"}).experiments()
    assert [dict(item.resources) for item in made] == [{"gpus": 1, "time": "1:00:00"}, {"gpus": 4, "time": "1:00:00"}]
    made = Sweep(points, resources=lambda config: {"cpus": config["workers"], "gpus": 9}).experiments()
    assert [dict(item.resources) for item in made] == [{"cpus": 2, "gpus": 9}, {"cpus": 4, "gpus": 4}]
    plain = Sweep(axis("workers=2,4")).experiments()
    assert [dict(item.resources) for item in plain] == [{}, {}]
    assert [item.name for item in plain] == [item.name for item in made], "resources are no part of a run's identity"


def test_duplicates_are_reported() -> None:
    methods = union(point("SGD", method="sgd"), point("QSGD", method="qsgd"))
    sweep = Sweep(product(methods, axis("method.bits=2,3")), seeds=(1, 2))
    assert [item.aliases for item in sweep.experiments()] == [("SGD bits=3",), ("SGD bits=3",), (), (), (), ()]
    assert sweep.duplicates() == ["'SGD bits=2' is the same run as 'SGD bits=3'"]
    assert Sweep([point("A", steps=5), point("A", steps=5), point("A", steps=5)]).duplicates() == [
        "'A' is listed 3 times with the same settings"
    ]
    (clash,) = Sweep([point("A", steps=5), point("A", steps=6)]).duplicates()
    assert clash.startswith("label 'A' names 2 different runs: alq-3b-cnn-digits-s1-")
    asked = Sweep(union(point("A", steps=5), product(point("B", steps=5), needs(gpus=2))))
    assert asked.duplicates() == [
        "'A' is the same run as 'B'",
        "'A' is asked for with different resources; the first point's count",
    ]
    assert dict(asked.experiments()[0].resources) == {}
    assert Sweep(methods, seeds=(1, 2)).duplicates() == []


@pytest.mark.parametrize("bits", ["2", "2,3"])
def test_a_setting_that_no_method_reads_is_refused_in_files_as_on_the_line(bits: str) -> None:
    topk, given = point("TopK", method="topk"), axis(f"method.bits={bits}")
    sentence = r"no method of .* reads this setting; others do: qsgd, .* \(legal for topk: .*method\.ratio"
    for made in (
        Sweep(product(topk, given)),
        written.load(f"method=topk method.bits={bits}"),
        Sweep(product(topk, where_read({"method.bits": 3, "method.ratio": 0.1}))),
    ):
        with pytest.raises(ValueError, match=rf"^method\.bits: {sentence}"):
            made.check_read()
        assert made.experiments(), "what ran under an earlier code can be looked at and cancelled"
    made = Sweep(product(METHODS_OF_TWO_KINDS, given))
    assert {item.config["method"].get("bits") for item in made.experiments()} == {None, *map(int, bits.split(","))}


def test_a_methods_setting_that_is_set_for_a_whole_sweep_is_read_by_one_of_its_methods() -> None:
    sweep = Sweep(product(METHODS_OF_TWO_KINDS, axis("method.bits=2,3")))
    for given in ({"method.bits": 4, "method": "topk"}, {"method": "topk", "method.bits": 4}):
        with pytest.raises(ValueError, match=r"^method\.bits: no method of .* \(legal for topk: "):
            sweep.override(given)
    with pytest.raises(ValueError, match=r"^method\.norm: no method of .* \(legal for sgd: method\.scope"):
        Sweep(product(point(method="sgd"), where_read({"method.norm": "l2"}))).override({"steps": 7}).check_read()
    # what the file gives for its own methods is left out
    assert {item.name for item in sweep.override({"method": "topk"}).experiments()} == {
        item.name for item in Sweep([point(method="topk")]).experiments()
    }


# --- families -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order", [("sweep", "sweeps.families"), ("sweeps.families", "sweep"), ("sweeps.points", "sweep")]
)
def test_either_module_can_be_imported_first(order: tuple[str, str]) -> None:
    code = "".join(f"import grid.engine.{name}\n" for name in order)
    code += (
        "from grid.engine.sweep import *\nfrom grid.engine.sweep import load, find, families, parse_seeds\n"
        "assert zipped"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )
    assert (done.returncode, done.stderr) == (0, "")


USER = '''
from grid.engine.sweep import Sweep, axis, point, product
def mine() -> Sweep:
    """Mine."""
    return Sweep(product(point("x", method="qsgd"), axis("method.bits", [2, 3])))
def not_a_sweep() -> int:
    return 3
def liar() -> Sweep:
    return 3
'''


def test_a_users_own_file(tmp_path: Path) -> None:
    path = tmp_path / "it's mine.py"
    path.write_text(USER)
    made = load(str(path), "mine")
    assert [item.config["method"]["bits"] for item in made.experiments()] == [2, 3]
    assert made.title == "it's mine.mine"
    with pytest.raises(ValueError, match=r"did you mean 'mine'\? \(legal: liar, mine\)"):
        load(str(path), "min")
    with pytest.raises(ValueError, match="must return a Sweep"):
        load(str(path), "liar")
    path.write_text("def f(:")
    with pytest.raises(ValueError, match="line 1"):
        load(str(path), "mine")
    path.write_text("x = 3")
    with pytest.raises(ValueError, match="holds no sweep"):
        load(str(path), "mine")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load(str(tmp_path / "none.py"), "mine")
    with pytest.raises(ValueError, match=r"unknown grid 'nuk'; did you mean 'nuq'\?"):
        load("nuk", "mnist")


def test_a_file_of_sweeps_is_run_once_for_all_of_them(tmp_path: Path) -> None:
    family = tmp_path / "mine.py"
    family.write_text(
        "from grid.engine.sweep import Sweep, point\n"
        "with open(__file__ + '.runs', 'a') as file:\n    file.write('x')\n"
        "def one() -> Sweep:\n    '''First.'''\n    return Sweep([point(method='sgd')])\n"
        "def two() -> Sweep:\n    return Sweep([point(method='alq')], seeds=2)\n"
    )
    found = [make() for make in makers(str(family)).values()]
    assert [(sweep.run_name, sweep.doc, sweep.num_points) for sweep in found] == [("one", "First.", 1), ("two", "", 2)]
    assert (tmp_path / "mine.py.runs").read_text() == "x"
    assert [sweep.points for sweep in found] == [load(str(family), name).points for name in ("one", "two")]


def test_a_file_that_was_just_changed_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "sweeps.py"
    for name in ("one", "two"):
        path.write_text(f"from grid.engine.sweep import Sweep\n\ndef {name}() -> Sweep: ...\n")
        os.utime(path, (1e9, 1e9))
        assert list(makers(str(path))) == [name]
    assert [each.name for each in tmp_path.iterdir()] == ["sweeps.py"]
