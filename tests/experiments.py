"""Legal experiments at random, from the settings' own metadata."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

import args
from nuq.registry import METHODS
from nuq.settings import quantized_training
from nuq.settings.feedback import Feedback

FORMATS = ("all", *quantized_training.FORMATS)  # settings that name a format of tensors
OUTER = ("outer_lr", "outer_momentum", "nesterov", "fragments", "overlap", "mixing")
ROUNDS = [f"exchange.{name}" for name in ("local_steps", *OUTER)]
CHOICES = [(group, name) for group, options in args.GROUPS.items() for name in options]


def _values(item: dataclasses.Field[Any], annotation: Any) -> st.SearchStrategy[Any]:
    """Legal values of one setting, from its own metadata."""
    rule = item.metadata
    if item.name == "layers" and annotation is not int:  # of the section; a model has a number of them
        return st.lists(
            st.sampled_from(["*conv1* = topk ratio=0.01", "fc=supersgd", "* = amq bits=2 update_at=[3, 5]"]), max_size=3
        )
    low, high = rule["low"], rule["high"]
    if rule["choices"]:
        return st.sampled_from(rule["choices"])
    if annotation is bool:
        return st.booleans()
    if item.name in FORMATS:
        return st.sampled_from(["bf16", "qsgdinf bits=8"])
    if annotation is str:
        return st.text(st.sampled_from("abcXYZ019 _-/.,=:'+~[]{}()äλ"), max_size=12)
    if annotation is int:
        return st.integers(low if low is not None else -1000, high if high is not None else 10**12)
    if annotation is float:
        return st.floats(low if low is not None else -1e6, high, allow_nan=False, allow_infinity=False)
    (element,) = typing.get_args(annotation)
    return st.lists(_values(item, element), min_size=rule["items"], max_size=3)


def _settings_of(schema: type, prefix: str) -> dict[str, st.SearchStrategy[Any]]:
    hints = typing.get_type_hints(schema)
    return {
        f"{prefix}{item.name}": _values(item, hints[item.name]) for item in dataclasses.fields(schema) if item.metadata
    }


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, Any]:
    """Any legal experiment: a choice for every group, and a few settings that these choices read."""
    chosen: dict[str, Any] = {group: draw(st.sampled_from(sorted(options))) for group, options in args.GROUPS.items()}
    legal = _settings_of(args.Config, "")
    del legal["plugins"]  # follows from the others
    for section, schema in args.SECTIONS.items():
        legal |= _settings_of(schema, f"{section}.")
    for group, options in args.GROUPS.items():
        legal |= _settings_of(options[chosen[group]], f"{group}.")
    for name in draw(st.lists(st.sampled_from(sorted(legal)), unique=True, max_size=8)):
        chosen[name] = draw(legal[name])
    if chosen.get("trajectory") == "sgd":  # measuring is all that such a run does
        chosen["measure.every"] = draw(st.integers(1, 10**6))
    groups = {group: args.GROUPS[group][chosen[group]] for group in ("method", "model", "data")}
    schemas = {**groups, "exchange": args.Exchange, "feedback": Feedback}
    for section, schema in schemas.items():  # what another setting leaves without effect
        for item in dataclasses.fields(schema):
            if f"{section}.{item.name}" in chosen and item.metadata["read_if"]:
                other, needed = needed_by(item)
                chosen[f"{section}.{other}"] = needed
    if chosen.get("trajectory") == "sgd" or chosen["method"] in ("sgd", "supersgd"):
        chosen = {
            name: value for name, value in chosen.items() if not name.startswith(("exchange.", "feedback.", "layers"))
        }
    if chosen.get("feedback.both"):
        chosen["feedback.kind"] = {"momentum": "momentum", "ef21": "ef21"}.get(chosen.get("feedback.kind", ""), "error")
        needs = (
            "server" if METHODS[chosen["method"]].collective else "two_stage"
        )  # PowerSGD's others average factors exactly
        if needs == "server" or chosen.get("exchange.collective", "gather") == "gather":
            chosen["exchange.collective"] = needs
    if chosen.get("feedback.kind") == "ef21":  # which needs messages, and means that lose nothing
        own = METHODS[chosen["method"]].collective and chosen.get("exchange.collective") != "server"
        if own or not (chosen.get("feedback.both") or chosen.get("exchange.collective", "gather") == "gather"):
            chosen["feedback.kind"] = "error"
    kind = chosen.get("feedback.kind", "auto")
    if (METHODS[chosen["method"]].feedback if kind == "auto" else kind) != "error":
        chosen.pop("feedback.decay", None)
    if chosen.get("optim.momentum") == 0:
        chosen.pop("optim.nesterov", None)
    if chosen.get("optim.weight_decay", 0) == 0 and chosen.get("optim.decay_norms") is False:
        chosen["optim.weight_decay"] = 0.5
    if chosen.get("trajectory") == "sgd" or METHODS[chosen["method"]].single_worker:
        chosen.pop("optim.scale_lr", None)
    if "momentum" in (kind, METHODS[chosen["method"]].feedback if kind == "auto" else ""):
        chosen = {name: value for name, value in chosen.items() if not name.startswith("optim")}
    entry = METHODS[chosen["method"]]
    if "bits" not in {
        item.name for item in dataclasses.fields(METHODS[entry.mean_compressor or chosen["method"]].settings)
    }:
        chosen.pop("exchange.second_bits", None)
    if chosen.get("compute.cuda_graphs"):
        chosen = {name: value for name, value in chosen.items() if name not in ("device", "compute.compile")}
    if any(name.startswith("tensors.") for name in chosen):
        chosen["tensors.all"] = chosen.get("tensors.all", "fp8")
        if chosen.get("optim.beta1", 0.9) ** 2 >= chosen.get(
            "optim.beta2", 0.999
        ):  # a mean must not outlive what it is divided by
            chosen.pop("optim.beta1", None)
            chosen.pop("optim.beta2", None)
        for name in ("compute.compile", "compute.cuda_graphs", "tensors.moments"):
            chosen.pop(name, None)
    if chosen["model"] in ("gpt", "bert") and not chosen.get("model.weights"):
        chosen["model.width"] = 3 * chosen.get("model.heads", {"gpt": 4, "bert": 2}[chosen["model"]])
    if chosen.get("model.weights") and chosen["data"] in ("glue", "imdb"):
        chosen["data.tokenizer"] = "words"
        chosen.pop("data.vocabulary", None)
    if chosen["data"] == "glue" and chosen.get("data.task", "stsb") == "stsb":
        chosen.pop("label_smoothing", None)
    if "schedule.warmup_factor" in chosen:
        chosen["schedule.warmup_steps"] = max(chosen.get("schedule.warmup_steps", 0), 1)
    if chosen["schedule"] == "piecewise_linear" and ("schedule.at" in chosen or "schedule.factors" in chosen):
        chosen["schedule.at"] = sorted({3, *chosen.get("schedule.at", [])})
        chosen["schedule.factors"] = (chosen.get("schedule.factors", []) + [0.5] * 4)[: len(chosen["schedule.at"])]
    if chosen.get("data.limit"):  # at least a step, and at most the smallest data set
        chosen |= {"data.limit": 1 + chosen["data.limit"] % 600, "workers": 1, "batch_size": 1, "compute.accumulate": 1}
        chosen = {name: chosen[name] for name in chosen.keys() - {"data.num_train", "exchange.num_aggregate"}}
    if any(name in chosen for name in ROUNDS):
        momentum = "momentum" in (kind, METHODS[chosen["method"]].feedback if kind == "auto" else "")
        if momentum or METHODS[chosen["method"]].single_worker:
            chosen = {name: value for name, value in chosen.items() if name not in ROUNDS}
        else:
            apart = ("tensors.", "measure.", "method.statistics", "optim.scale_lr", "compute.precision")
            chosen = {name: value for name, value in chosen.items() if not name.startswith(apart)}
            every = 2 + chosen.get("exchange.local_steps", 0) % 6
            chosen |= {"exchange.local_steps": every, "steps": 9 * every, "eval_every": 3 * every}
            if "exchange.fragments" in chosen:
                chosen["exchange.fragments"] = 1 + chosen["exchange.fragments"] % every
            if {"exchange.overlap", "exchange.mixing"} & chosen.keys():
                chosen["exchange.overlap"] = 1 + chosen.get("exchange.overlap", 0) % (every - 1)
    steps = chosen.get("steps", args.Config().steps)
    if "fork.at" in chosen or chosen.get("fork.run"):
        chosen |= {
            "fork.run": chosen.get("fork.run") or "runs/main/a",
            "fork.at": 1 + chosen.get("fork.at", 0) % max(steps - 1, 1),
        }
        chosen["steps"] = max(steps, 2)
    if "checkpoint_at" in chosen:
        chosen["checkpoint_at"] = [1 + at % steps for at in chosen["checkpoint_at"]]
    if "exchange.num_aggregate" in chosen:
        chosen["workers"] = max(chosen.get("workers", 0), chosen["exchange.num_aggregate"], 1)
    return chosen


def needed_by(item: dataclasses.Field[Any]) -> tuple[str, Any]:
    """The setting without which this one has no effect, and the value that all who need it can live with."""
    other, needed = item.metadata["read_if"]
    first = needed[0] if isinstance(needed, tuple | range) else needed
    return other, {"collective": "server"}.get(other, first)


def _every_setting() -> Iterator[tuple[dict[str, Any], str, dataclasses.Field[Any]]]:
    """(the choice that makes it legal, dotted name, field) of all settings."""
    for item in dataclasses.fields(args.Config):
        if item.metadata and item.name != "plugins":  # which follow from the others
            yield {}, item.name, item
    for section, schema in args.SECTIONS.items():
        for item in dataclasses.fields(schema):
            needed = {"exchange.collective": "two_stage", "feedback.kind": "error"} if item.name == "both" else {}
            if f"{section}.{item.name}" in ROUNDS:
                needed = {"measure.every": 0, "steps": 12, "eval_every": 6}
                needed |= {"exchange.local_steps": 2} if item.name == "mixing" else {}
            if section == "fork":
                needed = {"fork.run": "runs/main/a", "fork.at": 3}
            if section == "tensors" and item.name not in FORMATS:
                needed = {"tensors.all": "bf16"}
            yield needed, f"{section}.{item.name}", item
    for group, name in CHOICES:
        for item in dataclasses.fields(args.GROUPS[group][name]):
            others = {"warmup_factor": {"schedule.warmup_steps": 3}, "decay_norms": {"optim.weight_decay": 0.5}}
            others |= {"limit": {"workers": 1, "batch_size": 1}}
            others |= {"heads": {"model.width": 60}, "width": {"model.heads": 1}}
            needed = others.get(item.name, {})
            yield {group: name, **needed}, f"{group}.{item.name}", item


SETTINGS = list(_every_setting())
