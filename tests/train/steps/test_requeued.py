"""A run that is requeued on more or fewer ranks goes on bit by bit: the number of workers stays."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from settings import resolving, sections
from tests.nuq.ranks import Ranks
from train.steps.trainer import Trainer

BASE: dict[str, Any] = {"data": "digits", "model": "cnn", "batch_size": 8, "workers": 4, "steps": 9, "eval_every": 0}
BUCKETS: dict[str, Any] = {"method": "qsgdinf", "method.bits": 2, "method.bucket_size": 256}
SHARDS, SERVER = {"exchange.collective": "two_stage"}, {"exchange.collective": "server"}
ERROR, BOTH = {"feedback.kind": "error"}, {"feedback.both": True}
CASES: dict[str, dict[str, Any]] = {
    "topk": {"method": "topk", "feedback.decay": 0.9},
    "both on shards": BUCKETS | ERROR | BOTH | SHARDS,
    "both at a server": BUCKETS | ERROR | BOTH | SERVER,
    "ef21": {"method": "topk", "feedback.kind": "ef21"},
    "ef21 both": BUCKETS | {"feedback.kind": "ef21"} | BOTH | SHARDS,
    "momentum": {"method": "dgc", "method.ratio": 0.05},
    "casq": {"method": "casq", "method.refresh_every": 4, "method.sample_size": 256, **SHARDS},
    "powersgd": {"method": "powersgd", "exchange.collective": "auto"},
    "layers": {"method": "topk", "layers": ["*bias = qsgdinf bucket_size=64"], **ERROR},
    "levels": {"method": "alq", "method.update_at": [0, 7], "method.num_samples": 6, "method.update_every": 0},
    "local": {**BUCKETS, **ERROR, "exchange.local_steps": 3, "exchange.fragments": 2},
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    group = Ranks(4)
    yield group
    group.stop()


def trained(group: Any, names: list[str], states: dict[str, bytes], until: int) -> dict[str, bytes]:
    """The states of the cases at this step, each going on from one of ``states`` where it is there."""
    found = {}
    for name in names:
        trainer = Trainer(resolving.resolve(BASE | CASES[name]), device=torch.device("cpu"), group=group)
        if name in states:
            trainer.load_state_dict(pickle.loads(states[name]))
        while trainer.step < until:
            trainer.train_step()
        found[name] = pickle.dumps(trainer.state_dict())
        trainer.part()
    return found


def bits(state: bytes) -> dict[str, bytes]:
    """Every tensor and number of a state, but for times and bytes of the network."""
    kept = {key: value for key, value in pickle.loads(state).items() if key != "totals"}
    return {name: _plain(value) for name, value in sections.dotted(_by_name(kept)).items()}


def _by_name(value: Any) -> Any:
    if isinstance(value, list):
        value = dict(enumerate(value))
    return {str(key): _by_name(one) for key, one in value.items()} if isinstance(value, dict) else value


def _plain(value: Any) -> bytes:
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()


def check(names: list[str], splits: list[int], ranks: Ranks) -> None:
    """From 3 steps on the first split, to 6 on the second, and so on; 1: without a process group."""
    whole = trained(None, names, {}, 3 * len(splits))
    states: dict[str, bytes] = {}
    for number, world in enumerate(splits, start=1):
        if world == 1:
            states = trained(None, names, states, 3 * number)
        else:
            every = ranks.run(trained, names, states, 3 * number, world=world)
            states = every[0]
            assert all(bits(one[name]) == bits(states[name]) for one in every for name in names)
    for name in names:
        there, here = bits(states[name]), bits(whole[name])
        assert there.keys() == here.keys()
        assert not [key for key in here if there[key] != here[key]], name


def test_it_goes_on_with_the_same_bits(ranks: Ranks) -> None:
    check(["both on shards", "ef21 both"], [2, 4], ranks)


@pytest.mark.slow
@pytest.mark.parametrize("splits", [[2, 4, 1], [4, 3, 2], [1, 4, 3]], ids=str)
def test_every_kind_of_memory_goes_on_with_the_same_bits(splits: list[int], ranks: Ranks) -> None:
    check(list(CASES), splits, ranks)
