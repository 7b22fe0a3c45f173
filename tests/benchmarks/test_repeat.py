"""``benchmarks.repeat`` on small runs: what comes out again, what does not, and which runs are begun."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest
import yaml

from benchmarks import repeat
from settings import resolving
from train.launch import launch

SETTINGS = {
    "data": "digits",
    "model": "mlp",
    "method": "alq",
    "method.update_at": [1],
    "measure.every": 2,
    "workers": 2,
    "steps": 4,
    "eval_every": 2,
    "log_every": 1,
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for seed in (1, 2):
        assert launch(resolving.resolve(SETTINGS | {"seed": seed, "run_dir": str(folder / f"run-{seed}")})) == 0
    return folder


def changed(run: Path, name: str, **values: object) -> None:
    read = {"config.yaml": yaml.safe_load, "status.json": json.loads}[name]
    (run / name).write_text(json.dumps(read((run / name).read_text()) | values))


def test_a_run_comes_out_again_up_to_the_step(sweep: Path) -> None:
    whole, part = (repeat.repeated(sweep / "run-1", steps) for steps in (4, 3))
    assert whole.run == "run-1" and whole.differ == part.differ == () and part.scalars < whole.scalars
    assert sorted(path.name for path in sweep.iterdir()) == ["run-1", "run-2"]


def test_what_is_trained_otherwise_is_told(sweep: Path, tmp_path: Path) -> None:
    copytree(sweep / "run-1", other := tmp_path / "other")
    changed(other, "config.yaml", seed=2)
    assert {"loss", "levels/1", "est_var"} < set(repeat.repeated(other, 3).differ)
    changed(other, "config.yaml", seed=1, measure={"every": 0, "num_samples": 2})
    differ = repeat.repeated(other, 3).differ
    assert "est_var" in differ and "loss" not in differ  # one side lacks it


def test_seeds_are_one_experiment_and_another_processor_is_left_out(sweep: Path, tmp_path: Path) -> None:
    (runs,) = repeat.experiments(copytree(sweep, tmp_path / "copy"))
    assert [run.name for run in runs] == ["run-1", "run-2"] and repeat.of_here(runs) == runs[0]
    machine = json.loads((runs[0] / "status.json").read_text())["machine"]
    changed(runs[0], "status.json", machine=machine | {"cpu": "another"})
    assert repeat.of_here(runs) == runs[1] and repeat.of_here(runs[:1]) is None
    changed(runs[0], "status.json", machine=machine | {"gpu": "one"})
    assert repeat.of_here(runs) == runs[1]


def test_forks_and_runs_that_say_nothing_prove_nothing(sweep: Path, tmp_path: Path) -> None:
    copytree(sweep / "run-1", fork := tmp_path / "fork")
    changed(fork, "config.yaml", fork={"run": "runs/main/x", "at": 2})
    assert repeat.experiments(tmp_path) == []
    assert not repeat.Repeated("a run", 0, ()).same and repeat.Repeated("a run", 1, ()).same


def test_what_is_kept_came_out_again() -> None:
    figures = json.loads((repeat.ROOT / "results" / "repeat.json").read_text())["figures"]
    assert figures["same"] == figures["repeated"] > 0


@pytest.mark.slow
def test_the_json(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repeat.main([str(sweep), "--steps", "2", "--jobs", "1"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["experiments"] == told["repeated"] == told["same"] == 1 and told["runs"] == 2 and told["scalars"] > 20
    assert told["sweeps"] == {sweep.name: {key: told[key] for key in list(told)[1:-1]} | {"differ": {}}}


@pytest.mark.parametrize("words", [["--steps", "0"], ["--jobs", "-1"], ["nowhere"]], ids=str)
def test_bad_words_end_in_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        repeat.main(words)
    assert "must be" in capsys.readouterr().err.splitlines()[-1]


def test_two_folders_of_one_name(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        repeat.main([str(sweep), str(sweep)])
    assert "must not have the name of another folder" in capsys.readouterr().err


def test_data_that_is_not_here(sweep: Path, tmp_path: Path) -> None:
    copytree(sweep / "run-1", other := tmp_path / "other")
    changed(other, "config.yaml", data={"name": "folder"}, data_dir="x")
    with pytest.raises(repeat.Unusable, match=r"^.*other: "):
        repeat.repeated(other)
