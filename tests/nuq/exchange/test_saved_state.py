"""A state that is loaded is this rank's own and whole, or nothing is taken from it; and what a state says about its
exchanges.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.registry import METHODS
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from tests.nuq.ranks import second_group
from tests.nuq.small_training import backward, descend, hooked, net, own_entry, wrapped

FEEDBACK: dict[str, Any] = {"method": "alq", "bucket_size": 64, "feedback": "error", "update_at": [1], "num_samples": 1}
CASQ: dict[str, Any] = {"method": "casq", "refresh_every": 4, "clusters": 3, "sample_size": 64}
POWER: dict[str, Any] = {"method": "powersgd", "rank": 1}
LAYERS: dict[str, Any] = {"method": "qsgd", "layers": ["4 = amq bucket_size=64"]}
NAN = torch.full((480,), torch.nan)
ODD: list[tuple[dict[str, Any], list[Any], Any, str]] = [
    (FEEDBACK, ["step"], "3", "step='3': must be a whole number"),
    (FEEDBACK, ["step"], True, "step=True: must be a whole number"),
    (FEEDBACK, ["step"], -1, "step=-1: must be a whole number from 0 on"),
    (FEEDBACK, ["step"], float("nan"), "step=nan: must be a whole number"),
    (FEEDBACK, ["step"], 10**30, "must be a whole number"),
    (FEEDBACK, ["method"], np.array(["alq", "alq"]), "a state of method=array"),
    (FEEDBACK, ["layers"], np.array([1, 2]), "a state of layers=array"),
    (FEEDBACK, ["collective"], np.array(["auto", "gather"]), "must be one of gather"),
    (FEEDBACK, ["method"], None, "a state of method=None: this one has method='alq'"),
    (FEEDBACK, ["layers"], 3, "a state of layers=3"),
    (FEEDBACK, ["collective"], "ring", "collective='ring': must be one of gather"),
    (FEEDBACK, ["rank"], "0", "rank='0': must be a whole number"),
    (FEEDBACK, ["coders"], None, "coders=None: must be a dictionary"),
    (FEEDBACK, ["coders", "compressor"], [], "coders.compressor=[]: must be a dictionary"),
    (FEEDBACK, ["coders", "compressor"], {}, "a state with 0 levels (0 bits): these settings have 8 (bits=3)"),
    (
        FEEDBACK,
        ["coders", "compressor", "levels"],
        [-1.0, 1.0],
        "coders.compressor.levels=[-1.0, 1.0]: must be a float64 tensor",
    ),
    (
        FEEDBACK,
        ["coders", "compressor", "levels"],
        torch.linspace(-1, 1, 8),
        "levels='float32[8]': must be a float64 tensor",
    ),
    (FEEDBACK, ["coders", "compressor", "levels"], torch.full((8,), torch.nan).double(), "infinite or none"),
    (FEEDBACK, ["coders", "compressor", "levels"], torch.linspace(1, -1, 8).double(), "levels run from 1.0 to -1.0"),
    (
        FEEDBACK,
        ["coders", "compressor", "levels"],
        torch.linspace(-1, 1, 8).double().requires_grad_(),
        "without a gradient",
    ),
    (FEEDBACK, ["coders", "compressor", "levels"], torch.zeros(8, dtype=torch.float64, device="meta"), "with numbers"),
    (FEEDBACK, ["coders", "compressor", "gap"], -(10**400), "gap=-1000"),
    (FEEDBACK, ["coders", "compressor", "gap"], "small", "gap='small': must be a finite number or None"),
    (FEEDBACK, ["coders", "compressor", "multiplier"], 0.5, "multiplier=0.5: must be None"),
    (FEEDBACK, ["coders", "memories"], None, "coders.memories=None: must be a list"),
    (FEEDBACK, ["coders", "memories"], [7], "coders.memories[0]=7: must be a dictionary"),
    (FEEDBACK, ["coders", "memories", 0, "kinds"], "residuals", "kinds='residuals': must be a list of names"),
    (FEEDBACK, ["coders", "memories", 0, "workers"], [], "workers=[]: must be a dictionary"),
    (FEEDBACK, ["coders", "memories", 0, "workers"], {0: {}}, "has no residuals"),
    (FEEDBACK, ["coders", "memories", 0, "workers", 0, "residuals", "0.weight"], NAN, "residuals of '0.weight'"),
    (
        FEEDBACK,
        ["coders", "memories", 0, "workers", 0, "residuals", "0.weight"],
        torch.zeros(480).double(),
        "'float64[480]'",
    ),
    (
        FEEDBACK,
        ["coders", "memories", 0, "workers", 0, "residuals", "0.weight"],
        torch.zeros(40, 12),
        "for '0.weight', which has 480",
    ),
    (FEEDBACK, ["coders", "memories", 0, "workers", 0, "residuals", "0.weight"], 3.0, "must be a float32 tensor"),
    (
        FEEDBACK,
        ["coders", "memories", 0, "workers", 0, "residuals", "9.weight"],
        torch.zeros(4),
        "which has left the model",
    ),
    (FEEDBACK, ["statistics"], 4, "statistics=4: must be a dictionary"),
    (FEEDBACK, ["statistics"], {}, "statistics has no 0"),
    (FEEDBACK, ["statistics", 0], torch.zeros(3).double(), "statistics[0]=[3]: must be of shape"),
    (CASQ, ["coders", "compressor", "by_worker"], {"0": {}}, "by_worker"),
    (CASQ, ["coders", "compressor", "by_worker", 0], {"0.weight": [0, [[1.0, 2.0], [1.0]]]}, "two rows of thresholds"),
    (
        CASQ,
        ["coders", "compressor", "by_worker", 0],
        {"0.weight": [0, [[float("nan")], [1.0]]]},
        "two rows of thresholds",
    ),
    (POWER, ["coders", "compressor", "start of 0.weight"], NAN, "infinite or none"),
    (POWER, ["coders", "compressor", "start of 0.weight"], torch.zeros(3), "must be of two dimensions"),
    (LAYERS, ["coders", "layers"], {}, "coders.layers={}: must be a list"),
    (LAYERS, ["coders", "layers"], [], "coders.layers=[]: must be as many as here, 1"),
    (
        LAYERS,
        ["coders", "layers", 0, "compressor", "multiplier"],
        1.5,
        "multiplier=1.5: must be a number between 0 and 1",
    ),
]


def replaced(state: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    """A copy with another value at one place."""
    state = copy.deepcopy(state)
    place: Any = state
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return state


def shown(state: Any) -> str:
    """Every number of a state."""
    return repr(_plain(state))


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def odd_entries(group) -> None:
    states: dict[str, Any] = {}
    for settings, path, value, sentence in ODD:
        name = settings["method"]
        if name not in states:
            model, states[name] = hooked(group, net(), **settings)
            for step in range(3):
                descend(model, lambda model=model, step=step: backward(model, 0, step))
        state = states[name]
        before = shown(own_entry(state))
        with pytest.raises(ValueError, match=re.escape(sentence)):
            state.load_state_dict(replaced(own_entry(state), path, value))
        assert shown(own_entry(state)) == before, (path, value)
        state.load_state_dict(own_entry(state))
        assert shown(own_entry(state)) == before
    state = states["alq"]
    for value in (None, [], "state", 3):
        with pytest.raises(ValueError, match="must be what state_dict gave"):
            state.load_state_dict(value)
    for key in ("step", "coders", "statistics"):
        with pytest.raises(ValueError, match=f"a state without {key}"):
            state.load_state_dict({name: part for name, part in own_entry(state).items() if name != key})
    for each in states.values():
        each.close()


def test_a_simulations_state_stays_as_it_was_saved() -> None:
    """The memories go on changing, and what was saved does not."""
    memory = Memory(Feedback(kind="error"))
    settings = METHODS["topk"].settings()
    workers = Workers("topk", settings, 2, {"a": torch.Size([50])}, 1, torch.device("cpu"), memory=memory)
    draws = torch.Generator().manual_seed(0)

    def step(number: int) -> None:
        workers.exchange({w: torch.randn(50, generator=draws) for w in range(2)}, {0: 0.0, 1: 0.0}, number)

    step(0)
    saved = workers.state_dict()
    kept = copy.deepcopy(saved)
    step(1)
    assert repr(saved) == repr(kept) != repr(workers.state_dict())


def test_odd_entries_are_refused_and_nothing_is_taken(ranks: Any) -> None:
    ranks.run(odd_entries, world=1)


def odd_at_attach(group) -> None:
    model, state = hooked(group, net(), **FEEDBACK)
    backward(model, 0, 0)
    saved = own_entry(state)
    again = nuq.CompressionState(min_size=0, **FEEDBACK)
    again.load_state_dict(replaced(saved, ["statistics"], {}))
    with pytest.raises(ValueError, match="statistics has no 0"):
        again.attach(model)
    with pytest.raises(ValueError, match="has no model"):
        again.submit(None)  # type: ignore[arg-type]
    again.load_state_dict(saved)
    again.attach(model)
    assert again.step == 1


def test_a_state_that_does_not_fit_leaves_the_model_unattached(ranks: Any) -> None:
    ranks.run(odd_at_attach, world=1)


# --- whose state it is ---


def of_first_rank(group) -> None:
    """The state that rank 0 saved, on every rank."""
    rank = dist.get_rank(group)
    for settings, own in (
        (FEEDBACK, True),
        (CASQ, True),
        ({**FEEDBACK, "feedback": "none", "update_at": [1, 4], "num_samples": 3}, False),
    ):
        model, state = hooked(group, net(), **settings)
        for step in range(3):
            backward(model, rank, step)
        mine = own_entry(state)
        told: list[Any] = [mine if rank == 0 else None]
        dist.broadcast_object_list(told, src=0, group=group)
        if rank and own:
            sentence = (
                rf"a state of rank 0, loaded on rank {rank}: .* every rank saves its own "
                rf".*f'state{{rank}}\.pt', and loads it again"
            )
            with pytest.raises(ValueError, match=sentence):
                state.load_state_dict(told[0])
            old = {key: part for key, part in told[0].items() if key != "rank"}  # before states said it
            if settings is FEEDBACK:
                with pytest.raises(ValueError, match=sentence):
                    state.load_state_dict(old)
            assert shown(own_entry(state)) == shown(mine)
        elif not own:
            state.load_state_dict(told[0])  # levels are the same on all ranks
            assert not any(bool(row.any()) for row in own_entry(state)["statistics"].values()) or rank == 0
        backward(model, rank, 3)
        backward(model, rank, 4)
        state.close()


@pytest.mark.slow
def test_the_first_ranks_state_is_not_everyones(ranks: Any) -> None:
    ranks.run(of_first_rank, world=3)


def other_number_of_ranks(group) -> None:
    """auto may encode means in other bits then: what is known of them is left out."""
    settings: dict[str, Any] = {"method": "amq", "bucket_size": 64, "update_at": [1], "num_samples": 1}
    model, state = hooked(group, net(), **settings)
    for step in range(3):
        backward(model, dist.get_rank(group), step)
    saved = own_entry(state)
    saved["coders"]["second"] = {"levels": torch.linspace(-1, 1, 4).double(), "multiplier": 0.3, "gap": None}
    state.load_state_dict(saved)
    backward(model, dist.get_rank(group), 3)
    _, fixed = hooked(group, net(), **settings, collective="two_stage")
    with pytest.raises(ValueError, match=r"4 levels.*second_bits=4"):
        fixed.load_state_dict(saved)
    for each in (state, fixed):
        each.close()


def test_a_state_of_another_number_of_ranks(ranks: Any) -> None:
    ranks.run(other_number_of_ranks, world=2)


# --- sparse gradients ---


class Words(nn.Module):
    def __init__(self, kind: type[nn.Embedding | nn.EmbeddingBag]) -> None:
        super().__init__()
        self.table, self.last = kind(20, 8, sparse=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.table(x))


def sparse(group) -> None:
    for kind in (nn.Embedding, nn.EmbeddingBag):
        model = wrapped(group, Words(kind))
        with pytest.raises(ValueError, match=r"'table\.weight'"):
            nuq.CompressionState(model)
    frozen = Words(nn.Embedding)
    frozen.table.weight.requires_grad_(False)
    model, state = hooked(group, frozen)
    model(torch.tensor([1, 2])).sum().backward()
    state.close()


def test_sparse_gradients_are_refused_when_the_state_is_built(ranks: Any) -> None:
    ranks.run(sparse, world=1)


class Looked(nn.Module):
    """Words whose table is looked up by a function: no module tells that the gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Parameter(torch.ones(20, 8)), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(nn.functional.embedding(x, self.table, sparse=True))


