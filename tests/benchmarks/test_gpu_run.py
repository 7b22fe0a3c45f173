"""``benchmarks/gpu/run``: a step that fails, hangs, dies or writes garbage costs its own result and is told."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import one_step
from benchmarks.gpu.steps import LONGEST_S, REHEARSAL_MINUTES, STEPS, TOTAL_MINUTES, Command, Step, chosen
from tests.tiers import few

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
    """limit_s: of each command."""
    limited = tuple(Command(words, limit_s) for words in commands)
    return Step(name, "A sentence.", limited, limited[:1])


def program(steps: tuple[Step, ...], machine: dict[str, Any] = MACHINE) -> str:
    """A program like ``benchmarks/gpu/run`` with other steps on another machine."""
    return (
        "import sys; from benchmarks.gpu import run; from benchmarks.gpu.steps import Command, Step\n"
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


@pytest.mark.slow
def test_steps_that_fail_in_every_way_are_told_and_the_others_go_on(tmp_path: Path) -> None:
    steps = (
        step("fails", ("-c", "print('why'); raise SystemExit(3)"), GOOD),
        step("hangs", ("-c", DEFIANT, "99"), GOOD, limit_s=2.0),
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
    assert "FAILED, 1 of 2 commands, exit code 3" in lines["fails"] and "killed by SIGSEGV" in lines["dies"]
    assert "FAILED, 1 of 2 commands, killed at its limit of 2 s" in lines["hangs"]
    assert all("done in" in lines[name] for name in ("garbage", "silent", "leaves a child", "good"))
    assert [record(tmp_path, one.name)["failed"] for one in steps] == [True, True, True, False, False, False, False]

    fails, hangs = record(tmp_path, "fails"), record(tmp_path, "hangs")
    assert [one["exit_code"] for one in fails["commands"]] == [3, 0], "a command goes on after one that failed"
    assert fails["commands"][0]["last_lines"] == ["why"] and "result" not in fails["commands"][0]
    assert (
        fails["commands"][1]["result"] == {"fraction": 0.5, "none": "NaN"} and "last_lines" not in fails["commands"][1]
    )
    assert hangs["timed_out"] and hangs["seconds"] < 10
    assert [one["exit_code"] for one in hangs["commands"]] == [-signal.SIGKILL, 0], (
        "one that hangs takes only its own time"
    )
    assert (
        fails | MACHINE == fails
        and fails["exit_code"] == 3
        and fails["rehearsal"] is False
        and fails["date"].endswith("+00:00")
    )
    assert record(tmp_path, "silent")["commands"][0]["last_lines"] == []
    assert all(len(line) <= 500 for line in record(tmp_path, "garbage")["commands"][0]["last_lines"])
    for name in ("hangs", "leaves a child"):
        (child,) = record(tmp_path, name)["commands"][0]["last_lines"]
        assert not alive(int(child)), "a child of a step outlived it"
    everything = json.loads((tmp_path / "all.json").read_text())
    assert everything["steps"] == {one.name: record(tmp_path, one.name) for one in steps}
    assert everything["machine"] == MACHINE and everything["earlier"] == {}
    assert "some words" in (tmp_path / "good.log").read_text() and not list(tmp_path.glob("*.part"))


@few(2, "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path, number: signal.Signals) -> None:
    """It does so too where the second signal comes at once, and nobody reads what it says any more."""
    steps = (step("first", GOOD), step("second", GOOD, ("-c", DEFIANT, "99"), GOOD), step("third", GOOD))
    command = [sys.executable, "-c", program(steps), "--out", str(tmp_path)]
    before = signal.signal(number, signal.SIG_DFL)  # under nohup it would be ignored by those that are started here
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        signal.signal(number, before)
        assert running.stdout is not None
        log, until = tmp_path / "second.log", time.monotonic() + 30
        while (
            not (log.exists() and log.read_text().rpartition("\n")[0].rpartition("\n")[2].isdigit())
            and time.monotonic() < until
        ):
            time.sleep(0.02)
        if number == signal.SIGHUP:
            running.stdout.close()
        running.send_signal(number)
        running.send_signal(number)
        if number != signal.SIGHUP:
            out = running.stdout.read()
            assert "second: interrupted" in out and "third: skipped, interrupted" in out
        assert running.wait(30) == 130
    assert record(tmp_path, "second")["interrupted"] and not (tmp_path / "third.json").exists()
    done, interrupted = record(tmp_path, "second")["commands"]
    assert done["result"]["fraction"] == 0.5 and interrupted["interrupted"]
    assert json.loads((tmp_path / "all.json").read_text())["steps"]["third"]["skipped"] == "interrupted"
    assert not alive(int(log.read_text().splitlines()[-1]))


def test_a_killed_run_keeps_the_commands_that_have_ended(tmp_path: Path) -> None:
    steps = (step("first", GOOD), step("second", GOOD, ("-c", "import os; os.kill(os.getppid(), 9)")))
    assert run(tmp_path, steps).returncode == -signal.SIGKILL
    assert record(tmp_path, "first")["exit_code"] == 0 and not record(tmp_path, "first")["unfinished"]
    everything = json.loads((tmp_path / "all.json").read_text())["steps"]
    assert list(everything) == ["first", "second"] and everything["second"] == record(tmp_path, "second")
    assert everything["second"]["unfinished"] and len(everything["second"]["commands"]) == 1


def test_results_of_an_earlier_call_are_kept_apart(tmp_path: Path) -> None:
    """A step that is asked for again has no record until it has a new one, and is not an earlier one."""
    run(tmp_path, (step("a", GOOD), step("b", GOOD)))
    old = record(tmp_path, "b")
    done = run(tmp_path, (step("a", ("-c", "import os; os.kill(os.getppid(), 9)")),))
    assert done.returncode == -signal.SIGKILL and record(tmp_path, "a")["commands"] == []
    everything = json.loads((tmp_path / "all.json").read_text())
    assert list(everything["steps"]) == ["a"] and everything["earlier"] == {"b": old}
    late = run(tmp_path, (step("b", GOOD, limit_s=100.0), step("c", GOOD)), "--minutes", "0.2")
    assert late.returncode == 0 and not (tmp_path / "b.json").exists() and not (tmp_path / "b.log").exists()
    everything = json.loads((tmp_path / "all.json").read_text())
    assert list(everything["steps"]) == ["b", "c"] and list(everything["earlier"]) == ["a"]


def test_paths_are_seen_from_the_callers_folder(tmp_path: Path) -> None:
    """The shell script changes the folder; here with a Python that is named relatively, too."""
    (tmp_path / "python").symlink_to("/bin/echo")
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": "./python"}
    for script in ("run", "prepare"):
        done = subprocess.run(
            [ROOT / "benchmarks/gpu" / script, "a"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.stdout == f"-m benchmarks.gpu.{script} a\n"
    command = [sys.executable, "-c", program((step("a", GOOD),)), "--out", "there"]
    environment = {**os.environ, "NUQ_CALLED_FROM": str(tmp_path)}
    assert subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=60).returncode == 0
    assert record(tmp_path / "there", "a")["exit_code"] == 0


def test_steps_find_what_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own PYTHONPATH, the caller's data, and a place for compiled kernels where the home folder takes no files."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    monkeypatch.setenv("NUQ_CALLED_FROM", str(tmp_path))
    monkeypatch.setenv("NUQ_DATA", "data")
    monkeypatch.setenv("HOME", str(tmp_path / "no home"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    names = ["PYTHONPATH", "NUQ_DATA", "TRITON_CACHE_DIR"]
    code = f"import json, os; print(json.dumps({{name: os.environ[name] for name in {names}}}))"
    wants = replace(step("a", ("-c", code)), pictures=True)
    assert run(tmp_path, (wants,)).returncode == 0
    found = record(tmp_path, "a")["commands"][0]["result"]
    site, *rest = found["PYTHONPATH"].split(os.pathsep)
    assert rest == [str(ROOT), str(tmp_path / "own")]
    assert found["NUQ_DATA"] == str(tmp_path / "data") and found["TRITON_CACHE_DIR"] == f"{site}/triton"


def test_a_folder_of_wheels_that_is_not_there_is_told(tmp_path: Path) -> None:
    sentence = f"--wheels {tmp_path / 'none'}: no such folder, so nothing is taken from it\n"
    assert sentence in run(tmp_path, (step("a", GOOD),)).stdout
    (tmp_path / "none").mkdir()
    assert sentence not in run(tmp_path, (step("a", GOOD),)).stdout


def test_a_step_without_time_is_skipped_and_told(tmp_path: Path) -> None:
    steps = (step("short", GOOD, limit_s=10.0), step("long", GOOD, limit_s=100.0))
    done = run(tmp_path, steps, "--minutes", "0.25")
    assert done.returncode == 0 and "short: done" in done.stdout
    assert (
        "long: skipped, 1" in done.stdout
        and "its limit is 100 s" in done.stdout
        and not (tmp_path / "long.json").exists()
    )


def test_a_call_that_begins_no_step_has_failed(tmp_path: Path) -> None:
    done = run(tmp_path, (step("long", GOOD, limit_s=100.0),), "--minutes", "0.1")
    assert done.returncode == 1 and "long: skipped" in done.stdout and "nothing was measured" in done.stderr


@pytest.mark.slow
def test_a_rehearsal_that_takes_too_long_ends_and_has_failed(tmp_path: Path) -> None:
    """What does not fit into its minutes is cut, or not begun; one sentence tells it."""
    steps = (step("a", GOOD), step("slow", ("-c", DEFIANT, "99"), limit_s=100.0), step("b", GOOD))
    code = program(steps).replace("sys.exit(", "run.REHEARSAL_MINUTES = 0.1; sys.exit(")
    command = [sys.executable, "-c", code, "--out", str(tmp_path), "--rehearse"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "a: done" in done.stdout
    assert "slow: FAILED, killed at its limit" in done.stdout and "b: skipped, 0 s are left" in done.stdout
    assert done.stderr == "benchmarks/gpu/run: the rehearsal did not end within 0.1 minutes, so it failed\n"


def test_steps_are_chosen_by_name_and_packed(tmp_path: Path) -> None:
    steps = (step("a", GOOD, GOOD), step("b", GOOD), step("c", GOOD))
    done = run(tmp_path, steps, "c", "a", "--rehearse", "--pack", machine={**MACHINE, "gpu": None})
    assert done.returncode == 0 and "b:" not in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json", "logs.tar.gz"]
    told = json.loads((tmp_path / "all.json").read_text())["steps"]
    assert list(told) == ["a", "c"] and told["a"]["rehearsal"] is True and len(told["a"]["commands"]) == 1
    with tarfile.open(tmp_path / "logs.tar.gz") as archive:
        assert archive.getnames() == ["a.log", "c.log"]


def test_logs_of_an_earlier_call_stay_packed(tmp_path: Path) -> None:
    run(tmp_path, (step("a", GOOD), step("b", GOOD)), "--pack")
    run(tmp_path, (step("b", ("-c", "print('new')")),), "--pack")
    with tarfile.open(tmp_path / "logs.tar.gz") as archive:
        assert archive.getnames() == ["a.log", "b.log"]
        file = archive.extractfile("b.log")
        assert file is not None and b"new" in file.read()
    everything = json.loads((tmp_path / "all.json").read_text())
    assert list(everything["steps"]) == ["b"] and list(everything["earlier"]) == ["a"]


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ('{"a": 1e999, "b": [-Infinity, 2.5]}', {"a": "1e999", "b": ["-Infinity", 2.5]}),
        ('{"a": 1}\nTraceback\nRuntimeError: no', {"a": 1}),
        ("[1, 2]\n{1}", None),
    ],
)
def test_the_last_json_object_is_the_result(tmp_path: Path, said: str, result: Any) -> None:
    log = tmp_path / "log"
    before = '{"of": "the command before"}\n'
    log.write_text(f"{before}{said}\n")
    told = one_step.told(log, len(before), failed=True)
    assert told.get("result") == result and told["last_lines"] == said.splitlines()
    json.dumps(told, allow_nan=False)


def test_a_command_knows_its_time(tmp_path: Path) -> None:
    """The time that one command leaves is the next one's; a step with less time gives each its share."""
    code = "import json, sys; print(json.dumps({'seconds': float(sys.argv[1])}))"
    commands = [Command(("-c", code, "{seconds}"), limit_s) for limit_s in (30.0, 10.0)]
    for limit_s, first in ((40.0, 24), (20.0, 12)):
        found = one_step.carry_out("a", commands, tmp_path / "log", limit_s, os.environ, lambda record: None)
        seconds = [one["result"]["seconds"] for one in found["commands"]]
        assert seconds[0] == first and 0.8 * limit_s - 4 <= seconds[1] <= 0.8 * limit_s


