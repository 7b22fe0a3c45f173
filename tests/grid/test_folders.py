"""The folder of a sweep below runs/: named by file and function, and never shared by two files unasked."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import grid_run
from grid.engine.submission import planning
from grid.engine.sweep import Sweep, families, load, point
from grid.engine.sweeps.families import makers
from tests.grid import fake

# those of the paper and its ancestor's had their folders before the names of files were in them
BY_FUNCTION = {
    "abl": {"bucket_size", "bucket_size_trained", "bits", "interval"},
    "nuq": {
        *("mnist", "cifar10_full_resnet110", "cifar10_full_resnet32", "cifar10_full_resnet8"),
        *("imagenet_half", "imagenet_full"),
    },
    "nuqsgd": {"cifar10_full", "cifar10_first_epoch", "cifar10_last_epoch"},
    "demo": {"demo"},
    "cifar10_cpu": {"cifar10_cpu"},
}


def test_the_folders_of_our_own_sweeps_stay() -> None:
    made = [(family, make()) for family in families() for make in makers(family, may_be_empty=True).values()]
    for family, sweep in made:
        name = sweep.run_name
        expected = name if name in BY_FUNCTION.get(family, ()) else f"{family}_{name}"
        assert sweep.experiments()[0].folder == sweep.home == expected
    assert len({sweep.home for _, sweep in made}) == len(made) > 50


@pytest.mark.parametrize(
    ("file", "function", "folder"),
    [
        ("study.py", "bits", "study_bits"),
        ("study.py", "study", "study"),
        ("my study (2).py", "bits", "my_study_2__bits"),
        ("_mine.py", "größe", "mine_gr_e"),
        ("ä.py", "ö", "sweep"),
    ],
)
def test_a_folder_is_named_by_file_and_function(tmp_path: Path, file: str, function: str, folder: str) -> None:
    (tmp_path / file).write_text(
        f"from grid.engine.sweep import Sweep, point\ndef {function}() -> Sweep:\n    return Sweep([point()])\n"
    )
    assert load(str(tmp_path / file), function).experiments()[0].folder == folder
    assert Sweep([point()], folder="own", grid=file, run_name=function).home == "own"


@pytest.mark.parametrize(("function", "folder"), [("main", ""), ("tiny", "main")])
def test_the_folder_of_runs_of_main_py_is_no_sweep_s(tmp_path: Path, function: str, folder: str) -> None:
    file = tmp_path / "main.py"
    file.write_text(SHARED.format(7, f", folder={folder!r}").replace("tiny", function))
    with pytest.raises(ValueError, match=f"^main.{function}: runs/main is the folder of runs that main.py starts"):
        load(str(file), function).experiments()


SHARED = (
    "from grid.engine.sweep import Sweep, point\ndef tiny() -> Sweep:\n    return Sweep([point(method='qsgd', "
    "steps={})]{})\n"
)


def test_two_files_do_not_share_a_folder_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, files = fake.checkout(tmp_path / "co"), [tmp_path / name / "sweeps.py" for name in ("one", "other")]
    for steps, file in enumerate(files, 7):
        file.parent.mkdir()
        file.write_text(SHARED.format(steps, ""))
    monkeypatch.setenv("NUQ_PYTHON", sys.executable)
    monkeypatch.setattr(planning, "slurm_is_here", lambda: False)
    for command in ("run", "plan"):
        assert grid_run.main([command, str(files[0]), "tiny"], root) == 0
    assert [path.name for path in (root / "runs").iterdir()] == ["sweeps_tiny"]
    capsys.readouterr()
    taken = f"runs/sweeps_tiny is also the folder of {files[0]}: tiny: give one of them its own, Sweep(..., folder=...)"
    pruning = ("prune", "prune --archive --yes", "prune --seeds 2, --delete --yes")
    for command, *words in map(str.split, ("plan", "run", "status", "logs", "cancel", "collect", *pruning)):
        assert grid_run.main([command, str(files[1]), "tiny", *words], root) == 2
        assert capsys.readouterr().err == f"grid_run.py: {taken}\n"
    assert len(list(root.glob("runs/sweeps_tiny/*/config.yaml"))) == 1
    assert grid_run.main(["--grid", str(files[1]), "--run_name", "tiny"], root) == 2
    assert taken in capsys.readouterr().err and not list(root.glob("jobs/*.sh"))
    files[1].write_text(SHARED.format(8, ", folder='sweeps_tiny'") + "\n")  # on purpose
    assert grid_run.main(["plan", str(files[1]), "tiny"], root) == 0
    files[1].write_text(SHARED.format(8, "") + "\n\n")
    files[0].unlink()
    assert grid_run.main(["plan", str(files[1]), "tiny"], root) == 0


def test_a_file_within_the_checkout_may_be_copied_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fake.checkout(tmp_path / "co")
    (root / "mine.py").write_text(SHARED.format(7, ""))
    monkeypatch.setenv("NUQ_PYTHON", sys.executable)
    assert grid_run.main(["run", str(root / "mine.py"), "tiny"], root) == 0
    assert (root / "runs/mine_tiny/.sweeps").read_text() == "mine.py: tiny\n"
    copy = shutil.copytree(root, tmp_path / "copy")
    assert grid_run.main(["status", str(copy / "mine.py"), "tiny"], copy) == 0


def test_runs_in_a_folder_that_is_named_as_folders_once_were_are_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SHARED.format(7, ""))
    signed = tmp_path / "co" / "runs" / "tiny" / ".sweeps"
    signed.parent.mkdir(parents=True)
    signed.write_text(f"{file}: tiny\n")
    for command in ("plan", "run", "status", "prune"):
        assert grid_run.main([command, str(file), "tiny"], tmp_path / "co") == 2
        said = capsys.readouterr().err
        assert f"runs/tiny holds the earlier runs of {file}: tiny, whose folder is runs/mine_tiny now" in said
    file.write_text(SHARED.format(7, ", folder='tiny'") + "\n")
    assert grid_run.main(["status", str(file), "tiny"], tmp_path / "co") == 0
