"""The labels of runs that keep tensors in formats, and which of these runs count as one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.groups.seed_groups import seed_groups
from analysis.groups.tensor_formats import compressor, everywhere, formats, label
from analysis.tables.paired import partners

OFF = {f"tensors.{name}": "" for name in ("weights", "activations", "activation_gradients", "moments", "all")}


def settings(method: str, **tensors: object) -> dict[str, Any]:
    return {
        "method.name": method,
        **OFF,
        "tensors.master": False,
        **{f"tensors.{name}": value for name, value in tensors.items()},
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (settings("smaq", all="smaq"), "SmaQ"),
        (settings("smaq", all="smaq", master=True), "SmaQ, master weights"),
        (settings("smaq"), "SmaQ, gradients only"),
        (settings("supersgd", activations="smaq"), "SmaQ, activations only"),
        (
            settings("supersgd", activations="smaq", activation_gradients="smaq"),
            "SmaQ, activations and activation gradients only",
        ),
        (
            settings("supersgd", weights="smaq", activations="smaq", moments="smaq"),
            "SmaQ, weights, activations and moments only",
        ),
        (settings("supersgd", all="smaq"), "SmaQ, all but gradients"),
        (settings("smaq", all="smaq", weights="fp32"), "SmaQ, all but weights"),
        (settings("qsgd", activations="bf16", weights="bf16"), "QSGD, weights BF16, activations BF16"),
        (settings("supersgd", activations="bf16", weights="fp16"), "full precision, weights FP16, activations BF16"),
        (settings("fp8", all="fp8 table=e5m2 scale=none"), "FP8"),
    ],
)
def test_labels(given: Mapping[str, Any], expected: str) -> None:
    assert label(given) == expected


def smaq(limit: float, **tensors: object) -> dict[str, Any]:
    return settings("smaq", **tensors) | {"method.outlier_limit": limit, "method.scope": "model"}


WIDE = "smaq outlier_limit=16.0"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (smaq(2.5, all="smaq"), "SmaQ"),
        (smaq(16.0, all=WIDE), "SmaQ"),
        (smaq(16.0, all="smaq", activation_gradients=WIDE), "SmaQ, both gradients to 16 sigma"),
        (smaq(16.0, all="smaq", activation_gradients=WIDE, master=True), "SmaQ, both gradients to 16 sigma, master "
        "weights"),
        (smaq(2.5, all="smaq", activation_gradients=WIDE), "SmaQ, activation gradients to 16 sigma"),
        (smaq(16.0, all="smaq"), "SmaQ, gradients to 16 sigma"),
        (smaq(8.0, all="smaq", activation_gradients=WIDE), "SmaQ, gradients to 8 sigma, activation gradients to 16 "
        "sigma"),
        (smaq(2.5, all=WIDE), "SmaQ, weights, activations, activation gradients and moments to 16 sigma"),
        (smaq(2.5, all="smaq", moments="smaq samples=64"), "SmaQ, moments samples 64"),
        (settings("fp8", all="fp8", moments="fp8 table=e5m2") | {"method.table": "e4m3"}, "FP8, moments table e5m2"),
        (smaq(2.5, all="smaq unheard_of=1"), "SmaQ"),
    ],
)  # fmt: skip
def test_a_label_tells_which_kinds_have_settings_of_their_own(given: Mapping[str, Any], expected: str) -> None:
    assert label(given) == expected


def test_no_setting_is_said_twice_and_none_of_one_kind_for_all() -> None:
    tails = smaq(16.0, all="smaq", activation_gradients=WIDE)
    found = labels(smaq(2.5, all="smaq"), smaq(2.5), tails, tails | {"tensors.master": True}, smaq(16.0, all=WIDE))
    assert sorted(found) == [
        "SmaQ (to 16 sigma)",
        "SmaQ (to 2.5 sigma)",
        "SmaQ, both gradients to 16 sigma",
        "SmaQ, both gradients to 16 sigma, master weights",
        "SmaQ, gradients only (to 2.5 sigma)",
    ]
    assert labels(smaq(2.5, all="smaq"), tails) == ["SmaQ", "SmaQ, both gradients to 16 sigma"]


def test_of_what_is_said_nothing_is_full_precision() -> None:
    """Runs from before tensors had formats, and those of other systems."""
    assert set(formats({"method.name": "sgd"}).values()) == {""}
    assert formats({"method.name": "smaq", "tensors.all": np.nan, "tensors.weights": None})["weights"] == ""


def test_what_a_run_is_compared_as() -> None:
    assert compressor(settings("supersgd")) == "supersgd"
    assert compressor(settings("supersgd", moments="smaq samples=16")) == "smaq"
    assert compressor(settings("alq", all="smaq")) == "alq"


def test_one_format_everywhere() -> None:
    assert everywhere(settings("smaq", all="smaq")) == "smaq"
    assert everywhere(settings("fp8", all="fp8 scale=none")) == "fp8"
    assert (
        everywhere(settings("supersgd"))
        == everywhere(settings("smaq"))
        == everywhere(settings("smaq", all="smaq", master=True))
        == ""
    )


def table(*rows: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([*rows], index=[f"run{number}" for number in range(len(rows))], dtype=object)


def labels(*rows: Mapping[str, Any]) -> list[str]:
    return [seed_group.label for seed_group in seed_groups(table(*rows))]


def test_the_sweeps_seed_groups() -> None:
    found = seed_groups(
        table(
            settings("supersgd"),
            settings("smaq", all="smaq"),
            settings("smaq"),
            *(settings("supersgd", **{kind: "smaq"}) for kind in ("weights", "moments")),
            settings("supersgd", all="smaq"),
            settings("smaq", all="smaq", master=True),
            settings("fp8", all="fp8 table=e5m2 scale=none") | {"method.table": "e5m2", "method.scale": "none"},
            settings("fp8", all="fp8 table=e4m3") | {"method.table": "e4m3", "method.scale": "bucket"},
        )
    )
    assert {seed_group.label: (seed_group.method, seed_group.runs) for seed_group in found} == {
        "SuperSGD, FP32": ("supersgd", ("run0",)),
        "SmaQ": ("smaq", ("run1",)),
        "SmaQ, gradients only": ("smaq", ("run2",)),
        "SmaQ, weights only": ("smaq", ("run3",)),
        "SmaQ, moments only": ("smaq", ("run4",)),
        "SmaQ, all but gradients": ("smaq", ("run5",)),
        "SmaQ, master weights": ("smaq", ("run6",)),
        "FP8 (e5m2)": ("fp8", ("run7",)),
        "FP8 (e4m3)": ("fp8", ("run8",)),
    }
    assert len({(seed_group.method, seed_group.variant) for seed_group in found}) == len(found)


def test_formats_that_differ_in_their_settings_alone_say_them() -> None:
    found = labels(settings("supersgd", activations="smaq"), settings("supersgd", activations="smaq samples=64"))
    assert found == ["SmaQ, activations only", "SmaQ samples=64, activations only"]
    both = labels(*(settings("smaq", all=f"smaq samples={count}") | {"method.samples": count} for count in (16, 64)))
    assert both == ["SmaQ (samples 16)", "SmaQ (samples 64)"]


def test_without_formats_nothing_changes() -> None:
    assert labels(settings("supersgd"), settings("smaq")) == ["SuperSGD", "SmaQ"]


def test_formats_are_compared_with_full_precision_and_not_with_one_another() -> None:
    rows = [settings("supersgd"), settings("smaq", all="smaq"), settings("supersgd", activations="smaq")]
    found = partners(table(*({**row, "seed": 1} for row in rows)))
    assert found.dropna().to_dict() == {"run1": "run0", "run2": "run0"}  # none for run0 itself
