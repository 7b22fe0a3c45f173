"""The optimizer's state, held packed between steps.

Second moments (running means of squares, their maxima: state tensors without negative values) are divided by, after a
root.  A format whose steps are fixed within a tensor would turn the small ones into zero and the parameter's next step
into an explosion, so they are packed as base-2 logarithms, zeros apart as one bit each, unless the format has an
exponent for each coordinate that reaches as far as float32's (``OWN_EXPONENTS``).  SmaQ's paper does not say what it
does about this.  The rounding is then unbiased in the logarithm, which makes the moment itself larger on average by a
few per cent, and what lies beyond a format's clamp is off by a factor, not by all.

A first moment m beside a second moment v (``exp_avg`` of Adam, AdamW, NAdam, RAdam and Adamax) is packed in units of
what the optimizer divides it by: sqrt(v), or Adamax's maximum.  Rounded as it is, in steps of the whole tensor's
spread, m is many times sqrt(v) where gradients are small, and the weight's next step thousands of learning rates; the
paper does not tell of this either.  The ratio has a bound, (1 - beta1) / sqrt((1 - beta2) (1 - beta1^2 / beta2)), 7.27
for .9 and .999, where beta1^2 < beta2, and stays within it from step to step whatever v is rounded to, for it is taken
before that and multiplied by the root of the decoded v: roundings of v change no step, only what later gradients meet.
They should be stochastic: a mean that moves by a thousandth a step stays where rounding to nearest puts it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nuq.kernels import bit_packing
from nuq.quantized_training.formats import Packed, is_large
from nuq.settings.quantized_training import OWN_EXPONENTS

UNITS = {"exp_avg_sq": Tensor.sqrt, "exp_inf": Tensor.clone}  # of exp_avg, from the state tensor that is kept beside it
# state tensors of torch.optim that happen to have no negative values
SIGNED = ("momentum_buffer", "exp_avg", "grad_avg", "prev", "ax")

Pack = Callable[[Tensor, str], "Packed | PackedLogarithms"]


@dataclass(frozen=True)
class PackedLogarithms:
    """A packed tensor without negative values."""

    packed: Packed  # log2 of what is not zero, in order
    zeros: Tensor | None  # a bit a coordinate, None where none is zero
    like: Tensor  # of the tensor's shape, stride, type and device, without memory

    @classmethod
    def of(cls, tensor: Tensor, pack: Callable[[Tensor], Packed]) -> PackedLogarithms:
        """Pack a tensor; ``pack`` is called with its logarithms."""
        zeros = tensor == 0
        like = torch.empty_like(tensor, device="meta")
        # a small square of float64 is zero in float32, its logarithm is not
        wide = torch.promote_types(tensor.dtype, torch.float32)
        if not bool(zeros.any()):
            return cls(pack(tensor.to(wide).log2()), None, like)
        bits = bit_packing.pack_codes(zeros.reshape(-1).to(torch.uint8), 1)
        return cls(pack(tensor[~zeros].to(wide).log2()), bits, like)

    @property
    def nbytes(self) -> int:
        """The number of bytes that are held."""
        return self.packed.nbytes + (self.zeros.numel() if self.zeros is not None else 0)

    def unpack(self) -> Tensor:
        """Unpack the tensor: no number that was not zero is zero, or infinite, afterwards."""
        info = torch.finfo(self.like.dtype)
        values = self.packed.unpack().exp2_().clamp_(info.tiny, info.max)
        if self.zeros is None:
            return values.to(self.like.dtype)
        zeros = bit_packing.unpack_codes(self.zeros, self.like.numel(), 2, 1).to(torch.bool)
        whole = torch.zeros_like(self.like, device=values.device)
        whole[~zeros.view(whole.shape)] = values.to(whole.dtype)
        return whole


def needs_logarithms(name: str, tensor: Tensor, key: str = "") -> bool:
    """Whether a format, by its method's name, would let small second moments vanish.

    key: of the state tensor, ``exp_avg`` or ``exp_avg/fc.weight``.  One that is known to have a sign never goes through
    logarithms, so that its packing is the same at every step; of others the values tell.
    """
    return name not in OWN_EXPONENTS and key.partition("/")[0] not in SIGNED and bool((tensor >= 0).all())


def relative(moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One parameter's state tensors, with exp_avg in units of what it is divided by; zero where that is zero."""
    unit = _unit(moments)
    if unit is None:
        return dict(moments)
    mean = moments["exp_avg"]
    return {**moments, "exp_avg": mean.to(unit.dtype).div(unit).masked_fill_(unit == 0, 0.0).to(mean.dtype)}


