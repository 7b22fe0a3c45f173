"""srun inside a job: the command once per task, on this machine, whatever nodes the job has."""

from __future__ import annotations

import fcntl
import getopt
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .text import expand_hosts, file_name, fold_hosts

_VALUED = str.split(
    "ntasks nodes ntasks-per-node cpus-per-task nodelist output error input job-name cpu-bind gpu-bind gpus "
    "gpus-per-node gpus-per-task "
    "gres mem mem-per-cpu mpi export chdir time partition account qos distribution wait"
)
_FLAGS = [
    "exact",
    "overlap",
    "kill-on-bad-exit",
    "label",
    "unbuffered",
    "exclusive",
    "quiet",
    "verbose",
    "oversubscribe",
    "no-kill",
]
_LETTERS = dict(
    zip(
        "nNcwoeiJDKlu",
        str.split(
            "ntasks nodes cpus-per-task nodelist output error input job-name chdir kill-on-bad-exit label unbuffered"
        ),
        strict=True,
    )
)
_SHORT = "n:N:c:w:o:e:i:J:D:Kluqv"
_KILL_WAIT_S = 0.5


@dataclass(frozen=True)
class Step:
    """The command of a step, and the nodes that it runs on."""

    job: int
    number: int
    nodes: tuple[str, ...]
    tasks: int
    command: tuple[str, ...]
    options: dict[str, str]

    def node_of(self, task: int) -> int:
        """Index of the node of a task: in blocks."""
        return task // -(-self.tasks // len(self.nodes))


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options by their long names, and the command."""
    kept, index = list(words), 0
    while index < len(kept) and kept[index].startswith("-") and kept[index] != "--":
        word = kept[index]
        if word.startswith(("--kill-on-bad-exit=", "--exclusive=")):  # getopt knows no optional values
            kept[index] = "--no-kill" if word.endswith("=0") else word.partition("=")[0]
        index += 2 if word[2:] in _VALUED or (len(word) == 2 and f"{word[1]}:" in _SHORT) else 1
    pairs, command = getopt.getopt(kept, _SHORT, [*_FLAGS, *(f"{name}=" for name in _VALUED)])
    return {
        (name[2:] if name.startswith("--") else _LETTERS.get(name[1:], name)): value for name, value in pairs
    }, command


def main() -> int:
    """Run as ``words...``; the highest exit code of the tasks."""
    words = sys.argv[1:]
    if words[:1] in (["--version"], ["-V"]):
        print("slurm-wlm 22.05.8")
        return 0
    folder = os.environ.get("FAKE_SLURM_DIR", "")
    if "SLURM_JOB_ID" not in os.environ or not folder:
        print("srun: error: this is the fake srun: it runs steps inside jobs, and this is none", file=sys.stderr)
        return 1
    with open(Path(folder, "calls.jsonl"), "a") as file:
        file.write(json.dumps({"command": "srun", "words": words, "cwd": os.getcwd(), "time": time.time()}) + "\n")
    try:
        options, command = parse(words)
    except getopt.GetoptError as error:
        print(f"srun: unrecognized option '{error.opt}'\nTry \"srun --help\" for more information", file=sys.stderr)
        return 1
    if not command:
        print("srun: fatal: No command given to execute.", file=sys.stderr)
        return 1
    placement = tuple(expand_hosts(options.get("nodelist", os.environ["SLURM_JOB_NODELIST"])))
    nodes = placement[: int(options["nodes"])] if "nodes" in options else placement
    per_node = int(options.get("ntasks-per-node", 0)) * len(nodes)
    tasks = int(options.get("ntasks", 0) or per_node or os.environ.get("SLURM_NTASKS", len(nodes)))
    nodes = nodes[:tasks]  # never a node without a task
    spool = Path(folder, "spool", f"job{int(os.environ['SLURM_JOB_ID']):05}")
    held = _take_cpus(
        spool, tasks * int(options.get("cpus-per-task", os.environ.get("SRUN_CPUS_PER_TASK", 1))), options
    )
    step = Step(int(os.environ["SLURM_JOB_ID"]), _next_number(spool), nodes, tasks, tuple(command), options)
    code = run(step)
    for file in held:
        os.close(file)
    return code


def _next_number(spool: Path) -> int:
    with open(spool / "steps", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        number = file.tell()
        file.write(".")
    return number


def _take_cpus(spool: Path, needed: int, options: dict[str, str]) -> list[int]:
    """Locks on as many CPUs of the job: all of them without ``--exact``, none with ``--overlap``; waits until they are
    free.
    """
    if "overlap" in options or os.environ.get("SLURM_OVERLAP"):
        return []
    total = int(os.environ["SLURM_CPUS_ON_NODE"]) * int(os.environ["SLURM_NNODES"])
    if "exact" not in options and "SLURM_EXACT" not in os.environ:
        needed = total
    if needed > total:
        print("srun: error: Unable to create step for job: More processors requested than permitted", file=sys.stderr)
        sys.exit(1)
    told = False
    while True:
        held: list[int] = []
        for index in range(total):
            file = os.open(spool / f"cpu{index}", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            held.append(file)
            if len(held) == needed:
                return held
        for file in held:
            os.close(file)
        if not told:
            job = os.environ["SLURM_JOB_ID"]
            print(
                f"srun: Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)",
                file=sys.stderr,
            )
            told = True
        time.sleep(0.02 + 0.01 * (os.getpid() % 7))  # not all at the same moment


def run(step: Step) -> int:
    """Start every task, hand signals on, end the others after a bad exit if that is asked for."""
    children: list[subprocess.Popen[Any]] = []

    def forward(number: int, frame: Any) -> None:
        for child in children:
            if child.poll() is None:
                child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, forward)
    for task in range(step.tasks):
        try:
            children.append(_start(step, task))
        except OSError as error:
            host = step.nodes[step.node_of(task)]
            print(
                f"slurmstepd: error: execve(): {step.command[0]}: {error.strerror}\n"
                f"srun: error: {host}: task {task}: Exited with exit code 2",
                file=sys.stderr,
            )
            forward(signal.SIGKILL, None)
            return 2
    worst, waiting, kill_at = 0, set(range(step.tasks)), 0.0
    while waiting:
        for task in [task for task in waiting if children[task].poll() is not None]:
            waiting.discard(task)
            code = children[task].returncode
            worst = max(worst, code if code >= 0 else 128 - code)
            if code:
                how = f"Exited with exit code {code}" if code > 0 else signal.strsignal(-code)
                print(f"srun: error: {step.nodes[step.node_of(task)]}: task {task}: {how}", file=sys.stderr, flush=True)
            if code and "kill-on-bad-exit" in step.options and waiting and not kill_at:
                print(f"srun: Terminating StepId={step.job}.{step.number}", file=sys.stderr, flush=True)
                forward(signal.SIGTERM, None)
                kill_at = time.monotonic() + _KILL_WAIT_S
        if kill_at and time.monotonic() > kill_at:
            forward(signal.SIGKILL, None)
        time.sleep(0.01)
    return worst


def _start(step: Step, task: int) -> subprocess.Popen[Any]:
    node = step.node_of(task)
    local = task - next(other for other in range(step.tasks) if step.node_of(other) == node)
    environ = os.environ | {
        "SLURM_STEP_ID": str(step.number),
        "SLURM_STEPID": str(step.number),
        "SLURM_STEP_NODELIST": fold_hosts(step.nodes),
        "SLURM_STEP_NUM_NODES": str(len(step.nodes)),
        "SLURM_STEP_NUM_TASKS": str(step.tasks),
        "SLURM_NNODES": str(len(step.nodes)),
        "SLURM_NTASKS": str(step.tasks),
        "SLURM_NPROCS": str(step.tasks),
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(node),
        "SLURMD_NODENAME": step.nodes[node],
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    }
    names = {
        "t": str(task),
        "n": str(node),
        "N": step.nodes[node],
        "s": str(step.number),
        "j": str(step.job),
        "A": str(step.job),
    }
    names |= {
        "J": f"{step.job}.{step.number}",
        "x": os.environ.get("SLURM_JOB_NAME", ""),
        "a": os.environ.get("SLURM_ARRAY_TASK_ID", ""),
    }
    names["A"] = os.environ.get("SLURM_ARRAY_JOB_ID", names["j"])
    files: dict[str, Any] = {"stdin": None if task == 0 else subprocess.DEVNULL}
    if "output" in step.options:
        files["stdout"] = open(file_name(step.options["output"], names), "ab")  # noqa: SIM115
        files["stderr"] = subprocess.STDOUT
    if "error" in step.options:
        files["stderr"] = open(file_name(step.options["error"], names), "ab")  # noqa: SIM115
    return subprocess.Popen(step.command, env=environ, cwd=step.options.get("chdir"), **files)
