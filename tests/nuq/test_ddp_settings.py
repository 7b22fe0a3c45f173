"""Settings of the hook: their types, and those that nothing reads; all said before a group is asked for."""

from __future__ import annotations

from typing import Any

import pytest

import nuq

TWO_WAYS = {"both": True, "collective": "two_stage"}


def test_whole_numbers_and_tuples_are_taken_as_what_the_setting_is() -> None:
    state = nuq.CompressionState(
        method="dgc", ratio=1, warmup_every=3, warmup_ratios=(1, 0.5), timeout_s=20, layers=("fc = qsgd",)
    )
    assert (state.settings.of_method.ratio, state.settings.of_method.warmup_ratios) == (1.0, [1.0, 0.5])
    assert [type(value) for value in (state.settings.of_method.ratio, state.settings.hook.timeout_s)] == [float, float]
    assert state.settings.layers == ["fc = qsgd"]


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
