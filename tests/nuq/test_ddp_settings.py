"""Settings of the hook: their types, and those that nothing reads; all said before a group is asked for."""

from __future__ import annotations

import re
from typing import Any

import pytest

import nuq

TWO_WAYS = {"both": True, "collective": "two_stage"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "topk", "ratio": "0.1"}, "ratio='0.1': must be of type float"),
        ({"method": "topk", "ratio": None}, "ratio=None: must be of type float"),
        ({"method": "topk", "ratio": True}, "ratio=True: must be of type float"),
        ({"method": "randomk", "scaled": "no"}, "scaled='no': must be of type bool"),
        ({"method": "alq", "bucket_size": 2.5}, "bucket_size=2.5: must be of type int"),
        ({"method": "alq", "update_at": 3}, "update_at=3: must be of type list[int]"),
        ({"method": "dgc", "warmup_every": 3, "warmup_ratios": 0.1}, "warmup_ratios=0.1: must be of type list[float]"),
        ({"method": "dgc", "warmup_every": 3, "warmup_ratios": []}, "warmup_ratios=[]: must have at least 1 value"),
        ({"timeout_s": "300"}, "timeout_s='300': must be of type float"),
        ({"gate": 1}, "gate=1: must be of type bool"),
        ({"layers": None}, "layers=None: must be a list of lines"),
        ({"layers": "fc = topk"}, "layers='fc = topk': must be a list of lines"),
        ({"layers": [None]}, "layers[0]=None: must be of the form"),
    ],
    ids=str,
)
def test_types(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        nuq.CompressionState(**settings)


def test_whole_numbers_and_tuples_are_taken_as_what_the_setting_is() -> None:
    state = nuq.CompressionState(
        method="dgc", ratio=1, warmup_every=3, warmup_ratios=(1, 0.5), timeout_s=20, layers=("fc = qsgd",)
    )
    assert (state.settings.of_method.ratio, state.settings.of_method.warmup_ratios) == (1.0, [1.0, 0.5])
    assert [type(value) for value in (state.settings.of_method.ratio, state.settings.hook.timeout_s)] == [float, float]
    assert state.settings.layers == ["fc = qsgd"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"method": "topk", "momentum": 0.5},
            "momentum=0.5: has no effect with feedback='auto', which is 'error' for method=topk",
        ),
        ({"method": "topk", "nesterov": True}, "nesterov=True: has no effect with feedback='auto'"),
        ({"method": "topk", "clip_norm": 1.0}, "clip_norm=1.0: has no effect with feedback='auto'"),
        (
            {"method": "topk", "masking": False, "layers": ["fc = qsgd"]},
            "'error' for method=topk, 'none' for method=qsgd",
        ),
        ({"method": "dgc", "nesterov": True, "momentum": 0}, "nesterov=True: has no effect with momentum=0.0"),
        (
            {"method": "topk", "both": True, "collective": "gather"},
            "both=True: gather encodes no means; legal with collective=two_stage",
        ),
        ({"method": "topk", "both": True, "collective": "dense"}, "both=True: dense encodes no means"),
        (
            {"method": "qsgd", **TWO_WAYS},
            "both=True: has no effect with feedback='auto', which is 'none' for method=qsgd",
        ),
        ({"method": "topk", "feedback": "none", **TWO_WAYS}, "both=True: has no effect with feedback='none'"),
        ({"method": "powersgd", **TWO_WAYS}, "both=True: the means of powersgd's factors are exact"),
        ({"method": "powersgd", "both": True}, "legal with collective=server"),
        ({"method": "casq", "cells": 9, "cells_ratio": 0.1}, "cells_ratio=0.1: has no effect with cells=9"),
    ],
    ids=str,
)
def test_settings_that_nothing_reads(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        nuq.CompressionState(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "topk", "momentum": 0.5, "layers": ["fc = dgc"]},
        {"method": "qsgd", **TWO_WAYS, "layers": ["fc = topk"]},
        {"method": "topk", "feedback": "momentum", "nesterov": True, "masking": False},
        {"method": "powersgd", "both": True, "collective": "server"},
    ],
    ids=str,
)
def test_settings_that_one_memory_reads(settings: dict[str, Any]) -> None:
    nuq.CompressionState(**settings)
