"""The surroundings of a starting job: its variables, its files, its spooled script."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
from pathlib import Path

from . import processes
from .model import Config, Job
from .text import file_name, fold_hosts


def log_name(job: Job, user: str) -> str:
    """The name of the file that standard output goes to."""
    pattern = job.request.output or ("slurm-%A_%a.out" if job.array else "slurm-%j.out")
    return str(Path(job.request.workdir, file_name(pattern, _fields(job, user))))


def _fields(job: Job, user: str) -> dict[str, str]:
    return {
        "A": str(job.array_id),
        "a": str(4294967294 if job.task is None else job.task),
        "j": str(job.id),
        "J": str(job.id),
        "N": job.nodes[0] if job.nodes else "",
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": user,
        "x": job.request.name,
    }


def environment(job: Job, config: Config, folder: Path) -> dict[str, str]:
    """The submitter's variables and SLURM's.

    As on the real one SLURM_NTASKS, SLURM_CPUS_PER_TASK and SLURM_RESTART_COUNT are set only where they were asked for
    or apply, and SLURM_JOB_ID of an array's last started element is the array's own id.
    """
    request, nodes = job.request, fold_hosts(job.nodes)
    first, many = job.nodes[0], f"(x{len(job.nodes)})" if len(job.nodes) > 1 else ""
    per_node = f"{job.cpus[first]}{many}"
    tasks = request.num_tasks or request.tasks_per_node * len(job.nodes)
    tasks_per_node = -(-max(tasks, len(job.nodes)) // len(job.nodes))
    kept = {
        key: value
        for key, value in request.environ.items()
        if not key.startswith(("SLURM_ARRAY_", "SLURM_STEP_", "SLURM_RESTART", "SBATCH_"))
    }
    made = {
        processes.MARK: f"{folder}:{job.id}",
        "FAKE_SLURM_DIR": str(folder),
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": request.name,
        "SLURM_JOB_PARTITION": request.partition,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(len(job.nodes)),
        "SLURM_NNODES": str(len(job.nodes)),
        "SLURM_JOB_CPUS_PER_NODE": per_node,
        "SLURM_CPUS_ON_NODE": str(job.cpus[first]),
        "SLURM_TASKS_PER_NODE": f"{tasks_per_node}{many}",
        "SLURM_SUBMIT_DIR": request.submit_dir,
        "SLURM_SUBMIT_HOST": socket.gethostname(),
        "SLURM_CLUSTER_NAME": config.cluster_name,
        "SLURM_JOB_USER": getpass.getuser(),
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURMD_NODENAME": first,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    if job.array:
        tasks_of = job.array.tasks
        made |= {
            "SLURM_ARRAY_JOB_ID": str(job.array.id),
            "SLURM_ARRAY_TASK_ID": str(job.task),
            "SLURM_ARRAY_TASK_COUNT": str(len(tasks_of)),
            "SLURM_ARRAY_TASK_MIN": str(tasks_of[0]),
            "SLURM_ARRAY_TASK_MAX": str(tasks_of[-1]),
            "SLURM_ARRAY_TASK_STEP": str(tasks_of[1] - tasks_of[0] if len(tasks_of) > 1 else 1),
        }
    asked = {
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": request.tasks_per_node,
        "SLURM_CPUS_PER_TASK": request.cpus_per_task,
        "SLURM_MEM_PER_NODE": request.mem_mb,
        "SLURM_RESTART_COUNT": job.restarts,
        "SLURM_JOB_ACCOUNT": request.account,
        "SLURM_JOB_QOS": request.qos,
    }
    made |= {name: str(value) for name, value in asked.items() if value}
    gpus = job.gpus.get(first, [])
    if gpus:
        listed = ",".join(map(str, gpus))
        made |= {"SLURM_JOB_GPUS": listed, "CUDA_VISIBLE_DEVICES": listed, "SLURM_GPUS_ON_NODE": str(len(gpus))}
    for name in (
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_CPUS_PER_TASK",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_MEM_PER_NODE",
        "SLURM_JOB_GPUS",
    ):
        kept.pop(name, None)  # of a job that submits jobs
    return {**kept, **made}


def start(job: Job, config: Config, folder: Path) -> subprocess.Popen[bytes] | None:
    """The job's batch shell; None where a file of it cannot be opened, which the job only shows by its exit code."""
    spool = folder / "spool" / f"job{job.id:05}"
    spool.mkdir(parents=True, exist_ok=True)
    script = spool / "slurm_script"
    script.write_text(job.request.script, encoding="utf-8", errors="surrogateescape")
    script.chmod(0o700)
    user = getpass.getuser()
    output = log_name(job, user)
    error = (
        str(Path(job.request.workdir, file_name(job.request.error, _fields(job, user))))
        if job.request.error
        else output
    )
    cwd = job.request.workdir if os.access(job.request.workdir, os.X_OK) else "/tmp"
    source = str(Path(job.request.workdir, file_name(job.request.input, _fields(job, user))))
    environ = environment(job, config, folder)
    job.output = error
    try:
        return processes.spawn(
            script, job.request.arguments, cwd, environ, (source, output, error), append=job.request.append
        )
    except OSError:
        return None
