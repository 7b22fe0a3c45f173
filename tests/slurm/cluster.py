"""A throw-away SLURM on this machine: munge, slurmctld, two slurmd and, on request, accounting (MariaDB and slurmdbd).

Everything lives in one folder with ports, sockets and keys of its own; ``/etc/slurm`` and servers that already run are
not touched.  Root is needed, and Debian's packages (``install.sh`` beside this file).  It offers nodes n1 and n2
with 8 CPUs, 64 GB and 2 GPUs each (pretended: nothing is bound), and the partitions of ``configuration.PARTITIONS``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm import processes
from tests.slurm.configuration import NODES, write_settings

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb", "sacctmgr")
SCHEDULER_VARIABLES = ("SLURM", "SBATCH", "SQUEUE", "SACCT", "SCANCEL", "SALLOC", "SRUN", "SINFO")


PATIENCE_S = 300  # how long anything may take on a busy machine; a test that is green never waits so long


class ClusterError(RuntimeError):
    """The cluster cannot start, or did not reach an expected state in time; the message ends with its logs."""


@dataclass(frozen=True)
class Slurm:
    """A running cluster: ``run`` its commands, or any program, with ``environ``."""

    folder: Path
    accounting: bool
    environ: Mapping[str, str]
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)

    def run(self, *command: str, check: bool = True, cwd: Path | None = None, timeout_s: float = PATIENCE_S) -> str:
        """The standard output of a command; a failed one is a ClusterError unless ``check`` is off."""
        done = subprocess.run(
            command, env=self.environ, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            raise ClusterError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def wait_until(self, predicate: Callable[[], object], timeout_s: float = PATIENCE_S, every_s: float = 0.2) -> None:
        """Return once ``predicate`` is true; after ``timeout_s`` a ClusterError that shows queue and logs.

        A command of SLURM's that fails, as one that no answer came to in time, is asked again.
        """
        deadline = time.monotonic() + timeout_s
        failure = ""
        while True:
            try:
                if predicate():
                    return
            except ClusterError as error:
                failure = f"; at last {error}"
            if time.monotonic() > deadline:
                queue = self.run("squeue", "--all", "--states=all", check=False)
                raise ClusterError(f"waited {timeout_s} s in vain{failure}\n{queue}\n{self.logs()}")
            time.sleep(every_s)

    def cancel_all(self) -> None:
        """Cancel every job and return once none is left waiting, running or ending."""
        self.run("scancel", "--user=root", "--full", check=False)
        self.wait_until(lambda: not self.run("squeue", "-h").strip())

    def logs(self, lines: int = 15) -> str:
        """The last lines of every daemon's log."""
        parts = []
        for log in sorted((self.folder / "log").glob("*")):
            parts += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(parts)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._start("slurmctld", "slurmctld", "-D")
        self.wait_until(lambda: "UP" in self.run("scontrol", "ping", check=False), every_s=0.05)

    def stop_controller(self) -> None:
        """Stop slurmctld in an orderly way; jobs go on and no command is answered."""
        self._stop("slurmctld")

    def restart_controller(self, anew: bool = False, **settings: int) -> None:
        """Stop and start slurmctld with other settings (MaxJobCount=10); ``anew``: it has forgotten all jobs, and ids
        begin with 1.
        """
        self._stop("slurmctld")
        conf = self.folder / "slurm.conf"
        kept = [line for line in conf.read_text().splitlines() if line.partition("=")[0] not in settings]
        conf.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items())]) + "\n")
        if anew:
            shutil.rmtree(self.folder / "state")
            (self.folder / "state").mkdir()
        self.start_controller()
        up = {"idle", "mixed", "allocated"}
        self.wait_until(lambda: set(self.run("sinfo", "-h", "-N", "-o", "%T").split()) <= up)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node and wait until jobs can start there."""
        self._start(f"slurmd-{node}", "slurmd", "-D", "-N", node)
        ready = {"idle", "mixed", "allocated", "completing"}
        self.wait_until(
            lambda: self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T", check=False).partition("\n")[0] in ready,
            every_s=0.05,
        )

    def kill_node(self, node: str) -> None:
        """The power cut: SIGKILL to a node's slurmd and to all its jobs' processes.

        SLURM notices after about 10 to 20 s.
        """
        processes.kill(self.folder, node)
        self._reap(f"slurmd-{node}")

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL to a node's slurmd alone: the processes of its jobs run on, and SLURM gives the node up after about
        10 to 20 s.
        """
        self.children[f"slurmd-{node}"].kill()
        self._reap(f"slurmd-{node}")

    def close(self) -> None:
        """End everything, as ``down`` does."""
        try:
            down(self.folder)
        finally:
            for name in list(self.children):
                self.children[name].kill()
                self._reap(name)

    def _start(self, name: str, *command: str, **more: str) -> None:
        log = self.folder / "log" / f"{name}.out"
        home = processes.home(self.folder, name)
        home.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            # A session of its own: Ctrl-C in the terminal is for the tests, which then stop the daemons in order.
            self.children[name] = subprocess.Popen(
                command,
                env={**self.environ, **more},
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _stop(self, name: str) -> None:
        self.children[name].terminate()
        try:
            self.children[name].wait(60)
        except subprocess.TimeoutExpired:
            self.children[name].kill()
        self._reap(name)

    def _reap(self, name: str) -> None:
        if name in self.children:
            self.children.pop(name).wait(60)


@contextlib.contextmanager
def started(
    folder: Path, accounting: bool = True, requeue_delay_s: int = 5, min_job_age_s: int = 300, silence_s: int = 10
) -> Iterator[Slurm]:
    """A cluster in an empty ``folder`` for the length of a with statement; its processes end however that is left.

    ``accounting`` adds MariaDB and slurmdbd, so that sacct works.  ``requeue_delay_s`` is how long a requeued job waits
    (120 s on most clusters), ``min_job_age_s`` how long squeue and scontrol know an ended job, ``silence_s`` after how
    long a silent node counts as down (300 s).  ClusterError where it cannot start.
    """
    with _sigterm_as_exit():
        slurm = up(folder, accounting, requeue_delay_s, min_job_age_s, silence_s)
        try:
            yield slurm
        finally:
            slurm.close()


def up(
    folder: Path, accounting: bool = True, requeue_delay_s: int = 5, min_job_age_s: int = 300, silence_s: int = 10
) -> Slurm:
    """Start a cluster that runs until ``down``; the arguments are those of ``started``."""
    folder = folder.resolve()
    if reason := unavailable(accounting):
        raise ClusterError(reason)
    if len(str(folder)) > 75:
        raise ClusterError(
            f"{folder} is {len(str(folder))} characters long, and sockets in it need at most 75: choose a shorter path"
        )
    if folder.exists() and any(folder.iterdir()):
        raise ClusterError(
            f"{folder} is not empty: choose a new folder (`python -m tests.slurm down {folder}` ends a cluster in it)"
        )
    for part in ("state", "spool", "log", "db", "home"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    write_settings(folder, accounting, requeue_delay_s, min_job_age_s, silence_s)
    slurm = Slurm(folder, accounting, environment(folder))
    try:
        slurm._start(
            "munged",
            "munged",
            "--foreground",
            "--force",
            f"--socket={folder}/munge.socket",
            f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/log/munged.log",
            f"--seed-file={folder}/munge.seed",
        )
        if accounting:
            _start_accounting(slurm)
        slurm.wait_until((folder / "munge.socket").exists, every_s=0.05)
        slurm.start_controller()
        for node in NODES:
            slurm.start_node(node)
    except BaseException:
        slurm.close()
        raise
    return slurm


def down(folder: Path) -> None:
    """Kill every process of the cluster in ``folder``, those of its jobs included, and remove all but its logs; twice
    does no harm.
    """
    folder = folder.resolve()
    if not (folder / "slurm.conf").exists():
        return
    processes.kill(folder)
    for part in ("state", "spool", "db", "home"):
        shutil.rmtree(folder / part)


def unavailable(accounting: bool = True) -> str:
    """The reason why no cluster can be started here, in one sentence; empty where one can."""
    missing = [
        name
        for name in (*PROGRAMS, *(ACCOUNTING_PROGRAMS if accounting else ()))
        if shutil.which(name, path=_path()) is None
    ]
    if os.geteuid() != 0:
        return "a throw-away SLURM needs root: run this as root, for instance in a container"
    if missing:
        return (
            f"{', '.join(missing)} not found: run tests/slurm/install.sh, which installs SLURM from Debian's packages"
        )
    return ""


def environment(folder: Path) -> dict[str, str]:
    """The environment in which SLURM's commands find the cluster in ``folder``; nothing of an outer SLURM job is left
    in it.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULER_VARIABLES)}
    return {**kept, "PATH": _path(), "SLURM_CONF": str(folder.resolve() / "slurm.conf")}


def _start_accounting(slurm: Slurm) -> None:
    folder = slurm.folder
    server = folder / "db.socket"
    # Nothing in it outlives the tests: no syncing, small files.
    common = [
        "--no-defaults",
        f"--datadir={folder}/db",
        f"--tmpdir={folder}/home",  # one that starts removes all temporary tables of this place, another server's too
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--innodb-log-file-size=16M",
        "--innodb-flush-method=nosync",
        "--innodb-use-native-aio=0",
    ]
    slurm.run(
        "mariadb-install-db",
        *common,
        "--user=root",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
    )
    slurm._start(
        "mariadbd",
        "mariadbd",
        *common,
        "--user=root",
        "--skip-networking",
        f"--socket={server}",
        f"--pid-file={folder}/db.pid",
        "--innodb-lock-wait-timeout=900",
    )
    ask = ("mariadb", "--no-defaults", f"--socket={server}", "--user=root", "-e", "CREATE DATABASE IF NOT EXISTS slurm")
    slurm.wait_until(
        lambda: server.exists() and subprocess.run(ask, capture_output=True, check=False).returncode == 0, every_s=0.1
    )
    slurm.wait_until((folder / "munge.socket").exists, every_s=0.05)
    # The client library of slurmdbd takes the socket from the environment; its settings have none for it.
    slurm._start("slurmdbd", "slurmdbd", "-D", MYSQL_UNIX_PORT=str(server))
    slurm.wait_until(lambda: "Cluster" in slurm.run("sacctmgr", "-P", "show", "cluster", check=False), every_s=0.05)
    # Jobs of a user without an association are recorded too, but limits such as MaxSubmitJobs hang on one.
    slurm.run("sacctmgr", "-i", "add", "cluster", "throwaway")
    slurm.run("sacctmgr", "-i", "add", "account", "research", "cluster=throwaway")
    slurm.run("sacctmgr", "-i", "add", "user", "root", "account=research", "cluster=throwaway")


def _path() -> str:
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


@contextlib.contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """SIGTERM becomes SystemExit, so that with statements take the cluster down; nothing changes outside the main
    thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
