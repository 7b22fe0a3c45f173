"""Checks of the encoders' saved states, from a file: everything is looked at before anything is taken over.

ValueError, in one sentence, names the entry, what it is and what it must be.
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
from nuq.levels.level_sets import Levels


def checked_encoders(
    coders: Any, present: Mapping[str, Any], sizes: Mapping[str, int], *, second: bool
) -> dict[str, Any]:
    """The encoders' states as they are loaded, once all of them are checked.

    present: what ``CompressorMap.state_dict`` gives now; sizes: coordinates of every encoded vector.

    second: whether the encoders of means must be those of the state.  Where ``auto`` decides, they may have other bits
    with other ranks: then those of other levels stay as they are.
    """
    dictionary(coders, "coders", ("compressor", "second"))
    layers = coders.get("layers")
    require(isinstance(coders.get("layers", []), list), "coders.layers", layers, "a list")
    theirs, ours = by_encoder(coders), by_encoder(dict(present))
    require(len(theirs) == len(ours), "coders.layers", layers, f"as many as here, {len(ours) - 1}")
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        check_encoder(their, our, sizes, f"coders.layers[{number - 1}]" if number else "coders", second=second)
        if not second and num_levels(their["second"]) != num_levels(our["second"]):
            theirs[number] = {**their, "second": our["second"]}
    return {**theirs[0], "layers": theirs[1:]}


def check_encoder(
    saved: Any,
    present: Mapping[str, Any],
    sizes: Mapping[str, int],
    where: str,
    *,
    second: bool,
    workers: Sequence[int] | None = None,
) -> None:
    """Check the state of an encoder against the present one.

    sizes: coordinates of every vector.  second: whether the encoder of means must have as many levels as here.
    workers: of a state of all workers, which remember every vector; None for a rank's own, of one worker at most.
    """
    dictionary(saved, where, ("compressor", "second"))
    memories = saved.get("memories", [])
    require(isinstance(memories, list), f"{where}.memories", memories, "a list")
    for number, memory in enumerate(memories):
        dictionary(memory, f"{where}.memories[{number}]", ("kinds", "workers"))
        kinds = memory["kinds"]
        require(is_list_of(str, kinds), f"{where}.memories[{number}].kinds", kinds, "a list of names")
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
        _check_memory(memory, our, sizes, f"{where}.memories[{number}]", workers)


def _kinds(state: Mapping[str, Any]) -> str:
    """The kinds of memory in a saved state, in words; empty for none."""
    return ", then ".join(" and ".join(memory["kinds"]) for memory in state.get("memories", ()))


def num_levels(compressor: Mapping[str, Any]) -> int:
    """The number of levels in a quantizer's state; 0 for other methods."""
    return compressor["levels"].numel() if "levels" in compressor else 0


def _check_compressor(saved: Any, present: Mapping[str, Any], where: str, *, of_means: bool, as_many: bool) -> None:
    dictionary(saved, where)
    if "levels" in saved:
        tensor(saved["levels"], f"{where}.levels", torch.float64)
    counts = [num_levels(state) for state in (saved, present)]
    if counts[0] != counts[1]:
        if not as_many:
            return
        theirs, ours = ((count - 1).bit_length() if count else 0 for count in counts)
        setting = f"{'second_' * of_means}bits={ours}"
        raise ValueError(
            f"a state with {counts[0]} levels ({theirs} bits): these settings have {counts[1]} ({setting})"
        )
    dictionary(saved, where, [key for key in present if key in ("levels", "multiplier", "gap")])
    if "levels" in saved:
        Levels(saved["levels"].cpu().numpy())
        p, gap = saved["multiplier"], saved.get("gap")
        exponential = present["multiplier"] is not None
        good = _finite(p) and 0 < p < 1 if exponential else p is None
        require(good, f"{where}.multiplier", p, "a number between 0 and 1" if exponential else "None")
        require(gap is None or _finite(gap), f"{where}.gap", gap, "a finite number or None")
    for name, right in saved.items():
        if isinstance(name, str) and name.startswith(START):
            tensor(right, f"{where}.{name}", torch.float32)
            require(right.dim() == 2, f"{where}.{name}", list(right.shape), "of two dimensions")
    by_worker = saved.get("by_worker", {})
    dictionary(by_worker, f"{where}.by_worker")
    for worker, kept in by_worker.items():
        require(whole(worker), f"{where}.by_worker", worker, "by rank")
        dictionary(kept, f"{where}.by_worker[{worker!r}]")
        for name, entry in kept.items():
            is_pair = isinstance(entry, list | tuple) and len(entry) == 2
            good = is_pair and whole(entry[0]) and _are_thresholds(entry[1])
            require(good, f"{where}.by_worker[{worker!r}][{name!r}]", entry, "a number and two rows of thresholds")


