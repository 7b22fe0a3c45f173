"""Errors between ranks that one process can make: as a group of its own, or with what another rank would have told."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.parallel import DistributedDataParallel

import nuq
from nuq.exchange import agreement, transport
from tests.errors.rows import Row, row


@contextlib.contextmanager
def alone() -> Iterator[dist.ProcessGroup]:
    """The only rank of a process group."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        assert dist.group.WORLD is not None
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 12), nn.ReLU(), nn.Linear(12, 4))


def on_one_rank(call: str, given: str, make: Callable[[], object]) -> Row:
    def run() -> None:
        with alone():
            make()

    return row(call, given, run)


def parameters(given: str, model: Callable[[], Any]) -> Row:
    """A model that a state of the hook does not take."""
    return on_one_rank("nuq.CompressionState(model)", given, lambda: nuq.CompressionState(model()))


# --- states of the hook ---


def _trained(method: str) -> dict[str, Any]:
    """This rank's state after a step of the hook."""
    model = DistributedDataParallel(net())
    with contextlib.closing(nuq.CompressionState(model, method=method, min_size=0)) as state:
        model.register_comm_hook(state, nuq.compress_hook)
        model(torch.ones(2, 40)).sum().backward()
        return copy.deepcopy(state.state_dict())


def loaded(
    given: str,
    change: Callable[[dict[str, Any]], Any],
    method: str = "topk",
    into: str = "",
    **settings: Any,
) -> Row:
    """A state of a hook with a change, or what another hook (``into``, settings) is given."""

    def make() -> None:
        saved = _trained(method)
        with contextlib.closing(nuq.CompressionState(net(), method=into or method, min_size=0, **settings)) as state:
            state.load_state_dict(change(saved))

    return on_one_rank("nuq.CompressionState.load_state_dict(state)", given, make)


def entry(*path: Any, value: Any = None) -> Callable[[dict[str, Any]], Any]:
    """This rank's state with another value at the path, or without it."""

    def change(states: dict[str, Any]) -> dict[str, Any]:
        place = states["rank0"][0]
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return states

    return change


def ranks(*numbers: int, **others: Any) -> Callable[[dict[str, Any]], Any]:
    """This rank's state under the names of these ranks, each with its number and other entries."""

    def change(states: dict[str, Any]) -> dict[str, Any]:
        (own,) = states["rank0"]
        return {
            f"rank{number}": ({**copy.deepcopy(own), "rank": number, **{k: v[at] for k, v in others.items()}},)
            for at, number in enumerate(numbers)
        }

    return change


MEMORY = ("coders", "memories", 0, "workers", 0, "residuals")


# --- the hook ---


def _after_errors(*numbers: float) -> None:
    """Backward passes under the hook, of which only the last one's error counts."""
    model = DistributedDataParallel(net())
    with contextlib.closing(nuq.CompressionState(model, method="topk", min_size=0)) as state:
        model.register_comm_hook(state, nuq.compress_hook)
        for number in numbers[:-1]:
            with contextlib.suppress(nuq.NonFiniteError):
                model(torch.full((2, 40), number)).sum().backward()
        model(torch.full((2, 40), numbers[-1])).sum().backward()


def _mean_beyond_float16() -> None:
    """One coordinate in a hundred travels, a hundred times as large."""
    model = DistributedDataParallel(nn.Linear(400, 1).half())
    with contextlib.closing(nuq.CompressionState(model, method="randomk", ratio=0.01, min_size=0)) as state:
        model.register_comm_hook(state, nuq.compress_hook)
        model(torch.full((1, 400), 2000.0, dtype=torch.float16)).sum().backward()


def _unknown_parameter() -> None:
    bucket: Any = SimpleNamespace(parameters=lambda: [torch.ones(3)])
    with contextlib.closing(nuq.CompressionState(net(), method="topk", min_size=0)) as state:
        nuq.compress_hook(state, bucket)


def _sparse_gradients() -> None:
    weight = nn.Parameter(torch.ones(10, 4))

    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

    with contextlib.closing(nuq.CompressionState(Looked(), method="topk", min_size=0)):
        nn.functional.embedding(torch.tensor([1]), weight, sparse=True).sum().backward()


