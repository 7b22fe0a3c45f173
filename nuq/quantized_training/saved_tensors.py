"""The tensors that autograd saves for the backward pass, held packed by hooks during a model's forward pass.

Left as they are: parameters, buffers and their views, integers and booleans (masks, indices), tensors of fewer than
``min_size`` coordinates, those of which one number stands for many (expanded), and what ``torch.func`` wraps.  Under
autocast the cast copies of weights count as activations.  As without hooks, a tensor that is changed in place before
its backward pass is an error, unless it is packed.

A tensor that is saved twice (ReLU's result is the next convolution's input) is packed once, whatever view of it is
saved.  It is known by its storage, place and version: a storage's address is not given to another while a weak
reference to it is held, so that memory that was freed and handed out again is never taken for what lay there before.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.hooks import RemovableHandle

from nuq.parameters import dense
from nuq.quantized_training.formats import Packed
from nuq.quantized_training.model_hooks import Hook

Pack = Callable[[Tensor], Packed | None]


@dataclass(frozen=True)
class _Saved:
    """One view of a packed tensor."""

    packed: Packed
    shape: torch.Size
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Kept:
    """A tensor that is not packed, at the version that the backward pass needs: with hooks, autograd does not look."""

    tensor: Tensor
    version: int


def _unpack(saved: Any) -> Tensor:
    if isinstance(saved, _Kept):
        if saved.tensor._version != saved.version:
            what = f"a tensor of shape {tuple(saved.tensor.shape)} that the backward pass needs was changed in place"
            raise RuntimeError(f"{what}: it is at version {saved.tensor._version}, and {saved.version} was saved")
        return saved.tensor
    if not isinstance(saved, _Saved):
        return saved
    whole = saved.packed.unpack()
    same = whole.shape == saved.shape and whole.stride() == saved.stride
    return whole if same else whole.as_strided(saved.shape, saved.stride)


class _Forward:
    """One forward pass of ``module``, and what it has saved; caller: the frame that calls its hooks and its forward."""

    def __init__(self, module: nn.Module, pack: Pack, min_size: int, caller: FrameType) -> None:
        self._pack, self._min_size = pack, min_size
        self._caller: FrameType | None = caller
        self.closed = False
        self._thread = threading.get_ident()  # autograd's own threads call the hooks, too
        own = (*module.parameters(), *module.buffers())
        self._own = {tensor.untyped_storage()._cdata for tensor in own if _has_memory(tensor)}
        self._held: dict[Any, tuple[StorageWeakRef, weakref.ref[Packed]]] = {}
        self.hooks = saved_tensors_hooks(self.pack, _unpack)

    def pack(self, tensor: Tensor) -> Any:
        """The object that autograd holds in place of ``tensor``."""
        over = self.is_over()
        if over:
            self.close()
        if not _has_memory(tensor):
            return tensor
        storage = tensor.untyped_storage()
        repeated = any(not step and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
        small = tensor.numel() < self._min_size
        if over or small or repeated or not tensor.is_floating_point() or storage._cdata in self._own:
            return _Kept(tensor, tensor._version)
        shape, stride, gapless = tensor.shape, tensor.stride(), dense(tensor)
        view = () if gapless else (shape, stride)
        place = (storage._cdata, tensor.storage_offset(), tensor.numel(), tensor._version, tensor.dtype, view)
        packed = self._held[place][1]() if place in self._held else None
        if packed is None:
            packed = self._pack(tensor)
            if packed is None:
                return _Kept(tensor, tensor._version)
            self._held[place] = StorageWeakRef(storage), weakref.ref(packed)
        return _Saved(packed, shape, stride if gapless else packed.stride)

    def is_over(self) -> bool:
        """Whether the pass has ended, maybe without a word: torch runs no hook after a KeyboardInterrupt."""
        if threading.get_ident() == self._thread and self._caller is not None and not _is_running(self._caller):
            self._caller = None
        return self._caller is None

    def belongs_to(self, caller: FrameType) -> bool:
        return self._caller is caller

    def close(self) -> None:
        """Close the pass once; its hooks must be the uppermost ones.  The graph, and with it this object, lives on."""
        if not self.closed:
            self.hooks.__exit__()
        self.closed, self._caller = True, None
        self._held.clear()


def _is_running(frame: FrameType) -> bool:
    """Whether a frame is running in this thread."""
    above: FrameType | None = sys._getframe(1)
    while above is not None and above is not frame:
        above = above.f_back
    return above is not None


def _has_memory(tensor: Tensor) -> bool:
    """Whether a tensor is ordinary: no subclass of another meaning, sparse, without values, wrapped by torch.func."""
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided or tensor.device.type == "meta":
        return False
    try:
        tensor.untyped_storage()
    except NotImplementedError:
        return False
    return True


class _Open(threading.local):
    """The passes of a thread; a copy has none."""

    def __reduce__(self) -> tuple[type[_Open], tuple[()]]:
        return _Open, ()


class SavedTensors:
    """Hooks that pack what ``model`` saves for the backward pass.

    pack: gives a tensor's packed form, or None for one to be left as it is.

    Nested and recursive calls, passes that raise, ``no_grad`` and ``torch.utils.checkpoint`` (whose own hooks lie above
    these) are fine.  The hooks of a pass that ended in a KeyboardInterrupt pack nothing from then on and close when
    they are next called, or in ``remove``; not where others' lay around it (checkpoint, ``save_on_cpu``), which then
    take ours off torch's stack in place of their own.
    """

    def __init__(self, model: nn.Module, pack: Pack, min_size: int) -> None:
        self._passes = _Open()

        def enter(module: nn.Module, args: Any) -> None:
            del args
            forward = _Forward(module, pack, min_size, sys._getframe(2))  # Hook's frame lies between
            self._passes.open = [*self._left(), forward]
            forward.hooks.__enter__()

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            del module, args, output
            caller, left = sys._getframe(2), self._left()
            if any(forward.belongs_to(caller) for forward in left):
                while not left[-1].belongs_to(caller):  # one inside it that was interrupted
                    left.pop().close()
                left.pop().close()
            self._passes.open = left

        self._handles: list[RemovableHandle] = [
            model.register_forward_pre_hook(Hook(enter), prepend=True),
            model.register_forward_hook(Hook(leave), always_call=True),
        ]

    def _left(self) -> list[_Forward]:
        """The passes of this thread whose hooks are open, the innermost last; those over let go of their frames."""
        known = self._passes.__dict__.get("open", [])
        return [forward for forward in known if not (forward.is_over() and forward.closed)]

    def remove(self) -> None:
        """Detach the hooks; what is packed stays so until its backward pass."""
        for handle in self._handles:
            handle.remove()
        for forward in self._left():
            if forward.is_over():
                _call_uppermost_hooks()


def _call_uppermost_hooks() -> None:
    """Call the uppermost hooks, by a tensor that is saved."""
    with torch.inference_mode(False), torch.enable_grad():
        torch.ones((), requires_grad=True, dtype=torch.float32, device="cpu").exp()
