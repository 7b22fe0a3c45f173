"""The checks of every rank of ``benchmarks.gpu.ranks``: each is a function called with the ranks' gloo group."""

from __future__ import annotations

import copy
import functools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import nuq
from benchmarks.timing import seconds
from nuq.errors import RankLost

Found = dict[str, Any]
METHODS: dict[str, dict[str, Any]] = {
    "qsgdinf": {"bits": 4},
    "nuqsgd": {"bits": 3},
    "trn": {},
    "alq": {"bits": 3},
    "eden": {"bits": 3},
    "ecdq": {"bits": 3},
    "topk": {"ratio": 0.01},
    "powersgd": {},
}
# A matrix product rounds as its library likes; all else is specified to the bit.
SAME_BITS = tuple(name for name in METHODS if name != "powersgd")
SHARDED: dict[str, tuple[dict[str, Any], float]] = {  # settings, and how far from the true mean
    "supersgd": ({}, 1e-5),
    "qsgdinf": ({"bits": 8, "bucket_size": 64}, 0.02),
    "alq": ({"bits": 4}, 0.7),
}
COLLECTIVES = ("gather", "two_stage", "server")
SEVERAL = 0.05  # MB of one of DDP's buckets: there are several
TIMEOUT_S = 30.0  # limit of an exchange, before which a rank may compile its kernels
DEAD_S, NOTICED_S = 6.0, 20.0  # the same where a rank dies, and until the survivor must have said so
SHARED_GPU = ("Duplicate GPU", "ncclInvalidUsage", "invalid usage")  # NCCL's words for two ranks on one GPU
DELAY_CYCLES, DELAY_S = 50_000_000, 0.02  # length of the work before a gradient is there


class Given(nn.Module):
    """A model whose gradients are the inputs, to the bit and on every device."""

    def __init__(self, shapes: tuple[tuple[int, ...], ...], device: str) -> None:
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes)

    def forward(self, *wanted: Tensor) -> Tensor:
        return torch.stack([(p * x).sum() for p, x in zip(self.parts, wanted, strict=True)]).sum()


def shapes(small: bool) -> tuple[tuple[int, ...], ...]:
    side = 40 if small else 600
    return ((side, side), (side,), (2 * side, side), (side, 3, 3, 3), (7,))


