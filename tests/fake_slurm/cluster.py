"""A cluster for a ``with`` block, and what a test can do to it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from . import client, processes
from .model import ENDED, Config, Partition

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo", "srun")
_PACKAGE = __package__ or "fake_slurm"
_ROOT = Path(__file__).resolve().parents[_PACKAGE.count(".") + 1]


@dataclass(frozen=True)
class Slurm:
    """A running cluster.  Jobs are named as SLURM names them: ``"12"``, ``"12_3"``; a whole array by its id."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """This process's variables, with the commands first on PATH.  Variables of an enclosing SLURM are left out."""
        outer = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_"))
        }
        return {**outer, **self.exports}

    @property
    def exports(self) -> dict[str, str]:
        """The variables that make the commands the fake ones."""
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "FAKE_SLURM_DIR": str(self.folder),
        }

    def run(
        self, *words: str, cwd: Path | None = None, stdin: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of the cluster, finished."""
        environ = {**self.environ, **variables}
        return subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            cwd=cwd or self.folder,  # where the logs of what is submitted are left
            input=stdin,
            env=environ,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def calls(self, command: str | None = None) -> list[list[str]]:
        """Every call so far, its command first; of one command, if named."""
        path = self.folder / "calls.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [[line["command"], *line["words"]] for line in lines if command in {None, line["command"]}]

    def jobs(self, job: str | None = None) -> list[dict[str, Any]]:
        """The jobs that the cluster knows: name, id, array_id, task, state, reason, restarts, exit_code, nodes, start,
        end (Unix time).
        """
        return self._control("jobs", **({"job": job} if job else {}))

    def wait(
        self, job: str | None = None, *, state: str | None = None, restarts: int = 0, timeout_s: float = 10.0
    ) -> list[dict[str, Any]]:
        """Wait until all are at their end, or all in ``state``, after so many restarts; TimeoutError with what they are
        instead.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            jobs = self.jobs(job)
            good = {state} if state else ENDED
            if jobs and all(item["state"] in good and item["restarts"] >= restarts for item in jobs):
                return jobs
            if time.monotonic() > deadline:
                standing = ", ".join(f"{item['name']} {item['state']} ({item['reason']})" for item in jobs)
                raise TimeoutError(f"after {timeout_s} s: {standing or 'no job'}, not {state or 'at their end'}")
            time.sleep(0.02)

    def preempt(self, job: str, grace_s: float = 0.0) -> None:
        """Preempt a job: SIGTERM (to what srun started; after ``grace_s`` to everything), then SIGKILL; requeued where
        that is allowed, else PREEMPTED.
        """
        self._control("preempt", job=job, grace_s=grace_s)

    def oom(self, job: str) -> None:
        """Out of memory: SIGKILL, and OUT_OF_MEMORY."""
        self._control("oom", job=job)

    def time_limit(self, job: str) -> None:
        """Its limit is near: the warning that --signal asked for now, the end after the lead it asked for."""
        self._control("time_limit", job=job)

    def fail_node(self, node: str) -> None:
        """The node is gone: jobs on it die, and are requeued where that is allowed, else NODE_FAIL."""
        self._control("fail_node", node=node)

    def lose_node(self, node: str) -> None:
        """The node does not answer: as ``fail_node``, and the processes of its jobs live on."""
        self._control("lose_node", node=node)

    def configure(self, **limits: int) -> None:
        """Other limits from now on: max_array_size, max_job_count, max_submit."""
        self._control("configure", **limits)

    def begin_anew(self) -> None:
        """The controller lost its state: no job is known any more, and ids begin with 1 again."""
        self._control("begin_anew")

    def resume_node(self, node: str) -> None:
        """The node is back."""
        self._control("resume_node", node=node)

    def hold_all(self, reason: str = "Resources") -> None:
        """Let nothing start any more; this is the reason that is shown."""
        self._control("set", name="hold_reason", value=reason)

    def release_all(self) -> None:
        """The end of ``hold_all``."""
        self._control("set", name="hold_reason", value=None)

    def controller_down(self) -> None:
        """Every command but sacct fails; running jobs run on."""
        self._control("set", name="controller_down", value=True)

    def controller_up(self) -> None:
        """The end of ``controller_down``."""
        self._control("set", name="controller_down", value=False)

    def sacct_down(self) -> None:
        """The accounting database does not answer."""
        self._control("set", name="sacct_down", value=True)

    def sacct_up(self) -> None:
        """The end of ``sacct_down``."""
        self._control("set", name="sacct_down", value=False)

    def refuse_sbatch(self, after: int = 0, message: str = "AssocMaxSubmitJobLimit", times: int = 1) -> None:
        """Let sbatch, after so many more calls, refuse so many times."""
        self._control("refuse", after=after, message=message, times=times)

    def swallow_reply(self, after: int = 0) -> None:
        """Let sbatch, after so many more calls, accept one but say that its socket timed out."""
        self._control("lose_reply", after=after)

    def backdate(self, job: str, hours: float) -> None:
        """All times of a job so many hours earlier, to look at it from after midnight."""
        self._control("backdate", job=job, seconds=hours * 3600)

    def _control(self, do: str, **arguments: Any) -> Any:
        answer = client.ask(str(self.folder), {"command": "control", "do": do, "arguments": arguments})
        if "err" in answer:
            raise ValueError(answer["err"].strip())
        return answer["value"]


def make_config(
    nodes: int | Sequence[str] = 1, partitions: Mapping[str, Mapping[str, Any]] | None = None, **settings: Any
) -> Config:
    """``nodes`` counted (n1, n2, ...) or named; ``partitions``: name -> max_time, default_time, nodes; the first is the
    default one.
    """
    names = tuple(f"n{index + 1}" for index in range(nodes)) if isinstance(nodes, int) else tuple(nodes)
    found = [
        Partition(**{"name": name, "nodes": names, **values}) for name, values in (partitions or {"debug": {}}).items()
    ]
    return Config(nodes=names, partitions=tuple(found), **settings)


def start(folder: Path, config: Config, *, watched: bool) -> subprocess.Popen[bytes]:
    """Write the commands and start the server; ``watched``: it ends when its standard input closes."""
    folder = folder.resolve()
    (folder / "bin").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    for name in COMMANDS:
        module, word = ("step", "") if name == "srun" else ("client", name)
        code = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {_PACKAGE}.{module} import main; sys.exit(main())"
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(code)} {word} "$@"\n')
        path.chmod(0o755)
    code = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); import runpy; runpy.run_module('{_PACKAGE}.server', "
        f"run_name='__main__')"
    )
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, str(folder), *(["--watched"] if watched else [])],
            stdin=subprocess.PIPE if watched else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (folder / "server.pid").write_text(str(server.pid))
    deadline = time.monotonic() + 60
    while not (folder / "ctl").exists():
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            raise RuntimeError(
                f"the fake SLURM did not start: "
                f"{(folder / 'server.log').read_text().strip() or 'no word of it in 60 s'}"
            )
        time.sleep(0.005)
    return server


def sweep_up(folder: Path) -> None:
    """SIGKILL to whatever jobs of this cluster left behind."""
    for _ in range(100):
        left = processes.of_job(f"{folder.resolve()}:")
        if not left:
            return
        processes.send(left, 9)
        time.sleep(0.01)


@contextlib.contextmanager
def cluster(folder: Path, **settings: Any) -> Iterator[Slurm]:
    """A cluster in the new folder ``folder/"slurm"``, gone with all its jobs afterwards.

    ``settings``: see ``make_config`` and ``Config`` (cpus, gpus, accounting, max_array_size, second, ...).
    """
    place = Path(folder).resolve() / "slurm"
    server = start(place, make_config(**settings), watched=True)
    try:
        yield Slurm(place)
    finally:
        cast(Any, server.stdin).close()
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        sweep_up(place)
    log = (place / "server.log").read_text()
    if log:
        raise RuntimeError(f"the fake SLURM failed: {log}")