def _are_thresholds(rows: Any) -> bool:
    """Whether these are thresholds of clusters (``nuq.kernels.sketches.clusters``), which may be infinite."""
    if not (is_list_of(list, rows) and len(rows) == 2 and len(rows[0]) == len(rows[1])):
        return False
    return all(is_list_of(float, row) and not any(math.isnan(number) for number in row) for row in rows)


def _check_memory(
    memory: Mapping[str, Any],
    present: Mapping[str, Any],
    sizes: Mapping[str, int],
    where: str,
    workers: Sequence[int] | None,
) -> None:
    dictionary(memory, where, present)
    dictionary(memory["workers"], f"{where}.workers", workers or ())
    count = len(memory["workers"])
    legal = "of one rank" if workers is None else f"of {len(workers)} workers"
    require(count <= (1 if workers is None else len(workers)), f"{where}.workers", list(memory["workers"]), legal)
    for worker, of_worker in memory["workers"].items():
        require(whole(worker), f"{where}.workers", worker, "a rank")
        dictionary(of_worker, f"{where}.workers[{worker}]", memory["kinds"])
        for kind in memory["kinds"]:
            _check_vectors(of_worker[kind], sizes, kind, f"{where}.workers[{worker}].{kind}", workers)
    if MEANS in present:
        estimates = [vector for of_worker in memory["workers"].values() for vector in of_worker["estimates"].values()]
        some = any(bool(vector.any()) for vector in estimates)  # before the first step there are none
        how = {"workers": workers if some else None, "pieces": workers is not None}
        _check_vectors(memory[MEANS], sizes, MEANS, f"{where}.{MEANS}", **how)


def _check_vectors(
    vectors: Any,
    sizes: Mapping[str, int],
    kind: str,
    where: str,
    workers: Sequence[int] | None,
    *,
    pieces: bool = False,
) -> None:
    """Check vectors by parameter; pieces: they may be those of fragments, of which the first has the whole's name."""
    dictionary(vectors, where)
    if workers is not None and (missing := {*sizes} - {str(name).removeprefix("mean/") for name in vectors}):
        raise ValueError(f"a state whose {where} has none of {min(missing)!r}: it takes what state_dict gave")
    for parameter, vector in vectors.items():
        tensor(vector, f"{kind} of {parameter!r}", torch.float32)
        name, first = str(parameter).removeprefix("mean/"), 0
        if pieces and name not in sizes:
            name, _, start = name.removesuffix("]").rpartition("[")
            first = int(start) if start.isdecimal() else 0
        size = sizes.get(name)
        fits = size is not None and (first + vector.numel() <= size if pieces else vector.numel() == size)
        if not fits or vector.dim() != 1:
            has = "left the model" if size is None else size
            raise ValueError(f"{kind} of {vector.numel()} coordinates for {parameter!r}, which has {has}")


# --- one entry ---


def require(good: bool, where: str, value: object, rule: str) -> None:
    """Raise ValueError for an entry that breaks its rule."""
    if not good:
        raise ValueError(f"a state{f' with {where}' if where else ''}={repr(value)[:100]}: must be {rule}")


def dictionary(value: Any, where: str, keys: Collection[Any] = ()) -> None:
    """Raise ValueError for what is no dictionary, or lacks keys."""
    require(isinstance(value, dict), where, value, "a dictionary")
    if missing := [str(key) for key in keys if key not in value]:
        raise ValueError(f"a state whose {where} has no {', '.join(missing)}: it takes what state_dict gave")


def tensor(value: Any, where: str, dtype: torch.dtype, shape: Sequence[int] | None = None) -> None:
    """Raise ValueError for what is no finite tensor of this type, and of this shape if one is given."""
    good = isinstance(value, Tensor) and value.layout == torch.strided and value.dtype == dtype
    good = good and not value.is_meta and not value.requires_grad
    found = f"{value.dtype}{list(value.shape)}".removeprefix("torch.") if isinstance(value, Tensor) else value
    require(good, where, found, f"a {str(dtype).removeprefix('torch.')} tensor with numbers and without a gradient")
    fits = shape is None or value.shape == torch.Size(shape)
    require(fits, where, list(value.shape), f"of shape {list(shape or ())}")
    require(bool(torch.isfinite(value).all()), where, "numbers that are infinite or none", "finite")


def whole(value: Any) -> bool:
    """Whether a value is a whole number from 0 on, below 2^63."""
    return type(value) is int and 0 <= value < 1 << 63


def _finite(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 1 << 63)


def is_list_of(kind: type, value: Any) -> bool:
    """Whether a value is a list of this type alone."""
    return isinstance(value, list) and all(type(item) is kind for item in value)
