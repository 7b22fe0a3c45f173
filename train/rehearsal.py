"""The builder of experiments on stand-in data before anything is queued: ``python -m train.rehearsal``.

It reads one JSON object and writes one.

In: ``{"build": [...], "data": [...], "limit_s": 60}``, two lists of resolved configurations.  Out: ``refused``, for
each of the first why its model, data and method do not go together (empty where they do, null where the time was over),
and ``data``, for each of the second the fingerprint and the sizes of its data set as it lies here (null where it does
not).  Everything is built as in a run, and one gradient of BATCH_SIZE examples goes through the model.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from nuq.settings import plugins
from train import data
from train.data.data_files import UNUSABLE
from train.data.dataset import DataSet
from train.dry_run import in_one_process, shrunk
from train.steps.trainer import Trainer

BATCH_SIZE = 2


def rehearse(config: dict[str, Any], dataset: DataSet) -> str:
    """The reason why a run of this configuration would end before its first step, in one line; empty where none."""
    device = torch.device("cpu")
    tiny = shrunk(in_one_process(config)) | {"batch_size": min(BATCH_SIZE, config["batch_size"]), "device": "cpu"}
    tiny["compute"] = tiny["compute"] | {"cuda_graphs": False, "compile": False}  # they take long, and change no shape
    try:
        trainer = Trainer(tiny, device=device, dataset=dataset)
        trainer.gradient(0, 0, trainer.order, "rehearsal")
    except (*UNUSABLE, RuntimeError, LookupError, TypeError) as error:  # torch's own words for shapes that do not fit
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def of_data(config: dict[str, Any]) -> dict[str, Any] | None:
    """The fingerprint and sizes of the data set; None where its files are not here, or cannot be read."""
    try:
        found = data.load(config, "cpu")
    except UNUSABLE:
        return None
    return {"fingerprint": found.fingerprint, "num_train": found.num_train, "num_test": found.num_test}


def refusals(configs: Iterable[dict[str, Any]], limit_s: float) -> Iterator[str | None]:
    """The refusal of each configuration (see ``rehearse``); None for what would begin after ``limit_s``."""
    end = time.monotonic() + limit_s
    stand_ins: dict[str, DataSet] = {}
    for config in configs:
        which = json.dumps(config["data"], sort_keys=True)
        if time.monotonic() > end:
            yield None
            continue
        if which not in stand_ins:
            stand_ins[which] = data.stand_in(config, "cpu")
        yield rehearse(config, stand_ins[which])


def main() -> None:
    """Run the command; what is printed on the way goes to standard error."""
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    for text in {text for config in (*request["build"], *request["data"]) for text in config["plugins"]}:
        plugins.load(text)
    with contextlib.redirect_stdout(sys.stderr):
        answer = {
            "refused": list(refusals(request["build"], request["limit_s"])),
            "data": [of_data(config) for config in request["data"]],
        }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
