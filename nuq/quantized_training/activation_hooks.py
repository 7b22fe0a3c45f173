"""Hooks that put the gradients of layers' outputs, and in inference the outputs themselves, through a format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nuq.quantized_training.formats import is_large
from nuq.quantized_training.model_hooks import Hook

Through = Callable[[Tensor], Tensor]
PASSING = (nn.Identity, nn.Flatten, nn.Unflatten)


def leaves(model: nn.Module) -> list[nn.Module]:
    """The modules that have no modules inside, without those whose output is another's, in whatever shape."""
    own = (module for module in model.modules() if not isinstance(module, PASSING))
    return [module for module in own if next(module.children(), None) is None]


def _drops_nothing(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd) and not (module.training and module.p)


class ActivationHooks:
    """The hooks on the layers of ``model``.

    gradient: called in the forward pass for an output whose gradient will come, gives the function that this gradient
    goes through; output: the function that outputs go through in eval mode where no gradient is wanted; None: neither.
    Smaller tensors than ``min_size`` are left as they are.

    A layer that is computed without being called has no hook: ``nn.MultiheadAttention``'s output projection.  The hooks
    lie on tensors, not on modules, so that a following layer may work in place.
    """

    def __init__(
        self, model: nn.Module, gradient: Callable[[], Through] | None, output: Through | None, min_size: int
    ) -> None:
        def walk(value: Any, training: bool) -> Any:
            if type(value) in (tuple, list):
                return type(value)(walk(part, training) for part in value)
            if type(value) is dict:
                return {name: walk(part, training) for name, part in value.items()}
            if is_large(value, min_size):
                if value.requires_grad:
                    if gradient is not None:
                        value.register_hook(gradient())
                elif output is not None and not training:
                    return output(value)
            return value

        def hook(module: nn.Module, args: Any, value: Any) -> Any:
            del args
            return value if _drops_nothing(module) else walk(value, module.training)

        self._handles: list[RemovableHandle] = [module.register_forward_hook(Hook(hook)) for module in leaves(model)]

    def remove(self) -> None:
        """Detach the hooks; gradients on their way still go through."""
        for handle in self._handles:
            handle.remove()