def drawn(rank: int, step: int, small: bool) -> list[Tensor]:
    """Tensors with heavy tails, other ones for every rank and step."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return [
        torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).exp()
        for shape in shapes(small)
    ]


def relaxed(check: Callable[..., Found]) -> Callable[..., Found]:
    """A check that does not treat warnings as errors.

    Ranks count every warning as an error; PyTorch may warn of a device, and the checks here are about numbers.
    """

    @functools.wraps(check)
    def call(*arguments: Any) -> Found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check(*arguments)

    return call


def settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def bits(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().cpu().reshape(-1) for tensor in tensors]).view(torch.int32)


def on_all_ranks(group: dist.ProcessGroup, mine: Tensor) -> bool:
    """Whether every rank has these bits."""
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, mine, group=group)
    return all(torch.equal(row, rows[0]) for row in rows)


@relaxed
def functional(group: dist.ProcessGroup, device: str, small: bool) -> Found:
    """The outcome of ``nuq.all_reduce`` on the device against the same on CPU tensors."""
    differ, told = [], {}
    for name, settings in METHODS.items():
        for number, collective in enumerate(COLLECTIVES):
            x = drawn(dist.get_rank(group), number, small)[0]
            given: Found = {"step": number, "timeout_s": TIMEOUT_S, "collective": collective, **settings}
            own = nuq.all_reduce(x.to(device), name, group, **given)
            cpu = nuq.all_reduce(x, name, group, **given)
            case = f"{name} {collective}"
            if own.device.type != device or not on_all_ranks(group, bits([own])):
                differ.append(f"{case}: between ranks")
            if torch.equal(bits([own]), bits([cpu])):
                told[case] = "same bits"
            else:
                told[case] = f"relative difference {float((own.cpu() - cpu).norm() / cpu.norm()):.1e}"
                if name in SAME_BITS:
                    differ.append(f"{case}: from the CPU, {told[case]}")
    assert not differ, "; ".join(differ)
    return told


def hooked(
    group: dist.ProcessGroup, device: str, small: bool, method: str, **settings: Any
) -> tuple[Any, nuq.CompressionState]:
    model = DistributedDataParallel(Given(shapes(small), device), process_group=group, bucket_cap_mb=SEVERAL)
    state = nuq.CompressionState(model, method=method, **{"min_size": 0, "timeout_s": TIMEOUT_S} | settings)
    model.register_comm_hook(state, nuq.compress_hook)
    return model, state


def late(device: str, wanted: list[Tensor]) -> list[Tensor]:
    """The tensors on the device, where they arrive long after this function has returned.

    A reader that does not wait reads other numbers.
    """
    if device == "cpu":
        time.sleep(DELAY_S)
        return wanted
    there = [x.to(device) for x in wanted]
    found = [torch.full_like(x, torch.nan) for x in there]
    settle(device)
    torch.cuda._sleep(DELAY_CYCLES)
    for to, x in zip(found, there, strict=True):
        to.copy_(x)
    return found


def hook_steps(group: dist.ProcessGroup, device: str, small: bool, method: str, settings: Found) -> list[Tensor]:
    """The bits of the mean gradients after every step.

    Each gradient is late, and its memory is overwritten as soon as it was read.
    """
    model, state = hooked(group, device, small, method, **settings)
    found = []
    for step in range(4):
        model(*late(device, drawn(dist.get_rank(group), step, small))).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        kept = [gradient.clone() for gradient in gradients]
        for gradient in gradients:
            gradient.fill_(torch.nan)
        model.zero_grad()
        found.append(bits(kept))
    state.close()
    return found


@relaxed
def hook(group: dist.ProcessGroup, device: str, small: bool) -> Found:
    """The outcome of the DDP hook on the device, with its exchange on its own stream, against the same on the CPU."""
    differ, told = [], {}
    for name, settings in METHODS.items():
        if name == "powersgd":  # PowerSGD has a collective of its own
            continue
        for collective in COLLECTIVES[:2]:
            own, cpu = (
                hook_steps(group, where, small, name, {**settings, "collective": collective})
                for where in (device, "cpu")
            )
            case = f"{name} {collective}"
            wrong = [step for step, (a, b) in enumerate(zip(own, cpu, strict=True)) if not torch.equal(a, b)]
            told[case] = f"other bits in steps {wrong}" if wrong else "same bits"
            if wrong:
                differ.append(f"{case}: from the CPU, {told[case]}")
            if not all(on_all_ranks(group, one) for one in own):
                differ.append(f"{case}: between ranks")
    assert not differ, "; ".join(differ)
    return told


def layers(width: int, device: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    ).to(device)


@relaxed
def fsdp(group: dist.ProcessGroup, device: str, small: bool) -> Found:
    """The gradients of FSDP2 against the mean of the ranks' own, on a model that no rank holds whole."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    rank, world, width = dist.get_rank(group), dist.get_world_size(group), 32 if small else 512
    if device == "cuda" and dist.get_backend(group) == "gloo":
        return {"not_made": "gloo's all_gather_into_tensor of CUDA tensors, which FSDP2 needs, dies (PyTorch 2.11)"}
    told = {}
    for method, (settings, tolerance) in SHARDED.items():
        whole = layers(width, device)
        model = copy.deepcopy(whole)
        mesh = DeviceMesh.from_group(group, device)
        fully_shard(model[2], mesh=mesh)
        fully_shard(model, mesh=mesh)
        nuq.compress_fsdp(model, method, timeout_s=TIMEOUT_S, **settings)
        x = torch.randn(16, width, generator=torch.Generator().manual_seed(rank)).to(device)
        for each in (whole, model):
            each(x).square().mean().backward()
        shards: list[Any] = [p.grad for p in model.parameters()]
        ours = torch.cat([shard.full_tensor().cpu().reshape(-1) for shard in shards])
        theirs = torch.cat([p.grad.cpu().reshape(-1) for p in whole.parameters() if p.grad is not None])
        rows = [torch.empty_like(theirs) for _ in range(world)]
        dist.all_gather(rows, theirs, group=dist.group.WORLD if world == dist.get_world_size() else group)
        mean = torch.stack(rows).mean(dim=0)
        error = float((ours - mean).norm() / mean.norm())
        assert error <= tolerance, f"{method}: the mean is off by {error:.2g}, allowed {tolerance}"
        told[method] = {"relative_error": error}
    return told


