"""What a rank refuses at the doors of the library: one sentence there, nothing changed, and no other rank waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import nuq
from nuq.errors import RankFailed
from nuq.exchange.driver import Driver
from nuq.exchange.hook.bucket_exchange import BucketExchange
from nuq.exchange.hook.bucket_threads import BucketThreads
from nuq.fragments import Fragment
from nuq.fsdp import CompressedReduceScatter
from nuq.functional import _Kept
from tests.nuq.exchange.test_rank_failed import BROKEN, ENTRIES, QUICKLY_S, VICTIM
from tests.nuq.exchange.test_saved_state import replaced, shown
from tests.nuq.small_training import backward, net, own_entry, wrapped
from tests.tiers import few


def _loop(group: dist.ProcessGroup, **settings: Any) -> nuq.OuterLoop:
    model = net(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return nuq.OuterLoop(model, optimizer, group=group, **{"min_size": 0, "timeout_s": 30.0} | settings)


def _train(loop: nuq.OuterLoop, group: dist.ProcessGroup, steps: range) -> None:
    for step in steps:
        loop.inner_optimizer.zero_grad()
        backward(loop.model, dist.get_rank(group), step)
        loop.step()


# --- a state of an outer loop ---

NAN = torch.full((40, 12), torch.nan)
ODD: list[tuple[list[Any], Any]] = [
    *(([key], None) for key in ("method", "rank", "settings", "count", "taken", "taken_at", "collective", "shards")),
    *(([key], None) for key in ("outer", "momentum", "pending", "coders", "ranks")),
    *(([key], 3) for key in ("method", "settings", "collective", "shards", "outer", "momentum", "pending", "coders")),
    *(([key], "x") for key in ("rank", "ranks", "count", "settings", "coders", "pending", "taken_at")),
    *(([key], []) for key in ("taken_at", "pending", "outer", "coders", "method", "settings")),
    *(([key], {}) for key in ("outer", "momentum", "coders")),
    (["method"], torch.zeros(2)),
    (["settings", "every"], torch.zeros(2)),
    (["ranks"], 0),
    (["rank"], -1),
    (["count"], True),
    (["taken"], 1 << 63),
    (["taken_at"], [0, 10**6]),
    (["taken_at"], [0.0, 0.0]),
    (["shards"], {"0.weight": 3}),
    (["outer", "0.weight"], 3.0),
    (["outer", "0.weight"], torch.zeros(3)),
    (["momentum", "0.weight"], NAN),
    (["momentum", "0.weight"], torch.zeros(40, 12, dtype=torch.float64)),
    (["outer", "of another model"], torch.zeros(3)),
    (["pending", 7], {}),
    (["pending", "0"], {}),
    (["pending", 0], None),
    (["pending", 0], {}),
    (["pending", 0, "due"], -1),
    (["pending", 0, "due"], 10**6),
    (["pending", 0, "due"], 9.0),
    (["pending", 0, "mean"], None),
    (["pending", 0, "mean"], torch.zeros(3)),
    (["pending", 0, "mean"], torch.full((1000,), torch.nan)),
    (["pending", 0, "before"], None),
    (["pending", 0, "before"], []),
    (["pending", 0, "before", 0], torch.zeros(3)),
    (["coders", "compressor"], None),
    (["coders", "layers"], [{}]),
    (["coders", "memories"], []),
    (["coders", "memories", 0, "workers"], {0: {}}),
    (["coders", "memories", 0, "workers", 0, "residuals", "0.weight"], torch.zeros(3)),
]


def odd_states(group: dist.ProcessGroup) -> list[str]:
    """The entries of ``ODD`` that are not refused as they should be."""
    loop = _loop(group, method="topk", ratio=0.1, every=4, fragments=2, overlap=3, collective="gather")
    _train(loop, group, range(7))  # a part is on its way
    saved, before, wrong = own_entry(loop), shown(loop.state_dict()), []
    assert list(saved["pending"]) == [0]
    for path, value in ODD:
        try:
            loop.load_state_dict(replaced(saved, path, value))
            wrong.append(f"{path} = {value!r} is taken")
        except Exception as error:  # noqa: BLE001 - returned
            if type(error) is not ValueError or not any(str(part)[:5] in str(error) for part in path):
                wrong.append(f"{path} = {value!r}: {error!r}")
        if shown(loop.state_dict()) != before:
            wrong.append(f"{path} = {value!r} has changed the loop")
            loop.load_state_dict(saved)
    loop.load_state_dict(saved)
    assert shown(loop.state_dict()) == before
    loop.close()
    return wrong


def test_odd_states_of_an_outer_loop_are_refused_and_nothing_is_taken(ranks: Any) -> None:
    assert ranks.run(odd_states, world=1) == [[]]


# --- bad arguments of one rank ---


def _all_reduce(group: Any, **given: Any) -> object:
    return nuq.all_reduce(**{"tensor": torch.ones(50), "group": group, "step": 0} | given)


def _hook(group: Any, **given: Any) -> object:
    return nuq.CompressionState(**{"model": net(), "group": group, "min_size": 0} | given)


def _attach(group: Any, statistics: Any = None) -> object:
    """A state from a file, of which a part may be another one, and a step with it."""
    saved = own_entry(nuq.CompressionState(net(), group=group, min_size=0))
    state, model = nuq.CompressionState(min_size=0), wrapped(group, net())
    state.load_state_dict(saved if statistics is None else replaced(saved, ["statistics"], statistics))
    state.attach(model, group)
    model.register_comm_hook(state, nuq.compress_hook)
    return backward(model, dist.get_rank(group), 0)


DOORS: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (_all_reduce, {"tensor": 3.0}, "ValueError: tensor=3.0"),
    (_all_reduce, {"bits": 99}, "ValueError: bits=99"),
    (_all_reduce, {"timeout_s": -1}, "ValueError: timeout_s=-1"),
    (_hook, {"bits": 99}, "ValueError: bits=99"),
    (_hook, {"model": 3.0}, "ValueError: the model"),
    (_attach, {"statistics": {}}, "ValueError: a state whose statistics"),
    (_loop, {"every": 0}, "ValueError: every=0"),
    (_loop, {"timeout_s": 1e300}, "ValueError: timeout_s=1e+300"),
]


def refused_on_one(_: dist.ProcessGroup, door: Callable[..., object], bad: dict[str, Any]) -> Any:
    """The errors of three ranks, of which one gives bad arguments, and the seconds that they took."""
    group = dist.new_group(range(3), timeout=timedelta(seconds=20))  # which is closed with it
    if not isinstance(group, dist.ProcessGroup):
        return None
    dist.barrier(group)
    began, found = time.monotonic(), None
    try:
        door(group, **(bad if dist.get_rank(group) == VICTIM else {}))
    except Exception as met:  # noqa: BLE001 - returned
        found = met
    return f"{type(found).__name__}: {found}", isinstance(found, RankFailed), time.monotonic() - began


@few(2, ("door", "bad", "sentence"), DOORS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_bad_arguments_of_one_rank_keep_no_other_waiting(door: Any, bad: Any, sentence: str, ranks: Any) -> None:
    outcomes = ranks.run(refused_on_one, door, bad)[:3]
    assert outcomes[VICTIM][0].startswith(sentence) and not outcomes[VICTIM][1]
    for text, is_failed, took_s in (outcomes[0], outcomes[2]):
        assert is_failed and f"rank {VICTIM} of 4 failed: {sentence}" in text, text
        assert took_s < QUICKLY_S


# --- errors of one rank before it sends anything ---

BEFORE = [
    *((entry, Driver, "__init__") for entry in ENTRIES),
    ("all_reduce", _Kept, "all_have_built"),
    ("hook", BucketThreads, "submit"),
    ("hook", BucketExchange, "_before_step"),
    ("outer", Fragment, "local"),
    ("fsdp", CompressedReduceScatter, "_arrange"),
]


def broken_on_one(_: dist.ProcessGroup, entry: str, of: type, name: str) -> Any:
    """The errors of three ranks, one of which meets one of its own, and the seconds that they took."""
    group = dist.new_group(range(3), timeout=timedelta(seconds=20))  # which is closed with it
    if not isinstance(group, dist.ProcessGroup):
        return None

    def broken(*_: object, **__: object) -> None:
        raise AssertionError(BROKEN)

    found, step = None, None
    with pytest.MonkeyPatch.context() as patch:
        if name != "__init__":  # built on all
            step = ENTRIES[entry](group, "qsgdinf", collective="gather")
        dist.barrier(group)
        began = time.monotonic()
        if dist.get_rank(group) == VICTIM:
            patch.setattr(of, name, broken)
        try:
            (step or ENTRIES[entry](group, "qsgdinf", collective="gather"))(0)
        except Exception as met:  # noqa: BLE001 - returned
            found = met
    return f"{type(found).__name__}: {found}", isinstance(found, RankFailed), time.monotonic() - began


@few(2, ("entry", "of", "name"), BEFORE, ids=lambda value: getattr(value, "__name__", str(value)))
def test_an_error_of_one_rank_before_it_sends_keeps_no_other_waiting(
    entry: str, of: type, name: str, ranks: Any
) -> None:
    outcomes = ranks.run(broken_on_one, entry, of, name)[:3]
    assert outcomes[VICTIM][0] == f"AssertionError: {BROKEN}"
    for text, is_failed, took_s in (outcomes[0], outcomes[2]):
        assert is_failed and f"rank {VICTIM} of 4 failed: AssertionError: {BROKEN}" in text, text
        assert took_s < QUICKLY_S


def refused(group: dist.ProcessGroup) -> None:
    for door in (_all_reduce, _hook, _loop):
        for name, value in (
            *(("timeout_s", value) for value in (True, 1e300, 10**400, float("nan"), "x", -1)),
            *(("group", value) for value in ("world", dist.GroupMember.NON_GROUP_MEMBER, [0, 1])),
        ):
            with pytest.raises(ValueError, match=rf"{name}=.*: must be"):
                door(**{"group": group, name: value})
    with pytest.raises(ValueError, match=r"timeout_s=1e\+300: must be"):
        CompressedReduceScatter("qsgdinf", "layer", timeout_s=1e300)


def test_what_is_no_time_and_what_is_no_group_is_refused(ranks: Any) -> None:
    ranks.run(refused, world=1)


# --- unequal numbers of local steps ---


def unequal(group: dist.ProcessGroup, steps: list[int], settings: dict[str, Any]) -> str:
    loop = _loop(group, method="qsgdinf", every=4, **settings)
    with pytest.raises(ValueError, match="local steps") as refusal:
        _train(loop, group, range(steps[dist.get_rank(group)]))
        loop.finish()
    loop.close()
    assert torch.equal(nuq.all_reduce(torch.ones(3), "supersgd", group, step=0), torch.ones(3))
    return str(refusal.value)


@pytest.mark.parametrize(
    ("steps", "settings", "told"),
    [
        ([6, 7], {}, (6, 7)),
        ([7, 9], {}, (7, 8)),  # one ends, and one exchanges a round
        ([12, 7], {"overlap": 2}, (8, 7)),
        ([4, 5], {"overlap": 3, "fragments": 2}, (4, 5)),
    ],
)
def test_unequal_numbers_of_local_steps_are_refused_on_all_ranks(steps, settings, told, ranks):
    for sentence in ranks.run(unequal, steps, settings, world=2):
        assert f"rank 0 has taken {told[0]} local steps and rank 1 has taken {told[1]}" in sentence
