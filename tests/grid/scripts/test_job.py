"""Generated bash: shares of a sweep, one run after another or several at a time; signals, requeues, GPUs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.scripts.script import from_script, job_script
from grid.engine.submission.plan import deal
from settings.resources import Resources
from tests.grid import fake
from tests.tiers import few

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
    assert (
        f"2 of 4 failed (exit code, folder; see stdout.log there):\n  1 {runs[1].run_dir}\n  3 {runs[2].run_dir}\n"
        in first.stdout
    )
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


# --- requeues -----------------------------------------------------------------------------------------------------


def _stop_in(root: Path, path: Path, run: Any, *, ended: tuple[str, ...] = (), **more: str) -> int:
    """Start the script, signal it once this run has begun and others have ended with these codes, and give its exit
    code.
    """
    ledger = path.with_suffix(".ended")
    with fake.started(root, ["bash", str(path)], env=fake.environment(**more)) as process:
        fake.until((run.folder.path / "started").exists, "the run did not start")
        for code in ended:
            fake.until(
                lambda code=code: ledger.exists() and f"\n{code} " in f"\n{ledger.read_text()}",
                f"no run ended with {code}",
            )
        process.send_signal(signal.SIGUSR2)
        process.communicate(timeout=15)
    return process.returncode


def _begun(runs: Any) -> list[str]:
    paths = [run.folder.path / "started" for run in runs]
    return [path.read_text() if path.exists() else "" for path in paths]


@few(1, "parallel", [1, 2])
def test_after_a_requeue_what_failed_is_not_run_again(tmp_path: Path, parallel: int) -> None:
    root = fake.checkout(tmp_path, {1: 7, 2: 0, 3: "wait"})
    runs = fake.runs(root, 4)
    path = root / "jobs" / "x_0.sh"
    path.parent.mkdir()
    path.write_text(
        job_script("s", [run.run_dir for run in runs], from_script(1), Resources(gpus=0), parallel=parallel)
    )
    assert _stop_in(root, path, runs[2], ended=("7", "0")) == 75  # with two at a time the signal might come before
    ledger = path.with_suffix(".ended")
    codes = [line.split()[0] for line in ledger.read_text().splitlines()]
    assert sorted(codes[:3]) == ["0", "7", "75"] if parallel == 1 else {"7", "75"} <= set(codes)
    (root / "behaviour.json").write_text("{}")
    again = fake.bash(path, SLURM_RESTART_COUNT="1")
    assert again.returncode == 1, "what failed before the requeue has still failed"
    assert f"1 of 4 failed (exit code, folder; see stdout.log there):\n  7 {runs[0].run_dir}\n" in again.stdout
    begun = _begun(runs)
    assert begun[:3] == ["x", "x", "xx"]
    assert begun[3] in (["x"] if parallel == 1 else ["x", "xx"]), (
        "with two at a time it may have begun before the signal"
    )
    by_hand = fake.bash(path)
    assert by_hand.returncode == 0, "started anew, it runs what failed"
    assert _begun(runs) == ["xx", *begun[1:]]
    assert ledger.read_text() == f"0 {runs[0].run_dir}\n"


def test_a_ledger_that_cannot_be_read_or_written_stops_nothing(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    runs = fake.runs(root, 1)
    (root / "jobs" / "x_0.ended").mkdir(parents=True)
    assert _job(root, [runs[0].run_dir]).returncode == 0
    (root / "jobs" / "x_0.ended").rmdir()
    (root / "jobs" / "x_0.ended").write_text(f"oops {runs[0].run_dir}\n\n1")
    (runs[0].folder.path / "status.json").unlink()
    assert fake.bash(root / "jobs" / "x_0.sh", SLURM_RESTART_COUNT="2").returncode == 0


def test_the_ledger_lies_beside_the_script_wherever_it_is_started_from(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path / "it's\nhere")
    runs = fake.runs(root, 1)
    _job(root, [])
    (root / "jobs" / "x_0.sh").write_text(job_script("s", [runs[0].run_dir], from_script(1), 1))
    subprocess.run(
        ["bash", "x_0.sh"], cwd=root / "jobs", env=fake.environment(), check=True, capture_output=True, timeout=30
    )
    assert (root / "jobs" / "x_0.ended").read_text() == f"0 {runs[0].run_dir}\n"


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_run_in_other_hands_is_no_failure_and_is_looked_for_again(tmp_path: Path, parallel: int) -> None:
    root = fake.checkout(tmp_path, {2: 1})
    runs = fake.runs(root, 3)
    path = root / "jobs" / "x_0.sh"
    path.parent.mkdir()
    path.write_text(
        job_script("s", [run.run_dir for run in runs], from_script(1), Resources(gpus=0), parallel=parallel)
    )
    held = os.open(runs[0].folder.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    first = fake.bash(path)
    os.close(held)
    assert first.returncode == 75, first.stdout
    assert "1 of 3 in the hands of other processes: asking to be requeued" in first.stdout
    assert f"1 of 3 failed (exit code, folder; see stdout.log there):\n  1 {runs[1].run_dir}\n" in first.stdout
    ledger = path.with_suffix(".ended")
    noted = [f"0 {runs[2].run_dir}", f"1 {runs[1].run_dir}", "held"]
    assert sorted(ledger.read_text().splitlines()) == noted, "it has not ended"
    assert fake.bash(path, SLURM_RESTART_COUNT="1").returncode == 1
    assert ledger.read_text().splitlines()[-1] == f"0@1 {runs[0].run_dir}", "by the second life of the job"
    assert fake.bash(path, SLURM_RESTART_COUNT="2").returncode == 1, "what lives note is read again"
    assert _begun(runs) == ["x", "x", "x"]


# --- several at a time --------------------------------------------------------------------------------------------

NOTES = """
with open("notes", "a") as file:
    seen = {name: os.environ.get(name) for name in ("NUQ_SLOT", "CUDA_VISIBLE_DEVICES")}
    file.write(json.dumps({"seed": settings["seed"], **seen}) + "\\n")
