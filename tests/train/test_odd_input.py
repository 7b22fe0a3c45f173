"""Odd arguments, input and connections of main.py: one sentence, nothing lost, and nobody else is blamed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from settings import resolving
from tests.tiers import few
from train.launch import launch
from train.models.weights import WeightsError, load_weights
from train.process import checkpoint
from train.process.status import read

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "data": "digits",
    "model": "cnn",
    "batch_size": 8,
    "workers": 2,
    "steps": 2,
    "eval_every": 2,
    "eval_train": False,
}


def main(words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "main.py"), *words]
    return subprocess.run(command, cwd=ROOT, text=True, check=False, timeout=500, stderr=subprocess.PIPE, **more)


# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("workers=100000000000000000000", "workers=100000000000000000000: must be below 2^63"),
        ("workers=1000000000", "workers=1000000000: must be at most 65536"),
        ("steps=99999999999999999999", "steps=99999999999999999999: must be below 2^63"),
        ("method@x=alq", "'method@x=alq': every setting has its place, so @x is not used; write name=value"),
        ("run_dir=~", "'run_dir=~' is not of the form name=value: the shell turns ~ into a folder at the start of a "
        "word alone;"),
        ("run_dir=~/a", "write run_dir=$HOME/a"),
        ("run_dir=a:;b", "write \"run_dir='a:;b'\""),
    ],
)  # fmt: skip
def test_odd_words_are_told_in_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        resolving.check_overrides([word])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lr=.1,.2"], "unknown setting 'lr'; did you mean 'optim.lr'?"),
        (["seed=1,x"], "seed='x': must be of type int"),
        (["seed=range(1,4)", "workers=1,0"], "workers=0: must be at least 1"),
        (["method=alq,qsgd", "method.norm=l2"], "unknown setting of method=qsgd 'method.norm'"),
        (["method=alq,alg"], "unknown method 'alg'; did you mean 'alq'?"),
    ],
)
def test_every_run_of_several_is_checked_before_the_first(words: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        resolving.check_overrides(words, sweep=True)
    for good in ("seed=1,2", "method=alq,trn", "optim.lr=0.1,0.2", "seed=range(1,4)", "method=glob(al*)"):
        resolving.check_overrides([good], sweep=True)


@few(
    2,
    ("word", "sentence"),
    [
        ("hydra/launcher=joblib", "main.py: In 'hydra/config': Could not find 'hydra/launcher/joblib'"),
        ("hydra.foo=1", "main.py: Could not override 'hydra.foo': Key 'foo' not in 'HydraConf'"),
        ("--resolve", "main.py: --resolve: says how --cfg shows the settings; write --cfg job --resolve"),
    ],
)
def test_what_hydra_refuses_is_one_sentence(word: str, sentence: str) -> None:
    done = main([word, "run_dir=/nowhere"])
    assert done.returncode == 2
    assert done.stderr.startswith(sentence) and done.stderr.count("\n") == 1


# --- streams -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("where", ["closed", "full", "a pipe that nobody reads"])
def test_a_run_outlives_its_terminal(where: str, tmp_path: Path) -> None:
    words = [f"{name}={value}" for name, value in (SETTINGS | {"run_dir": tmp_path}).items()]
    if where == "closed":
        done = main(words, preexec_fn=lambda: os.close(1))
    elif where == "full":
        with open("/dev/full", "w") as full:
            done = main(words, stdout=full)
    else:
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "w") as out:
            done = main(words, stdout=out)
    told = (
        "main.py: standard output cannot be written (No space left on device), so nothing more is said there; the "
        "run's folder has it all\n"
    )
    assert (done.returncode, done.stderr) == (0, told if where == "full" else "")
    assert read(tmp_path)["state"] == "done"


@pytest.mark.slow
def test_what_looks_like_an_interpolation_stays_the_text_that_it_is() -> None:
    """The run has the settings that were checked, and that the grid and the dry run make of the same words."""
    done = main(["layers=['*n${steps}* = supersgd']", "steps=1"])
    assert done.returncode == 2 and "layers[0]='*n${steps}* = supersgd': matches no parameter" in done.stderr


def test_errors_that_nobody_can_read_end_nothing() -> None:
    program = (
        "from train.process.terminal import *; open_streams(); complain('x'); complain('y'); say('went \\x1b[2Jon')"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, text=True, check=False, stderr=full, stdout=subprocess.PIPE
        )
    assert (done.returncode, done.stdout) == (0, "went \\x1b[2Jon\n")


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def soon() -> Iterator[None]:
    """A time limit, since a program that waits for a pipe waits for ever."""

    def late(number: int, frame: object) -> None:
        raise AssertionError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["checkpoint.pt", "status.json", "config.yaml"])
def test_a_pipe_in_a_files_place_is_not_waited_for(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], soon: None
) -> None:
    config = resolving.resolve(SETTINGS | {"run_dir": str(tmp_path)})
    assert launch(config) == 0
    (tmp_path / "status.json").unlink()
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    capsys.readouterr()
    assert launch(config) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / name) in said and "is a FIFO, no regular file" in said and said.count("\n") == 1


def test_devices_are_no_checkpoints(tmp_path: Path, soon: None) -> None:
    (tmp_path / "checkpoint.pt").symlink_to("/dev/zero")
    with pytest.raises(
        checkpoint.CheckpointError, match=r"checkpoint.pt cannot be read \(is a device, no regular file\)"
    ):
        checkpoint.find(tmp_path, "0" * 14, torch.device("cpu"))


def test_weights_of_something_else(tmp_path: Path, soon: None) -> None:
    model = torch.nn.Linear(2, 2)
    (tmp_path / "notes.txt").write_text("# weights, to be\n")
    with pytest.raises(
        WeightsError, match=r"no file of torch.save, for it begins with b'# weights, to be'; expected a state"
    ):
        load_weights(model, "linear", tmp_path / "notes.txt")
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(WeightsError, match=r"pipe.pt: not a regular file; expected a state_dict of linear"):
        load_weights(model, "linear", tmp_path / "pipe.pt")
