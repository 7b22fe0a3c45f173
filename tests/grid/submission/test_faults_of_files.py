"""Damaged files, full disks, folders of others, and wrong words of users: nothing is lost and nothing is run twice."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import grid_run
from grid.engine.slurm import commands
from grid.engine.states import ledger
from grid.engine.submission import planning
from tests.grid import bench
from tests.grid.bench import Bench

ONCE = {1: 1, 2: 1, 3: 1}


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys) as made:
        yield made


# --- damage, disks and permissions --------------------------------------------------------------------------------


@pytest.mark.slow
def test_our_own_files_are_read_where_they_are_files(here: Bench) -> None:
    """Nobody is waited for who would write to a FIFO, and a device is not read to its end."""
    here.good("plan")
    here.good("submit")
    here.wait()
    (record,) = here.records()
    for path in (here.plan_file(), record.place(here.root) / ledger.RECORD):
        text = path.read_text()
        for odd in (os.mkfifo, lambda name: name.symlink_to("/dev/zero")):
            path.unlink()
            odd(path)
            said = here("status")
            assert f"{path} is damaged" in said.err and "no regular file" in said.err
        path.unlink()
        path.write_text(text)
    assert "3 done" in here.good("status")


def test_damaged_files(here: Bench) -> None:
    here.good("plan")
    plan = here.plan_file().read_text()
    here.plan_file().write_text(plan[: len(plan) // 2])
    here.refused("submit", "plan.json is damaged", "make the plan again")
    here.good("plan")
    here.good("submit")
    here.wait()
    status = next((here.root / "runs").glob("*/*-s1-*/status.json"))
    whole = status.read_text()
    for text in ("", whole[:30], "[1]", '{"state": 7}'):
        status.write_text(text)
        assert "delete it to start the run again" in here.good("status")
        assert "nothing to submit" in here.good("plan") + here.good("submit")
    status.write_text(whole)
    cache = here.root / "jobs" / "scheduler.json"
    cache.write_text("{")
    assert "3 done" in here.good("status")
    (record,) = here.records()
    path = record.place(here.root) / ledger.RECORD
    text = path.read_text()
    path.write_text(text[:-9])
    for command in ("plan", "submit", "status", "retry --yes", "cancel --yes", "collect", "failures", "run"):
        here.refused(command, f"{path} is damaged", "put it back, or move it away")
    path.write_text(text)
    assert "submitted already" in here.good("submit") or "nothing to submit" in here.good("plan") + here.good("submit")
    here.each_once(3, 1)


def test_damaged_run_folders(here: Bench) -> None:
    here.good("plan")
    for run in json.loads(here.plan_file().read_text())["essence"]["runs"]:
        (here.root / run).mkdir(parents=True)
        (here.root / run / "run.sh").write_bytes(b"\xff\xfe")
        (here.root / run / "config.yaml").write_bytes(b"\xff: {")
    other = here.root / "runs" / "tiny" / "of-another-time"
    other.mkdir()
    (other / "config.yaml").write_text("{")
    assert "unreadable: the config.yaml of 1 run folder" in here.good("plan")
    here.good("submit")
    here.each_once(3, 1)


def _writes(patch: pytest.MonkeyPatch, fails: Callable[[Path, int], bool]) -> list[str]:
    """Names of the files that are written, in order; those that ``fails`` chooses (by path and number) meet a full
    disk.
    """
    names: list[str] = []

    def wrap(real: Callable[..., int]) -> Callable[..., int]:
        def write(path: Path, *words: object, **more: object) -> int:
            names.append(path.name)
            if fails(path, len(names) - 1):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path, *words, **more)

        return write

    for name in ("write_text", "write_bytes"):
        patch.setattr(Path, name, wrap(getattr(Path, name)))
    return names


@pytest.mark.slow
def test_the_disk_is_full_at_any_moment(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here.sweep((1,))
    here.slurm.hold_all()
    monkeypatch.setattr(planning, "slurm_is_here", lambda: False)  # its opinion is asked for in other tests
    here.good("plan")
    with monkeypatch.context() as patch:
        names = _writes(patch, lambda path, number: False)
        here.good("submit")
    assert sum("submission.json" in name for name in names) == 3
    left = 1  # the job of the first submission
    for number in (
        number for number, name in enumerate(names) if "submission.json" in name or name not in names[:number]
    ):
        name = names[number]
        for folder in ("jobs", "runs"):
            shutil.rmtree(here.root / folder)
        here.good("plan")
        before = len(here.submitted())
        with monkeypatch.context() as patch:
            _writes(patch, lambda path, count, number=number: count == number)
            here.refused("submit", "No space left on device")
        assert not list(here.root.glob("runs/*/*/.*.tmp")), name
        taken = len(here.submitted()) - before
        assert taken == (number > names.index(next(item for item in reversed(names) if ".sbatch" in item)) + 1), name
        here.good("submit")
        left += 1
        assert len(here.submitted()) == left, name
    last = here.element(1)
    here.slurm.run("scancel", *(element for element in here.submitted() if element != last))
    here.slurm.release_all()
    here.wait()
    assert here.starts() == {1: 1}


@contextlib.contextmanager
def _elsewhere(made: Bench) -> Iterator[Bench]:
    """The same in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        shutil.copytree(made.root, f"{name}/checkout")
        shutil.copy(made.family, f"{name}/mine.py")
        moved = dataclasses.replace(made, root=Path(name, "checkout"), family=Path(name, "mine.py"))
        sbatch = Path(name, "bin", "sbatch")  # the stand-in's folder is closed to others, who would see none
        sbatch.parent.mkdir()
        sbatch.write_text("#!/bin/sh\nexit 1\n")
        sbatch.chmod(0o755)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PATH", str(sbatch.parent), prepend=os.pathsep)
                yield moved
        finally:
            for folder, _, _ in os.walk(name):
                os.chmod(folder, 0o755)


