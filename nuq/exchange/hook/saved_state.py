"""Checks of a saved state for the DDP hook: everything is looked at before anything is taken over.

A state comes from a file, and the file perhaps from another model, another rank or a broken disk.  ValueError, in one
sentence, names the entry, what it is and what it must be.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.feedback import MEANS
from nuq.compressors.powersgd import START
from nuq.exchange.compressor_map import by_encoder
from nuq.exchange.level_updates import LevelUpdater
from nuq.kernels.statistics import Statistics
from nuq.levels.level_sets import Levels

_COLLECTIVES = ("gather", "two_stage", "server", "hierarchical", "power", "dense")
_KEYS = ("method", "step", "collective", "coders", "statistics")


def check_head(state: Any, method: str, layers: list[str]) -> None:
    """Check what needs no model. method, layers: of the state that is to go on."""
    _require(isinstance(state, dict), "", state, "what state_dict gave")
    if missing := [key for key in _KEYS if key not in state]:
        raise ValueError(f"a state without {', '.join(missing)}: it takes what state_dict gave")
    if type(state["method"]) is not str or state["method"] != method:
        raise ValueError(f"a state of method={state['method']!r}: this one has method={method!r}")
    if not _is_list_of(str, theirs := state.get("layers", [])) or theirs != layers:
        raise ValueError(f"a state of layers={theirs!r}: this one has layers={layers!r}")
    _require(_whole(state["step"]), "step", state["step"], "a whole number from 0 on")
    is_known = type(state["collective"]) is str and state["collective"] in _COLLECTIVES
    _require(is_known, "collective", state["collective"], f"one of {', '.join(_COLLECTIVES)}")
    _require(_whole(state.get("rank", 0)), "rank", state.get("rank"), "a whole number from 0 on")
    for name in ("ranks", "memories"):
        _require(_whole(state.get(name, 1)) and state.get(name) != 0, name, state.get(name), "a whole number from 1 on")


def checked(
    state: dict[str, Any], present: Mapping[str, Any], sizes: Mapping[str, int], *, second: bool
) -> dict[str, Any]:
    """The encoders' states, once all else is checked.

    present: what ``state_dict`` gives now; sizes: coordinates of every encoded vector.

    second: whether the encoders of means must be those of the state.  Where ``auto`` decides, they may have other bits
    with other ranks: then those of other levels stay as they are.
    """
    _dict(state["coders"], "coders", ("compressor", "second"))
    layers = state["coders"].get("layers")
    _require(isinstance(state["coders"].get("layers", []), list), "coders.layers", layers, "a list")
    theirs, ours = by_encoder(state["coders"]), by_encoder(present["coders"])
    _require(len(theirs) == len(ours), "coders.layers", layers, f"as many as here, {len(ours) - 1}")
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        where = f"coders.layers[{number - 1}]" if number else "coders"
        _check_encoder(their, our, sizes, where, second=second)
    found = _rows(state)
    _dict(found, "statistics", present["statistics"])
    for number, row in present["statistics"].items():
        _tensor(found[number], f"statistics[{number}]", row.dtype, row.shape)
    for number, our in enumerate(ours):
        if not second and _num_levels(theirs[number]["second"]) != _num_levels(our["second"]):
            theirs[number] = {**theirs[number], "second": our["second"]}
    return {**theirs[0], "layers": theirs[1:]}


def check_alike(states: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise ValueError where checked states of several ranks are not of the same step and the same levels."""
    (first, one), *others = states.items()
    for rank, other in others:
        for what, (own, its) in {
            "step": (one["step"], other["step"]),
            "levels": (_levels(one), _levels(other)),
        }.items():
            if own != its:
                shown = f" ({own} and {its})" if what == "step" else ""
                raise ValueError(f"states of ranks {first} and {rank} of different {what}{shown}: must be of one step")


def _levels(state: Mapping[str, Any]) -> list[list[float]]:
    own = (of for encoder in by_encoder(state["coders"]) for of in (encoder["compressor"], encoder["second"]))
    return [of["levels"].tolist() for of in own if "levels" in of]


def statistics(states: Sequence[Mapping[str, Any]], level_updaters: Sequence[LevelUpdater]) -> list[Statistics]:
    """The statistics that each level updater has seen, from checked states, in turn."""
    found = []
    for level_updater in level_updaters:
        first, *others = [level_updater.read(_rows(state)[level_updater.encoder]) for state in states] or [
            level_updater.empty()
        ]
        for other in others:
            first.merge(other)
        found.append(first)
    return found


def _rows(state: Mapping[str, Any]) -> Any:
    """The statistics by encoder, also from states older than layers, which have one alone."""
    return {0: state["statistics"]} if isinstance(state["statistics"], Tensor) else state["statistics"]


def _check_encoder(
    saved: Any, present: Mapping[str, Any], sizes: Mapping[str, int], where: str, *, second: bool
) -> None:
    _dict(saved, where, ("compressor", "second"))
    memories = saved.get("memories", [])
    _require(isinstance(memories, list), f"{where}.memories", memories, "a list")
    for number, memory in enumerate(memories):
        _dict(memory, f"{where}.memories[{number}]", ("kinds", "workers"))
        kinds = memory["kinds"]
        _require(_is_list_of(str, kinds), f"{where}.memories[{number}].kinds", kinds, "a list of names")
    theirs, ours = (_kinds(state) for state in (saved, present))
    if theirs != ours:
        wanted = f"the feedback of these settings takes one with {ours or 'none'}"
        raise ValueError(f"a state with {theirs or 'no memory'}: {wanted}")
    for name in ("compressor", "second"):
        of_means = name == "second"
        _check_compressor(
            saved[name], present[name], f"{where}.{name}", of_means=of_means, as_many=second or not of_means
        )
    for number, (memory, our) in enumerate(zip(memories, present.get("memories", ()), strict=True)):
        _check_memory(memory, our, sizes, f"{where}.memories[{number}]")


