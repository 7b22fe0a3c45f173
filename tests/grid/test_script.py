"""Generated bash: overrides that survive two grammars, exit codes, signals, shares."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

import args
from grid.engine.overrides import pinned, to_override
from grid.engine.plan import deal
from grid.engine.resources import Resources
from grid.engine.script import from_script, job_script, run_script, task_script
from grid.engine.sweep import Sweep, find, load, point
from tests.grid import fake, record

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
AWKWARD = st.text(st.sampled_from("a1 '\"\\${}[],:=#\n\t*?%~+-@|é!`"), max_size=10)
SCALAR = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, AWKWARD, st.none())


@given(st.one_of(SCALAR, st.lists(SCALAR, max_size=3)))
@example('it\'s "here"\n$HOME/${x}/\\')
@example("\\'")
@example("\\${a}\\\\")
@example("true")
@example("1e5")
@example("null")
@example("")
@example("a:b,c")
def test_hydra_reads_every_value_back(value: Any) -> None:
    (override,) = OverridesParser.create().parse_overrides([to_override("data_dir", value)])
    assert not override.is_sweep_override()
    read = OmegaConf.to_container(OmegaConf.create({"x": override.value()}), resolve=True)
    assert isinstance(read, dict)
    assert read["x"] == value
    assert type(read["x"]) is type(value)


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="a setting must be"):
        to_override("x", {"a": 1})


@pytest.mark.parametrize("family", ["nuq", "abl", "demo"])
def test_pinned_overrides_resolve_to_the_same_experiment(family: str) -> None:
    run_name = {"nuq": "cifar10_full_resnet8", "abl": "interval", "demo": "demo"}[family]
    for item in load(family, run_name).experiments():
        settings = args.parse_overrides(pinned(item, "runs/x"))
        assert args.identity(args.resolve(settings)) == args.identity(item.config)
        missing = set(_flat(args.result_settings(item.config))) - set(settings)
        assert not missing, "a default moved later would change this run"


def _flat(config: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        name
        for key, value in config.items()
        for name in (_flat(value, f"{key}.") if isinstance(value, dict) else [] if key == "name" else [prefix + key])
    ]


def test_paths_of_this_machine_are_not_pinned_unless_asked_for() -> None:
    sweep = load("demo", "demo")
    assert not any(text.startswith(("data_dir", "device")) for text in pinned(sweep.experiments()[0], "r"))
    assert "data_dir=/x" in pinned(sweep.override({"data_dir": "/x"}).experiments()[0], "r")


def test_texts_are_those_on_record() -> None:
    item = find(load("nuq", "cifar10_full_resnet32").experiments(), "ALQ")
    record.check("run.sh", run_script(item, "runs/x/alq", from_script(3)))
    record.check("job.sh", job_script("nuq.x", ["runs/x/alq", "runs/x/it's"], from_script(1), 2))
    three = [f"runs/x/{name}" for name in "abc"]
    record.check("job_slots.sh", job_script("nuq.x", three, from_script(3), Resources(ranks=2), parallel=2, preamble=["module load a"]))
    record.check("job_shared_gpu.sh", job_script("nuq.x", three, from_script(3), Resources(gpus=0.5), parallel=3))
    record.check("job_nodes.sh", job_script("nuq.x", three, from_script(3), Resources(nodes=2, ranks=4)))
    record.check("empty.sh", job_script("nuq.x", [], from_script(1), 1))
    record.check("task.sh", task_script("nuq.x", "A doc.\n\nMore.", [item], "python grid_run.py pjobs"))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    paths = [str(path) for path in record.GOLDEN.iterdir()]
    done = subprocess.run(["shellcheck", "--exclude=SC1090,SC2016,SC2317", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_records_are_valid_bash() -> None:
    for path in record.GOLDEN.iterdir():
        subprocess.run(["bash", "-n", str(path)], check=True)


# --- run.sh, executed ---------------------------------------------------------------------------------------------


@hypothesis_settings(max_examples=6)
@given(AWKWARD, st.text(st.sampled_from("a '\"\\$\n`;&*"), min_size=1, max_size=6))
def test_awkward_values_and_folders_reach_main_unharmed(tmp_path_factory: pytest.TempPathFactory, value: str, folder: str) -> None:
    root = fake.checkout(tmp_path_factory.mktemp("co") / f"x{folder}")
    item = Sweep([point("a\nb", method="qsgd", data_dir=value)], folder="s").experiments()[0]
    path = root / "runs" / "s" / "one" / "run.sh"
    path.parent.mkdir(parents=True)
    path.write_text(run_script(item, "runs/s/one", from_script(3)))
    assert fake.bash(path).returncode == 0
    (line,) = [text for text in (path.parent / "stdout.log").read_text().splitlines() if text.startswith("args ")]
    assert json.loads(line.removeprefix("args ")) == pinned(item, "runs/s/one")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 75, 77])
def test_run_ends_with_the_code_of_main(tmp_path: Path, code: int) -> None:
    root = fake.checkout(tmp_path / "a checkout", {1: code})
    (run,) = fake.runs(root, 1)
    assert fake.bash(run.folder.script).returncode == code
    assert fake.bash(run.folder.script).returncode == code
    assert run.folder.log.read_text().count("args ") == 2, "the log is appended to"


def _until(condition: Any, what: str, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
@pytest.mark.parametrize("level", ["run", "job"])
def test_signals_reach_main_and_ask_for_a_requeue(tmp_path: Path, number: signal.Signals, level: str) -> None:
    root = fake.checkout(tmp_path, {1: "wait"})
    first, second = fake.runs(root, 2)
    job = root / "jobs" / "x_0.sh"
    job.parent.mkdir()
    job.write_text(job_script("s", [first.run_dir, second.run_dir], from_script(1), 1))
    path = first.folder.script if level == "run" else job
    with fake.started(root, ["bash", str(path)], env=fake.environment()) as process:
        _until((first.folder.path / "started").exists, "the run did not start")
        process.send_signal(number)
        output, _ = process.communicate(timeout=15)
    assert process.returncode == 75
    assert f"heard {number.name}" in first.folder.log.read_text()
    assert first.state().word == "preempted"
    assert second.state().word == "new", "nothing new is started after a signal"
    if level == "job":
        assert "2 of 2 left: asking to be requeued" in output


ENDS_AT_ONCE = "import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(75))\nopen('up', 'w')\ntime.sleep(60)\n"


def test_a_signal_to_the_whole_group_is_a_requeue_every_time(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    (root / "main.py").write_text(ENDS_AT_ONCE)
    for _ in range(8):  # bash loses the code of a child that ends together with the signal, more often than not
        (root / "up").unlink(missing_ok=True)
        with fake.started(root, ["bash", str(run.folder.script)], env=fake.environment(), start_new_session=True) as process:
            _until((root / "up").exists, "the run did not start")
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(timeout=15) == 75


def test_a_signal_before_main_listens_is_a_requeue_too(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    (root / "main.py").write_text("import os, time\nopen('up', 'w')\ntime.sleep(60)\n")
    with fake.started(root, ["bash", str(run.folder.script)], env=fake.environment()) as process:
        _until((root / "up").exists, "the run did not start")
        process.send_signal(signal.SIGUSR2)
        assert process.wait(timeout=15) == 75


TORCHRUN = """#!/usr/bin/env bash
# Plays `python -m torch.distributed.run`: notes its arguments, runs main.py once, and swallows its exit code.
printf '%s\\n' "$@" >torchrun.args
echo "OMP_DYNAMIC=${OMP_DYNAMIC-unset}" >>torchrun.args
if [ "$1" = -m ]; then
  while [ "$1" != main.py ]; do shift; done
  "$REAL_PYTHON" "$@" || exit 1
