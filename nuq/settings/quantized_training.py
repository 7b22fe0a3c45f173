"""Settings of quantized training: which tensors of training are kept or handed on in which format; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import setting

# of the settings below; the gradients' format is the method
FORMATS = ("weights", "activations", "activation_gradients", "moments")
FULL = ("fp32", "supersgd")  # keep what they are given
MIN_SIZE = 1024
OWN_EXPONENTS = ("supersgd", "bf16", "natural")  # have an exponent for each coordinate that reaches as far as float32's


@dataclass
class QuantizedTraining:
    """Quantized training: the format of each kind of large tensor, such as smaq, bf16, fp8, 'smaq samples=16'; empty:
    kept in float32.
    """

    all: str = setting(
        "",
        "the format of each of the next four that has none of its own; the gradients' format is the method "
        "(method=smaq)",
        identity="unless default",
    )
    weights: str = setting(
        "", "after each step the parameters become what their packed form decodes to", identity="unless default"
    )
    activations: str = setting(
        "",
        "what the forward pass leaves for the backward pass is held packed, and decoded where it is used; fp32 is an "
        "exception from all",
        identity="unless default",
    )
    activation_gradients: str = setting("", "of gradients that flow backward between layers", identity="unless default")
    moments: str = setting(
        "",
        "the optimizer's momentum or running means are held packed between steps; where the format needs it mean "
        "squares as logarithms, and Adam's means in units of their roots",
        identity="unless default",
    )
    master: bool = setting(
        False,
        "true: a float32 copy of the weights takes the updates, and only what passes read is rounded",
        identity="unless default",
    )
    inference: bool = setting(
        False, "true: evaluations round the outputs of layers to the activations' format", identity="unless default"
    )
    min_size: int = setting(
        MIN_SIZE,
        "coordinates of the smallest tensor that is packed: of biases and gains headers and statistics would be a "
        "large part",
        low=1,
        identity="unless default",
    )
    histogram_every: int = setting(
        0,
        "histograms of every kind's normalised coordinates every so many steps (0: with the measurements)",
        low=0,
        identity=False,
    )


def formats_of(tensors: Mapping[str, Any]) -> dict[str, str]:
    """The format of each kind by its name, those alone that round anything."""
    chosen = {kind: tensors[kind].strip() or tensors["all"].strip() for kind in FORMATS}
    return {kind: spec for kind, spec in chosen.items() if spec and spec not in FULL}
