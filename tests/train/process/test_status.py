"""status.json: what is in it, that it stays small, and that bash and old files can live with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from train.process import footprint, status
from train.process.status import Status, read


def _status(run_dir: Path) -> Status:
    return Status(run_dir, 9, "cpu", 1)


def test_a_heartbeat_tells_the_latest_metrics_and_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 0.0)
    run = _status(tmp_path)
    run.tell({"comm/bits_per_coordinate": 3.2, "loss": 2.5, "lr": 0.1, "time/step_s": 1.0})
    run.beat(3)
    assert read(tmp_path)["metrics"] == {"loss": 2.5, "comm/bits_per_coordinate": 3.2}
    run.tell({})  # what the ranks that evaluate nothing pass
    run.tell({"Vloss": 1.5, "Vacc": 40.0, "Tacc": 50.0})
    run.end(75)
    known = {"loss": 2.5, "Vloss": 1.5, "Vacc": 40.0, "comm/bits_per_coordinate": 3.2}
    assert list(read(tmp_path)["metrics"].items()) == list(known.items()), "grid_run.py status shows the first three"
    assert read(tmp_path)["step"] == 3
    _status(tmp_path)
    again = read(tmp_path)
    assert again["metrics"] == known, "a requeued run shows what it last knew"
    assert again["attempt"] == 2


def test_which_job_and_which_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {
        "SLURM_JOB_ID": "7",
        "SLURM_ARRAY_JOB_ID": "5",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_RESTART_COUNT": "1",
        "SLURM_CLUSTER_NAME": "c",
    }
    for key, value in {
        **ids,
        "SLURM_JOB_NODELIST": "n[1-999]",
        "NUQ_CODE": "/somewhere/jobs/code/0123456789ab",
    }.items():
        monkeypatch.setenv(key, value)
    _status(tmp_path)
    found = read(tmp_path)
    assert {key: found["slurm"][key] for key in ids} == ids
    assert "SLURM_JOB_NODELIST" not in found["slurm"]
    assert found["code"] == "0123456789ab"


@pytest.mark.parametrize(
    "before", [{"state": "preempted", "attempt": 1}, {"metrics": 3}, {"metrics": None}, {"metrics": [1]}]
)
def test_records_of_older_code_are_gone_on_with(tmp_path: Path, before: dict[str, object]) -> None:
    (tmp_path / "status.json").write_text(json.dumps(before))
    run = _status(tmp_path)
    run.tell({"loss": 1.0})
    run.end(0)
    assert read(tmp_path)["metrics"] == {"loss": 1.0}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "Expecting"),
        ("[]", "it holds no object"),
        ("[" * 100_000, "maximum recursion depth"),
        ('{"attempt": "x"}', "attempt is 'x', which is no number"),
        ('{"seconds": NaN}', "seconds is nan, which is no number"),
        ('{"seconds": -Infinity}', "seconds is -inf, which is no number"),
        ('{"saved_step": []}', r"saved_step is \[\], which is no number"),
        ('{"state": ["done"]}', r"state is \['done'\], which is no word"),
        ('{"failure": 3}', "failure is 3, which is no object"),
    ],
)
def test_a_damaged_status_says_what_becomes_of_the_run(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(text)
    with pytest.raises(
        ValueError,
        match=rf"status\.json is damaged \({what}.*\): move it away, and the run goes on from its checkpoint, where "
        rf"it has one",
    ):
        _status(tmp_path)


def test_a_status_is_on_the_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may lose its power at any moment: the name then stands for the status of before or for this one."""
    on_disk: dict[int, bytes] = {}  # by inode, what was flushed
    named: list[bytes | None] = []
    sync, replace = os.fsync, os.replace

    def watched_sync(file: int) -> None:
        sync(file)
        on_disk[os.fstat(file).st_ino] = os.pread(file, 1 << 20, 0)

    def watched_replace(old: Path, new: Path) -> None:
        named.append(on_disk.get(os.stat(old).st_ino))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_replace)
    status.write_text(tmp_path / "status.json", '{"state": "running"}')
    assert named == [b'{"state": "running"}'] == [(tmp_path / "status.json").read_bytes()]


