"""Errors of ``predict``: its options, profiles of measured rates, rows to validate with, and runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.__main__ import main
from analysis.prediction import profile
from tests.analysis.conftest import Rows, written_run
from tests.analysis.prediction.test_runs import run_of
from tests.errors.rows import Row, cli, row

ROUNDS = {"workers": 4, "eval_every": 10}
SWEEP: Sequence[tuple[Mapping[str, Any], Rows]] = (
    ({"method": "supersgd", **ROUNDS}, run_of(1e6)),
    ({"method": "alq", **ROUNDS}, run_of(1e5)),
)

EVERYTHING = run_of(1e5)
WITHOUT_ACCURACY = [one for one in EVERYTHING if one[0] not in ("Vacc", "Vloss")]
TO_A_LOSS = ("--target", "loss=1.5")


def predict(*words: str, text: str | None = None) -> Row:
    """A question about the repository's profile; ``text``: of rows.json."""

    def make(folder: Path) -> int:
        if text is not None:
            (folder / "rows.json").write_text(text)
        return main(["predict", *words])

    given = " ".join(words) if text is None else f"{' '.join(words)}: {text}"
    return cli("python -m analysis predict", given, make)


def of_runs(*words: str, given: str = "", runs: Sequence[tuple[Mapping[str, Any], Rows]] = SWEEP) -> Row:
    """A question about the runs of the sweep ``s``."""

    def make(folder: Path) -> int:
        for settings, rows in runs:
            written_run(folder / "runs", "s", settings, rows)
        (folder / "runs/empty").mkdir(parents=True)
        return main(["predict", *words])

    return cli("python -m analysis predict RUN", given or " ".join(words), make)


def odd(given: str, *settings: Mapping[str, Any], rows: Rows = EVERYTHING, words: Sequence[str] = ()) -> Row:
    """Runs of which nothing can be predicted."""
    return of_runs("runs/s", *words, given=given, runs=[(one, rows) for one in settings])


def rates(given: str, text: str | None = None, **changes: Any) -> Row:
    """A profile with other values."""

    def make(folder: Path) -> None:
        content = {**json.loads(profile.DEFAULT.read_text()), **changes}
        (folder / "profile.json").write_text(json.dumps(content) if text is None else text)
        profile.read(Path("profile.json"))

    return row("python -m analysis predict --profile", given, make)


def _without_workers(folder: Path) -> int:
    config = written_run(folder / "runs", "s", {"method": "alq"}, EVERYTHING) / "config.yaml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if not line.startswith("workers:")))
    return main(["predict", "runs/s"])


def _two_sweeps(folder: Path) -> int:
    places = [written_run(folder / "runs", name, {"method": "alq"}, run_of(1e5)) for name in ("a", "b")]
    return main(["predict", *(str(place.relative_to(folder)) for place in places)])


def _row(**changes: Any) -> str:
    made = {"ranks": 2, "model": "mlp", "raw_mbit": 9, "variant": "alq", "step_s": 1, "compute_s": 1}
    return json.dumps([{**made, **changes}])


ROWS = [
    predict("--workers", "1"),
    predict("--workers", "eight"),
    predict("--workers", "64..8"),
    predict("--workers", "2.."),
    predict("--bandwidth", "1e9"),
    predict("--bandwidth", "100Mbit"),
    predict("--bandwidth", "0"),
    predict("--parameters", "many"),
    predict("--parameters", "1M", "--model", "mlp"),
    predict("--parameters", "10", "--tensors", "11"),
    predict("--model", "resnet19"),
    predict("--compute", "-1"),
    predict("--bits", "2.5"),
    predict("--second_bits", "9"),
    predict("--bucket_size", "0"),
    predict("--methods", "alk"),
    predict("--per_machine", "3", "--workers", "8"),
    predict("--collective", "hierarchical"),
    predict("--profile", "nowhere.json"),
    predict("--keep"),
    predict("--figure", "figure.pdf"),
    predict("--figure", "figure.png", "--bandwidth", "1G"),
    predict("--target", "90"),
    # profiles
    rates("cut short", "{"),
    rates("a list", "[]"),
    rates("a rate of another version", codecs={"uniform": {"encode_call_s": 1}}),
    rates("no rates", codecs={}, formats={}),
    rates("host_gb_s of 0", host_gb_s=0),
    rates("latency_s of 'fast'", latency_s="fast"),
    rates("a model without buckets", models={"mlp": {"buckets": []}}),
    # rows of another measurement
    predict("--validate", "nowhere.json"),
    predict("--validate", "rows.json", text="nonsense"),
    predict("--validate", "rows.json", text="[]"),
    predict("--validate", "rows.json", text='[{"ranks": 2}]'),
    predict("--validate", "rows.json", text=_row(raw_mbit=0)),
    predict("--validate", "rows.json", text=_row(model="vgg")),
    # runs
    of_runs("runs/none"),
    of_runs("runs/empty"),
    of_runs("runs/s", "runs/s"),
    cli("python -m analysis predict RUN", "runs of two sweeps", _two_sweeps),
    of_runs("runs/s", "--where", "workers=9"),
    odd("runs of two batch sizes", {"method": "alq", "batch_size": 8}, {"method": "alq", "batch_size": 16}),
    odd("forks alone", {"method": "alq", "fork.run": "runs/main/one", "fork.at": 5}),
    odd("runs that only measure", {"method": "alq", "trajectory": "sgd", "measure.every": 5}),
    odd("a run without comm/bytes", {"method": "alq"}, rows=[("Vacc", 10, 50.0), ("time/step_s", 10, 0.1)]),
    odd("a run of machines", {"method": "alq", "exchange.collective": "hierarchical"}),
    cli("python -m analysis predict RUN", "a run without its number of workers", _without_workers),
    odd("runs without accuracies", {"method": "alq"}, rows=WITHOUT_ACCURACY),
    odd("a target of loss, of runs without one", {"method": "alq"}, words=TO_A_LOSS, rows=WITHOUT_ACCURACY),
    of_runs("runs/s", "--target", "high"),
    of_runs("runs/s", "--target", "101"),
    of_runs("runs/s", "--every", "0"),
    of_runs("runs/s", "--every", "1.5"),
    of_runs("runs/s", "--latency", "-1"),
    of_runs("runs/s", "--bits", "3"),
    of_runs("runs/s", "--figure", "map.pdf"),
    of_runs("runs/s", "--figure", "map.png"),
    of_runs(
        "runs/s", *["--figure", "map.png", "--every", "1,2,3,4,5,6,7,8,9", "--workers", "2,4", "--bandwidth", "1M,1G"]
    ),
]
