"""Errors of site profiles and of SLURM's answers, which stand-ins on PATH give."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from grid.engine.scripts.preamble import quoted
from grid.engine.slurm import commands, elements, sbatch_command, sbatch_script, scheduler
from grid.engine.slurm.site import Partition, Site
from grid.engine.slurm.site_yaml import load_site, read_site
from settings.resources import Resources
from tests.errors.rows import Row, row
from tests.grid.slurm_answers import Commands

CLUSTER = Site(
    name="c",
    partition="gpu",
    partitions={
        "gpu": Partition(max_time="24:00:00", gpus=4, cpus=32, mem="100G", nodes=2),
        "big": Partition(max_time="7-0", gpus=8, cpus=128, mem="2T", nodes=4),
        "cpu": Partition(gpus=0),
    },
)


def site(text: str) -> Row:
    """A profile of one mistake."""
    return row("site.yaml", text.replace("\n", " / "), lambda: read_site(text, "site.yaml"))


def partition(given: str, parallel: int = 1, **asked: Any) -> Row:
    return row("resources on a partition", given, lambda: CLUSTER.check(Resources(**asked), parallel))


def _on_path(folder: Path) -> AbstractContextManager[Any]:
    return mock.patch.dict(os.environ, {"PATH": f"{folder}:/usr/bin:/bin"})


def sbatch(given: str, lines: str, ask: Callable[[Path], object] = sbatch_command.submit, **others: Any) -> Row:
    """What a stand-in for sbatch does."""

    def make(folder: Path) -> None:
        (folder / "sbatch").write_text(f"#!/bin/sh\n{lines}\n")
        (folder / "sbatch").chmod(0o755)
        with ExitStack() as stack:
            stack.enter_context(_on_path(folder))
            for name, value in others.items():
                stack.enter_context(mock.patch.object(sbatch_command, name, value))
            ask(folder / "chunk.sbatch")

    return row("sbatch", given, make)


def says(given: str, words: str) -> Row:
    return sbatch(given, f"echo 'sbatch: error: {words}' >&2; exit 1")


def answer(command: str, given: str, ask: Callable[[], object], *, code: int = 0, error: str = "") -> Row:
    """What a stand-in for another command answers."""

    def make(folder: Path) -> None:
        Commands(folder).say(command, "", code, error)
        with _on_path(folder):
            ask()

    return row(command, given, make)


def _cancel() -> None:
    scheduler.cancel(["47_0"])


def _no_sbatch(folder: Path) -> None:
    with mock.patch.dict(os.environ, {"PATH": str(folder)}):
        sbatch_command.submit(folder / "chunk.sbatch")


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "site.yaml")
    load_site(folder / "site.yaml")


def _no_squeue(folder: Path) -> None:
    with mock.patch.dict(os.environ, {"PATH": str(folder)}), mock.patch("socket.gethostname", lambda: "here"):
        commands.output_of(["squeue"])


def _no_program(folder: Path) -> None:
    (folder / "squeue").touch(0o644)
    commands.output_of([str(folder / "squeue")])


def _hangs() -> None:
    with mock.patch.object(commands, "TIMEOUT_S", 0.05):
        commands.output_of(["sleep", "5"])


def _another_submitit() -> None:
    with mock.patch("importlib.metadata.version", lambda name: "1.6.0"):
        sbatch_script._made()


ROWS = [
    # profiles
    site("acount: a"),
    site("- a"),
    site("account: 3"),
    site("account: TRUE"),
    site("account: a b"),
    site("account: !!int x"),
    site("mail: &a {user: me}\n<<: *a"),
    site("a: 1\na: 2"),
    site("a: ["),
    site("partitions: {gpu: {max_tim: 3}}"),
    site("partitions: {gpu: {max_time: 2 days}}"),
    site("partitions: {gpu: {gpus: many}}"),
    site("partitions: {gpu: {mem: true}}"),
    site("partitions: {gpu: {mem: 64}}"),
    site("partitions: {a b: {}}"),
    site("partitions: {3: {}}"),
    site("partition: gpuu\npartitions: {gpu: {}}"),
    site("defaults: {ranks: 3}"),
    site("defaults: {cpus: 0}"),
    site("defaults: {mem: lots}"),
    site("defaults: {mem: 64}"),
    site("defaults: [a]"),
    site("modules: cuda"),
    site("modules: [7]"),
    site("modules: ['']"),
    site("modules: ['cuda; rm -rf x']"),
    site("activate: 3"),
    site("environment: {A B: 1}"),
    site("environment: {A: [1]}"),
    site("environment: {A: $(whoami)}"),
    site("environment: {A: `whoami`}"),
    site("environment: {A: 'x`whoami`'}"),
    site("environment: {NPROC: 1}"),
    site("scratch: ''"),
    site("stage: {from: a, to: b}"),
    site("stage: [{from: a}]"),
    site("stage: [{from: a, to: b}]"),
    site("stage: [{from: a, to: /b, too: c}]"),
    site("stage: [{from: 7, to: /b}]"),
    site("mail: me"),
    site("mail: {on: [FAIL]}"),
    site("mail: {user: a, on: [FAILS]}"),
    site("signal_s: 0"),
    site("max_submit: many"),
    site("sbatch: [-p]"),
    site("sbatch: [--array=1-3]"),
    site("sbatch: ['--gres=gpu:a100:2']"),
    site("sbatch: ['--gres=gpu']"),
    row("site.yaml", "a value in which a command would run", lambda: quoted("${x:-$(y)}", "environment.A")),
    row("--site", "'nowhere'", lambda: load_site("nowhere")),
    row("--site", "a FIFO", _fifo),
    partition("unknown", partition="gpuu"),
    partition("8 GPUs of 4", ranks=8),
    partition("6 GPUs for 3 runs at a time, of 4", 3, gpus=2),
    partition("1 GPU of none", partition="cpu"),
    partition("3 nodes of 2", ranks=3, nodes=3),
    partition("40 cores of 32", cpus=40),
    partition("120 GB for 2 runs at a time, of 100", 2, mem="60GB"),
    partition("25 hours of 24", time="25:00:00"),
    partition("16 GPUs, which no partition has", ranks=16),
    # sbatch
    row("sbatch", "not on this machine", _no_sbatch),
    sbatch("answers nothing", ""),
    sbatch("answers two ids", "echo 47; echo 11"),
    sbatch("is killed", "kill -9 $$"),
    sbatch("names a job and fails", "echo 4711; echo 'the mail could not be sent' >&2; exit 1"),
    sbatch("gives no answer in time", "exec sleep 5", ANSWER_S=0.05),
    sbatch(
        "waits for room in the queue",
        "echo 'sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying' >&2; exec sleep 5",
        LOOK_S=0.1,
    ),
    sbatch("is answered by an error of ours", "echo 4711", _heard=mock.Mock(side_effect=OSError(28, "No space left"))),
    says("has no room in the queue", "Batch job submission failed: Resource temporarily unavailable"),
    says("reaches no controller", "Unable to contact slurm controller (connect failure)"),
    says("knows no such partition", "invalid partition specified: p100"),
    says("refuses too many jobs", "AssocMaxSubmitJobLimit"),
    says("refuses too high an index", "Batch job submission failed: Invalid job array specification"),
    row("sbatch", "a version of submitit that was not tried", _another_submitit),
    # other commands
    row("squeue", "a line cut short", lambda: list(commands.rows("47_0|RUNNING", 3))),
    row("squeue", "an element cut short", lambda: elements.expand("47_[6,9")),
    row("squeue", "not on this machine", _no_squeue),
    row("squeue", "no program", _no_program),
    row("squeue", "no answer in time", _hangs),
    answer("squeue", "fails without a word", lambda: commands.output_of(["squeue"]), code=3),
    answer(
        "scancel",
        "is not allowed",
        _cancel,
        code=1,
        error="scancel: error: Kill job error on job id 47: Access/permission denied",
    ),
    answer(
        "scancel",
        "reaches no controller",
        _cancel,
        code=1,
        error="scancel: error: Unable to contact slurm controller (connect failure)",
    ),
]
