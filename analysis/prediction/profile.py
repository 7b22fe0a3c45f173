"""The measured rates that ``steps`` reads, in ``profile.json``, written by ``python -m benchmarks.speed rates``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from files.atomic import write_text
from nuq.prediction.message_size import FACTORED, KINDS, MeasuredFormat
from nuq.prediction.rates import Bucket, CodecRates, Model, Profile
from nuq.settings import named

DEFAULT = Path(__file__).with_name("profile.json")


def read(path: Path) -> Profile:
    """The profile in a file; FileNotFoundError without one, ValueError in one sentence where it is none."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        how = "python -m benchmarks.speed rates --out FILE measures one"
        raise FileNotFoundError(f"no profile {str(path)!r}; {how}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"profile {str(path)!r} cannot be read: {error}") from error
    try:
        data = named(data)
        codecs = {name: _codec_rates(name, codec) for name, codec in data["codecs"].items()}
        models = {
            name: Model(**{**model, "buckets": tuple(Bucket(**bucket) for bucket in model["buckets"])})
            for name, model in data.get("models", {}).items()
        }
        formats = {name: MeasuredFormat(**values) for name, values in data.get("formats", {}).items()}
        profile = Profile(**{**data, "codecs": codecs, "models": models, "formats": formats})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        legal = ", ".join(item.name for item in fields(Profile))
        raise ValueError(f"profile {str(path)!r} is not one: {error} (it has {legal})") from error
    _check(profile, path)
    return profile


def _codec_rates(name: str, values: Mapping[str, Any]) -> CodecRates:
    legal = [item.name for item in fields(CodecRates)]
    if other := [key for key in values if key not in legal]:
        raise ValueError(
            f"codecs.{name} has {other[0]} (legal: {', '.join(legal)}); "
            "python -m benchmarks.speed rates --out FILE measures the profile of this version"
        )
    return CodecRates(**values)


def _check(profile: Profile, path: Path) -> None:
    needed = [*KINDS, FACTORED, *profile.formats]
    if missing := sorted(set(needed) - set(profile.codecs)):
        raise ValueError(f"profile {str(path)!r} has no rates for {', '.join(missing)} (it needs {', '.join(needed)})")
    numbers = {name: value for name, value in asdict(profile).items() if name.endswith(("_s", "cores"))}
    for kind, codec in profile.codecs.items():
        numbers |= {f"{kind}.{name}": value for name, value in asdict(codec).items()}
    for name, value in numbers.items():
        may_be_0 = name in ("latency_s", "message_s") or name.endswith(("_message_s", "_frame_s"))
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value < 0 or (value == 0 and not may_be_0):
            least = "at least 0" if may_be_0 else "above 0"
            raise ValueError(f"profile {str(path)!r}: {name}={value!r} must be a number {least}")
    for name, model in profile.models.items():
        ready = [bucket.ready for bucket in model.buckets]
        sizes = [size for bucket in model.buckets for size in (bucket.coordinates, bucket.tensors)]
        if not ready or min(sizes) < 1 or ready != sorted(ready) or not 0 <= ready[0] <= ready[-1] <= 1:
            must = "must hold coordinates and tensors, ready rising from 0 to 1"
            raise ValueError(f"profile {str(path)!r}: buckets of {name!r} {must}")


def write(profile: Profile, path: Path) -> None:
    """Write the profile as JSON."""
    write_text(path, json.dumps(asdict(profile), indent=2) + "\n")
