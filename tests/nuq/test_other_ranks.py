"""A training that goes on on another number of ranks: what the ranks owe together stays, and nothing is lost unsaid."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

import nuq
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from tests.nuq.small_training import (
    assert_same_bits,
    backward,
    descend,
    gradients,
    hooked,
    net,
    own_entry,
    parameters,
)

BUCKETS: dict[str, Any] = {"bits": 2, "bucket_size": 64}
SEVERAL: dict[str, Any] = {"bucket_cap_mb": 0.002}
CASES: dict[str, dict[str, Any]] = {
    "topk": {"method": "topk", "ratio": 0.1, "collective": "gather"},
    "momentum": {"method": "dgc", "ratio": 0.1, "collective": "gather"},
    "decay": {"method": "qsgdinf", **BUCKETS, "feedback": "error", "decay": 0.5, "both": True, "collective": "server"},
    "both on shards": {"method": "qsgdinf", **BUCKETS, "feedback": "error", "both": True, "collective": "two_stage"},
    "ef21": {"method": "topk", "ratio": 0.1, "feedback": "ef21", "collective": "gather"},
    "ef21 both": {"method": "qsgdinf", **BUCKETS, "feedback": "ef21", "both": True, "collective": "two_stage"},
    "layers": {"method": "topk", "layers": ["4 = qsgdinf bucket_size=64"], "feedback": "error", "collective": "gather"},
    "powersgd": {"method": "powersgd", "rank": 1},
    "levels": {"method": "alq", "bucket_size": 64, "update_at": [0, 9], "num_samples": 9, "update_every": 0},
}


def trained(group, settings: dict[str, Any], steps: int = 3) -> Any:
    model, state = hooked(group, net(), ddp=SEVERAL, **settings)
    for step in range(steps):
        descend(model, lambda step=step: backward(model, dist.get_rank(group), step))
    return model, state


def saved(group, names: list[str]) -> dict[str, Any]:
    """The entry of this rank after three steps, of every case."""
    found = {}
    for name in names:
        _, state = trained(group, CASES[name])
        found[name] = state.state_dict()
        state.close()
    return found


def owed(entries: list[dict[str, Any]], decay: float = 1.0) -> dict[str, torch.Tensor]:
    """What the ranks owe the next mean of every vector, by an own count: float64[n], by encoder, kind and vector.

    That is decay times the mean residual, and what the owners of means owe; of estimates the mean less that.
    """
    found: dict[str, torch.Tensor] = {}
    for encoder in range(1 + len(entries[0]["coders"].get("layers", ()))):
        every = [[one["coders"], *one["coders"].get("layers", ())][encoder] for one in entries]
        for at in range(len(every[0].get("memories", ()))):
            kept = [of for one in every for of in one["memories"][at]["workers"].values()]
            for kind in every[0]["memories"][at]["kinds"]:
                for name in {name for of in kept for name in of[kind]}:
                    total = sum((of[kind][name].double() for of in kept if name in of[kind]), torch.zeros(()))
                    share = 1.0 if at else (decay if kind == "residuals" else 1.0) / len(kept)
                    sign = -1.0 if at and "estimates" in every[0]["memories"][0]["kinds"] else 1.0
                    of_first = every[0]["memories"][0]["kinds"][0] if at else kind
                    key = f"{encoder} {of_first} {name.removeprefix('mean/')}"
                    found[key] = found.get(key, torch.zeros(())) + sign * share * total
    return found


def goes_on(group, states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Load all entries on this number of ranks, and take two steps."""
    rank, found = dist.get_rank(group), {}
    for name, of_ranks in states.items():
        model, state = hooked(group, net(), ddp=SEVERAL, **CASES[name])
        state.load_state_dict(of_ranks)
        found[name] = own_entry(state)
        for step in range(3, 5):
            descend(model, lambda model=model, step=step: backward(model, rank, step))
        assert state.step == 5
        assert_same_bits(group, parameters(model))
        state.close()
    return found


