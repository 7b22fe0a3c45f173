"""``python main.py mode=evaluate run=FOLDER``: evaluation of a run's checkpoints in another process as they appear.

As ATOMO's distributed evaluator, it needs no word from the run: it reads ``config.yaml``, ``status.json`` and the
checkpoints, here or on another machine that sees the folder.  It writes to ``FOLDER/evaluator`` alone: an event file
with the scalars that the trainer's own evaluations have, at the checkpoint's step and time, which ``analysis`` draws
with the run's own (which win where both evaluated a step), and ``evaluations.json``.  A checkpoint that is replaced
before it is opened is missed; one that is replaced while it is read is read to its end, for it is the open file that is
read.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tensorboardX import summary

from files.plain import Unreadable, opened
from settings import run_identity
from settings.command_line import Evaluation
from train import data, models
from train.data.data_files import UNUSABLE
from train.data.dataset import Split
from train.data.objective import WORDS
from train.launch import choose_device
from train.logs.event_file import EventFile
from train.process import checkpoint
from train.process import status as statuses
from train.process.checkpoint import CheckpointError
from train.process.config_file import read_config
from train.process.run_folder import Held, only_process_in
from train.process.terminal import complain
from train.steps import quantized_training
from train.steps.gradients import Gradients, evaluate
from train.steps.trainer import Totals
from train.steps.update import not_finite

FOLDER, RESULTS = "evaluator", "evaluations.json"
Mark = tuple[int, int, int]  # the identity of a file and when it changed: inode, ns, bytes


class Evaluator:
    """An evaluator of the checkpoints of one run. ValueError where the run or its data cannot be read from here."""

    def __init__(self, settings: Evaluation) -> None:
        self.run_dir = Path(settings.run)
        config = read_config(self.run_dir)
        self.identity = run_identity.identity(config)
        names = ("data_dir", "threads", "eval_batch_size", "device")
        config |= {name: value for name in names if (value := getattr(settings, name))}
        # means of training, which the device may lack
        config["compute"] = config["compute"] | {"cuda_graphs": False, "compile": False}
        both = settings.splits == "both" or (settings.splits == "run" and config["eval_train"])
        self.splits: tuple[Split, ...] = ("test", "train") if both else ("test",)
        torch.set_num_threads(config["threads"])
        self.device = choose_device(settings.device, 0)
        try:
            self.data = data.load(config, self.device)
        except UNUSABLE as error:
            raise ValueError(str(error)) from error
        self.model = Gradients(config, self.data, self.device).model
        self.tensors = quantized_training.attached(config, self.model, None)
        self.config = config
        self.results: dict[int, dict[str, float]] = _read_results(self.run_dir / FOLDER / RESULTS)
        self._events: EventFile | None = None

    def evaluate(self, path: Path, state: dict[str, Any], saved_at_s: float) -> None:
        """Find the V* and T* scalars of a file's state, and keep them; CheckpointError where it is another run's."""
        checkpoint.check_identity(path, state, self.identity)
        if words := checkpoint.other_data(state, self.data.name, self.data.fingerprint):
            files = f"data_dir=FOLDER, now {self.config['data_dir']}; of data=text: the Python"
            raise CheckpointError(f"{path}: {words}: evaluate it with the files that it began with ({files})")
        try:
            own = {"model": self.model.state_dict(), "totals": vars(Totals())}
            state = models.ended(state)
            checkpoint.check_values(state, own, self.config["steps"])
            models.restore(self.model, state)
        except checkpoint.UNREADABLE as error:
            raise CheckpointError(f"{path} does not fit this run ({checkpoint.reason(error)})") from error
        values: dict[str, float] = {}
        for split in self.splits:
            quantized_training.at(self.tensors, state["step"], 0, f"evaluate/{split}")
            values |= evaluate(self.model, self.data, split, self.config["eval_batch_size"])
        step = state["step"]
        if self._events is None:
            self._events = EventFile(self.run_dir / FOLDER, f".{os.getpid()}")
        self._events.write((summary.scalar(tag, value) for tag, value in values.items()), step, saved_at_s)
        self._events.flush()
        self.results[step] = values
        rows = [{"step": step, **values} for step, values in sorted(self.results.items())]
        statuses.write_text(self.run_dir / FOLDER / RESULTS, json.dumps(rows, indent=1))
        shown = ", ".join(f"{word} {values[name]:{form}}" for name, (word, form) in _SHOWN.items() if name in values)
        print(f"step {step}/{self.config['steps']}: {shown}", flush=True)
        if not math.isfinite(values["Vloss"]):
            print(not_finite(step, values["Vloss"], self.model), file=sys.stderr)

    def newest(self) -> None:
        """Evaluate the newest whole checkpoint. ValueError where there is none."""
        for _ in range(5):  # between two renames there may be none for a moment
            found = checkpoint.find(self.run_dir, self.identity, torch.device("cpu"))
            if found is not None:
                if found.damage:
                    complain(f"{found.damage}: evaluating {found.path}, of step {found.state['step']}")
                self.evaluate(found.path, found.state, found.path.stat().st_mtime)
                return
            time.sleep(0.2)
        raise ValueError(f"run={str(self.run_dir)!r} holds no checkpoint yet; without once=true it is waited for")


_SHOWN = {
    "Vacc": ("test accuracy in %", ".2f"),
    **{f"V{name}": (f"test {word}", ".4f") for name, word in WORDS.items()},
    "Vloss": ("test loss", ".4f"),
    "Tacc": ("training accuracy in %", ".2f"),
    "Tloss": ("training loss", ".4f"),
}


def run(settings: Evaluation) -> int:
    """Evaluate as ``settings`` say.

    Returns the exit code: 0 where the run is done (or ``once``), 2 for what cannot be read, 4 where another process
    evaluates it, else 1.
    """
    try:
        evaluator = Evaluator(settings)
        folder = evaluator.run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        with only_process_in(folder, f"run={settings.run!r}: another process is evaluating this run"):
            statuses.tidy(folder, RESULTS)
            if settings.once:
                evaluator.newest()
                return 0
            return follow(evaluator, settings.patience_s, settings.poll_s)
    except OSError as error:
        complain(statuses.describe(error))
        return statuses.EXIT_CRASH
    except ValueError as error:
        complain(error.what if isinstance(error, CheckpointError) else str(error))
        return statuses.EXIT_HELD if isinstance(error, Held) else statuses.EXIT_BAD_SETTINGS
    except KeyboardInterrupt:
        return statuses.EXIT_INTERRUPTED


def follow(evaluator: Evaluator, patience_s: float, poll_s: float) -> int:
    """Evaluate every checkpoint that appears, until the run has ended or gave no sign of life for ``patience_s``."""
    run_dir, seen, told, sign, heard = evaluator.run_dir, set[Mark](), "", None, time.monotonic()
    while True:
        status, damage = _read_status(run_dir)  # before the checkpoints, of which the last is there when it says done
        state, step = status.get("state"), status.get("step", 0)
        _evaluate_new(evaluator, seen)
        present = (state, step, status.get("attempt"), status.get("progress", status.get("heartbeat")), len(seen))
        if present != sign:
            sign, heard = present, time.monotonic()
        why = ""
        if state == "done":
            if evaluator.config["steps"] in evaluator.results:
                return 0
            why = f"{run_dir} is done, and its last checkpoint cannot be read"
        elif state in ("failed", "diverged"):
            message = (status.get("failure") or {}).get("message", "it does not say why")
            why = f"{run_dir} {state} after step {step}: {message}"
        elif time.monotonic() - heard > patience_s:
            what = f"has been {state} at step {step}, without a sign of getting on," if state else "has not started"
            why = damage or f"{run_dir} {what} for patience_s={patience_s:g} seconds"
        if why:
            complain(why)
            return 1
        waits = {"preempted": f"preempted after step {step}: waiting until it goes on", "running": ""}
        words = waits.get(state or "", "waiting for it to start")
        words = f"waiting for another status: {damage}" if damage else words
        if words != told and words:
            print(f"{run_dir}: {words}", flush=True)
        told = words
        time.sleep(poll_s)


def _evaluate_new(evaluator: Evaluator, seen: set[Mark]) -> None:
    """Evaluate what is new of both generations, the older first.  CheckpointError: the newest is another run's."""
    odd = ""
    for name in (checkpoint.PREVIOUS, checkpoint.FILE):
        path = evaluator.run_dir / name
        try:
            with opened(path) as file:
                about = os.fstat(file.fileno())
                mark = (about.st_ino, about.st_mtime_ns, about.st_size)
                if mark in seen:
                    continue
                state = checkpoint.decoded(checkpoint.checked(file), torch.device("cpu"))
        except FileNotFoundError:
            continue
        except (OSError, Unreadable) as error:  # a file server that has lost it meanwhile: it is looked for again
            complain(f"{statuses.describe(error)}: trying again")
            continue
        except CheckpointError as error:
            complain(f"{checkpoint.unusable(path, error)}: waiting for the next")
            seen.add(mark)
            continue
        seen.add(mark)
        try:
            if state["step"] not in evaluator.results:
                evaluator.evaluate(path, state, about.st_mtime)
        except CheckpointError as error:
            if name == checkpoint.FILE:
                raise
            odd = error.what
    if odd:
        complain(f"{odd}: going on without it")


def _read_status(run_dir: Path) -> tuple[dict[str, Any], str]:
    """The status of a run, empty where none can be read now, and what is wrong with a damaged one, in words."""
    try:
        return statuses.read(run_dir, remedy=""), ""
    except OSError:
        return {}, ""
    except ValueError as error:
        return {}, str(error)


def _read_results(path: Path) -> dict[int, dict[str, float]]:
    """The scalars that earlier evaluators found, by step; empty, and evaluated again, where they cannot be read."""
    try:
        return {row.pop("step"): row for row in json.loads(path.read_text())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