def _as_somebody_else(made: Bench, text: str) -> bench.Said:
    """The command by a user who is not root; root may write everywhere, so this process forks and steps down."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        out, err = io.StringIO(), io.StringIO()
        code = 99
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = grid_run.main(made.words(text), made.root)
        except BaseException as error:  # noqa: BLE001
            err.write(repr(error))
        finally:
            os.write(writing, json.dumps([code, out.getvalue(), err.getvalue()]).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return bench.Said(*said)


def test_folders_of_others(here: Bench) -> None:
    here.good("plan")  # whatever is imported is imported now
    with _elsewhere(here) as there:
        there.good("plan")
        name = next(iter(json.loads(there.plan_file().read_text())["essence"]["runs"]))
        (there.root / name).mkdir(parents=True)
        (there.root / "jobs").chmod(0o777)
        for path in there.root.rglob("*"):
            if path.is_dir():
                path.chmod(0o777)
            elif path.name in ("lock", "plan.json", "scheduler.json"):
                path.chmod(0o666)
        (there.root / name).chmod(0o555)
        said = _as_somebody_else(there, "plan")
        assert (said.code, said.err) == (1, ""), said
        assert f"problem: {name} cannot be written (it belongs to " in said.out
        assert "another user's run of the same settings is there" in said.out
        said = _as_somebody_else(there, "submit")
        assert said.code == 2, said
        assert "nothing was submitted: " in said.err
        assert "another user's run" in said.err
        assert said.err.count("\n") == 1
        (there.root / name).rmdir()
        for path in (there.root / "jobs", *(path for path in (there.root / "jobs").rglob("*") if path.is_dir())):
            path.chmod(0o555)
        for command in ("plan", "submit"):
            said = _as_somebody_else(there, command)
            assert said.code == 2, said
            assert "jobs" in said.err
            assert "ermission denied" in said.err or "cannot be written" in said.err
            assert said.err.count("\n") == 1
    assert here.submitted() == {}


# --- what a user may ask for --------------------------------------------------------------------------------------


def test_what_a_partition_cannot_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.bench(tmp_path, capsys, opinion=True, partitions={"short": "30:00", "long": "UNLIMITED"}) as here:
        site = tmp_path / "site.yaml"
        site.write_text("partitions:\n  short: {max_time: '30:00', mem: 4GB}\n  long: {mem: 8GB}\n")
        here.refused(
            f"plan --site {site} --partition short", "time=01:00:00: at most 00:30:00", "partitions that can: long"
        )
        here.refused(f"plan --site {site} --partition sohrt", "did you mean 'short'?")
        here.refused("plan --mem 3x", "mem='3x'")
        here.refused("plan --parallel 2", "--parallel 2")
        for options, words in (
            ("", "(missing or exceeds some limit)"),
            ("--partition nowhere", "invalid partition specified: nowhere"),
            ("--partition long --cpus 99", "node configuration is not available"),
        ):
            said = here(f"plan {options}")
            assert said.code == 1, said
            assert words in said.out
            here.refused("submit", "nothing was submitted: ", words)
        assert here.slurm.records() == []
        here.good("plan --partition long")
        here.good("submit")


def test_a_time_limit_within_the_warning(here: Bench, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("signal_s: 600\n")
    for options, words in (
        ("--time 2:00", "time=2:00 is 120 s, and jobs are warned signal_s=120 s before"),
        (f"--site {site} --time 10", "=600 s"),
    ):
        said = here(f"plan {options}")
        assert said.code == 1, said
        assert words in said.out
        here.refused("submit", "nothing was submitted: ", words)
    site.write_text("signal_s: 30\n")
    here.good(f"plan --site {site} --time 1")
    here.good("plan --time 2:01")
    assert here.slurm.records() == []


def test_missing_data(here: Bench) -> None:
    here.sweep(shared={"steps": 7, "data": "cifar10"})
    said = here("plan")
    assert said.code == 1
    assert "problem: data=cifar10: data holds no cifar10" in said.out
    here.refused("submit", "data=cifar10: data holds no cifar10")
    assert here.slurm.records() == []
    (here.root / "data" / "cifar-10-batches-py").mkdir(parents=True)
    here.good("plan")


def test_no_plan_no_slurm(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here.refused("submit", "no plan of", "has been reviewed", "grid_run.py plan")
    here.refused("cancel 9", "unknown experiment '9'")
    here.refused("retry --kind oom", "unknown kind of failure 'oom'")
    here.refused("retry --factor 1", "--factor 1: must be above 1")
    assert "nothing to cancel" in here.good("cancel --yes")
    monkeypatch.setattr(commands, "is_here", lambda command: False)
    here.good("plan")
    here.refused("submit", "there is no sbatch on this machine")
    here.refused("retry", "there is no sbatch on this machine")


def test_a_table_that_cannot_be_written_names_the_file_and_another_way(
    here: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    os.mkfifo(tmp_path / "pipe")
    here.refused(f"collect --out {tmp_path / 'pipe'}", f"{tmp_path / 'pipe'}", "-: standard output")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode), "what is no file is not replaced"
    here.refused("collect --out /proc/nuq/runs.csv", "/proc/nuq/runs.csv: ", "--out FILE")
    monkeypatch.setattr(Path, "write_bytes", full)
    here.refused("collect", "runs/tiny/runs.csv: No space left", "--out FILE")
