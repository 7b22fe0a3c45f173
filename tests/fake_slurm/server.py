"""The process behind the commands: answers them one at a time and lets time pass in between."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .client import unreachable
from .controller import Controller
from .model import CommandError, Config, Partition
from .sacct import sacct
from .scheduling import shutdown, tick
from .scontrol import scancel, scontrol
from .squeue import job_name, sinfo, squeue
from .submission import sbatch

LOOK_S = 0.02


class _NeedStdin(Exception):
    """sbatch wants a script that the client has not sent."""


def config_of(text: str) -> Config:
    """A configuration from its JSON."""
    values = json.loads(text)
    partitions = tuple(Partition(**{**item, "nodes": tuple(item["nodes"])}) for item in values.pop("partitions"))
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Config(**{**values, **lists, "partitions": partitions})


def answer(controller: Controller, question: dict[str, Any]) -> dict[str, Any]:
    """Standard output, error and exit code of a command."""
    command, words = question["command"], question.get("words", [])
    try:
        if command == "control":
            return {"value": _control(controller, question["do"], question["arguments"])}
        if "stdin" not in question:
            _note(controller, command, words, question["cwd"])
        out, err = _run(controller, question)
        return {"out": out, "err": err, "code": 0}
    except _NeedStdin:
        return {"need_stdin": True}
    except CommandError as error:
        return {"out": "", "err": error.text + "\n", "code": error.code}
    except ValueError as error:  # a number that is none, a quote that is not closed
        return {"out": "", "err": f"{command}: error: invalid value: {error}\n", "code": 1}


def _note(controller: Controller, command: str, words: list[str], cwd: str) -> None:
    with open(controller.folder / "calls.jsonl", "a") as file:
        file.write(json.dumps({"command": command, "words": words, "cwd": cwd, "time": time.time()}) + "\n")


def _run(controller: Controller, question: dict[str, Any]) -> tuple[str, str]:
    command, words, environ = question["command"], question["words"], question["environ"]

    def read_stdin() -> str:
        if "stdin" not in question:
            raise _NeedStdin
        return question["stdin"]

    if command == "sbatch":
        return sbatch(controller, words, question["cwd"], environ, read_stdin)
    if command == "sacct":
        return sacct(controller, words, environ), ""
    if controller.controller_down and words[:2] != ["show", "hostnames"]:
        raise CommandError(unreachable(command, words))
    commands: dict[str, Callable[[], str]] = {
        "squeue": lambda: squeue(controller, words, environ),
        "sinfo": lambda: sinfo(controller, words),
        "scontrol": lambda: scontrol(controller, words),
        "scancel": lambda: scancel(controller, words),
    }
    return commands[command](), ""


def _control(controller: Controller, do: str, arguments: dict[str, Any]) -> Any:
    """Answer the requests by which tests change the cluster behind the commands' backs."""
    jobs = controller.find(arguments["job"]) if "job" in arguments else []
    running = [job for job in jobs if job.state == "RUNNING" and not job.ending]
    match do:
        case "preempt" | "oom" | "time_limit":
            if not running:
                raise CommandError(f"{arguments['job']} is not running")
            for job in running:
                if do == "preempt":
                    controller.preempt(job, arguments["grace_s"])
                elif do == "oom":
                    controller.kill_for_memory(job)
                else:
                    lead_s = job.request.signal_lead_s * controller.config.second if job.request.signal else 0.0
                    job.deadline = time.time() + lead_s
        case "fail_node":
            controller.fail_node(arguments["node"])
        case "lose_node":
            controller.lose_node(arguments["node"])
        case "resume_node":
            controller.resume_node(arguments["node"])
        case "configure":
            controller.config = replace(controller.config, **arguments)
        case "begin_anew":
            controller.begin_anew()
        case "set":
            assert hasattr(controller, arguments["name"])
            setattr(controller, arguments["name"], arguments["value"])
        case "refuse":
            controller.refusals |= {
                arguments["after"] + 1 + call: arguments["message"] for call in range(arguments["times"])
            }
        case "lose_reply":
            controller.lost_replies.add(arguments["after"] + 1)
        case "backdate":
            for job in jobs:
                job.submit -= arguments["seconds"]
                job.start = None if job.start is None else job.start - arguments["seconds"]
                job.end = None if job.end is None else job.end - arguments["seconds"]
        case "jobs":
            names = ("id", "array_id", "task", "restarts", "exit_code", "reason", "nodes", "start", "end")
            shown = [job for job in controller.jobs.values() if not arguments.get("job") or job in jobs]
            return [
                {"name": job_name(job, 0), "state": job.shown_state, **{name: getattr(job, name) for name in names}}
                for job in shown
            ]
        case _:
            raise AssertionError(do)
    return None


def serve(folder: Path, *, watched: bool) -> None:
    """Serve until SIGTERM, or until standard input closes if ``watched``: then no process of any job is left."""
    controller = Controller(config_of((folder / "config.json").read_text()), folder)
    os.chdir(folder)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("ctl.new")
        listener.listen(256)
        os.rename("ctl.new", "ctl")  # who sees it can connect
        try:
            while not stopping:
                ready, _, _ = select.select([listener, *([0] if watched else [])], [], [], LOOK_S)
                if 0 in ready and not os.read(0, 1):
                    return
                if listener in ready:
                    _reply(controller, listener)
                if not controller.controller_down:
                    tick(controller)
        finally:
            shutdown(controller)


def _reply(controller: Controller, listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.settimeout(5.0)
        text = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        if text:
            connection.sendall(json.dumps(answer(controller, json.loads(text))).encode())


if __name__ == "__main__":
    serve(Path(sys.argv[1]), watched="--watched" in sys.argv)
