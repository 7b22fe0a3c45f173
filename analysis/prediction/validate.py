"""The cost model against measured steps: the rows that ``python -m benchmarks.links wire --out FILE`` writes."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nuq.prediction import steps as predict
from nuq.prediction.message_size import DENSE, FACTORED, Format, format_of, predicted, second_format
from nuq.prediction.rates import Model, Profile
from nuq.prediction.steps import Network, Prediction, Variant
from nuq.settings import unknown

GATED = "_gate"  # suffix of a variant that may do without compression: the quicker of the two
COMPUTATION_ONLY = "nothing"  # the variant whose step is the computation that the others' predictions start from
NEEDED = {"ranks": int, "model": str, "raw_mbit": float, "variant": str, "step_s": float, "compute_s": float}
_BF16 = Variant(Format("bf16", 16), Format("bf16", 16))


@dataclass(frozen=True)
class Checked:
    """Measured rows that the model speaks of and its predictions; variants and models that it does not know."""

    rows: tuple[Mapping[str, Any], ...]
    predictions: tuple[Prediction, ...]
    left_out: tuple[str, ...]

    @property
    def errors(self) -> list[float]:
        """The values predicted / measured - 1."""
        return [found.step_s / row["step_s"] - 1 for row, found in zip(self.rows, self.predictions, strict=True)]

    def summary(self) -> dict[str, Any]:
        """The summary that a profile keeps of its validation."""
        sizes = [abs(error) for error in self.errors]
        speeds = [row["raw_mbit"] for row in self.rows]
        return {
            "median_error": round(statistics.median(sizes), 4),
            "worst_error": round(max(sizes), 4),
            "rows": len(sizes),
            "ranks": sorted({row["ranks"] for row in self.rows}),
            "slowest_mbit": round(min(speeds)),
            "fastest_mbit": round(max(speeds)),
        }


def model_of(name: str, profile: Profile) -> Model:
    """A model of the profile: ``mlp``, or ``resnet18`` for ``resnet18_b8`` too; ValueError with the legal names."""
    if found := _known(name, profile):
        return found
    raise unknown("model of the profile", name, dict(profile.models))


def _known(name: str, profile: Profile) -> Model | None:
    begins = [known for known in profile.models if name.lower().replace("-", "").startswith(known)]
    return profile.models.get(name) or (profile.models[max(begins, key=len)] if begins else None)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON file: a list, an object with ``rows``, or one object a line."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"--validate {str(path)!r}: cannot be read: {error.strerror}") from error
    try:
        data = json.loads(text)
    except ValueError:
        try:
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise ValueError(f"--validate {str(path)!r}: is neither JSON nor JSON lines: {error}") from error
    rows = data.get("rows", data) if isinstance(data, dict) else data
    if not isinstance(rows, list) or not rows:
        raise ValueError(
            f"--validate {str(path)!r}: holds no rows; python -m benchmarks.links wire --out FILE writes them"
        )
    return [_checked(row, number, path) for number, row in enumerate(rows, 1)]


def _checked(row: object, number: int, path: Path) -> dict[str, Any]:
    where = f"--validate {str(path)!r}, row {number}"
    row = row if isinstance(row, dict) else {}
    if missing := sorted(NEEDED.keys() - row.keys()):
        raise ValueError(f"{where}: lacks {', '.join(missing)}")
    for name, kind in NEEDED.items():
        value = row[name]
        numeric = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
        if isinstance(value, str) != (kind is str) or (kind is not str and not numeric):
            raise ValueError(f"{where}: {name}={value!r} must be {'a name' if kind is str else 'a number above 0'}")
    return row


def variant_of(row: Mapping[str, Any], bits: float | None, second_bits: float, profile: Profile) -> Variant | None:
    """The formats that a row's runs sent (it may state its bits); None where the model does not know them."""
    name = str(row["variant"]).removesuffix(GATED)
    if name in DENSE:
        form = Format(name, 32 if name == "fp32" else 16)
        return Variant(form, form)
    if name == FACTORED or name not in predicted(profile.formats):  # those rows are of another program's PowerSGD
        return None
    return Variant(
        format_of(name, row.get("bits", bits), None, profile.formats),
        second_format(name, row.get("second_bits", second_bits), None, profile.formats),
    )


