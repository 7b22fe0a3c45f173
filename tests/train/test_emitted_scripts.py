"""Every data set through its emitted script: trained, stopped by a signal, started again, evaluated; as if it had never
been stopped.

For a data set of each kind the job script and the run's own are real processes, stopped as a scheduler does it; of the
others the words that the script hands to main.py are run in this process.  What they end with is held against the same
experiment, undisturbed in this process, bit by bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grid.engine.scripts.script import job_script
from settings.data import DATA
from tests.faults.compare import differences, logged
from tests.train import test_emitted_models
from tests.train.emitted import BERT, ROOT, STEPS, emit, in_this_process, told_to_stop_at, words, write
from tests.train.glue_files import needs_extra
from train import evaluator

STOP_AT = 8
QUICK = ("logreg2",)  # that `make test` runs, too
AS_PROCESSES = ("digits", "folder", "glue")  # made up, pictures, pairs of sentences
MOST_S = 120.0
# Kinds of models and of state that goes through a checkpoint: learnt levels (before and after the stop), residuals,
# momentum of workers.
LEARNT = {"method.bucket_size": 512, "method.update_at": [3, 13], "method.num_samples": 2}
FALLING = {"schedule": "piecewise_linear", "schedule.at": [0, STEPS], "schedule.factors": [1.0, 0.0]}
CASES: dict[str, dict[str, Any]] = {
    "digits": {"model": "cnn", "method": "alq", **LEARNT, "method.statistics": "fresh"},
    "logreg2": {"model": "logreg", "method": "dgc", "method.ratio": 0.1},
    "text": {
        "model": "gpt",
        "model.layers": 1,
        "model.width": 16,
        "model.dropout": 0.1,
        "method": "powersgd",
        "optim": "adamw",
    },
    "mnist": {"model": "lenet", "method": "topk", "method.ratio": 0.1},
    "fashion_mnist": {"model": "mnist_cnn", "method": "amq", **LEARNT},
    "cifar10": {
        "model": "resnet8",
        "method": "alq",
        **LEARNT,
        "measure.every": 5,
        "measure.num_samples": 2,
        "data.cutout": 8,
    },
    "cifar100": {
        "model": "wide_resnet",
        "model.depth": 10,
        "model.widen": 1,
        "model.dropout": 0.3,
        "method": "qsgdinf",
    },
    "svhn": {"model": "cifar_cnn", "method": "trn", "schedule": "cosine"},
    "imagenet": {"model": "torchvision", "model.arch": "mobilenet_v3_small", "method": "nuqsgd", "data.decode": "fast"},
    "folder": {"model": "resnet20", "method": "dgc", "method.ratio": 0.05, "compute.accumulate": 2},
    "glue": {**BERT, "data.task": "stsb", "method": "alq", **LEARNT},
    "imdb": {**BERT, "method": "topk", "method.ratio": 0.1, **FALLING},
}
SCORES = {"glue": "test Pearson's correlation"}  # of the others it is the accuracy

# main.py, which after a step leaves a file and goes on when its signal has come: so it is stopped at that step, however
# fast it is.
HALTING = f"""
import runpy, sys, time
from pathlib import Path
sys.argv = sys.argv[1:]
from train.steps.trainer import Trainer
step = Trainer.train_step
def train_step(self, stop=False):
    result = step(self, stop)
    if self.step == {STOP_AT}:
        Path(self.config["run_dir"], "halted").touch()
        while not self.stop_requested():
            time.sleep(0.01)
    return result
Trainer.train_step = train_step
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_every_data_set_is_here() -> None:
    elsewhere = {"logreg5", "logreg10"}  # logreg2 with more classes: in test_emitted_models
    assert set(CASES) == set(DATA) - elsewhere
    assert elsewhere <= {chosen.get("data") for chosen in test_emitted_models.OWN.values()}


@pytest.fixture
def halting(tmp_path: Path) -> Path:
    """A Python that runs ``HALTING`` for main.py: it only begins elsewhere."""
    (tmp_path / "halting.py").write_text(HALTING)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\nexport PYTHONPATH="$PWD"\nexec "{sys.executable}" "{tmp_path}/halting.py" "$@"\n')
    python.chmod(0o755)
    return python


