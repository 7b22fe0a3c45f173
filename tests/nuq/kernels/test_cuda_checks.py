"""The GPU's operators refuse what does not fit before anything is launched, in the words of those on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nuq.kernels import cpu as cpu_kernels
from nuq.kernels.cuda import operators

# 100 coordinates in buckets of 32, 8 levels, 3 bits.
ENCODE: dict[str, Any] = {
    "vector": torch.ones(100),
    "levels": torch.linspace(-1, 1, 8),
    "num_levels": 8,
    "scales": torch.ones(4),
    "packed": torch.zeros(38, dtype=torch.uint8),
    "bucket_size": 32,
    "norm": "l2",
    "multiple": 0.0,
    "packing": 3,
    "noise": (1, 2, 0, 1),
    "stochastic": True,
}
DECODE: dict[str, Any] = {
    "packed": torch.zeros(38, dtype=torch.uint8),
    "scales": torch.ones(4),
    "levels": torch.linspace(-1, 1, 8),
    "total": torch.zeros(100),
    "bucket_size": 32,
    "packing": 3,
    "accumulate": True,
    "dither": False,
    "k0": 1,
    "k1": 2,
}
UNIFORM = ENCODE | {"levels": None}


def _levels(count: int) -> dict[str, Any]:
    return {"levels": torch.linspace(-1, 1, count), "num_levels": count}


BAD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(
        ("encode_", ENCODE, change)
        for change in (
            {"scales": torch.ones(3)},
            {"norm": "quantile"},
            {"norm": "l3"},
            {"scales": torch.ones(4, dtype=torch.float64)},
            {"packed": torch.zeros(37, dtype=torch.uint8)},
            {"packed": torch.zeros(38, dtype=torch.int8)},
            {"levels": torch.linspace(-1, 1, 8).half()},
            {"levels": torch.ones(7)},
            _levels(1),
            _levels(9),
            {**_levels(10), "stochastic": False},
            {**_levels(4), "packing": 0},
            {"packing": 17},
            {"packing": -1},
            {"bucket_size": 0},
            {"noise": (1, 2, 1, 1)},
            {"vector": torch.ones(100).double()},
            {"vector": torch.ones(10, 10)},
        )
    ),
    *(("encode_", UNIFORM, change) for change in ({"num_levels": 9}, {"num_levels": 513}, {"scales": torch.ones(5)})),
    ("encode_", UNIFORM, {"stochastic": False}),
    *(
        ("decode_", DECODE, change)
        for change in (
            {"packed": torch.zeros(39, dtype=torch.uint8)},
            {"packed": torch.zeros(38)},
            {"scales": torch.ones(5)},
            {"scales": torch.ones(4).half()},
            {"levels": torch.linspace(-1, 1, 8).double()},
            {"levels": torch.ones(1)},
            {"total": torch.zeros(100).half()},
            {"packing": 17},
            {"bucket_size": 0},
        )
    ),
    *(
        ("hadamard_", {"vector": torch.ones(100), "block": 32, "k0": 1, "k1": 2, "inverse": False}, change)
        for change in ({"vector": torch.ones(100).half()}, {"block": 0}, {"block": 48})
    ),
]


@pytest.fixture(autouse=True)
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whatever passes the checks fail at the first kernel, with an AttributeError."""
    monkeypatch.setattr(operators, "device_code", object)


@pytest.mark.parametrize(("operator", "arguments", "change"), BAD)
def test_what_does_not_fit_is_refused_as_on_the_cpu(
    operator: str, arguments: dict[str, Any], change: dict[str, Any]
) -> None:
    said = []
    for module in (operators, cpu_kernels):
        with pytest.raises(ValueError) as error:
            getattr(module, operator)(*(arguments | change).values())
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("encode_", ENCODE),
        ("encode_", ENCODE | _levels(9) | {"stochastic": False}),  # thresholds: 8 codes
        ("encode_", UNIFORM),
        ("decode_", DECODE),
        ("decode_", DECODE | {"scales": torch.ones(8)}),
    ],
)
def test_what_fits_comes_to_the_launch(operator: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(AttributeError, match="object"):
        getattr(operators, operator)(*arguments.values())


@pytest.mark.parametrize(
    ("operator", "arguments", "text"),
    [
        (
            "encode_",
            ENCODE | {"scales": torch.ones(8)[::2]},
            r"scales with strides \(2,\): the GPU kernels take contiguous tensors",
        ),
        ("decode_", DECODE | {"levels": torch.ones(8, device="meta")}, "levels on meta: must be on cpu"),
    ],
)
def test_gaps_and_other_devices_are_refused(operator: str, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        getattr(operators, operator)(*arguments.values())
