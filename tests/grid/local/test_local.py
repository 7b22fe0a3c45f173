"""The local runner with a stand-in main.py: slots, skipping, failures, Ctrl-C without orphans."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

import grid_run
from grid.engine.local import kept, slots
from grid.engine.local.machine import visible_gpus
from grid.engine.local.progress import Lines
from grid.engine.local.slots import run_all, run_with_progress, summary
from grid.engine.states.runs import Run, left_over, prepare, runs_of
from grid.engine.sweep import load
from tests.grid import fake
from tests.tiers import few

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "POLL_S", 0.01)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_runs_what_is_missing_and_names_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = fake.runs(fake.checkout(tmp_path / "my checkout", {2: 1, 3: "silent"}), 5)
    assert run_with_progress(runs, 2).exit_code == 1
    output = capsys.readouterr().out
    assert "failed: QSGD bits=3 (seed 2): exit code 1; the end of runs/tiny/qsgd-3b" in output
    assert "    args [" in output, "the end of the log is shown"
    assert "(seed 3): exit code 0, but the run does not say that it is done" in output
    assert output.count("start QSGD") == 5
    assert output.endswith("3 done, 2 failed\n")
    (tmp_path / "my checkout" / "behaviour.json").write_text("{}")
    for run in runs:  # the silent one left a status of a process that is gone
        assert run.state().word in {"done", "failed", "lost"}
    again = run_with_progress(runs, 2)
    assert again.exit_code == 0
    assert (len(again.done), len(again.skipped)) == (2, 3)
    capsys.readouterr()
    assert run_with_progress(runs, 2).exit_code == 0
    assert capsys.readouterr().out == "5 done before\n"


def test_ended_runs_are_kept_one_by_one_and_another_machine_goes_on(tmp_path: Path) -> None:
    runs = fake.runs(fake.checkout(tmp_path / "first", {2: 1}), 4)

    def ended(run: Run) -> None:
        (run.folder.path / "checkpoint.pt").touch()
        (run.folder.path / "events.out.tfevents.1.a1").write_text("scalars")
        assert kept.keep(run) == (run.experiment.seed != 2), "the failed one has not ended"
        assert not kept.keep(run)

    run_all(runs, 2, Lines(4), ended=ended)
    names = {path.name for path in kept.place(runs[0]).iterdir()}
    assert names == {"config.yaml", "status.json", "events.out.tfevents.1.a1"}

    second = fake.runs(fake.checkout(tmp_path / "second"), 4)
    shutil.copytree(tmp_path / "first" / "results", tmp_path / "second" / "results")
    damaged = kept.place(second[2])
    (damaged / "status.json").write_text("<<<<<<< HEAD")
    begun = second[3].folder.path / "checkpoint.pt"
    begun.parent.mkdir(parents=True, exist_ok=True)
    begun.touch()
    assert kept.restore(second) == (1, [damaged])
    assert [run.state().word for run in second] == ["done", "new", "new", "new"]
    assert not list(begun.parent.glob("events*")), "two machines' scalars are never mixed"
    assert len(run_all(second, 2, Lines(4)).skipped) == 1
    (second[2].folder.path / "events.out.tfevents.2.a1").write_text("scalars")
    assert kept.keep(second[2]), "what is whole takes the damaged one's place"
    assert (damaged / "events.out.tfevents.2.a1").exists()


def test_what_may_be_alive_is_left_alone(tmp_path: Path) -> None:
    runs = fake.runs(fake.checkout(tmp_path), 2)
    runs[0].folder.status.write_text(
        json.dumps({"state": "running", "host": "elsewhere", "pid": 1, "heartbeat": time.time()})
    )
    runs[1].folder.status.write_text("{")
    outcome = run_all(runs, 1, Lines(0))
    assert outcome.exit_code == 1
    assert [reason.partition(":")[0] for _, reason in outcome.left] == ["running", "unknown"]
    assert "not started" in summary(outcome)
    assert not any((run.folder.path / "started").exists() for run in runs)


def test_the_state_is_read_again_just_before_a_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = fake.runs(fake.checkout(tmp_path), 3)
    alive = json.dumps({"state": "running", "host": "elsewhere", "pid": 1, "heartbeat": time.time()})

    class AnotherRunner(Lines):
        """Takes the two other runs as soon as the first one starts."""

        def started(self, slot: int, run: Run) -> None:
            super().started(slot, run)
            runs[1].folder.status.write_text('{"state": "done"}')
            runs[2].folder.status.write_text(alive)

    outcome = run_all(runs, 1, AnotherRunner(3))
    assert (outcome.done, outcome.skipped, outcome.left) == (
        [runs[0]],
        [runs[1]],
        [(runs[2], "running: it runs already")],
    )
    output = capsys.readouterr().out
    assert "(seed 2): now done, by another process; not started here" in output
    assert "[3/3] QSGD bits=3 (seed 3): now running, by another process; not started here" in output
    assert not any((run.folder.path / "started").exists() for run in runs[1:])


def test_a_folder_that_another_process_holds_is_no_failure(tmp_path: Path) -> None:
    runs = fake.runs(fake.checkout(tmp_path), 3)
    held = [os.open(run.folder.path, os.O_RDONLY) for run in runs[:2]]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    outcome = run_all(runs, 1, Lines(3))
    for file in held:
        os.close(file)
    assert [reason for _, reason in outcome.left] == ["another process runs it already"] * 2
    assert (outcome.done, outcome.failed, outcome.given_up) == ([runs[2]], [], [])


def test_it_gives_up_when_the_first_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = fake.runs(fake.checkout(tmp_path / "all", dict.fromkeys(range(1, 7), 2)), 6)
    outcome = run_with_progress(runs, 1)
    assert outcome.exit_code == 1
    assert (len(outcome.failed), outcome.given_up) == (2, runs[2:])
    output = capsys.readouterr().out
    assert f"bad settings or data; see the reason with: tail {runs[0].run_dir}/stdout.log\n" in output
    assert output.endswith("2 failed, 4 not started\n")
    others = fake.runs(fake.checkout(tmp_path / "some", {2: 2, 3: 2}), 4)
    assert len(run_all(others, 1, Lines(4)).done) == 2, "one success shows that the settings can work"


def test_no_slots_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--slots 0: must be at least 1"):
        run_with_progress(fake.runs(fake.checkout(tmp_path), 1), 0)


def test_slots_bound_what_runs_at_once_and_set_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    root = fake.checkout(tmp_path)
    runs = fake.runs(root, 6)
    note = "import json, os\nopen(folder + '/env', 'w').write(json.dumps(dict(os.environ)))\n"
    clock = "began = time.monotonic()\ntime.sleep(0.15)\n"
    clock += "open(folder + '/span', 'w').write(json.dumps([began, time.monotonic()]))\n"
    (root / "main.py").write_text(fake.MAIN.replace('tell("running", None)', note + clock))
    assert run_all(runs, 3, Lines(6)).exit_code == 0
    environments = [json.loads((run.folder.path / "env").read_text()) for run in runs]
    assert {item["OMP_NUM_THREADS"] for item in environments} == {"1"}
    assert {item["NUQ_NPROC"] for item in environments} == {"1"}
    assert sorted({item["CUDA_VISIBLE_DEVICES"] for item in environments}) == ["5", "7"]
    spans = [json.loads((run.folder.path / "span").read_text()) for run in runs]
    at_once = max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)
    assert 2 <= at_once <= 3


def test_visible_gpus() -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,3"}) == ["0", "3"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == []


# SIGINT arrives also where the tests run in the background of a script, which ignores it.
DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
import grid_run
from grid.engine.local import kept, slots
from tests.grid import fake
slots.GRACE_S = float(sys.argv[2])
sys.exit(slots.run_with_progress(fake.runs(Path(sys.argv[1]), 3), 2).exit_code)
"""


