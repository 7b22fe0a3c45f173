"""The formats in which a run keeps its tensors (settings ``tensors``, for gradients the method), and their words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from nuq.registry import METHODS
from nuq.settings.layers import parsed_format

KINDS = ("weights", "gradients", "activations", "activation_gradients", "moments")
FULL_PRECISION = ("sgd", "supersgd", "fp32")  # the last is another code's word
PREFIX = "tensors."
_SPOKEN_OF = {"method.name", *(f"{PREFIX}{name}" for name in (*KINDS, "all", "master"))}


def spoken_of(name: str) -> bool:
    """Whether ``label`` has words for a setting (dotted name)."""
    return name in _SPOKEN_OF


def formats(settings: Mapping[str, Any]) -> dict[str, str]:
    """Each kind's format with its own settings, as in ``smaq samples=16`` (gradient: the method), empty for FP32."""
    specs = {kind: _text(settings.get(PREFIX + kind)) or _text(settings.get(f"{PREFIX}all")) for kind in KINDS}
    specs["gradients"] = _text(settings.get("method.name"))
    return {kind: "" if spec.partition(" ")[0] in FULL_PRECISION else spec for kind, spec in specs.items()}


def keeps(settings: Mapping[str, Any]) -> bool:
    """Whether the run keeps any tensor but its gradients in a format."""
    return any(spec for kind, spec in formats(settings).items() if kind != "gradients")


def compressor(settings: Mapping[str, Any]) -> str:
    """The method as which a run is compared; without a quantized gradient, the first format of another kind."""
    found = formats(settings)
    spec = found["gradients"] or next(filter(None, found.values()), "") or _text(settings.get("method.name"))
    return spec.partition(" ")[0]


def everywhere(settings: Mapping[str, Any]) -> str:
    """The one format of all five kinds, the weights without a float32 master copy; empty where there is none."""
    names = {spec.partition(" ")[0] for spec in formats(settings).values()}
    return names.pop() if len(names) == 1 and settings.get(f"{PREFIX}master") is not True else ""


def all_or_none(settings: Mapping[str, Any]) -> bool:
    """Whether all five kinds of tensors are kept in a format, or none is."""
    return len({bool(spec) for spec in formats(settings).values()}) == 1


def uneven(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings that differ between the kinds where all five have one format: name -> kind -> value.

    The gradients' are settings of the method.  The scope is none of them: it says which gradients travel together.
    """
    specs = formats(settings)
    if len({spec.partition(" ")[0] for spec in specs.values()}) != 1 or not specs["gradients"]:
        return {}
    own: dict[str, dict[str, Any]] = {}
    for kind, spec in specs.items():
        try:
            known = dataclasses.asdict(parsed_format(spec)[1])
        except ValueError:  # a format of another version, or of another code
            return {}
        for name in known.keys() - {"scope"}:
            value = settings.get(f"method.{name}") if kind == "gradients" else known[name]
            if _text(value):
                own.setdefault(name, {})[kind] = tuple(value) if isinstance(value, list) else value
    return {name: kinds for name, kinds in sorted(own.items()) if len(set(kinds.values())) > 1}


def said(name: str, value: str) -> str:
    """A setting of a method and its value, in words: ``to 16 sigma``, ``bucket 64``."""
    return f"to {value} sigma" if name == "outlier_limit" else f"{name.removesuffix('_size').replace('_', ' ')} {value}"


def label(settings: Mapping[str, Any], *, exact: bool = False) -> str:
    """The words for a run's formats, such as ``SmaQ, activations only``.

    Others are ``SmaQ``, ``SmaQ, all but gradients``, ``QSGD, activations SmaQ`` and ``SmaQ, master weights``. Where
    kinds differ in the settings of their one format, those that are no default follow: ``SmaQ, both gradients to 16
    sigma``. exact: each format has the settings that are given with it, ``SmaQ samples=64, activations only``.
    """
    found = {kind: spec if exact else spec.partition(" ")[0] for kind, spec in formats(settings).items()}
    found["gradients"] = next((spec for spec in found.values() if spec.partition(" ")[0] == found["gradients"]), "")
    there = {kind: _title(spec) for kind, spec in found.items() if spec}
    master = ", master weights" if settings.get(f"{PREFIX}master") is True else ""
    names = list(dict.fromkeys(there.values()))
    if differing := uneven(settings):
        first = _title(found["weights"].partition(" ")[0])
        return ", ".join([first, *_differences(differing, found["weights"])]) + master
    if len(names) != 1:
        rest = [f"{_words(kind)} {name}" for kind, name in there.items() if kind != "gradients"]
        return ", ".join([there.get("gradients", "full precision"), *rest]) + master
    missing = [kind for kind in KINDS if kind not in there]
    if not missing:
        return names[0] + master
    if len(missing) == 1:
        return f"{names[0]}, all but {_words(missing[0])}{master}"
    return f"{names[0]}, {_listed(list(there))} only{master}"


def _differences(differing: Mapping[str, Mapping[str, Any]], spec: str) -> list[str]:
    """The words ``both gradients to 16 sigma`` for every value of these settings that is not the format's default."""
    defaults = parsed_format(spec.partition(" ")[0])[1]
    said_of = []
    for name, of_kind in differing.items():
        for value in dict.fromkeys(value for value in of_kind.values() if value != getattr(defaults, name)):
            kinds = _listed([kind for kind in KINDS if of_kind.get(kind) == value])
            said_of.append(f"{kinds} {said(name, f'{value:g}' if isinstance(value, float) else str(value))}")
    return said_of


def _listed(kinds: Sequence[str]) -> str:
    if set(kinds) == {"gradients", "activation_gradients"}:
        return "both gradients"
    words = [_words(kind) for kind in kinds]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _text(value: Any) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _title(spec: str) -> str:
    name, space, rest = spec.partition(" ")
    return (METHODS[name].title if name in METHODS else name) + space + rest