def absolute(moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of ``relative``."""
    unit = _unit(moments)
    if unit is None:
        return dict(moments)
    ratio = moments["exp_avg"]
    return {**moments, "exp_avg": ratio.to(unit.dtype).mul(unit).to(ratio.dtype)}


def _unit(moments: Mapping[str, Tensor]) -> Tensor | None:
    """The unit of exp_avg, in float32 at least."""
    for key, root in UNITS.items():
        if key in moments and "exp_avg" in moments:
            return root(moments[key].to(torch.promote_types(moments[key].dtype, torch.float32)))
    return None


class PackedMoments:
    """The packed state of ``optimizer``: call ``unpack`` before its step and ``pack`` after it.

    names: of the parameters; pack: called with a state tensor and its name, ``exp_avg/fc.weight``, an exp_avg being in
    units of the root beside it where in_units is true.  Every floating state tensor of its parameter's shape and at
    least ``min_size`` coordinates is held packed alone.  ``optimizer.state_dict()``, a copy and a pickle of the
    optimizer have the decoded tensors at any time; nothing is attached to the copy.  After ``load_state_dict`` the
    loaded tensors are held as they are until the next step, which takes the same values from either.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], pack: Pack, min_size: int, in_units: bool
    ) -> None:
        self._optimizer, self._names, self._pack = optimizer, names, pack
        self._min_size, self._in_units = min_size, in_units
        self._packed: dict[Tensor, dict[str, Packed | PackedLogarithms]] = {}
        self._handles = [
            optimizer.register_state_dict_pre_hook(lambda _: self.show()),
            optimizer.register_state_dict_post_hook(lambda _, saved: self._hand_out(saved)),
            optimizer.register_load_state_dict_post_hook(lambda _: self._packed.clear()),
        ]
        vars(optimizer)["__getstate__"] = self._whole  # which copy and pickle ask an instance for

    def pack(self) -> None:
        """Pack the state that the step left, and let go of it."""
        for parameter, state in self._optimizer.state.items():
            name = self._names.get(parameter, "a parameter")
            large = {k: v for k, v in state.items() if is_large(v, self._min_size) and v.shape == parameter.shape}
            moments = relative(large) if self._in_units else large
            self._packed[parameter] = {key: self._pack(value, f"{key}/{name}") for key, value in moments.items()}
        self.hide()

    def unpack(self) -> None:
        """Put the decoded tensors in the places of the packed ones."""
        self.show()
        self._packed.clear()

    def _decoded(self, parameter: Tensor) -> dict[str, Tensor]:
        moments = {key: packed.unpack() for key, packed in self._packed.get(parameter, {}).items()}
        # roundings apart, it is none the less the larger one
        if "max_exp_avg_sq" in moments and "exp_avg_sq" in moments:
            moments["max_exp_avg_sq"] = moments["max_exp_avg_sq"].maximum(moments["exp_avg_sq"])
        return absolute(moments) if self._in_units else moments

    def show(self) -> None:
        """Put the decoded tensors into the optimizer's state for a while; what is packed stays."""
        for parameter in self._packed:
            self._optimizer.state[parameter].update(self._decoded(parameter))

    def _hand_out(self, saved: dict[str, Any]) -> None:
        # the optimizer's own are emptied
        saved["state"] = {number: dict(state) for number, state in saved["state"].items()}
        self.hide()

    def _whole(self) -> dict[str, Any]:
        """The state that makes a copy of the optimizer: its own answer, with the decoded tensors."""
        own = type(self._optimizer).__getstate__(self._optimizer)
        whole = {parameter: {**state, **self._decoded(parameter)} for parameter, state in own["state"].items()}
        return {**own, "state": defaultdict(dict, whole)}

    def hide(self) -> None:
        """Let go of the tensors that ``show`` has put there."""
        for parameter, moments in self._packed.items():
            for key in moments:
                self._optimizer.state[parameter].pop(key, None)

    def remove(self) -> None:
        """Detach from the optimizer, whose state is decoded for good."""
        self.unpack()
        vars(self._optimizer).pop("__getstate__", None)
        for handle in self._handles:
            handle.remove()