while settings["seed"] in ("1", "2", "3") and not os.path.exists("go"):
    if len(open("notes").readlines()) >= int(open("meet").read()):
        open("go", "w")
    time.sleep(0.02)
"""


def _slots(
    root: Path, seeds: int, parallel: int, resources: Resources, behaviour: dict[int, int | str] | None = None
) -> tuple[Path, Any]:
    """A script of ``seeds`` runs whose first ones wait until ``parallel`` have begun, so that they run at the same time
    or not at all.
    """
    fake.checkout(root, behaviour)
    before, found, after = fake.MAIN.partition("signal.signal(signal.SIGUSR2")
    assert found
    (root / "main.py").write_text(before + NOTES + found + after)
    (root / "meet").write_text(str(parallel))
    runs = fake.runs(root, seeds)
    path = root / "jobs" / "x_0.sh"
    path.parent.mkdir()
    path.write_text(job_script("s", [run.run_dir for run in runs], from_script(1), resources, parallel=parallel))
    return path, runs


def _notes(root: Path) -> list[dict[str, str | None]]:
    return [json.loads(line) for line in (root / "notes").read_text().splitlines()]


GPUS = [
    # CUDA_VISIBLE_DEVICES outside, what one run asks for, what the slots see
    ("4,5,6", Resources(), ["4", "5", "6"]),
    ("GPU-a,GPU-b,GPU-c,GPU-d,GPU-e,GPU-f", Resources(ranks=2), ["GPU-a,GPU-b", "GPU-c,GPU-d", "GPU-e,GPU-f"]),
    ("4,5", Resources(gpus=0.5), ["4", "4", "5"]),
    (None, Resources(gpus=0.5), ["0", "0", "1"]),
    ("7", Resources(gpus=2), ["7", "7", "7"]),  # by hand, on a smaller machine
    ("", Resources(), ["", "", ""]),  # the user hides them
    ("4,5", Resources(gpus=0), ["4,5"] * 3),  # not ours to give
]


@few(2, ("outside", "resources", "inside"), GPUS)
def test_three_at_a_time_each_with_its_own_gpus(
    tmp_path: Path, outside: str | None, resources: Resources, inside: list[str]
) -> None:
    path, runs = _slots(tmp_path / "it's here", 5, 3, resources)
    more = {"NUQ_NPROC": "1"} | ({} if outside is None else {"CUDA_VISIBLE_DEVICES": outside})
    done = fake.bash(path, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [run.state().word for run in runs] == ["done"] * 5
    seen = {note["NUQ_SLOT"]: note["CUDA_VISIBLE_DEVICES"] for note in _notes(path.parent.parent)}
    assert seen == dict(zip("012", inside, strict=True))
    assert sorted(note["seed"] or "" for note in _notes(path.parent.parent)) == list("12345"), "each once"
    assert all(run.folder.log.read_text().count("args ") == 1 for run in runs)
    assert "args" not in done.stdout, "logs are apart"


def test_one_failing_does_not_stop_the_others(tmp_path: Path) -> None:
    path, runs = _slots(tmp_path, 5, 2, Resources(gpus=0), {1: 1, 3: 3})
    done = fake.bash(path)
    assert done.returncode == 1
    assert [run.state().word for run in runs] == ["failed", "done", "diverged", "done", "done"]
    assert (
        f"2 of 5 failed (exit code, folder; see stdout.log there):\n  1 {runs[0].run_dir}\n  3 {runs[2].run_dir}\n"
        in done.stdout
    )
    assert len(path.with_suffix(".ended").read_text().splitlines()) == 5


@few(2, ("number", "group"), product([signal.SIGUSR2, signal.SIGTERM, signal.SIGINT], [False, True]))
def test_a_signal_reaches_every_slot_and_nothing_new_begins(
    tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    path, runs = _slots(tmp_path, 4, 3, Resources(gpus=0), {1: "wait", 2: "wait", 3: "wait"})
    with fake.started(tmp_path, ["bash", str(path)], env=fake.environment(), start_new_session=True) as process:
        fake.until(lambda: all((run.folder.path / "started").exists() for run in runs[:3]), "three runs did not start")
        if group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        output, _ = process.communicate(timeout=15)
        assert process.returncode == 75
        assert not fake.processes(tmp_path), "nobody is left behind"
    assert [run.state().word for run in runs] == ["preempted"] * 3 + ["new"]
    assert "stopped by a signal, 4 of 4 left: asking to be requeued" in output


def test_a_run_that_asks_for_a_requeue_by_itself_gets_it_when_the_others_are_through(tmp_path: Path) -> None:
    path, runs = _slots(tmp_path, 4, 2, Resources(gpus=0), {1: 75})
    (tmp_path / "main.py").write_text(
        (tmp_path / "main.py").read_text().replace('3: "diverged"', '3: "diverged", 75: "preempted"')
    )
    assert fake.bash(path).returncode == 75
    assert [run.state().word for run in runs][:2] == ["preempted", "done"]


def test_a_killed_slot_is_a_failure_and_not_a_requeue(tmp_path: Path) -> None:
    path, runs = _slots(tmp_path, 2, 2, Resources(gpus=0), {1: "wait"})
    (tmp_path / "main.py").write_text(
        (tmp_path / "main.py").read_text().replace("time.sleep(60)", "os.kill(slot(), 9); sys.exit(0)")
    )
    # run.sh's parent
    slot = "def slot(): return int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
    (tmp_path / "main.py").write_text(slot + (tmp_path / "main.py").read_text())
    done = fake.bash(path)
    assert done.returncode == 1
    assert f"  137 {runs[0].run_dir}\n" in done.stdout
    assert runs[1].state().word == "done"


def test_the_preamble_comes_first_and_may_read_what_is_not_set(tmp_path: Path) -> None:
    root = fake.checkout(tmp_path)
    (run,) = fake.runs(root, 1)
    (root / "x.sh").write_text(
        job_script(
            "s", [run.run_dir], '"."', 1, preamble=['echo "before $NOBODY_SET_THIS"', "cd /work 2>/dev/null || :"]
        )
    )
    text = (root / "x.sh").read_text()
    assert text.index("NOBODY_SET_THIS") < text.index("runs=(")