def _until(condition: Callable[[], bool], what: str, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@few(2, ("behaviour", "number"), product(["wait", "deaf"], [signal.SIGINT, signal.SIGTERM]))
def test_ctrl_c_stops_every_child_and_leaves_no_orphan(tmp_path: Path, behaviour: str, number: signal.Signals) -> None:
    root = fake.checkout(tmp_path / f"stop-{behaviour}", {1: behaviour, 2: behaviour})
    runs = fake.runs(root, 3)
    command = [sys.executable, "-c", DRIVER, str(root), "0.5"]
    with fake.started(
        root, command, cwd=ROOT, env=fake.environment(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="")
    ) as driver:
        _until(lambda: all((run.folder.path / "started").exists() for run in runs[:2]), "the runs did not start")
        assert len(fake.processes(root)) >= 5, "the driver, and a script with its main.py in each slot"
        driver.send_signal(number)
        output, _ = driver.communicate(timeout=20)
        assert driver.returncode == 130
        assert "stopping 2 runs" in output
        assert "goes on from the last checkpoints" in output
        assert {"2 stopped", "1 not started"} == set(output.splitlines()[-1].split(", "))
        _until(
            lambda: not fake.processes(root), "an orphan is left", seconds=2
        )  # a killed process takes a moment to go
    assert [run.state().word for run in runs] == (
        ["preempted", "preempted", "new"] if behaviour == "wait" else ["lost", "lost", "new"]
    )
    assert not [path for run in runs for path in run.folder.path.iterdir() if "tmp" in path.name]


def test_prepare_keeps_the_record_of_a_run_that_has_begun(tmp_path: Path) -> None:
    (run,) = fake.runs(fake.checkout(tmp_path), 1)
    before = run.folder.script.stat().st_mtime_ns
    run.folder.config.write_text("as it was")
    run.folder.status.write_text("{}")
    prepare([run])
    assert run.folder.config.read_text() == "as it was"
    assert run.folder.script.stat().st_mtime_ns == before, "an unchanged script is not written again"
    run.folder.status.unlink()
    prepare([run])
    assert run.folder.config.read_text().startswith("method:\n  name: qsgd\n")


def test_left_over_folders_are_found(tmp_path: Path) -> None:
    runs = fake.runs(fake.checkout(tmp_path), 2)
    assert left_over([run.experiment for run in runs], tmp_path) == []
    assert [path.name for path in left_over([runs[0].experiment], tmp_path)] == [runs[1].experiment.name]


def test_run_and_retry_agree_about_what_diverged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither starts it again by itself; both say how it is started all the same."""
    root, user = fake.checkout(tmp_path / "co", {2: 3}), tmp_path / "mine.py"
    user.write_text(
        "from grid.engine.sweep import Sweep, point\n"
        "def tiny() -> Sweep:\n    return Sweep([point('QSGD', method='qsgd', steps=7)], seeds=2)\n"
    )
    monkeypatch.setenv("NUQ_PYTHON", sys.executable)
    words = [str(user), "tiny"]
    assert grid_run.main(["run", *words, "--slots", "2"], root) == 1
    (run,) = [run for run in runs_of(load(str(user), "tiny").experiments(), root) if run.experiment.seed == 2]
    assert (run.folder.path / "started").stat().st_size == 1
    capsys.readouterr()
    assert grid_run.main(["run", *words], root) == 1
    said = capsys.readouterr().out
    assert "it diverged, and would again" in said and "1 done before, 1 not started" in said
    assert grid_run.main(["retry", *words, "--here", "--yes"], root) == 0
    assert "nothing to retry" in capsys.readouterr().out
    assert (run.folder.path / "started").stat().st_size == 1
    assert grid_run.main(["retry", *words, "--here", "--yes", "--kind", "non_finite"], root) == 1
    assert (run.folder.path / "started").stat().st_size == 2


def test_several_names_patterns_and_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """run and retry take what analysis takes; nothing else is started."""
    root, user = fake.checkout(tmp_path / "co", {1: [1, 0], 2: [1, 0]}), tmp_path / "mine.py"
    user.write_text(
        "from grid.engine.sweep import Sweep, axis, point, product, union\n"
        "def tiny() -> Sweep:\n"
        "    bits = product(union(point('QSGD', method='qsgd'), point('ALQ', method='alq')), axis('method.bits=2,3'))\n"
        "    return Sweep(product(point(steps=7), union(bits, point('Full', method='supersgd'))), seeds=2)\n"
    )
    monkeypatch.setenv("NUQ_PYTHON", sys.executable)

    def started(*words: str) -> set[str]:
        before = {path: path.stat().st_size for path in root.rglob("started")}
        assert grid_run.main([*words[:1], str(user), "tiny", *words[1:], "--slots", "4"], root) < 2
        moved = [path.parent for path in root.rglob("started") if path.stat().st_size != before.get(path, 0)]
        return {folder.name for folder in moved}

    once = started("run", "ALQ*", "full", "--where", "seed=1", "bits=2")
    assert len(once) == 2 and {name.partition("-")[0] for name in once} == {"alq", "supersgd"}
    assert all("-s1" in name for name in once)
    assert len(started("run", "--where", "method=qsgd")) == 4
    again = started("retry", "QSGD*3*", "--here", "--yes", "--where", "seed=2", "method=qsgd,amq")
    assert len(again) == 1 and "qsgd-3b" in next(iter(again)) and "-s2" in next(iter(again))
    assert "method=amq" in capsys.readouterr().err, "a value that no run has is told"
    for words in (["QSGD*", "TopK*"], ["--where", "bits=4"]):
        assert grid_run.main(["run", str(user), "tiny", *words], root) == 2
        assert words[-1] in capsys.readouterr().err