class Sharded(nn.Module):
    """A model whose parameter says that it is a shard."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4))
        self.weight.placements = ()  # pyright: ignore[reportAttributeAccessIssue]


def hook(key: str, given: str, **settings: Any) -> Row:
    """A setting that is refused when the state is built."""
    return on_one_rank(f"nuq.CompressionState({key}=)", given, lambda: nuq.CompressionState(net(), **settings))


def mean(key: str, given: str, **settings: Any) -> Row:
    arguments: dict[str, Any] = {"tensor": torch.ones(50), "step": 0} | settings
    return on_one_rank(f"nuq.all_reduce({key}=)", given, lambda: nuq.all_reduce(**arguments))


def _saved_under_another_name(folder: Path) -> None:
    with alone(), contextlib.closing(nuq.CompressionState(net(), method="topk", min_size=0)) as state:
        save({"compression": state}, checkpoint_id=folder)
        nuq.saved_states(folder, "hook")


def _apart_from_another() -> None:
    assert dist.group.WORLD is not None
    with mock.patch.object(dist, "get_world_size", lambda group=None: 2 - (group is not None)):
        transport.apart(dist.group.WORLD)


def _without_the_others() -> None:
    assert dist.group.WORLD is not None
    with mock.patch.object(dist, "new_group", side_effect=dist.DistStoreError("wait timeout after 600000ms")):
        transport.apart(dist.group.WORLD)


# --- what other ranks tell ---


def told(call: str, given: str, make: Callable[[Any], object], **answers: Any) -> Row:
    """A check of what all ranks have, on a transport that gives these answers."""
    return row(call, given, lambda: make(SimpleNamespace(**answers)))


def _of_rank_1(**settings: Any) -> Callable[[str, str], list[str]]:
    """All ranks' texts, of which the second has these settings."""
    return lambda text, purpose: [text, json.dumps(json.loads(text) | settings)]


SHARD = {"shard": [0], "of": [2], "cut": ["S(0)"], "shape": [4, 4]}