def test_no_two_attempts_bear_one_number(tmp_path: Path) -> None:
    """They do not even where status.json was moved away: later event files win, which is told by this number."""
    for name in ("events.out.tfevents.1.host.a2", "events.out.tfevents.2.host.a10", "events.out.tfevents.3.host.apart"):
        (tmp_path / name).touch()
    assert _status(tmp_path).attempt == 11
    (tmp_path / "events.out.tfevents.2.host.a10").unlink()
    assert _status(tmp_path).attempt == 12


def _fail(depth: int) -> None:
    if depth:
        _fail(depth - 1)
    json.loads("{" + '"state": "done", "exit_code": 0' * 1000)


def test_a_failure_is_told_short_with_the_last_frame_of_our_own(tmp_path: Path) -> None:
    run = _status(tmp_path)
    try:
        _fail(3)
    except ValueError as error:
        run.end(1, error)
    text = (tmp_path / "status.json").read_text()
    assert re.fullmatch(r"JSONDecodeError at test_status.py:\d+ in _fail", read(tmp_path)["failure"]["signature"])
    assert len(text) < 5000


def test_a_failure_that_was_never_raised_has_no_place(tmp_path: Path) -> None:
    _status(tmp_path).end(2, ValueError("x" * 100_000))
    assert read(tmp_path)["failure"] == {"signature": "ValueError", "message": "x" * status.MESSAGE_CHARACTERS}


def test_what_bash_greps_for_is_there_once(tmp_path: Path) -> None:
    """Job scripts look for these words without a JSON parser."""
    _status(tmp_path).end(1, ValueError('"state": "done", "exit_code": 0'))
    text = (tmp_path / "status.json").read_text()
    assert re.findall(r'"state"\s*:\s*"(\w+)"', text) == ["failed"]
    assert re.findall(r'"exit_code": *(\d+)', text) == ["1"]


def test_the_ranks_that_keep_no_status_write_nothing(tmp_path: Path) -> None:
    run = Status(None, 9, "cpu", 1)
    run.tell({"loss": 1.0})
    run.beat(1)
    run.end(0)
    assert list(tmp_path.iterdir()) == []


def test_the_memory_of_a_process_is_what_the_system_counts(tmp_path: Path) -> None:
    program = (
        "import re, sys; from pathlib import Path; from train.process.status import Status, read; here = "
        "Path(sys.argv[1])\n"
    )
    program += "kept = bytearray(300_000_000); Status(here, 9, 'cpu', 1); told = read(here)['memory_bytes']\n"
    program += "print(told, 1024 * int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]))"
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=status.ROOT, capture_output=True, text=True, check=True
    ).stdout
    told, counted = map(int, said.split())
    assert abs(told - counted) < counted / 10


def test_the_memory_that_the_processes_of_a_run_take_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 0.0)
    run = _status(tmp_path)
    before = read(tmp_path)["memory_bytes"]  # of this process and whatever children other tests have left it
    eater = "import sys; kept = bytearray(200_000_000); print(len(kept), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", eater], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        run.beat(1)
        assert 200_000_000 < read(tmp_path)["memory_bytes"] - before < 300_000_000
        child.communicate()
    run.beat(2)
    assert read(tmp_path)["memory_bytes"] > before + 200_000_000, "the most there ever was"


def test_memory_that_grows_is_told_before_the_next_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs out of memory is killed without a last word."""
    monkeypatch.setattr(status, "HEARTBEAT_S", 3600.0)
    monkeypatch.setattr(status, "LOOK_S", 0.01)
    sizes = [100]
    for name in ("peak_bytes", "process_peak_bytes"):
        monkeypatch.setattr(footprint, name, lambda: sizes[-1])
    run = _status(tmp_path)
    with run.beating():
        for size in (105, 120):
            sizes.append(size)
            deadline = time.monotonic() + (0.2 if size == 105 else 20)
            while read(tmp_path)["memory_bytes"] != size and time.monotonic() < deadline:
                time.sleep(0.01)
            assert read(tmp_path)["memory_bytes"] == (100 if size == 105 else 120), "a little more makes no heartbeat"


def test_where_there_is_no_proc_memory_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(footprint, "_read", lambda path: "")
    _status(tmp_path)
    assert read(tmp_path)["memory_bytes"] == 0
