"""Errors of ``python -m nuq advise`` and of the cost model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast
from unittest import mock

from nuq.advice import command
from nuq.advice.script import observed
from nuq.prediction.message_size import Format, format_of
from nuq.prediction.rates import Profile
from nuq.prediction.steps import Network, Variant, ddp_buckets, predict
from nuq.prediction.units import quantity
from tests.errors.rows import Row, cli, row
from tests.nuq.advice import scripts


def advise(option: str, *words: str, script: str = "") -> Row:
    """``python -m nuq advise`` with these words, in a folder with ``train.py``."""

    def run(folder: Path) -> int:
        (folder / "train.py").write_text(script)
        return command.main([*words] if "train.py" in words else [*words, "train.py"])

    return cli(f"python -m nuq advise {option}".strip(), " ".join(words) or "train.py", run)


def watched(given: str, text: str, *arguments: str, **environment: str) -> Row:
    """A script that cannot be measured."""

    def run(folder: Path) -> None:
        (folder / "train.py").write_text(text)
        quick = mock.patch("nuq.advice.script.processor_share", lambda threads: 1.0)  # which is timed
        with quick, mock.patch.dict(os.environ, environment):
            observed(folder / "train.py", arguments, 2)

    return row("python -m nuq advise: the script", given, run)


def predicted(collective: str) -> None:
    both, profile = Format("levels", 4), cast(Profile, None)  # which is read later
    predict(Variant(both, both), ddp_buckets(10**6), 0.1, Network(4, 1e9), profile, collective)


ROWS = [
    advise("--link", "--link", "fast"),
    advise("--ranks", "--ranks", "1"),
    advise("--method", "--method", "alk"),
    advise("--method", "--method", "alq:bits"),
    advise("--method", "--method", "alq:bitz=3"),
    advise("--method", "--method", "alq:bits=99"),
    advise("--method", "--method", "alq:bits=3,bits=4"),
    advise("--method", "--method", "alq", "--method", "alq"),
    advise("--method", "--method", "bf16"),
    advise("--method", "--method", "alq:gate=true"),
    advise("--method", "--method", "alq:collective=dense"),
    advise("--import", "--import", "no_such_package"),
    advise("--method", "--method", "sgd"),
    advise("--method", "--method", "alq:update_at=[0,10"),
    advise("", "--rank", "8"),
    advise("", "--lr", "1", "--", "train.py"),
    advise("", script="raise KeyError('lost')"),
    cli("python -m nuq advise", "nowhere.py", lambda: command.main(["nowhere.py"])),
    watched("makes no DDP module", scripts.WITHOUT_DDP),
    watched("has a hook of its own", scripts.ANOTHER_HOOK),
    watched("trains in float64", scripts.DOUBLE),
    watched("ends after four steps", scripts.TRAINING, "--steps", "4"),
    watched("exits", scripts.TRAINING, "--steps", "x"),
    watched("under torchrun", scripts.TRAINING, WORLD_SIZE="2"),
    row("analysis predict --params", "'1e6'", lambda: quantity("1e6", "--params")),
    row("nuq.prediction: a method's format", "fp8, of no profile", lambda: format_of("fp8")),
    row("nuq.prediction: a method's format", "bits=9, of alq", lambda: format_of("alq", 9)),
    row("nuq.prediction.Network(workers=)", "1", lambda: Network(1, 1e9)),
    row("nuq.prediction.Network(per_machine=)", "3, of four workers", lambda: Network(4, 1e9, 3)),
    row("nuq.prediction.predict(collective=)", "'ring'", lambda: predicted("ring")),
]

HELD = {
    "nuq/advice/script.py:_no_ranks_elsewhere.joined": "tests/nuq/advice/test_script.py::test_what_cannot_be_measured",
    "nuq/advice/script.py:_Watch.installed.made 1": "tests/nuq/advice/test_script.py::test_what_cannot_be_measured",
}

INTERNAL = {"nuq/advice/script.py:_Watch.begins": "control flow: enough steps were seen"}