def sparse_unseen(group) -> None:
    model, state = hooked(group, Looked())
    with pytest.raises(ValueError, match="'table'"):
        model(torch.tensor([1, 2])).sum().backward()
    state.close()


def test_sparse_gradients_are_refused_where_they_are_met(ranks: Any) -> None:
    ranks.run(sparse_unseen, world=2)


# --- what it says ---


def row(table: str, name: str) -> str:
    """The value of a row of a summary."""
    (value,) = re.findall(rf"^  {name} +(.*)$", table, re.MULTILINE)
    return value


def says(group) -> list[str]:
    rank, found = dist.get_rank(group), [nuq.CompressionState(method="alq").summary()]
    settings: dict[str, Any] = {"method": "qsgdinf", "bits": 2, "bucket_size": 64, "collective": "gather"}
    for gate in (False, True):
        model, state = hooked(group, net(), own=second_group(group) if gate else None, gate=gate, **settings)
        for step in range(5):
            if step == 2:
                found.append(state.summary())
            backward(model, rank, step)
        state.close()
        found.append(state.summary())
        size = sum(p.numel() for p in model.parameters())
        assert row(found[-1], "steps") == "5" and row(found[-1], "coordinates") == f"{size:,} on 2 ranks"
        for name, each in (("float32", 4), ("bfloat16", 2)):  # a ring of two ranks sends each coordinate once
            ratio = re.search(r"\((.*?) times as much\)", row(found[-1], f"{name} all-reduces"))
            assert ratio is not None and float(ratio[1]) == pytest.approx(5 * each * size / state.bytes_sent, abs=0.051)
        assert row(found[-1], "bits").startswith(f"{state.bits_by_layer['0.weight']:.3g} of 0.weight")
        assert len(found[-1].splitlines()) <= 13 and max(map(len, found[-1].splitlines())) <= 100
    return found