def check(names: list[str], before: int, after: int, ranks: Any) -> None:
    states: dict[str, dict[str, Any]] = {name: {} for name in names}
    for of_rank in ranks.run(saved, names, world=before):
        for name in names:
            states[name] |= of_rank[name]
    there = ranks.run(goes_on, states, world=after)
    for name in names:
        entries, now = [one for (one,) in states[name].values()], [of_rank[name] for of_rank in there]
        decay = CASES[name].get("decay", 1.0)
        was, stays = owed(entries, decay), owed(now, decay)
        assert was.keys() == stays.keys() and bool(was) == (name != "levels"), name
        for key, vector in was.items():
            torch.testing.assert_close(stays[key], vector, rtol=1e-5, atol=1e-7, msg=f"{name}: {key}")
        if was:  # the same memory on every rank, and no longer any of means
            own = [one["coders"]["memories"][0]["workers"][rank] for rank, one in enumerate(now)]
            for kind, of_kind in own[0].items():
                assert all(torch.equal(other[kind][key], of_kind[key]) for other in own for key in of_kind)
            assert not any(memory["workers"] for one in now for memory in one["coders"]["memories"][1:])
        if "ef21" in name:  # estimates, whose mean all ranks step along
            for key, mean in now[0]["coders"]["memories"][0]["means"].items():
                assert torch.equal(mean, entries[0]["coders"]["memories"][0]["means"][key])
                torch.testing.assert_close(own[0]["estimates"][key], mean, rtol=1e-4, atol=1e-6)
        for key in ("levels", "start of 0.weight"):
            if key in entries[0]["coders"]["compressor"]:
                assert torch.equal(now[-1]["coders"]["compressor"][key], entries[0]["coders"]["compressor"][key])
        if name == "levels":  # the weights of all histograms
            sums = [sum(float(one["statistics"][0].sum()) for one in side) for side in (entries, now)]
            assert sums[0] != 0 and sums[1] == pytest.approx(sums[0])


@pytest.mark.parametrize(
    ("before", "after"),
    [(2, 3), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((3, 2), (2, 1), (1, 4), (4, 3)))],
)
def test_what_the_ranks_owe_together_stays(before: int, after: int, ranks: Any) -> None:
    names = ["topk", "both on shards", "ef21 both", "levels"] if (before, after) == (2, 3) else list(CASES)
    check(names, before, after, ranks)


def refused(group, of_two: dict[str, Any]) -> None:
    rank, (model, state) = dist.get_rank(group), hooked(group, net(), **CASES["topk"])
    wrong: Any
    for wrong, said in (
        ({"rank0": of_two["rank0"]}, f"rank 0 of 2, loaded on rank {rank} of 3"),
        ({**of_two, "rank1": ({**of_two["rank1"][0], "step": 4},)}, "steps"),
        ({"rank0": of_two["rank1"], "rank1": of_two["rank0"]}, "rank 1 under the name of rank 0"),
        ({name: ({**one, "ranks": 4},) for name, (one,) in of_two.items()}, "rank 2, 3"),
        ({"rank0": of_two["rank0"], "rank1": ({**of_two["rank1"][0], "ranks": 3},)}, "2 and 3 ranks"),
        ({"rank0": 3}, "state=3"),
        ({"rank0": ({**of_two["rank0"][0], "ranks": 10**400},)}, "ranks=1000"),
    ):
        with pytest.raises(ValueError, match=said):
            state.load_state_dict(wrong)
        assert state.step == 0
    alone = pickle.loads(pickle.dumps(state))
    alone.load_state_dict({"rank0": of_two["rank0"]})  # without a model it may be anybody's
    with pytest.raises(ValueError, match=f"rank 0 of 2, loaded on rank {rank} of 3"):
        alone.attach(model)
    older = {name: {key: part for key, part in one.items() if key != "ranks"} for name, (one,) in of_two.items()}
    for given in (of_two, older):  # as 3902daa2 wrote them, under the ranks' names
        alone.load_state_dict(given)
        alone.attach(model)
        assert alone.step == 3
    state.load_state_dict(of_two)
    assert repr(own_entry(alone)["coders"]) == repr(own_entry(state)["coders"])
    for each in (alone, state):
        each.close()
    _, casq = hooked(group, net(), method="casq", refresh_every=4, clusters=3, sample_size=64, feedback="error")
    backward(casq._here._model, rank, 0)
    every: list[Any] = [None] * 3
    dist.all_gather_object(every, own_entry(casq), group=group)
    fewer = {f"rank{number}": ({**one, "ranks": 2},) for number, one in enumerate(every[:2])}
    with pytest.warns(UserWarning, match="the thresholds that casq keeps for each worker are left out"):
        casq.load_state_dict(fewer)
    assert own_entry(casq)["coders"]["compressor"] == {"by_worker": {}}
    casq.close()