@contextlib.contextmanager
def started(job: Path, python: Path | str) -> Iterator[subprocess.Popen[str]]:
    """The job, with everything that it starts in a process group of its own, which does not outlive the test."""
    environment = {key: value for key, value in os.environ.items() if key not in ("NUQ_CODE", "NUQ_NPROC")} | {
        "NUQ_PYTHON": str(python)
    }
    with subprocess.Popen(
        ["bash", str(job)], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def told_to_stop(job: Path, run_dir: Path, python: Path, number: int) -> tuple[int, str]:
    """The job's exit code and output, with a signal to the job's shell alone once its run has halted."""
    with started(job, python) as process:
        deadline = time.monotonic() + MOST_S
        while not (run_dir / "halted").exists():
            assert process.poll() is None and time.monotonic() < deadline, (run_dir / "stdout.log").read_text()[-3000:]
            time.sleep(0.02)
        process.send_signal(number)
        output, _ = process.communicate(timeout=MOST_S)
        return process.returncode, output


def check_stopped(run_dir: Path) -> None:
    status = json.loads((run_dir / "status.json").read_text())
    assert (status["state"], status["step"], status["saved_step"]) == ("preempted", STOP_AT, STOP_AT)


def stopped_and_started_again(job: Path, run_dir: Path, halting: Path, number: int) -> None:
    """The run as a job: stopped by one of two signals, then to its end."""
    job.write_text(job_script("emitted", [str(run_dir)], str(ROOT), 1))
    code, output = told_to_stop(job, run_dir, halting, (signal.SIGTERM, signal.SIGUSR2)[number])
    assert code == 75, (run_dir / "stdout.log").read_text()[-3000:]
    assert "asking to be requeued" in output
    check_stopped(run_dir)
    with started(job, sys.executable) as process:
        output, _ = process.communicate(timeout=MOST_S)
    assert process.returncode == 0, (run_dir / "stdout.log").read_text()[-3000:]
    assert "all 1 done" in output


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            data,
            marks=[pytest.mark.slow] * (data not in QUICK) + [needs_extra] * (data in ("glue", "imdb")),
        )
        for data in CASES
    ],
)
def test_a_data_set_trains_is_stopped_goes_on_and_is_evaluated(
    data: str, tmp_path: Path, halting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(data, tmp_path / "data")
    folder, undisturbed = tmp_path / "runs" / "stopped", tmp_path / "runs" / "undisturbed"
    experiment = emit(folder, tmp_path / "data", {"data": data, **CASES[data]})
    if data in AS_PROCESSES:
        stopped_and_started_again(tmp_path / "job.sh", folder, halting, AS_PROCESSES.index(data) % 2)
    else:
        with told_to_stop_at(STOP_AT):
            assert in_this_process(words(folder)) == 75
        check_stopped(folder)
        assert in_this_process(words(folder)) == 0

    emit(undisturbed, tmp_path / "data", {"data": data, **CASES[data]})
    assert in_this_process(words(undisturbed)) == 0
    assert differences(folder, undisturbed, dict(experiment.config)) == []
    rows = logged(folder)
    assert sorted(step for tag, step in rows if tag == "loss") == list(range(1, STEPS + 1))

    capsys.readouterr()
    assert in_this_process(["mode=evaluate", f"run={folder}"]) == 0
    assert f"step {STEPS}/{STEPS}: {SCORES.get(data, 'test accuracy in %')} " in capsys.readouterr().out
    found = {row["step"]: row for row in json.loads((folder / evaluator.FOLDER / evaluator.RESULTS).read_text())}
    values = {name: value for name, value in found[STEPS].items() if name != "step"}
    assert values.keys() >= {
        "Vloss",
        "Tloss",
        *(("Vpearson", "Vspearman") if data == "glue" else ("Vcorrect", "Tcorrect")),
    }
    for name, value in values.items():
        assert value == pytest.approx(struct.unpack("<d", rows[name, STEPS])[0], rel=1e-6)
