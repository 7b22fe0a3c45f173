"""The baselines of compressed all-reduce: communication hooks of DDP on gloo that count the bytes they send.

``NAMES`` lists them in the order of their traffic:

- fp32: DDP without a hook.
- bf16: the work of PyTorch's ``bf16_compress_hook``, which DDP refuses to register without NCCL although gloo sums
  bfloat16 (torch 2.13).
- powersgd: rank 4, error feedback and warm start (Vogels et al., NeurIPS 2019, algorithms 1 and 2).
- nothing: no communication, so that the rest of a step is what it costs in compute.
"""

# No postponed annotations: DDP compares those of a hook as objects.

import math
import time

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

__all__ = ["NAMES", "Nothing", "PowerSGD", "Sent", "ring_bytes", "with_baseline"]

NAMES = ("fp32", "bf16", "powersgd", "nothing")
RANK = 4


class Sent:
    """The number of bytes that one rank handed to the network."""

    def __init__(self) -> None:
        self.bytes_sent = 0


class Nothing(Sent):
    """The state of a baseline that sends nothing: the buckets of the last step.

    buckets: when the gradients of each were all there (``time.perf_counter``), and its coordinates.
    """

    def __init__(self) -> None:
        super().__init__()
        self.buckets: list[tuple[float, int]] = []


def ring_bytes(num_bytes: int, num_ranks: int) -> int:
    """The bytes that each rank sends in a ring all-reduce of ``num_bytes``: 2 (n - 1) / n of them."""
    return 2 * (num_ranks - 1) * num_bytes // num_ranks


def with_baseline(model: DistributedDataParallel, name: str) -> Sent:
    """Register a baseline's hook; its count grows with every step, except fp32's, which has no hook to count in."""
    if name == "fp32":
        return Sent()
    state = {"bf16": Sent, "powersgd": PowerSGD, "nothing": Nothing}[name]()
    model.register_comm_hook(state, {"bf16": bf16_hook, "powersgd": powersgd_hook, "nothing": nothing_hook}[name])
    return state


def nothing_hook(state: Nothing, bucket: GradBucket) -> Future[Tensor]:
    if bucket.index() == 0:
        state.buckets.clear()
    state.buckets.append((time.perf_counter(), bucket.buffer().numel()))
    return _done(bucket.buffer())


def bf16_hook(state: Sent, bucket: GradBucket) -> Future[Tensor]:
    """A hook that takes the mean in bfloat16, overlapped with the backward pass.

    It is the fastest of five forms tried. With two ranks, at 100 Mbit/s all are equal; at 1 Gbit/s an exchange of the
    whole gradients that each rank sums takes 1.10 of its time, two stages of send and receive 1.10, an all-reduce that
    blocks in a thread 1.03; at 10 Gbit/s all are equal. With four ranks: 2.7, 1.4 and 1.05 of its time at 100 Mbit/s;
    two stages whose ranks send to one other at a time, 1.1.
    """
    buffer, num_ranks = bucket.buffer(), dist.get_world_size()
    rounded = buffer.to(torch.bfloat16)
    state.bytes_sent += ring_bytes(2 * rounded.numel(), num_ranks)
    work = dist.all_reduce(rounded, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: torch.mul(future.value()[0], 1 / num_ranks, out=buffer))


class PowerSGD(Sent):
    """The state of PowerSGD: per matrix the residual and the last right factor, by the parameter's place in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.residual: dict[int, Tensor] = {}
        self.right: dict[int, Tensor] = {}


def powersgd_hook(state: PowerSGD, bucket: GradBucket) -> Future[Tensor]:
    """A hook that sends matrices as two factors of ``RANK`` columns, all of a bucket in one all-reduce each.

    Vectors travel in full with the first of them.
    """
    num_ranks = dist.get_world_size()
    gradients = bucket.gradients()
    keys = [parameter.data_ptr() for parameter in bucket.parameters()]
    matrices = {k: g.view(g.shape[0], -1) for k, g in zip(keys, gradients, strict=True) if _pays(g)}
    vectors = [g for g in gradients if not _pays(g)]
    lefts: list[Tensor] = []
    for key, matrix in matrices.items():
        if key not in state.right:
            state.residual[key] = torch.zeros_like(matrix)
            state.right[key] = torch.randn(
                matrix.shape[1], RANK, generator=torch.Generator().manual_seed(matrix.numel())
            )
        state.residual[key].add_(matrix)  # the matrix to be sent, until its approximation is taken off
        lefts.append(state.residual[key] @ state.right[key])
    _mean(state, [*lefts, *vectors], num_ranks)
    lefts = [torch.linalg.qr(left).Q for left in lefts]
    rights = [state.residual[key].T @ left for key, left in zip(matrices, lefts, strict=True)]
    _mean(state, rights, num_ranks)
    for (key, matrix), left, right in zip(matrices.items(), lefts, rights, strict=True):
        torch.mm(left, right.T, out=matrix)
        state.residual[key].sub_(matrix)
        state.right[key] = right
    return _done(bucket.buffer())


def _pays(gradient: Tensor) -> bool:
    """Whether two factors are smaller than the matrix."""
    if gradient.dim() < 2:
        return False
    rows, columns = gradient.shape[0], math.prod(gradient.shape[1:])
    return RANK * (rows + columns) < rows * columns


def _mean(state: Sent, tensors: list[Tensor], num_ranks: int) -> None:
    """Replace the tensors by their mean over the ranks, in place and in one all-reduce."""
    if not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    state.bytes_sent += ring_bytes(4 * flat.numel(), num_ranks)
    dist.all_reduce(flat)
    flat.div_(num_ranks)
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def _done(value: Tensor) -> Future[Tensor]:
    future: Future[Tensor] = Future()
    future.set_result(value)
    return future
