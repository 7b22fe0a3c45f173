"""Settings of PowerSGD."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting


@dataclass
class PowerSGD:
    """Every gradient matrix as a product of two thin ones."""

    scope: str = setting(
        "tensor",
        "tensor: every parameter is a matrix, its first dimension against all others, as in the paper; model: the "
        "gradient is one nearly square matrix, without the structure that makes low ranks good",
        choices=("tensor", "model"),
    )
    rank: int = setting(
        2,
        "of the approximation: rank (rows + columns) numbers travel for a matrix; the paper's for image nets",
        low=1,
        high=64,
    )
    warm_start: bool = setting(
        True,
        "true: every step's iteration begins where the last one ended, as in the paper; read by the collective that "
        "averages factors (power), where that is the same for all workers; a message by itself begins at random",
    )
    iterations: int = setting(
        1, "power iterations a step; more come nearer to the best approximation and send as much again", low=1, high=8
    )
    values: str = setting("fp32", "of the factors; fp16: half the bytes, under one scale", choices=("fp32", "fp16"))
    dense_1d: bool = setting(
        True,
        "true: biases and norms' parameters travel whole, as in the paper, where scope=tensor; a flat vector is such "
        "a tensor",
        read_if=("scope", "tensor"),
    )
