"""Checks of a saved state for the DDP hook: everything is looked at before anything is taken over.

A state comes from a file, and the file perhaps from another model, another rank or a broken disk.  ValueError, in one
sentence, names the entry, what it is and what it must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from nuq.exchange.compressor_map import by_encoder
from nuq.exchange.level_updates import LevelUpdater
from nuq.exchange.saved_encoders import checked_encoders, dictionary, is_list_of, require, tensor, whole
from nuq.kernels.statistics import Statistics

_COLLECTIVES = ("gather", "two_stage", "server", "hierarchical", "power", "dense")
_KEYS = ("method", "step", "collective", "coders", "statistics")


def check_head(state: Any, method: str, layers: list[str]) -> None:
    """Check what needs no model. method, layers: of the state that is to go on."""
    require(isinstance(state, dict), "", state, "what state_dict gave")
    if missing := [key for key in _KEYS if key not in state]:
        raise ValueError(f"a state without {', '.join(missing)}: it takes what state_dict gave")
    if type(state["method"]) is not str or state["method"] != method:
        raise ValueError(f"a state of method={state['method']!r}: this one has method={method!r}")
    if not is_list_of(str, theirs := state.get("layers", [])) or theirs != layers:
        raise ValueError(f"a state of layers={theirs!r}: this one has layers={layers!r}")
    require(whole(state["step"]), "step", state["step"], "a whole number from 0 on")
    is_known = type(state["collective"]) is str and state["collective"] in _COLLECTIVES
    require(is_known, "collective", state["collective"], f"one of {', '.join(_COLLECTIVES)}")
    require(whole(state.get("rank", 0)), "rank", state.get("rank"), "a whole number from 0 on")
    for name in ("ranks", "memories"):
        require(whole(state.get(name, 1)) and state.get(name) != 0, name, state.get(name), "a whole number from 1 on")


def checked(
    state: dict[str, Any], present: Mapping[str, Any], sizes: Mapping[str, int], *, second: bool
) -> dict[str, Any]:
    """The encoders' states as they are loaded (``checked_encoders``), once all else is checked.

    present: what ``state_dict`` gives now.
    """
    coders = checked_encoders(state["coders"], present["coders"], sizes, second=second)
    found = _rows(state)
    dictionary(found, "statistics", present["statistics"])
    for number, row in present["statistics"].items():
        tensor(found[number], f"statistics[{number}]", row.dtype, row.shape)
    return coders


def check_alike(states: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise ValueError where checked states of several ranks are not of the same step and the same levels."""
    (first, one), *others = states.items()
    for rank, other in others:
        for what, (own, its) in {
            "steps": (one["step"], other["step"]),
            "levels": (_levels(one), _levels(other)),
        }.items():
            if own != its:
                shown = f" ({own} and {its})" if what == "steps" else ""
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