def test_a_summary_says_bytes_gate_and_time(ranks: Any) -> None:
    for alone, early, plain, waiting, gated in ranks.run(says, world=2):
        assert alone == "alq: without a model, nothing has been exchanged."
        assert row(early, "steps") == "2" and row(early, "seconds").startswith("encode ")
        assert plain.startswith("qsgdinf by gather\n") and "gate=True" in row(plain, "gate")
        assert row(waiting, "gate") == "not measured yet"
        assert re.fullmatch(r"[\d.e+-]+ ms by gather, [\d.e+-]+ ms in bfloat16: (gather|dense)", row(gated, "gate"))


def fsdp_and_loop_say(group) -> None:
    rank, plain = dist.get_rank(group), {"float32": 4, "bfloat16": 2}
    model = net()
    loop = nuq.OuterLoop(
        model, torch.optim.SGD(model.parameters(), lr=0.1), group=group, method="qsgdinf", every=2, min_size=0
    )
    for step in range(4):
        backward(model, rank, step)
        loop.step()
    told, size = loop.summary(), sum(p.numel() for p in model.parameters())
    assert told.startswith(f"qsgdinf by {loop.collective}\n") and row(told, "steps") == "4 local, 2 in a round"
    ratio = re.search(r"\((.*?) times", row(told, "float32 all-reduces"))
    assert ratio is not None and float(ratio[1]) == pytest.approx(4 * 4 * size / loop.bytes_sent, abs=0.051)
    loop.close()

    model, mesh = net(), DeviceMesh.from_group(group, "cpu")
    fully_shard(model, mesh=mesh)
    parts = [*nuq.compress_fsdp(model, "qsgdinf", bits=2), *nuq.compress_fsdp_weights(model, "qsgdinf", bits=2)]
    assert all(part.summary().endswith("nothing has been exchanged") for part in parts)
    for step in range(3):
        backward(model, rank, step)
    for part, name, what in zip(parts, ("gradients", "weights"), ("reduce-scatters", "gathers"), strict=True):
        told, transport = part.summary(), part.transport
        assert told.startswith(f"qsgdinf for {name} of the root module\n") and row(told, "steps").startswith("3")
        coordinates = int(row(told, "coordinates").split()[0].replace(",", ""))
        assert coordinates >= size and transport is not None  # shards are padded to one length
        for of, each in plain.items():  # of a ring of two ranks each sends half
            ratio = re.search(r"\((.*?) times", row(told, f"{of} {what}"))
            sent = transport.bytes_sent.total()
            assert ratio is not None and float(ratio[1]) == pytest.approx(3 * each * coordinates / 2 / sent, abs=0.051)


def test_fsdp_and_outer_loops_have_a_summary_too(ranks: Any) -> None:
    ranks.run(fsdp_and_loop_say, world=2)