else
  exec "$REAL_PYTHON" "$@"
fi
"""


def _ranks(root: Path, nproc: int, run: Any) -> tuple[int, str]:
    python = root / "torchrun.sh"
    python.write_text(TORCHRUN)
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    more = {"PYTHON": str(python), "REAL_PYTHON": fake.environment()["PYTHON"], "NPROC": str(nproc), "OMP_DYNAMIC": "true"}
    code = fake.bash(run.folder.script, **more).returncode
    return code, (root / "torchrun.args").read_text()


@pytest.mark.parametrize("code", [0, 2, 3, 75])
def test_several_ranks_go_through_torchrun_and_keep_their_exit_code(tmp_path: Path, code: int) -> None:
    root = fake.checkout(tmp_path, {1: code})
    (run,) = fake.runs(root, 1)
    ended, words = _ranks(root, 2, run)
    assert ended == code
    assert words.split("\n")[:4] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert "OMP_DYNAMIC=unset" in words


def test_the_real_torchrun_passes_the_signal_on_and_leaves_nobody_behind(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path / "two ranks", {1: "wait"})
    one_writes = "def tell(state, code):\n    if os.environ['RANK'] != '0': return\n"
    both_start = 'open(folder + "/started" + os.environ["RANK"], "a")'
    main = fake.MAIN.replace("def tell(state, code):\n", one_writes).replace('open(folder + "/started", "a")', both_start)
    (root / "main.py").write_text(main)
    (run,) = fake.runs(root, 1)
    with fake.started(root, ["bash", str(run.folder.script)], env=fake.environment(NPROC="2", OMP_NUM_THREADS="1")) as process:
        _until(lambda: all((run.folder.path / f"started{rank}").exists() for rank in (0, 1)), "the ranks did not start", seconds=60)
        process.send_signal(signal.SIGUSR2)
        assert process.wait(timeout=60) == 75
    assert run.folder.log.read_text().count("heard SIGUSR2") == 2
    assert run.state().word == "preempted"


def test_never_more_ranks_than_workers_and_one_rank_needs_no_torchrun(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)  # four workers
    assert "--nproc-per-node=4" in _ranks(root, 8, run)[1]
    assert "torch.distributed" not in _ranks(root, 1, run)[1]


def test_an_old_exit_code_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path, {1: 75})
    (run,) = fake.runs(root, 1)
    assert _ranks(root, 2, run)[0] == 75
    (root / "main.py").write_text("raise SystemExit(9)\n")  # crashes before it says anything
    assert _ranks(root, 2, run)[0] == 1


# --- job scripts, executed ----------------------------------------------------------------------------------------


def _job(root: Path, run_dirs: list[str]) -> subprocess.CompletedProcess[str]:
    path = root / "jobs" / "x_0.sh"
    path.parent.mkdir(exist_ok=True)
    path.write_text(job_script("s", run_dirs, from_script(1), 1))
    return fake.bash(path)


def test_a_share_goes_on_after_a_failure_and_skips_what_is_done(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path / "it's here", {2: 1, 3: 3})
    runs = fake.runs(root, 4)
    first = _job(root, [run.run_dir for run in runs])
    assert first.returncode == 1
    assert [run.state().word for run in runs] == ["done", "failed", "diverged", "done"]
    assert f"2 of 4 failed (exit code, folder; see stdout.log there):\n  1 {runs[1].run_dir}\n  3 {runs[2].run_dir}\n" in first.stdout
    (root / "behaviour.json").write_text("{}")
    second = _job(root, [run.run_dir for run in runs])
    assert second.returncode == 0
    assert second.stdout.count("done already") == 2
    assert "all 4 done" in second.stdout
    assert [(run.folder.path / "started").read_text() for run in runs] == ["x", "xx", "xx", "x"]


def test_a_share_stops_at_a_preempted_run(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path, {1: 1, 2: 75})
    runs = fake.runs(root, 3)
    assert _job(root, [run.run_dir for run in runs]).returncode == 75
    assert runs[2].state().word == "new"


def test_a_message_that_quotes_a_status_is_not_done(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path, {1: 1})
    (run,) = fake.runs(root, 1)
    run.folder.status.write_text(json.dumps({"state": "failed", "failure": {"message": '"state": "done"'}}, indent=1))
    assert _job(root, [run.run_dir]).returncode == 1
    assert (run.folder.path / "started").exists()


def test_an_empty_share_says_so(tmp_path: Path) -> None:
    done = _job(tmp_path, [])
    assert (done.returncode, done.stdout) == (0, "nothing to do: more scripts than experiments\n")


@given(st.lists(st.integers(), max_size=30), st.integers(1, 40))
def test_deal_is_round_robin(items: list[int], shares: int) -> None:
    dealt = deal(items, shares)
    assert len(dealt) == shares
    assert [dealt[index % shares][index // shares] for index in range(len(items))] == items
    assert sum(map(len, dealt)) == len(items)


def test_task_files_run_every_experiment(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path, {1: 0, 2: 2})
    item, other = (run.experiment for run in fake.runs(root, 2))
    path = root / "pjobs" / "t.sh"
    path.parent.mkdir()
    path.write_text(task_script("s", "doc", [other, item], "x"))
    assert fake.bash(path).returncode == 1
    assert all((root / "runs" / "tiny" / one.name / "started").exists() for one in (item, other))
