"""The text of an sbatch file, through submitit, and its submission; the only file that knows SLURM."""

from __future__ import annotations

import importlib.metadata
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grid.engine.script import WAIT

SUBMITIT = ((1, 5), (1, 6))  # versions whose private text function has the signature we call: from, below
MAX_REQUEUES = 100  # a run that is checkpointed and requeued more often is going nowhere
LARGEST_INDEX = 1000  # of an array under SLURM's default MaxArraySize


@dataclass(frozen=True)
class Resources:
    """What one job script asks for."""

    ranks: int = 1  # torch.distributed processes of one experiment
    partition: str | None = None
    gpus: int | None = None  # None: one per rank
    cpus: int = 3  # per rank
    mem: str = "18GB"
    time: str | None = None  # None: the partition's own limit
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None

    @property
    def num_gpus(self) -> int:
        return self.ranks if self.gpus is None else self.gpus


def array_spec(first: int, count: int, max_running: int | None) -> str:
    """``0-37``, or ``0-37%8`` with at most 8 running at once."""
    return f"{first}-{first + count - 1}" + (f"%{max_running}" if max_running else "")


# The batch shell alone gets USR2 120 s before the time limit; it hands it on, and requeues its own array element by its
# own name (SLURM_JOB_ID of one element equals the id of the whole array).  A TERM to a job that the controller is ending
# already is scancel, or a requeue of SLURM's own: both have the last word.
_COMMAND = """cd {root} || exit 2
bash jobs/{prefix}_"$SLURM_ARRAY_TASK_ID".sh &
finish
if [ "$code" -eq 75 ]; then
  element="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
  state="$(scontrol show job -o "$element" | sed -n 's/.*JobState=\\([A-Z_]*\\).*/\\1/p')"
  case "$signalled $state" in
    *' PENDING' | 'TERM COMPLETING' | 'TERM CANCELLED')
      echo "SLURM ends or requeues this job by itself; if it was cancelled, submit this file again to go on"
      exit "$code"
      ;;
  esac
  if [ "${{SLURM_RESTART_COUNT:-0}}" -ge {max_requeues} ]; then
    echo "not requeued after ${{SLURM_RESTART_COUNT:-0}} restarts; submit this file again to go on"
  elif scontrol requeue "$element"; then
    exit 0
  fi
fi
exit "$code\""""


def sbatch_text(prefix: str, root: Path, first: int, count: int, resources: Resources, max_running: int | None = None) -> str:
    """The array job that runs ``jobs/<prefix>_<first>.sh`` and so on, one script an element."""
    _check_version()
    from submitit.slurm.slurm import _make_sbatch_string

    logs = str(root / "jobs" / "logs" / f"{prefix}_%A_%a.log")
    chosen = {name: getattr(resources, name) for name in ("partition", "account", "qos", "constraint", "exclude", "time")}
    arguments: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    return _make_sbatch_string(
        command=WAIT + _COMMAND.format(root=shlex.quote(str(root)), prefix=prefix, max_requeues=MAX_REQUEUES),
        folder=root / "jobs",
        job_name=prefix,
        nodes=1,
        cpus_per_task=resources.cpus,
        mem=resources.mem,
        **({"gpus_per_node": resources.num_gpus} if resources.num_gpus else {}),
        **{"time": None, "wckey": None, **arguments},
        additional_parameters={
            "array": array_spec(first, count, max_running),
            "ntasks": resources.ranks,
            "output": logs.replace(str(root), str(root).replace("%", "%%")),
            "requeue": True,
            "signal": "B:USR2@120",
        },
        stderr_to_stdout=True,
        use_srun=False,
    )


def _check_version() -> None:
    version = importlib.metadata.version("submitit")
    lowest, above = SUBMITIT
    if not lowest <= tuple(int(part) for part in version.split(".")[:2]) < above:
        bounds = ">={}.{},<{}.{}".format(*lowest, *above)
        raise RuntimeError(f"submitit {version} is installed, but sbatch files are written with a private function of submitit {bounds}")


def check_sbatch() -> None:
    """FileNotFoundError where nothing can be submitted."""
    if shutil.which("sbatch") is None:
        raise FileNotFoundError(
            "--submit: there is no sbatch on this machine; on the cluster use the same command, or leave --submit out and "
            "call sbatch there yourself"
        )


def submit(path: Path) -> str:
    """Submit an sbatch file; the job's id."""
    check_sbatch()
    done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"sbatch refused {path}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip().partition(";")[0]