@relaxed
def overlap(group: dist.ProcessGroup, device: str, small: bool) -> Found:
    """The median seconds of a backward pass alone, of the exchange alone, of both under the hook, and of plain DDP."""
    width, depth = (64, 3) if small else (2048, 6)
    stack = [nn.Linear(width, width) for _ in range(depth)]
    x = torch.randn(8 if small else 1024, width, generator=torch.Generator().manual_seed(dist.get_rank(group))).to(
        device
    )

    def median_s(call: Callable[[], object]) -> float:
        times = []
        for _ in range(3 if small else 8):
            dist.barrier(group)
            times.append(seconds(call, lambda: settle(device)))
        return sorted(times[1:])[len(times[1:]) // 2]

    def wrapped() -> DistributedDataParallel:
        return DistributedDataParallel(nn.Sequential(*stack).to(device), process_group=group)

    plain = wrapped()
    num = sum(p.numel() for p in plain.parameters())

    def alone() -> None:
        with plain.no_sync():
            plain(x).square().mean().backward()

    told: Found = {
        "coordinates": num,
        "backward_s": median_s(alone),
        "plain_ddp_s": median_s(lambda: plain(x).square().mean().backward()),
    }
    model = wrapped()
    state = nuq.CompressionState(model, method="qsgdinf", bits=4, min_size=0, timeout_s=60.0, collective="gather")
    model.register_comm_hook(state, nuq.compress_hook)
    told["hook_s"] = median_s(lambda: model(x).square().mean().backward())
    state.close()
    vector = torch.randn(num, device=device)
    exchange = {"bits": 4, "collective": "gather", "timeout_s": 60.0}
    told["exchange_s"] = median_s(lambda: nuq.all_reduce(vector, "qsgdinf", group, step=1, **exchange))
    told["hidden_s"] = told["backward_s"] + told["exchange_s"] - told["hook_s"]
    return told


@relaxed
def dies(group: dist.ProcessGroup, device: str, small: bool) -> Found:
    """A check in which rank 1 ends in the middle of the third step; the others have to say so in time."""
    model, state = hooked(group, device, small, "qsgdinf", collective="gather", timeout_s=DEAD_S)
    begin, calls = state._here.driver.collective.begin, 0

    def deadly(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if dist.get_rank(group) == 1 and calls == 7:
            os._exit(7)
        return begin(*arguments)

    state._here.driver.collective.begin = deadly  # pyright: ignore[reportAttributeAccessIssue]
    began = time.monotonic()
    for step in range(10):
        try:
            model(*late(device, drawn(dist.get_rank(group), step, small))).backward()
            began = time.monotonic()
        except RuntimeError as error:
            took = time.monotonic() - began
            state.close()
            assert isinstance(state.error, RankLost), repr(error)
            assert took < NOTICED_S, f"after {took:.0f} s"
            return {"noticed_s": took, "said": str(error)}
    raise AssertionError("nobody noticed")


@relaxed
def nccl(group: dist.ProcessGroup, device: str, small: bool) -> Found:
    """The outcome of hook, exchange and FSDP2 over NCCL.

    That it refuses two ranks on one GPU is told; other refusals are errors.  A rank alone scatters nothing under FSDP2.
    """
    world = dist.get_world_size(group)
    if device == "cpu":
        backend = "gloo"  # the same code, rehearsed
    else:
        torch.cuda.set_device(0)
        backend = "nccl"
    own = dist.new_group(range(world), backend=backend)
    assert isinstance(own, dist.ProcessGroup)
    try:
        one = torch.ones(1, device=device)
        dist.all_reduce(one, group=own)
        settle(device)
    except RuntimeError as error:
        if world == 1 or not any(words in str(error) for words in SHARED_GPU):
            raise
        return {"refused": str(error).strip().splitlines()[-1][:300]}
    x = drawn(dist.get_rank(group), 0, small)[0]
    given: Found = {"step": 0, "bits": 4, "timeout_s": TIMEOUT_S}
    mine, theirs = (
        nuq.all_reduce(tensor, "qsgdinf", some, **given) for tensor, some in ((x.to(device), own), (x, group))
    )
    assert torch.equal(bits([mine]), bits([theirs])), "an exchange over NCCL has other bits than one over gloo"
    settings: Found = {"bits": 4, "collective": "gather"}
    steps = [hook_steps(some, where, small, "qsgdinf", settings) for some, where in ((own, device), (group, "cpu"))]
    assert all(map(torch.equal, *steps)), "the hook over NCCL gives other bits than over gloo"
    return {
        "backend": backend,
        "sum": float(one),
        "hook": "same bits",
        "fsdp": fsdp(own, device, small) if world > 1 else "not tried",
    }
