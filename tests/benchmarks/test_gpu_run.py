"""``benchmarks/gpu/run``: a step that fails, hangs, dies or writes garbage costs its own result and is told."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.steps import LONGEST_S, STEPS, TOTAL_MINUTES, Step, chosen

ROOT = Path(__file__).parents[2]
MACHINE = {
    "device": "a device",
    "gpu": "a device",
    "cuda": "0",
    "torch": "1",
    "triton": "2",
    "numpy": "3",
    "python": "4",
}
# Leaves its process group and its session, and ignores what can be ignored.
DEFIANT = """
import signal, subprocess, sys, time
child = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(99)"
print(subprocess.Popen([sys.executable, "-c", child], start_new_session=True).pid, flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(float(sys.argv[1]))
"""
GOOD = ("-c", "print('some words'); print('{\"fraction\": 0.5, \"none\": NaN}')")


def step(name: str, *commands: tuple[str, ...], limit_s: float = 20.0) -> Step:
    return Step(name, "A sentence.", commands, commands[:1], limit_s)


def program(steps: tuple[Step, ...], machine: dict[str, Any] = MACHINE) -> str:
    """A program like ``benchmarks/gpu/run`` with other steps on another machine."""
    return (
        "import sys; from benchmarks.gpu import run; from benchmarks.gpu.steps import Step\n"
        f"sys.exit(run.main(sys.argv[1:], {steps!r}, lambda environment: {machine!r}))"
    )


def run(
    out: Path, steps: tuple[Step, ...], *words: str, machine: dict[str, Any] = MACHINE
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program(steps, machine), "--out", str(out), "--wheels", str(out / "none"), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def record(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / f"{name}.json").read_text())


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_steps_that_fail_in_every_way_are_told_and_the_others_go_on(tmp_path: Path) -> None:
    steps = (
        step("fails", ("-c", "print('why'); raise SystemExit(3)"), GOOD),
        step("hangs", ("-c", DEFIANT, "99"), GOOD, limit_s=1.5),
        step("dies", ("-c", "import os; os.kill(os.getpid(), 11)")),
        step(
            "garbage",
            ("-c", "import sys; sys.stdout.buffer.write(bytes(range(128, 256)) * 40 + b'\\n{\\n' + b'[' * 100_000)"),
        ),
        step("silent", ("-c", "pass")),
        step("leaves a child", ("-c", DEFIANT, "0")),
        step("good", GOOD),
    )
    done = run(tmp_path, steps)
    assert done.returncode == 1 and done.stderr == ""
    lines = {line.partition(":")[0]: line for line in done.stdout.splitlines()[1:]}
    assert (
        "FAILED, exit code 3" in lines["fails"]
        and "killed at its limit of 2 s" in lines["hangs"]
        and "SIGSEGV" in lines["dies"]
    )
    assert all("done in" in lines[name] for name in ("garbage", "silent", "leaves a child", "good"))
    assert [record(tmp_path, one.name)["failed"] for one in steps] == [True, True, True, False, False, False, False]

    fails, hangs = record(tmp_path, "fails"), record(tmp_path, "hangs")
    assert [one["exit_code"] for one in fails["commands"]] == [3, 0], "a command goes on after one that failed"
    assert fails["commands"][0]["result"] == ["why"] and fails["commands"][1]["result"] == {
        "fraction": 0.5,
        "none": "NaN",
    }
    assert hangs["timed_out"] and hangs["commands"][1]["result"] == "no time was left" and hangs["seconds"] < 10
    assert (
        fails | MACHINE == fails
        and fails["exit_code"] == 3
        and fails["rehearsal"] is False
        and fails["date"].endswith("+00:00")
    )
    assert record(tmp_path, "silent")["commands"][0]["result"] == []
    assert all(len(line) <= 500 for line in record(tmp_path, "garbage")["commands"][0]["result"])
    for name in ("hangs", "leaves a child"):
        (child,) = record(tmp_path, name)["commands"][0]["result"]
        assert not alive(int(child)), "a child of a step outlived it"
    everything = json.loads((tmp_path / "all.json").read_text())
    assert (
        everything["steps"] == {one.name: record(tmp_path, one.name) for one in steps}
        and everything["machine"] == MACHINE
    )
    assert "some words" in (tmp_path / "good.log").read_text() and not list(tmp_path.glob("*.part"))


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path) -> None:
    steps = (step("first", GOOD), step("second", ("-c", DEFIANT, "99")), step("third", GOOD))
    command = [sys.executable, "-c", program(steps), "--out", str(tmp_path)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    log, until = tmp_path / "second.log", time.monotonic() + 30
    while (
        not (log.exists() and log.read_text().rpartition("\n")[0].rpartition("\n")[2].isdigit())
        and time.monotonic() < until
    ):
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "second: interrupted" in out and "third: skipped, interrupted" in out
    assert record(tmp_path, "second")["interrupted"] and not (tmp_path / "third.json").exists()
    assert json.loads((tmp_path / "all.json").read_text())["steps"]["third"]["skipped"] == "interrupted"
    assert not alive(int(log.read_text().splitlines()[-1]))


def test_a_killed_run_keeps_the_steps_that_have_ended(tmp_path: Path) -> None:
    steps = (step("first", GOOD), step("second", ("-c", "import os; os.kill(os.getppid(), 9)")))
    assert run(tmp_path, steps).returncode == -signal.SIGKILL
    assert record(tmp_path, "first")["exit_code"] == 0
    assert list(json.loads((tmp_path / "all.json").read_text())["steps"]) == ["first"]


def test_a_step_without_time_is_skipped_and_told(tmp_path: Path) -> None:
    steps = (step("short", GOOD, limit_s=10.0), step("long", GOOD, limit_s=100.0))
    done = run(tmp_path, steps, "--minutes", "0.25")
    assert done.returncode == 0 and "short: done" in done.stdout
    assert (
        "long: skipped, 1" in done.stdout
        and "its limit is 100 s" in done.stdout
        and not (tmp_path / "long.json").exists()
    )


def test_steps_are_chosen_by_name_and_packed(tmp_path: Path) -> None:
    steps = (step("a", GOOD, GOOD), step("b", GOOD), step("c", GOOD))
    done = run(tmp_path, steps, "c", "a", "--rehearse", "--pack", machine={**MACHINE, "gpu": None})
    assert done.returncode == 0 and "b:" not in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json", "logs.tar.gz"]
    told = json.loads((tmp_path / "all.json").read_text())["steps"]
    assert list(told) == ["a", "c"] and told["a"]["rehearsal"] is True and len(told["a"]["commands"]) == 1
    with tarfile.open(tmp_path / "logs.tar.gz") as archive:
        assert archive.getnames() == ["a.log", "c.log"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["quantise"], "'quantise' is no step; legal here: a"),
        (["--minutes", "soon"], "--minutes soon: must be a number of minutes above 0"),
        (["--minutes", "nan"], "--minutes nan: must be a number of minutes above 0"),
        (["--minutes", "0"], "--minutes 0: must be a number of minutes above 0"),
        (["--out", "/dev/null/results"], "--out /dev/null/results: no files can be written there (Not a directory)"),
        (["--out", "/proc"], "--out /proc: no files can be written there"),
        ([], "this machine has no GPU that torch can use: --rehearse runs every step in small without one"),
    ],
)
def test_what_a_user_has_to_change_is_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = run(tmp_path, (step("a", GOOD),), *words, machine={**MACHINE, "gpu": None})
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"benchmarks/gpu/run: {sentence}") and done.stderr.count("\n") == 1


def test_a_python_without_torch_is_told(tmp_path: Path) -> None:
    code = (
        "import sys; from benchmarks.gpu import run; run.PROBE = 'import no_such_torch'; "
        "sys.exit(run.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (
        done.returncode == 2
        and "cannot use torch (ModuleNotFoundError: No module named 'no_such_torch')" in done.stderr
    )


# --- the table ---


def test_the_table_keeps_its_limits() -> None:
    assert all(0 < one.limit_s <= LONGEST_S < 600 for one in STEPS)
    assert sum(one.limit_s for one in STEPS) <= 60 * TOTAL_MINUTES
    assert [one.name for one in STEPS] == ["bits", "quantize", "methods", "ranks", "train", "gradients", "paper"]
    assert all(one.told.endswith(".") and one.commands and one.rehearsal for one in STEPS)
    assert chosen([]) == STEPS and [one.name for one in chosen(["paper", "bits"])] == ["bits", "paper"]


def test_every_command_is_there_and_is_rehearsed() -> None:
    for one in STEPS:
        for command in (*one.commands, *one.rehearsal):
            assert command[0] == "-m"
            path = ROOT / (command[1].replace(".", "/") + ".py")
            assert command[1] == "pytest" or path.is_file(), shlex.join(command)
        assert {command[1] for command in one.commands} == {command[1] for command in one.rehearsal}
        assert all("cuda" not in command for command in one.rehearsal)
