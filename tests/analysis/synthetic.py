"""Thousands of runs as tables, without a file: what a report of a large sweep is made from."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.logs.load import Logs
from analysis.logs.parts import Part
from analysis.logs.rows import rows

METHODS = ("sgd", "supersgd", "qsgd", "qsgdinf", "nuqsgd", "trn", "alq", "alq_n", "amq", "amq_n")
TAGS = (
    "Vacc",
    "Vloss",
    "Tloss",
    "est_var",
    "super_var",
    "nb_error",
    "comm/bytes",
    "comm/bits_per_coordinate",
    "time/step_s",
    "epoch",
)


def many_runs(count: int, folder: Path, *, steps: int = 20, seeds: int = 3) -> Logs:
    """``count`` finished runs of ten methods with so many seeds, and as many bucket sizes as that takes (full precision
    has none).
    """
    names = [f"run-{number:05d}" for number in range(count)]
    number = np.arange(count)
    method = [METHODS[k // seeds] if k < 2 * seeds else METHODS[2 + k // seeds % 8] for k in range(count)]
    settings = pd.DataFrame(
        {
            "method.name": method,
            "method.bits": [np.nan if name in ("sgd", "supersgd") else 3 for name in method],
            "method.bucket_size": [
                np.nan if name in ("sgd", "supersgd") else 16 * (1 + k // (8 * seeds)) for k, name in enumerate(method)
            ],
            "seed": 1 + number % seeds,
            "trajectory": "method",
            "steps": 100 * steps,
            "workers": 4,
            "data.name": "cifar10",
            "schedule.at": [(50 * steps,)] * count,
        },
        index=pd.Index(names, name="run"),
        dtype=object,
    )
    rng = np.random.default_rng(0)
    step = 100 * np.arange(1, steps + 1)
    shape = (count, len(TAGS), steps)
    level = np.array([1 + METHODS.index(name) for name in method])[:, None]
    value = np.empty(shape)
    noise = 1 + 0.05 * rng.standard_normal(shape)
    for index, tag in enumerate(TAGS):
        known = {
            "comm/bytes": 1e3 * step,
            "comm/bits_per_coordinate": 3.0,
            "time/step_s": 0.01,
            "epoch": step // 400,
            "super_var": 1e-5,
        }
        curve = 90 - level - 5000 / (step + 100) if tag == "Vacc" else level / np.sqrt(step)
        value[:, index] = np.broadcast_to(known.get(tag, curve), (count, steps)) * (
            1 if tag == "epoch" else noise[:, index]
        )
    order = np.argsort(TAGS)  # rows come by run, tag and step
    run, tag, none = (
        np.repeat(number, len(TAGS)),
        np.tile(np.arange(len(TAGS)), count),
        np.zeros(count * len(TAGS), int),
    )
    spans = np.column_stack([run, tag, none, none + steps])
    at = np.tile(step, count * len(TAGS))
    part = Part(count, tuple(TAGS[index] for index in order), spans, at, 1e9 + 0.01 * at, value[:, order].ravel())
    status = pd.DataFrame(
        {"state": "done", "logged": True, "step": 100.0 * steps, "steps": 100.0 * steps, "seconds": 12.0},
        index=settings.index,
    )
    return Logs("many", folder, rows(names, part), settings, status.assign(complete=True), ())
