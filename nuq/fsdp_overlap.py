"""FSDP2's messages travel while the backward pass goes on: a reduce-scatter ends when that pass does.

FSDP makes views of a reduce-scatter's output as gradients, and nobody reads those before the backward pass has ended,
unless they are cast, divided, added to earlier ones, averaged between replicas, taken off the device, or given to
hooks.  Where none of that is so the output may be filled later; else it must be filled at once.

On a GPU, FSDP calls from a stream of its own, to which the memory of the output belongs: it is filled on that stream,
and the one on which the backward pass was called waits for it.  That is written for NCCL and has not run over it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nuq.errors import NonFiniteError

End = Callable[[], None]


def inside_backward() -> bool:
    """Whether this thread is in a backward pass now, on all ranks alike."""
    return torch._C._current_graph_task_id() != -1


def filled_later(module: Any, output: Tensor) -> list[Any]:
    """The module's sharded parameters, if the output of a mean may be filled when the backward pass has ended.

    They are DTensors, whose gradients are views of the output.  Empty where it must be filled at once, and wherever
    this torch does not say what it takes to know.
    """
    if not inside_backward():
        return []
    try:
        group = module._get_fsdp_state()._fsdp_param_group
        parameters = [own.sharded_param for own in group.fsdp_params]
        used_at_once = group._all_reduce_hook is not None or any(
            p.grad is not None
            or p._post_accumulate_grad_hooks
            or len(p.placements) > 1
            or p.dtype != output.dtype
            or p.device.type != output.device.type  # taken to the CPU
            for p in parameters
        )
    except (AttributeError, AssertionError):  # the latter: of several groups of parameters
        return []
    return [] if used_at_once else parameters


def on_this_stream(end: End, device: torch.device) -> End:
    """``end`` bound to the stream that is current now; the stream that is current when it is called waits for it."""
    streams = torch.get_device_module(device)
    stream = streams.current_stream(device)

    def end_there() -> None:
        try:
            with streams.stream(stream):
                end()
        finally:
            streams.current_stream(device).wait_stream(stream)

    return end_there


class AtTheEnd:
    """The ends of reduce-scatters that wait for the end of the backward pass, and errors that do.

    An error amid FSDP's own work would leave its modules without gradients ever after.
    """

    def __init__(self) -> None:
        self._ends: list[End] = []

    def add(self, end: End) -> None:
        """Call ``end`` when the backward pass has ended; its error then is that of the backward pass."""
        self._ends.append(end)
        # each time, as a backward pass that failed has left earlier ones behind
        torch.autograd.Variable._execution_engine.queue_callback(self.come)

    def fail(self, error: NonFiniteError) -> None:
        """Raise an error that all ranks have when the backward pass has ended."""
        self.add(functools.partial(_raise_last, error, 0))

    def come(self) -> None:
        """End all of them, and raise the first NonFiniteError, which all ranks have; any other error at once."""
        ends, self._ends = self._ends, []
        failures: list[NonFiniteError] = []
        with torch.no_grad():
            for end in ends:
                try:
                    end()
                except NonFiniteError as error:
                    failures.append(error)
        if failures:
            _raise_last(failures[0])


def _raise_last(error: Exception, hops: int = 2) -> None:
    """Raise an error when all else that waits for the end of the backward pass has been done.

    Other models' FSDP may wait for it, too, and what waits for that; an error here would leave it undone.
    """
    if not hops:
        raise error
    later = functools.partial(_raise_last, error, hops - 1)
    torch.autograd.Variable._execution_engine.queue_callback(later)


def check_views(name: str, parameters: Sequence[Any], output: Tensor) -> None:
    """RuntimeError where gradients are no views of the output that was filled later: they were read too early."""
    memory = output.untyped_storage().data_ptr()
    for p in parameters:
        if p.grad is not None and p.grad.to_local().untyped_storage().data_ptr() != memory:
            why = "something copied its gradients in the backward pass, before they had arrived"
            raise RuntimeError(f"FSDP2's module {name!r}: {why}; give overlap=False to nuq.compress_fsdp")