ROWS = [
    row("nuq.CompressionState(model)", "without processes", lambda: nuq.CompressionState(net())),
    parameters("a list", list),
    parameters("of complex numbers", lambda: nn.Linear(3, 3, dtype=torch.complex64)),
    parameters("in float64", lambda: net().double()),
    parameters("a sparse embedding", lambda: nn.Embedding(10, 4, sparse=True)),
    parameters("of FSDP2", Sharded),
    row("nuq.compress_hook(state)", "without a model", lambda: nuq.compress_hook(nuq.CompressionState(), None)),  # pyright: ignore[reportArgumentType]
    on_one_rank("loss.backward() under the hook", "a gradient that is not finite", lambda: _after_errors(torch.nan)),
    on_one_rank("loss.backward() under the hook", "after an error", lambda: _after_errors(torch.nan, 1.0)),
    on_one_rank("loss.backward() under the hook", "a sparse gradient", _sparse_gradients),
    on_one_rank("loss.backward() under the hook", "a mean beyond float16", _mean_beyond_float16),
    on_one_rank("nuq.compress_hook(bucket)", "of another model", _unknown_parameter),
    hook("timeout_s", "1e300", timeout_s=1e300),
    hook("group", "3", group=3),
    hook("collective", "'two_stage', of sgd", method="sgd", collective="two_stage"),
    hook("per_machine", "3, of one rank", collective="hierarchical", per_machine=3),
    hook("num_aggregate", "2, of one worker", collective="server", num_aggregate=2),
    hook("gate", "True, with momentum", method="dgc", gate=True),
    hook("skip_1d", "True, with momentum", method="topk", feedback="momentum", skip_1d=True),
    # states
    loaded("a list", lambda states: []),
    loaded("without step", entry("step")),
    loaded("step=-1", entry("step", value=-1)),
    loaded("of another method", lambda states: states, into="randomk"),
    loaded("of other layers", lambda states: states, layers=["0 = randomk"]),
    loaded("of another number of bits", lambda states: states, "alq", bits=4),
    loaded("without a memory", lambda states: states, feedback="none"),
    loaded("without the encoder", entry("coders", "compressor")),
    loaded("a memory of another size", entry(*MEMORY, "0.weight", value=torch.zeros(3))),
    loaded("a memory of a parameter that is not here", entry(*MEMORY, "x", value=torch.zeros(3))),
    loaded("under another rank's name", lambda states: {"rank1": states["rank0"]}),
    loaded("of two ranks, one of which is missing", ranks(0, 2, ranks=[3, 3])),
    loaded("of trainings on two and three ranks", ranks(0, 1, ranks=[2, 3])),
    loaded("of one of two ranks", ranks(0, ranks=[2])),
    loaded("of rank 1 alone", ranks(1)),
    loaded("of two machines", lambda states: states["rank0"][0] | {"memories": 2}),
    loaded("of two ranks at different steps", ranks(0, 1, ranks=[2, 2], step=[1, 2])),
    loaded("of two groups", ranks(0, 1, 2, 3, group=[[0, 1], [0, 1], [2, 3], [2, 3]])),
    # all_reduce
    row("nuq.all_reduce", "without processes", lambda: nuq.all_reduce(torch.ones(4), step=0)),
    mean("tensor", "3.0", tensor=3.0),
    mean("tensor", "sparse", tensor=torch.ones(4).to_sparse()),
    mean("tensor", "nan", tensor=torch.full((50,), torch.nan)),
    mean("step", "0.5", step=0.5),
    mean("timeout_s", "-1", timeout_s=-1),
    mean("timeout_s", "'x'", timeout_s="x"),
    mean("method", "'alqq'", method="alqq"),
    mean("method", "a list", method=["alq"]),
    mean("bitz", "a name that is none", bitz=3),
    mean("bits", "0", bits=0),
    mean("collective", "'dense'", collective="dense"),
    mean("collective", "'hierarchical'", collective="hierarchical"),
    mean("objective", "'mean'", method="alq", objective="mean"),
    row("nuq.saved_states(checkpoint_id, name)", "another name", _saved_under_another_name),
    on_one_rank("a group for one state", "of one of two ranks", _apart_from_another),
    on_one_rank("a group for one state", "for which another rank is late", _without_the_others),
    # what other ranks have
    told(
        "all ranks",
        "other settings on rank 1",
        lambda others: agreement.check_settings(others, {"method": "alq", "bits": 3}),
        texts=_of_rank_1(bits=4),
    ),
    told(
        "all ranks",
        "another number of local steps on rank 1",
        lambda others: agreement.check_steps(others, 3),
        numbers=lambda mine, purpose: [mine, [4]],
    ),
    told(
        "all ranks",
        "other shards on rank 1",
        lambda others: agreement.check_shards(others, {"weight": SHARD}),
        texts=_of_rank_1(weight=SHARD | {"shard": [1]}),
    ),
    told(
        "all ranks, debug=True",
        "other bits on rank 1",
        lambda others: agreement.check_same(others, "the means", torch.ones(2)),
        numbers=lambda mine, purpose: [mine, [7]],
    ),
]

_LOST = "tests/nuq/exchange/test_transport.py::test_the_others_name_the_rank_that_is_lost"
_SERVER = "nuq/exchange/collectives/parameter_server.py:ParameterServer"

HELD = {
    "nuq/exchange/transport.py:Swap.wait": _LOST,
    "nuq/exchange/transport.py:Transport.post": _LOST,
    "nuq/exchange/transport.py:Transport.dense_sum": _LOST,
    "nuq/exchange/transport.py:Transport.lost": (
        "tests/nuq/exchange/test_transport.py::test_an_error_of_sending_that_tells_of_no_broken_connection"
    ),
    f"{_SERVER}._receive": _LOST,
    f"{_SERVER}._next": "tests/nuq/exchange/test_rank_failed.py::test_the_others_name_the_rank_and_its_error",
    "nuq/exchange/collectives/hierarchical.py:Machines.of": (
        "tests/nuq/test_ddp.py::test_part_of_the_ranks_needs_a_group_of_its_own_for_dense"
    ),
    "nuq/exchange/collectives/hierarchical.py:Hierarchical._told": (
        "tests/nuq/exchange/test_collectives.py::test_machines_of_several_ranks"
    ),
    "nuq/fsdp_between.py:MeanBetween._made": "tests/nuq/test_fsdp_between.py::test_what_is_not_between_machines",
    "nuq/fsdp_overlap.py:_raise_last": "tests/nuq/test_fsdp_overlap.py::test_failures",
}

# A lost rank is met by the operation that comes first; the sentence is that of `_receive`.
INTERNAL = {
    f"{_SERVER}.{name}": "race: which operation meets a lost rank first" for name in ("_send", "first", "_wait")
}