def validated(
    rows: Sequence[Mapping[str, Any]], profile: Profile, bits: float | None = None, second_bits: float = 4
) -> Checked:
    """Predict every row from its ranks, its computation and the bandwidth that its link was measured to have.

    Ranks that outnumber the profile's cores take turns on them.
    """
    kept, predictions, left_out = [], [], set()
    for row in rows:
        variant, model = variant_of(row, bits, second_bits, profile), _known(str(row["model"]), profile)
        if variant is None or model is None:
            left_out |= {str(row["variant" if variant is None else "model"])} - {COMPUTATION_ONLY}
            continue
        kept.append(row)
        choices = (variant, _BF16) if row["variant"].endswith(GATED) else (variant,)
        found = [_prediction(row, choice, model, profile) for choice in choices]
        predictions.append(min(found, key=lambda own: own.step_s))
    if not kept:
        others = ", ".join(sorted(left_out)) or COMPUTATION_ONLY
        raise ValueError(f"no row is of a method and a model that the profile knows: {others}")
    return Checked(tuple(kept), tuple(predictions), tuple(sorted(left_out)))


def _prediction(row: Mapping[str, Any], variant: Variant, model: Model, profile: Profile) -> Prediction:
    network = Network(int(row["ranks"]), 1e6 * row["raw_mbit"])
    collective = row.get("collective") if row.get("collective") in variant.collectives else "auto"
    busy = max(1.0, row["ranks"] / profile.cores)
    return predict.predict(variant, model, row["compute_s"], network, profile, str(collective), busy)


def text(checked: Checked) -> str:
    """The comparison as text: a line per row, then the errors in all."""
    lines = [
        f"{'model':14s} {'ranks':>5s} {'Mbit/s':>7s} {'variant':10s} {'measured':>10s} {'predicted':>10s} "
        f"{'error':>6s}  collective"
    ]
    for row, found, error in zip(checked.rows, checked.predictions, checked.errors, strict=True):
        model = f"{row['model']} b{row['batch']}" if "batch" in row else row["model"]
        times = f"{1e3 * row['step_s']:7.1f} ms {1e3 * found.step_s:7.1f} ms {error:+6.0%}"
        lines.append(
            f"{model:14s} {row['ranks']:5d} {row['raw_mbit']:7.0f} {row['variant']:10s} {times}  {found.collective}"
        )
    if checked.left_out:
        lines.append(f"not modelled: {', '.join(checked.left_out)}")
    summary = checked.summary()
    lines.append(
        f"error of {summary['rows']} steps: median {summary['median_error']:.1%}, worst {summary['worst_error']:.1%}"
    )
    return "\n".join(lines)


def statement(validation: Mapping[str, Any], workers: int, bandwidth: float) -> str:
    """The sentence before any prediction that says how far the model is to be trusted."""
    if not validation:
        how = "python -m analysis predict --validate FILE --keep does, with runs of benchmarks.links wire"
        return f"This profile has not been validated: {how}."
    ranks = [int(count) for count in validation["ranks"]]
    links = f"{validation['slowest_mbit']:,} to {validation['fastest_mbit']:,} Mbit/s"
    said = f"Checked against {validation['rows']} measured steps of {' and '.join(map(str, ranks))} ranks at {links}: "
    said += f"off by {validation['median_error']:.0%} in the median, {validation['worst_error']:.0%} at worst."
    beyond = [f"more than {max(ranks)} workers"] if workers > max(ranks) else []
    beyond += ["faster links"] if bandwidth > 1e6 * validation["fastest_mbit"] else []
    said += f"  Extrapolated: {' and '.join(beyond)}." if beyond else ""
    return said + "  A break-even means little where the speed-ups around it are within that error."