def test_nothing_is_left_out_in_silence(ranks: Any) -> None:
    of_two = [of_rank["topk"] for of_rank in ranks.run(saved, ["topk"], world=2)]
    ranks.run(refused, of_two[0] | of_two[1], world=3)


# --- torch.distributed.checkpoint ---


def saves(group, folder: str) -> list[torch.Tensor]:
    """The gradients of one more step after what was saved."""
    model, state = trained(group, CASES["topk"])
    save({"model": model.module.state_dict(), "compression": state}, checkpoint_id=folder, process_group=group)
    model.zero_grad()
    backward(model, dist.get_rank(group), 3)
    state.close()
    return [gradients(model)]


def loads(group, folder: str, way: str) -> list[torch.Tensor]:
    rank, (model, state) = dist.get_rank(group), hooked(group, net(1), ddp=SEVERAL, **CASES["topk"])
    weights = {"model": model.module.state_dict()}
    load(weights, checkpoint_id=folder, process_group=group)
    model.module.load_state_dict(weights["model"])
    if way == "dcp":
        load({"compression": state}, checkpoint_id=folder, process_group=group)
    else:
        state.load_state_dict(nuq.saved_states(folder))
    assert state.step == 3
    first = own_entry(state)["coders"]["memories"][0]["workers"][rank]["residuals"]["2.weight"]
    backward(model, rank, 3)
    state.close()
    return [gradients(model), first]