def _kinds(state: Mapping[str, Any]) -> str:
    """The kinds of memory in a saved state, in words; empty for none."""
    return ", then ".join(" and ".join(memory["kinds"]) for memory in state.get("memories", ()))


def _num_levels(compressor: Mapping[str, Any]) -> int:
    return compressor["levels"].numel() if "levels" in compressor else 0


def _check_compressor(saved: Any, present: Mapping[str, Any], where: str, *, of_means: bool, as_many: bool) -> None:
    _dict(saved, where)
    if "levels" in saved:
        _tensor(saved["levels"], f"{where}.levels", torch.float64)
    counts = [_num_levels(state) for state in (saved, present)]
    if counts[0] != counts[1]:
        if not as_many:
            return
        theirs, ours = ((count - 1).bit_length() if count else 0 for count in counts)
        setting = f"{'second_' * of_means}bits={ours}"
        raise ValueError(
            f"a state with {counts[0]} levels ({theirs} bits): these settings have {counts[1]} ({setting})"
        )
    _dict(saved, where, [key for key in present if key in ("levels", "multiplier", "gap")])
    if "levels" in saved:
        Levels(saved["levels"].cpu().numpy())
        p, gap = saved["multiplier"], saved.get("gap")
        exponential = present["multiplier"] is not None
        good = _finite(p) and 0 < p < 1 if exponential else p is None
        _require(good, f"{where}.multiplier", p, "a number between 0 and 1" if exponential else "None")
        _require(gap is None or _finite(gap), f"{where}.gap", gap, "a finite number or None")
    for name, right in saved.items():
        if isinstance(name, str) and name.startswith(START):
            _tensor(right, f"{where}.{name}", torch.float32)
            _require(right.dim() == 2, f"{where}.{name}", list(right.shape), "of two dimensions")
    by_worker = saved.get("by_worker", {})
    _dict(by_worker, f"{where}.by_worker")
    for worker, kept in by_worker.items():
        _require(_whole(worker), f"{where}.by_worker", worker, "by rank")
        _dict(kept, f"{where}.by_worker[{worker!r}]")
        for name, entry in kept.items():
            is_pair = isinstance(entry, list | tuple) and len(entry) == 2
            good = is_pair and _whole(entry[0]) and _are_thresholds(entry[1])
            _require(good, f"{where}.by_worker[{worker!r}][{name!r}]", entry, "a number and two rows of thresholds")


def _are_thresholds(rows: Any) -> bool:
    """Whether these are thresholds of clusters (``nuq.kernels.sketches.clusters``), which may be infinite."""
    if not (_is_list_of(list, rows) and len(rows) == 2 and len(rows[0]) == len(rows[1])):
        return False
    return all(_is_list_of(float, row) and not any(math.isnan(number) for number in row) for row in rows)


def _check_memory(memory: Mapping[str, Any], present: Mapping[str, Any], sizes: Mapping[str, int], where: str) -> None:
    _dict(memory, where, present)
    if MEANS in present:
        _check_vectors(memory[MEANS], sizes, MEANS, f"{where}.{MEANS}")
    _dict(memory["workers"], f"{where}.workers")
    _require(len(memory["workers"]) <= 1, f"{where}.workers", list(memory["workers"]), "of one rank")
    for worker, of_worker in memory["workers"].items():
        _require(_whole(worker), f"{where}.workers", worker, "a rank")
        _dict(of_worker, f"{where}.workers[{worker}]", memory["kinds"])
        for kind in memory["kinds"]:
            _check_vectors(of_worker[kind], sizes, kind, f"{where}.workers[{worker}].{kind}")


def _check_vectors(vectors: Any, sizes: Mapping[str, int], kind: str, where: str) -> None:
    _dict(vectors, where)
    for parameter, tensor in vectors.items():
        _tensor(tensor, f"{kind} of {parameter!r}", torch.float32)
        size = sizes.get(str(parameter).removeprefix("mean/"))
        if size != tensor.numel() or tensor.dim() != 1:
            has = "left the model" if size is None else size
            raise ValueError(f"{kind} of {tensor.numel()} coordinates for {parameter!r}, which has {has}")


# --- one entry ---


def _require(good: bool, where: str, value: object, rule: str) -> None:
    if not good:
        raise ValueError(f"a state{f' with {where}' if where else ''}={repr(value)[:100]}: must be {rule}")


def _dict(value: Any, where: str, keys: Collection[Any] = ()) -> None:
    _require(isinstance(value, dict), where, value, "a dictionary")
    if missing := [str(key) for key in keys if key not in value]:
        raise ValueError(f"a state whose {where} has no {', '.join(missing)}: it takes what state_dict gave")


def _tensor(value: Any, where: str, dtype: torch.dtype, shape: Sequence[int] | None = None) -> None:
    good = isinstance(value, Tensor) and value.layout == torch.strided and value.dtype == dtype
    good = good and not value.is_meta and not value.requires_grad
    found = f"{value.dtype}{list(value.shape)}".removeprefix("torch.") if isinstance(value, Tensor) else value
    _require(good, where, found, f"a {str(dtype).removeprefix('torch.')} tensor with numbers and without a gradient")
    fits = shape is None or value.shape == torch.Size(shape)
    _require(fits, where, list(value.shape), f"of shape {list(shape or ())}")
    _require(bool(torch.isfinite(value).all()), where, "numbers that are infinite or none", "finite")


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _finite(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 1 << 63)


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)