@few(
    3,
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
        "import sys; from benchmarks.gpu import machine, run; machine.PROBE = 'import no_such_torch'; "
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
    assert sum(one.limit_s for one in STEPS) <= 60 * TOTAL_MINUTES and REHEARSAL_MINUTES == 6
    assert [one.name for one in STEPS] == [
        "bits",
        "quantize",
        "entropy",
        "methods",
        "ranks",
        "train",
        "gradients",
        "paper",
    ]
    assert all(one.told.endswith(".") and one.commands and one.rehearsal for one in STEPS)
    assert chosen([]) == STEPS and [one.name for one in chosen(["paper", "bits"])] == ["bits", "paper"]
    for one in STEPS:
        longest = max(command.limit_s for command in one.commands)
        assert longest <= 2 / 3 * one.limit_s or len(one.commands) == 1, "one that hangs leaves time to the others"
    programs = [command.words[1].rpartition(".")[2] for command in STEPS[0].commands]
    assert programs == ["compile_kernels", "bits", "unit_tests", "bits"]


def test_every_command_is_there_and_is_rehearsed() -> None:
    for one in STEPS:
        for command in (*one.commands, *one.rehearsal):
            assert command.words[0] == "-m"
            place = ROOT / command.words[1].replace(".", "/")
            found = place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
            assert found, shlex.join(command.words)
        assert {command.words[1] for command in one.commands} <= {command.words[1] for command in one.rehearsal}
        assert all("cuda" not in command.words for command in one.rehearsal)
