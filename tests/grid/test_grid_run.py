"""The command line: the original command, the subcommands, bad input, speed, and what it never imports."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import grid
import grid_run
from grid.commands import sweeps
from grid.engine.sweep import load
from settings import run_identity
from tests.grid import fake
from tests.tiers import few

ROOT = Path(__file__).parents[2]
ORIGINAL = shlex.split(
    "--prefix exp --cluster slurm --run_name cifar10_full_resnet32 --grid nuq --cluster_args 38,1,p100"
)


def test_the_original_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid_run.main(ORIGINAL, tmp_path) == 0
    names = {path.name for path in (tmp_path / "jobs").iterdir()}
    assert names == {*(f"exp_{number}.sh" for number in range(38)), "exp_slurm.sbatch", "logs"}
    output = capsys.readouterr().out
    assert "wrote jobs/exp_0.sh .. jobs/exp_37.sh" in output
    assert (
        "hint: 29 scripts are empty, jobs/exp_9.sh and on: the sweep has 9 experiments, and the original too writes "
        "as many scripts "
        "as it is told; --cluster_args 9,1,p100 would do"
    ) in output
    assert "wrote jobs/exp_slurm.sbatch (array 0-37)" in output
    experiments = load("nuq", "cifar10_full_resnet32").experiments()
    for number, item in enumerate(experiments):
        folder = tmp_path / "runs" / "cifar10_full_resnet32" / item.name
        assert f"runs/cifar10_full_resnet32/{item.name}" in (tmp_path / "jobs" / f"exp_{number}.sh").read_text()
        stored = yaml.safe_load((folder / "config.yaml").read_text())
        assert stored == {**item.config, "run_dir": f"runs/cifar10_full_resnet32/{item.name}"}
        assert run_identity.identity(stored) == item.name[-14:]
    for number in range(38):
        done = subprocess.run(["bash", "-n", str(tmp_path / "jobs" / f"exp_{number}.sh")], check=False)
        assert done.returncode == 0
    empty = fake.bash(tmp_path / "jobs" / "exp_9.sh")
    assert (empty.returncode, empty.stdout) == (0, "nothing to do: more scripts than experiments\n")


def test_it_imports_no_torch(tmp_path: Path) -> None:
    """Torch would make it slow; how long it takes is told by benchmarks.speed grid."""
    heavy = "[m for m in sys.modules if m.partition('.')[0] in ('torch', 'train', 'pandas', 'matplotlib')]"
    call = f"grid_run.main(sys.argv[1:], pathlib.Path({str(tmp_path)!r}))"
    program = f"import sys, pathlib, grid_run; code = {call}; print({heavy}); sys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-c", program, *ORIGINAL], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_fewer_scripts_than_experiments_offset_and_no_sbatch_for_local(tmp_path: Path) -> None:
    words = shlex.split(
        "--grid nuq --run_name mnist --cluster local --cluster_args 4 --run0_id 10 --prefix m --set data_dir=/data"
    )
    assert grid_run.main(words, tmp_path) == 0
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == {"m_10.sh", "m_11.sh", "m_12.sh", "m_13.sh", "logs"}
    shares = [(tmp_path / "jobs" / f"m_{number}.sh").read_text().count("\n  runs/mnist/") for number in range(10, 14)]
    assert shares == [5, 5, 5, 4]
    (script, *_) = (tmp_path / "runs" / "mnist").glob("*/run.sh")
    assert "\n  data_dir=/data\n" in script.read_text()


def test_offset_and_cap_reach_the_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(
        "--grid nuq --run_name mnist --cluster_args 4,2 --run0_id 999 --max_running 3 --gpus 0 --time 5:00 --mem 2G "
        "--cpus 1"
    )
    assert grid_run.main(words, tmp_path) == 0
    text = (tmp_path / "jobs" / "exp_slurm.sbatch").read_text()
    for line in ("array=999-1002%3", "ntasks=2", "time=5:00", "mem=2G", "cpus-per-task=1"):
        assert f"#SBATCH --{line}\n" in text
    assert "partition" not in text
    assert "gpus" not in text
    assert 'export NUQ_NPROC="${NUQ_NPROC:-2}"' in (tmp_path / "jobs" / "exp_999.sh").read_text()
    assert "MaxArraySize" in capsys.readouterr().out


@few(4, "task", sorted(sweeps.TASKS))
def test_pjobs_are_in_step_with_the_sweeps(task: str) -> None:
    text = sweeps.task_texts()[f"{task}.sh"]
    path = ROOT / "pjobs" / f"{task}.sh"
    assert path.read_text() == text, "run: python grid_run.py pjobs"
    assert os.access(path, os.X_OK)


def test_no_pjob_is_left_over() -> None:
    assert {path.name for path in (ROOT / "pjobs").iterdir()} == set(sweeps.task_texts())


def test_list_names_every_sweep(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert grid_run.main(["list"], tmp_path) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.split()[:5] == ["abl", "bits", "57", "of", "62"] for row in rows)
    assert any(row.split()[:3] == ["nuq", "cifar10_full_resnet8", "11"] for row in rows)


def test_show_a_sweep_and_one_experiment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert grid_run.main(["show", "abl", "interval"], tmp_path) == 0
    output = capsys.readouterr().out
    assert "TRN once; also: TRN rarely; also: TRN often" in output
    assert "26 experiments (36 points; those that mean the same run are run once)" in output
    assert grid_run.main(["show", "abl", "interval", "ALQ often"], tmp_path) == 0
    output = capsys.readouterr().out
    grid_run.main(shlex.split("--grid abl --run_name interval --cluster local"), tmp_path)
    (item,) = [item for item in load("abl", "interval").experiments() if item.label == "ALQ often"]
    assert output.endswith((tmp_path / "runs" / "interval" / item.name / "run.sh").read_text()), "the exact script"
    assert (tmp_path / "runs" / "interval" / item.name / "config.yaml").read_text() in output


@pytest.mark.parametrize(
    ("words", "is_told"), [([], True), (["measure.every=5"], False), (["measure.every=0,5"], False)]
)
@pytest.mark.parametrize("command", ["show", "plan"])
def test_a_sweep_without_measurements_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, words: list[str], is_told: bool
) -> None:
    assert (
        grid_run.main(
            [command, "--sweep", "method=qsgd,alq", *words, *["--ignore", "opinion"] * (command == "plan")], tmp_path
        )
        == 0
    )
    told = [line for line in capsys.readouterr().out.splitlines() if "variance" in line and "measure.every" in line]
    assert len(told) == is_told


def test_run_and_status(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = fake.checkout(tmp_path / "co", {2: 3})
    user = tmp_path / "mine.py"
    user.write_text(
        "from grid.engine.sweep import Sweep, point\ndef two() -> Sweep:\n    return Sweep([point('A', "
        "method='qsgd')], seeds=(1, 2))\n"
    )
    assert grid_run.main(["status", str(user), "two"], root) == 0
    assert capsys.readouterr().out.endswith("2 new\n")
    assert grid_run.main(["run", str(user), "two", "--slots", "2"], root) == 1
    capsys.readouterr()
    assert grid_run.main(["status", str(user), "two"], root) == 0
    rows = capsys.readouterr().out
    assert [row.split()[:4] for row in rows.splitlines()[1:3]] == [
        ["A", "1", "done", "3/7"],
        ["A", "2", "diverged", "3/7"],
    ]
    assert "\n1 done, 1 diverged\n" in rows
    assert rows.endswith("incomplete: 1 seed group of 1\n  A: seeds 2 missing, 1 done\n")
    assert grid_run.main(["status", str(user), "two", "--seeds", "1"], root) == 0
    assert "1 run of seed 2 is of this sweep, too: --seeds 2 shows all" in capsys.readouterr().out
    assert grid_run.main(["run", str(user), "two", "1", "--slots", "2"], root) == 0


def test_dry_run_passes_the_experiment_and_the_exit_code_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "dry_run.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(3)\n")
    assert grid_run.main(["dry-run", "nuq", "cifar10_full_resnet8", "ALQ-G"], tmp_path) == 3
    output = capfd.readouterr().out
    assert "dry run of ALQ-G" in output
    assert "'method=alq_g'" in output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "shwo nuq mnist",
            "unknown command 'shwo'; did you mean 'show'? (legal: cancel, collect, diff, dry-run, failures, list, ",
        ),
        ("--grid nuk --run_name mnist", "unknown grid 'nuk'; did you mean 'nuq'?"),
        ("--grid nuq --run_name cifar10_full_resnet23", "did you mean 'cifar10_full_resnet32'?"),
        (
            "--grid nuq --run_name mnist --cluster slrm",
            "unknown cluster 'slrm'; did you mean 'slurm'? (legal: local, slurm)",
        ),
        ("--grid nuq --run_name mnist --cluster_args 0,1", "--cluster_args 0,1: must be"),
        ("--grid nuq --run_name mnist --cluster_args 3,1,a b", "is no name of a partition"),
        ("--grid nuq --run_name mnist --cluster_args 3,1,a,b", "must be N[,RANKS[,PARTITION]]"),
        ("--grid nuq --run_name mnist --prefix ../x", "--prefix '../x'"),
        ("--grid nuq --run_name mnist --max_running 0", "--max_running 0: must be at least 1"),
        ("--grid nuq --run_name mnist --cluster local --submit", "--submit needs --cluster slurm"),
        ("--grid none.py --run_name mnist", "grid none.py: no such file"),
        ("status none.py mnist", "grid_run.py: grid none.py: no such file"),
        ("run demo demo --slots 0", "--slots 0: must be at least 1"),
        ("show demo demo --seeds x", "--seeds x"),
        ("show demo demo --set steps=1,2", "--set steps=1,2: must be one value"),
        ("show demo demo --set steps", "is not of the form name=value"),
        ("show demo demo --set stepz=3", "unknown setting 'stepz'; did you mean 'steps'?"),
        ("show demo demo ALL", "unknown experiment 'ALL'; did you mean 'ALQ'? (legal: 1..30"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert grid_run.main(words.replace("a b", "a\tb").split(" "), tmp_path) == 2
    errors = capsys.readouterr().err
    assert sentence.replace("a b", "a\tb") in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize(
    "command",
    ["show {} mine", "dry-run {} mine", "run {} mine", "status {} mine", "list {}", "--grid {} --run_name mine"],
)
def test_every_command_refuses_a_broken_file_of_your_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    user, root = tmp_path / "mine.py", tmp_path / "co"
    root.mkdir()
    for body in ("return (", "return 3", "import sys; sys.exit(5)"):
        user.write_text(f"from grid.engine.sweep import Sweep\ndef mine() -> Sweep:\n    {body}\n")
        assert grid_run.main(command.format(user).split(), root) == 2
        errors = capsys.readouterr().err
        assert str(user) in errors and errors.count("\n") == 1
        assert not list(root.iterdir()), "nothing is written"


@pytest.mark.parametrize("others", ["", "def other() -> Sweep:\n    return study()\n"])
@pytest.mark.parametrize("command", ["show {} study", "plan {} study", "run {} study"])
def test_a_sweep_that_does_not_say_so_is_told_how(
    command: str, others: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = tmp_path / "mine.py"
    user.write_text(
        f"from grid.engine.sweep import Sweep, point\ndef study():\n    return Sweep([point(method='alq')])\n{others}"
    )
    assert grid_run.main(command.format(user).split(), tmp_path) == 2
    assert "study() does not say that it makes a sweep: write `def study() -> Sweep:`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seen"),
    [("def study():\n    pass\ndef other():\n    pass\n", "study(), other()"), ("", "no function at all")],
)
def test_listing_a_file_without_sweeps_names_its_functions(
    text: str, seen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"from grid.engine.sweep import Sweep, point\n{text}")
    assert grid_run.main(["list", str(tmp_path / "mine.py")], tmp_path) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert f"holds no sweep; a sweep is a function whose return is annotated '-> Sweep' (seen: {seen})" in said.err


def test_listing_a_file_leaves_out_what_is_no_sweep_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mixed.py"
    file.write_text(
        "from grid.engine.sweep import Sweep, point\n"
        "def broken() -> Sweep:\n    return 1 / 0\n"
        "def mixed() -> Sweep:\n    'Named as the file.'\n    return Sweep([point('a', method='alq')])\n"
        "def bad() -> Sweep:\n    return Sweep([point('a', method='alq', steps=0)])\n"
    )
    assert grid_run.main(["list", str(file), "--json"], tmp_path) == grid_run.main(["list", str(file)], tmp_path) == 2
    said = capsys.readouterr()
    document, _, shown = said.out.partition("]\n")
    assert [row["run_name"] for row in json.loads(f"{document}]")] == ["mixed"]
    assert shown.splitlines()[-1].split()[1:] == ["mixed", "1", "Named", "as", "the", "file."]
    assert said.err.splitlines()[:2] == [
        f"grid_run.py: broken() of {file} is left out: grid {file}, line 3: ZeroDivisionError: division by zero",
        f"grid_run.py: bad() of {file} is left out: mixed.bad, point 'a': steps=0: must be at least 1",
    ]


def test_a_file_of_points_alone_hides_no_other_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "points_alone.py").write_text("from grid.engine.sweep import point\nP = point('a')\n")
    monkeypatch.setattr(grid, "__path__", [*grid.__path__, str(tmp_path)])
    assert grid_run.main(["list"], tmp_path) == 0
    said = capsys.readouterr().out
    assert "cifar10_full_resnet32" in said and "points_alone" not in said


def test_a_sweep_takes_a_count_of_seeds(tmp_path: Path) -> None:
    user = tmp_path / "mine.py"
    user.write_text(
        "from grid.engine.sweep import Sweep, point\ndef mine() -> Sweep:\n    return Sweep([point(method='alq')], "
        "seeds=2)\n"
    )
    sweep = load(str(user), "mine")
    assert [item.seed for item in sweep.experiments()] == [1, 2]
    assert [item.name for item in sweep.experiments()] == [
        item.name for item in load(str(user), "mine", seeds=(1, 2)).experiments()
    ]


def test_plan_without_sbatch_does_not_send_to_submit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    monkeypatch.setenv("PATH", str(bare))
    assert grid_run.main(["plan", "demo", "demo", "--seeds", "1,", "--set", "steps=3"], tmp_path) == 0
    said = capsys.readouterr().out
    assert "next: " not in said
    assert said.endswith(
        "submit needs sbatch, which is not here; on this machine: python grid_run.py run demo demo --seeds 1, --set "
        "steps=3\n"
    )


@pytest.mark.parametrize("words", ["run demo demo", "status demo demo", "--grid demo --run_name demo"])
def test_a_file_in_the_way_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    (tmp_path / "runs").touch()
    assert grid_run.main(words.split(), tmp_path) == 2
    assert (
        capsys.readouterr().err
        == f"grid_run.py: {tmp_path / 'runs'} is a file, and a folder of that name is needed: move it away\n"
    )


def test_what_is_denied_names_the_owner(tmp_path: Path) -> None:
    for path, whose in ((tmp_path, "it"), (tmp_path / "a" / "lock", str(tmp_path))):
        said = grid_run._sentence(PermissionError(13, "Permission denied", str(path)))
        assert said == f"{path}: cannot be written by you ({whose} belongs to {tmp_path.owner()})"


def test_jobs_being_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs").touch()
    assert grid_run.main(ORIGINAL, tmp_path) == 2
    assert f"{tmp_path / 'jobs'} is a file" in capsys.readouterr().err


def test_submit_without_sbatch_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert grid_run.main([*ORIGINAL, "--submit"], tmp_path) == 2
    assert "there is no sbatch on this machine" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [[], ["-h"], *([name, "--help"] for name in grid_run.COMMANDS)])
def test_every_command_has_help(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        grid_run.main(words, tmp_path)
    assert end.value.code == 0
    assert len(capsys.readouterr().out) > 60


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in grid_run.COMMANDS)])
def test_every_option_has_help_text(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Action] = []
    parse = argparse.ArgumentParser.parse_known_args
    monkeypatch.setattr(
        argparse.ArgumentParser,
        "parse_known_args",
        lambda self, *rest: (seen.extend(self._actions), parse(self, *rest))[1],
    )
    with pytest.raises(SystemExit):
        grid_run.main(words, tmp_path)
    assert seen
    assert all(action.help for action in seen)


def test_a_closed_pipe_is_no_crash() -> None:
    command = f"{sys.executable} grid_run.py show abl bucket_size | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