def test_a_distributed_checkpoint_has_a_key_for_every_rank(ranks: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")
    expected = ranks.run(saves, folder, world=2)
    keys = FileSystemReader(folder).read_metadata().state_dict_metadata
    assert {key for key in keys if key.startswith("compression")} == {"compression.rank0", "compression.rank1"}
    of_two = ranks.run(loads, folder, "dcp", world=2)
    for (gradient, _), (wanted,), again in zip(of_two, expected, ranks.run(loads, folder, "all", world=2), strict=True):
        assert torch.equal(gradient, wanted) and torch.equal(again[0], wanted)
    assert not torch.equal(of_two[0][1], of_two[1][1])
    for world in (1, 3):
        firsts = [found[1] for found in ranks.run(loads, folder, "all", world=world)]
        assert all(torch.equal(first, firsts[0]) for first in firsts)
    with pytest.raises(AssertionError, match="rank 0 of 2, loaded on rank 0 of 1"):
        ranks.run(loads, folder, "dcp", world=1)
    with pytest.raises(ValueError, match="'states'"):
        nuq.saved_states(folder, "states")


# --- machines, and outer loops ---


def of_machines(group) -> None:
    """Two machines of two ranks: the memory is a machine's, and is no rank's of others."""
    rank = dist.get_rank(group)
    settings: dict[str, Any] = {"method": "topk", "ratio": 0.1, "collective": "hierarchical"}
    _, state = trained(group, {**settings, "per_machine": 2})
    entries: list[Any] = [None] * 4
    dist.all_gather_object(entries, state.state_dict(), group=group)
    states = {name: own for entry in entries for name, own in entry.items()}
    remember = [bool(one["coders"]["memories"][0]["workers"]) for (one,) in states.values()]
    assert remember == [True, False, True, False]
    state.load_state_dict(states)
    assert repr(own_entry(state)) == repr(states[f"rank{rank}"][0])  # as before: its own
    state.close()
    for other in ({"per_machine": 1}, {"per_machine": 4}, {"collective": "gather"}):
        model, state = hooked(group, net(), **{**settings, **other})
        with pytest.raises(ValueError, match=r"of 2 .* where (1|4) "):
            state.load_state_dict(states[f"rank{rank}"][0])
        state.load_state_dict(states)
        found: list[Any] = [None] * 4
        dist.all_gather_object(found, own_entry(state), group=group)
        now = owed(found)
        for key, vector in owed([one for (one,) in states.values()]).items():
            torch.testing.assert_close(now[key], vector, rtol=1e-5, atol=1e-7)
        backward(model, rank, 3)
        state.close()


@pytest.mark.slow
def test_other_machines(ranks: Any) -> None:
    ranks.run(of_machines, world=4)


def loop_of(group) -> nuq.OuterLoop:
    model = net(0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    how: dict[str, Any] = {"method": "topk", "ratio": 0.1, "every": 4, "fragments": 2, "overlap": 3, "min_size": 0}
    return nuq.OuterLoop(model, sgd, group=group, timeout_s=60.0, **how)


def walk(loop: nuq.OuterLoop, rank: int, steps: range) -> None:
    for step in steps:
        loop.model.zero_grad()
        backward(loop.model, rank, step)
        loop.step()


def loop_saved(group) -> dict[str, Any]:
    loop = loop_of(group)
    walk(loop, dist.get_rank(group), range(9))
    states = loop.state_dict()
    loop.close()
    return states


def loop_goes_on(group, states: dict[str, Any]) -> dict[str, Any]:
    rank, loop = dist.get_rank(group), loop_of(group)
    with pytest.raises(ValueError, match=f"rank 1 of 2, loaded on rank {rank} of {dist.get_world_size()}"):
        loop.load_state_dict({"rank1": states["rank1"]})
    with pytest.raises(ValueError, match="9 and 8"):
        loop.load_state_dict({**states, "rank1": ({**states["rank1"][0], "count": 8},)})
    loop.load_state_dict(states)
    own = own_entry(loop)
    walk(loop, rank, range(9, 14))
    assert loop.count == 14
    assert_same_bits(group, torch.cat([fragment.outer for fragment in loop._fragments]))
    loop.close()
    return own


def test_an_outer_loop_goes_on_on_another_number_of_ranks(ranks: Any) -> None:
    states = {name: one for of_rank in ranks.run(loop_saved, world=2) for name, one in of_rank.items()}
    entries = [one for (one,) in states.values()]
    now = ranks.run(loop_goes_on, states, world=4)
    was, stays = owed(entries), owed(now)
    assert was and was.keys() == stays.keys()
    for key, vector in was.items():
        torch.testing.assert_close(stays[key], vector, rtol=1e-5, atol=1e-7)
    assert entries[0]["pending"]
    for number, (one, other) in enumerate(zip(*(entry["pending"].values() for entry in entries), strict=True)):
        kept = list(now[-1]["pending"].values())[number]
        assert torch.equal(kept["mean"], one["mean"])
        for mean, first, second in zip(kept["before"], one["before"], other["before"], strict=True):
            torch.testing.assert_close(mean, (first + second) / 2)


def of_other_machines(group) -> None:
    """A simulation's state, as of ``main.py``: two machines' memories, then one machine's, or four."""
    rank, shapes = dist.get_rank(group), {"x": torch.Size([60])}

    def made(per_machine: int, kind: str) -> Workers:
        memory, exchange = Memory(Feedback(kind=kind, both=True)), Exchange(collective="hierarchical")
        how: dict[str, Any] = {"exchange": exchange, "memory": memory}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOCAL_WORLD_SIZE", str(per_machine))
            settings = nuq.METHODS["qsgdinf"].settings(bits=2, bucket_size=16)
            return Workers("qsgdinf", settings, 4, shapes, 1, torch.device("cpu"), group, **how)

    def exchanged(workers: Workers, step: int) -> None:
        draws = torch.Generator().manual_seed(10 * step + rank)
        workers.exchange({rank: torch.randn(60, generator=draws)}, {rank: 0.0}, step)

    def remembered(state: dict[str, Any]) -> list[dict[str, Any]]:
        """What each machine remembers, as of ranks: machines that are not there have zeros, and do not count."""
        memories = state["memories"]
        return [
            {"coders": {"memories": [{**one, "workers": {at: one["workers"][at]}} for one in memories]}}
            for at in range(memories[0]["remembering"])
        ]

    for kind in ("error", "ef21"):
        first = made(2, kind)
        for step in range(3):
            exchanged(first, step)
        state = first.state_dict()
        was = owed(remembered(state))
        assert len(remembered(state)) == 2
        for per_machine in (4, 1):
            again = made(per_machine, kind)
            again.load_state_dict(state)
            stays = owed(remembered(again.state_dict()))
            assert len(remembered(again.state_dict())) == 4 / per_machine
            for key, vector in was.items():
                torch.testing.assert_close(stays[key], vector, rtol=1e-5, atol=1e-6)
            exchanged(again, 3)


@pytest.mark.slow
def test_a_run_that_is_requeued_on_other_machines(ranks: Any) -> None:
    ranks.run(of_other_machines, world=4)
