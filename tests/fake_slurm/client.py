"""The commands sbatch, squeue, sacct, scontrol, scancel and sinfo: their words go to the server, its answer is printed.

Only a few modules of the standard library are imported: a command is there in 0.03 s.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

UNREACHABLE = "Unable to contact slurm controller (connect failure)"
VERSION = "slurm-wlm 22.05.8"


def ask(folder: str, question: dict[str, Any]) -> dict[str, Any]:
    """The server's answer; OSError where there is none."""
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            os.chdir(folder)  # a socket's path may have 107 characters; this one has three
            connection.connect("ctl")
        finally:
            os.fchdir(here)
            os.close(here)
        connection.sendall(json.dumps(question).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    if not answer:
        raise ConnectionError("the server hung up")
    return json.loads(answer)


def unreachable(command: str, words: list[str]) -> str:
    """The words of a command while the controller is down."""
    verb = [word for word in words if not word.startswith("-")][:2]
    if command == "sbatch":
        return f"sbatch: error: Batch job submission failed: {UNREACHABLE}"
    if command == "sacct":
        return "sacct: error: Problem talking to the database: Connection refused"
    if verb[:1] == ["ping"]:
        return "Slurmctld(primary) at localhost is DOWN"
    if command == "scontrol" and verb[:1] not in (["show"], []):
        return f"{UNREACHABLE} for job {verb[-1]}"
    what = {"config": "slurm_load_ctl_conf", "partition": "slurm_load_partitions", "node": "slurm_load_node"}
    subject = what.get(verb[1], "slurm_load_jobs") if command == "scontrol" and len(verb) > 1 else "slurm_load_jobs"
    return f"{'slurm_load_partitions' if command == 'sinfo' else subject} error: {UNREACHABLE}"


def main() -> int:
    """Run as ``command words...``; the exit code."""
    command, *words = sys.argv[1:]
    if words[:1] in (["--version"], ["-V"]):
        print(VERSION)
        return 0
    folder = os.environ.get("FAKE_SLURM_DIR", "")
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = "/"
    question: dict[str, Any] = {"command": command, "words": words, "cwd": cwd, "environ": dict(os.environ)}
    try:
        answer = ask(folder, question)
        if answer.get("need_stdin"):
            question["stdin"] = sys.stdin.read()
            answer = ask(folder, question)
        for pause_s in range(1, 16):
            if "sleeping and retrying" not in answer["err"]:
                break
            sys.stderr.write(answer["err"])
            time.sleep(pause_s)
            answer = ask(folder, question)
    except OSError:
        print(unreachable(command, words), file=sys.stderr)
        return 1
    sys.stderr.write(answer["err"])
    sys.stdout.write(answer["out"])
    return answer["code"]
