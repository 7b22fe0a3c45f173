"""Quantized training of any model and optimizer: every large tensor is kept, or handed on, in a compressed format.

::

    compressed = nuq.CompressedTraining(model, optimizer, weights="smaq", activations="smaq", moments="smaq")
    ...                          # the training loop as it was
    print(compressed.ratios())   # {'compression_ratio': 4.9, 'compression_ratio_forward_autograd': 4.8, ...}

SmaQ: Shoghi, Bersatti, Qureshi, Kim, "SmaQ: smart quantization for DNN training by exploiting value clustering" (2021),
whose five kinds of tensors these are, with any format of ``nuq.quantized_training.formats``.  Differences: biases,
gains and other tensors below ``min_size`` are left as they are; second moments go through logarithms, and first moments
beside them are in units of their roots (``nuq.quantized_training.packed_moments``); rounding is keyed by seed, step,
worker and tensor, so a run can be repeated and resumed bit by bit.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nuq.errors import NonFiniteError
from nuq.kernels.spec import Key
from nuq.quantized_training import checks
from nuq.quantized_training.activation_hooks import ActivationHooks
from nuq.quantized_training.counts import Counts, TensorHistograms, ratios
from nuq.quantized_training.formats import Packed
from nuq.quantized_training.model_hooks import Hook
from nuq.quantized_training.packed_moments import PackedLogarithms, PackedMoments, needs_logarithms
from nuq.quantized_training.saved_tensors import SavedTensors
from nuq.settings.quantized_training import MIN_SIZE, OWN_EXPONENTS

OF_PASSES = ("activations", "activation_gradients")
OF_STEPS = ("weights", "gradients", "moments")
_ATTACHED: weakref.WeakSet[nn.Module | torch.optim.Optimizer] = weakref.WeakSet()


class CompressedTraining:
    """Quantized training of a model and its optimizer, attached before the first step or the load of a saved state.

    optimizer: None for inference, or to pack activations and their gradients alone.

    The kinds of tensors; each is a format (``smaq``, ``bf16``, ``smaq samples=16``; ``nuq.registry.legal_formats``), or
    empty, None or fp32 for none:

    weights: after each optimizer step a parameter becomes what its packed form decodes to.
    activations: what a pass through ``model``'s own forward saves for its backward pass is held packed.  Calling its
        parts, or other methods, packs none: attach to what is called; a warning says so once.
    activation_gradients: the gradients of layers' outputs.
    gradients: parameters' gradients, once per step, before the optimizer reads them (leave it out where they are
        compressed already, as by ``nuq.compress_hook``).
    moments: the optimizer's state, held packed between steps.

    The other parameters:

    min_size: coordinates of the smallest tensor that is packed.
    master: True keeps a float32 copy of a parameter with packed weights that takes the updates (of parameters in
        float32 or wider: an optimizer computes in its parameters' type).
    inference: in eval mode layers' outputs, too, are rounded to the activations' format, where they require no gradient
        (under ``no_grad`` or ``inference_mode``).

    Attributes:

    step, worker: key the random roundings; the step counts itself, the worker is the rank in a process group.
        ``worker`` matters for activations and their gradients alone: the rest is the same on all ranks that hold the
        same parameters.
    histograms: set it to a ``nuq.quantized_training.counts.TensorHistograms`` to collect histograms, and back to None.
    counted: set it to False for passes that belong into neither ratios nor histograms, as those of further workers.

    With master=True a parameter that somebody else has changed between two steps (loaded, clipped, averaged; not
    through ``.data``, which leaves no trace) goes on from what it was changed to.  A pickled model or a deep copy goes
    without its compression.

    What is not finite in a pass is left as it is, so that loss scaling may skip the step.  NonFiniteError where a
    parameter's gradient, a parameter after the step or a moment is not; the step of a fused optimizer that a GradScaler
    skips is none of ours.  ValueError for settings that are not legal, or without effect, and for sharded parameters
    (FSDP2), and nothing is attached then; RuntimeError for ``optimizer.step(closure)``, whose gradients do not exist
    yet when the step begins.  A step refuses what has become illegal since: the betas of a group that was added or
    loaded.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        weights: str | None = "",
        activations: str | None = "",
        activation_gradients: str | None = "",
        gradients: str | None = "",
        moments: str | None = "",
        seed: int = 0,
        min_size: int = MIN_SIZE,
        master: bool = False,
        inference: bool = False,
    ) -> None:
        specs = {"weights": weights, "activations": activations, "activation_gradients": activation_gradients}
        specs |= {"gradients": gradients, "moments": moments}
        self.formats = checks.formats(specs)
        checks.check_values(self.formats, seed=seed, min_size=min_size, master=master, inference=inference)
        checks.check_parts(model, optimizer, _ATTACHED)
        checks.check_stepped(model, optimizer, self.formats, min_size=min_size, master=master)
        self.seed, self.min_size, self.step = seed, min_size, 0
        self.worker = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        self.counts = Counts()
        self.histograms: TensorHistograms | None = None
        self.counted, self._unseen = True, {kind for kind in ("activations", *OF_STEPS) if kind in self.formats}
        self._purpose, self._pass, self._passes, self._number = "", "", {True: 0, False: 0}, 0
        self._attach(model, optimizer, master, inference)

    def _attach(self, model: nn.Module, optimizer: torch.optim.Optimizer | None, master: bool, inference: bool) -> None:
        self._attached = [each for each in (model, optimizer) if each is not None]
        _ATTACHED.update(self._attached)
        self._known = {parameter: name for name, parameter in model.named_parameters()}
        self._names: dict[Tensor, str] = {}
        self._has_masters, self._masters, self._versions = master, dict[str, Tensor](), dict[str, int]()
        begin = Hook(lambda module, _: self._begin(module.training))
        self._handles: list[Any] = [model.register_forward_pre_hook(begin, prepend=True)]
        self._moments = None
        if "activations" in self.formats:
            self._handles.append(SavedTensors(model, self._pack_activation, self.min_size))
        rounds_outputs = inference and "activations" in self.formats
        if "activation_gradients" in self.formats or rounds_outputs:
            gradient = self._gradient_of_an_output if "activation_gradients" in self.formats else None
            output = self._output if rounds_outputs else None
            self._handles.append(ActivationHooks(model, gradient, output, self.min_size))
        if optimizer is None:
            return
        self._learn_names(optimizer)
        self._handles.append(optimizer.register_step_pre_hook(self._enter))
        self._handles.append(optimizer.register_step_post_hook(self._leave))
        if "moments" in self.formats:
            in_units = self.formats["moments"].name not in OWN_EXPONENTS
            self._moments = PackedMoments(optimizer, self._names, self._pack_moment, self.min_size, in_units)
            self._handles.append(self._moments)

    def at(self, step: int, worker: int, purpose: str = "") -> None:
        """Set the key of the passes from here on, in loops that count themselves or compute several workers' passes."""
        self.step, self.worker, self._purpose, self._passes = step, worker, purpose, {True: 0, False: 0}

    def ratios(self) -> dict[str, float]:
        """The ratios of the last whole step, or without one of all passes: float32 bytes over packed bytes.

        They are ``compression_ratio`` and, by kind, ``compression_ratio_<tag>`` (``counts.TAGS``), of what was packed.
        """
        return ratios(self.counts.latest)

    def state_dict(self) -> dict[str, Any]:
        """The settings, the step and the float32 copies of master=True, to be saved beside model and optimizer."""
        masters = {name: value.clone() for name, value in self._masters.items()}
        specs = {kind: form.spec for kind, form in self.formats.items()}
        settings = {"master": self._has_masters, "seed": self.seed, "formats": specs, "min_size": self.min_size}
        return {**settings, "step": self.step, "masters": masters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a saved state; ValueError for one that is incomplete, of another model or of other settings."""
        checks.check_saved(state, self.state_dict(), {name: parameter for parameter, name in self._names.items()})
        device = {name: parameter.device for parameter, name in self._names.items()}
        self._masters = {name: value.to(device[name], copy=True) for name, value in state["masters"].items()}
        self._versions = {}  # the model may be loaded before or after this
        self.step = state["step"]

    def remove(self) -> None:
        """Detach from model and optimizer, whose state is decoded; parameters with a float32 copy take its values."""
        for handle in self._handles:
            handle.remove()
        self._restore_masters(list(self._names))
        self._handles, self._masters = [], {}
        for each in self._attached:
            _ATTACHED.discard(each)

    # --- formats ---

    def _key(self, kind: str, name: object, worker: int = 0) -> Key:
        return Key(self.seed, self.step, worker, f"{kind}/{name}")

    def _pass_key(self, kind: str) -> Key:
        """The key of the next tensor of a pass."""
        self._number += 1
        return self._key(kind, f"{self._purpose}/{self._pass}/{self._number}", self.worker)

    def _begin(self, training: bool) -> None:
        """Begin a pass; training and eval mode are counted apart, so an evaluation changes no bit of the training."""
        self._pass = f"{'train' if training else 'eval'} {self._passes[training]}"
        self._passes[training] += 1
        self._number = 0

    def _packed(self, kind: str, tensor: Tensor, key: Key) -> Packed:
        packed = self.formats[kind].pack(tensor, key)
        self._seen(kind, tensor, packed.nbytes)
        return packed

    def _seen(self, kind: str, tensor: Tensor, nbytes: int) -> None:
        self._unseen.discard(kind)
        if not self.counted and kind in OF_PASSES:
            return
        self.counts.add(kind, 4 * tensor.numel(), nbytes)
        if self.histograms is not None:
            self.histograms.add(kind, tensor)

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except NonFiniteError as error:
            raise NonFiniteError(f"step {self.step}: {what} is not finite, or too large for its format") from error

    # --- passes ---

    def _pack_activation(self, tensor: Tensor) -> Packed | None:
        with contextlib.suppress(NonFiniteError):
            return self._packed("activations", tensor, self._pass_key("activations"))
        return None

    def _gradient_of_an_output(self) -> Callable[[Tensor], Tensor]:
        return partial(self._rounded_gradient, self._pass_key("activation_gradients"))

    def _rounded_gradient(self, key: Key, gradient: Tensor) -> Tensor:
        with contextlib.suppress(NonFiniteError):
            rounded = self._packed("activation_gradients", gradient, key).unpack()
            # a gradient that is differentiated in turn (create_graph) has the derivative that it has unrounded
            return rounded + (gradient - gradient.detach()) if gradient.requires_grad else rounded
        return gradient

    def _output(self, tensor: Tensor) -> Tensor:
        with contextlib.suppress(NonFiniteError):
            return self.formats["activations"].roundtrip(tensor, self._pass_key("outputs"))[0]
        return tensor

    # --- the optimizer's step ---

    def _is_large(self, parameter: Tensor) -> bool:
        return parameter.is_floating_point() and parameter.numel() >= self.min_size

    def _learn_names(self, optimizer: torch.optim.Optimizer) -> None:
        """Learn the parameters' names, also of those that were added since."""
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            if parameter not in self._names:
                self._names[parameter] = self._known.get(parameter, f"parameter {len(self._names)}")

    def _enter(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not _is_nested(optimizer):
            self._before(optimizer, args, kwargs)

    def _leave(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not _is_nested(optimizer):
            self._after(optimizer)

    @torch.no_grad()
    def _before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            remedy = "call closure(), then step()"
            raise RuntimeError(f"optimizer.step(closure): its gradients cannot be compressed before the step; {remedy}")
        self._learn_names(optimizer)
        if "moments" in self.formats:
            checks.check_groups(optimizer, self.formats["moments"])
        if _skips(optimizer):
            if self._moments is not None:
                self._moments.show()
            return
        if "gradients" in self.formats:
            # a GradScaler's, which a fused optimizer takes off by itself
            scale = getattr(optimizer, "grad_scale", None)
            for parameter, name in self._names.items():
                gradient = parameter.grad
                if gradient is not None and gradient.layout == torch.strided and self._is_large(gradient):
                    unscaled = gradient if scale is None else gradient / scale
                    rounded = self._rounded("gradients", unscaled, name, "the gradient of")
                    gradient.copy_(rounded if scale is None else rounded * scale)
        self._restore_masters([parameter for parameter in self._names if parameter.grad is not None])
        if self._moments is not None:
            self._moments.unpack()

    def _rounded(self, kind: str, tensor: Tensor, name: str, what: str) -> Tensor:
        with self._named(f"{what} {name!r}"):
            return self._packed(kind, tensor, self._key(kind, name)).unpack()

    @torch.no_grad()
    def _restore_masters(self, parameters: Sequence[Tensor]) -> None:
        """Restore the float32 copies where nobody has changed the rounded parameters since."""
        for parameter in parameters:
            name = self._names[parameter]
            if name in self._masters and self._versions.get(name, parameter._version) == parameter._version:
                parameter.copy_(self._masters[name])

    @torch.no_grad()
    def _after(self, optimizer: torch.optim.Optimizer) -> None:
        if _skips(optimizer):
            if self._moments is not None:
                self._moments.hide()
            return
        if "weights" in self.formats:
            for parameter, name in self._names.items():
                if parameter.grad is None or not self._is_large(parameter):
                    continue
                if self._has_masters:
                    self._masters[name] = parameter.detach().clone()
                parameter.copy_(self._rounded("weights", parameter.detach(), name, "the parameter"))
                self._versions[name] = parameter._version
        if self._moments is not None:
            self._moments.pack()
        self._warn_once()
        self.counts.finish()
        self.at(self.step + 1, self.worker, self._purpose)

    def _pack_moment(self, tensor: Tensor, name: str) -> Packed | PackedLogarithms:
        form, key = self.formats["moments"], self._key("moments", name)
        with self._named(f"the optimizer's {name}"):
            if needs_logarithms(form.name, tensor, name):
                packed = PackedLogarithms.of(tensor, lambda logarithms: form.pack(logarithms, key))
            else:
                packed = form.pack(tensor, key)
        self._seen("moments", tensor, packed.nbytes)
        return packed

    def _warn_once(self) -> None:
        """Warn once of every kind that has packed nothing, but for uncounted passes and steps without gradients."""
        told = {"activations"} if self.counted else set()
        if any(parameter.grad is not None for parameter in self._names):
            told.update(OF_STEPS)
        for kind in sorted(told & self._unseen):
            self._unseen.discard(kind)
            warnings.warn(checks.none_packed(kind, self.formats[kind].spec, self.min_size), stacklevel=2)


def _is_nested(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the hook that asks belongs to a step inside another: torch calls them for a base class's step, too.

    This uses no counter: torch calls no hook after a step that raises, which would leave it too high for good.
    """
    wrapped = sys._getframe(2)  # torch's function around a step, which calls the hooks
    outer = wrapped.f_back
    while outer is not None and not (outer.f_code is wrapped.f_code and outer.f_locals["args"][0] is optimizer):
        outer = outer.f_back
    return outer is not None


def _skips(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a GradScaler has told a fused optimizer, whose step then does nothing, of gradients not finite."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
