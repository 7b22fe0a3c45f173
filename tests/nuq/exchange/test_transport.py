"""A rank that dies or falls silent is named by all others within a bounded time, whatever it was they did together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nuq.errors import RankLost
from nuq.exchange.missing import culprit
from nuq.exchange.transport import Transport
from tests.nuq.ranks import Ranks
from tests.nuq.small_training import backward, hooked, net
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
SILENT_S = 5.0  # longer than a live rank may be kept waiting where others share its cores


def dies(group, collective, victim, how):
    """DDP trains; the victim goes between two steps, or in the middle of one."""
    rank, calls = dist.get_rank(group), 0
    given: dict[str, Any] = {"per_machine": 2} if collective == "hierarchical" else {}
    model, state = hooked(
        group, net(), method="qsgdinf", collective=collective, ddp={"bucket_cap_mb": 0.002}, timeout_s=SILENT_S, **given
    )
    begin = state._here.driver.collective.begin

    def deadly(*arguments):
        nonlocal calls
        calls += 1
        if rank == victim and calls == 8:  # a bucket in the midst of the third step
            if how == "dies":
                os._exit(7)
            os.kill(os.getpid(), signal.SIGSTOP)
        return begin(*arguments)

    state._here.driver.collective.begin = deadly  # pyright: ignore[reportAttributeAccessIssue]
    try:
        for step in range(10):
            backward(model, rank, step)
    except RuntimeError as error:
        assert isinstance(state.error, RankLost)
        with pytest.raises(RuntimeError, match="earlier"):
            backward(model, rank, step)  # and does not hang
        state.close()
        return str(error)
    raise AssertionError("nobody noticed")


@pytest.mark.parametrize(
    ("collective", "world", "victim", "how"),
    [
        ("gather", 3, 1, "dies"),
        ("two_stage", 3, 0, "dies"),
        pytest.param("two_stage", 3, 2, "falls silent", marks=pytest.mark.slow),
        pytest.param("server", 3, 2, "dies", marks=pytest.mark.slow),
        ("server", 3, 0, "dies"),
        pytest.param("dense", 3, 1, "dies", marks=pytest.mark.slow),
        ("hierarchical", 4, 1, "dies"),
        pytest.param("hierarchical", 4, 3, "dies", marks=pytest.mark.slow),
        pytest.param("hierarchical", 4, 2, "falls silent", marks=pytest.mark.slow),
    ],
)
def test_the_others_name_the_rank_that_is_lost(collective, world, victim, how):
    group = Ranks(world)
    group.start()
    try:
        started = time.monotonic()
        outcomes = group.outcomes(
            dies, collective, victim, how, timeout_s=40, without=(victim,) if how != "dies" else ()
        )
        assert time.monotonic() - started < 30
        if how == "dies":
            assert outcomes[victim].exit_code == 7
        for rank, outcome in enumerate(outcomes):
            if rank != victim:
                assert f"rank {victim} of {world} " in str(outcome.value), (rank, outcome)
                assert "is gone" in outcome.value or "did not answer in time" in outcome.value
    finally:
        group.stop()


def stops_between(group):
    """Rank 1 serves rank 2 and not rank 0, for which rank 2 then waits in its turn."""
    rank, transport = dist.get_rank(group), Transport(group, timeout_s=1.0 if dist.get_rank(group) == 0 else SILENT_S)
    word = torch.zeros(100, dtype=torch.uint8)
    transport.barrier()
    try:
        for other in {0: (1, 2), 1: (2,), 2: (1, 0)}[rank]:
            transport.swap({other: word}, {other: 100}, "m")
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
    except RankLost as error:
        return str(error)
    raise AssertionError("nobody noticed")


@pytest.mark.parametrize(
    ("missed", "lost"),
    [
        ({0: "1 is gone", 2: "1 is gone"}, "1 is gone"),
        (
            {0: "1 did not answer in time", 2: "0 is gone"},
            "1 did not answer in time",
        ),  # 0 gave up on 1, 2 lost sight of 0
        (
            {0: "1 did not answer in time", 1: "2 did not answer in time"},
            "2 did not answer in time",
        ),  # a chain of waits
        (
            {0: "2 did not answer in time", 1: "2 did not answer in time", 2: "0 is gone"},
            "2 did not answer in time",
        ),  # 2 was late
        ({0: "1 is gone", 1: "0 did not answer in time"}, "0 did not answer in time"),  # 0 was late
    ],
)
def test_all_ranks_blame_the_same_one(missed, lost):
    assert {culprit(rank, lambda one: missed.get(one, "")) for rank in missed} == {lost}


@pytest.mark.slow
def test_who_waits_for_one_that_gave_up_names_the_silent_one():
    group = Ranks(3)
    group.start()
    try:
        outcomes = group.outcomes(stops_between, timeout_s=40, without=(1,))
        assert "rank 1 of 3 did not answer in time" in str(outcomes[0].value), outcomes
        assert "rank 1 of 3 did not answer in time" in str(outcomes[2].value), outcomes
    finally:
        group.stop()


SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
import nuq

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(50, 50))
state = nuq.CompressionState(model, method="alq", collective="two_stage", min_size=0, timeout_s=5.0)
model.register_comm_hook(state, nuq.compress_hook)
for step in range(6):
    if step == 3:
        time.sleep(float(sys.argv[1]) * (2, 1, 0)[dist.get_rank()])
        if dist.get_rank() == 1:
            os._exit(9)
    model(torch.randn(4, 50)).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize("apart_s", [0.0, 0.3])
def test_the_others_end_with_an_error_of_their_own(apart_s):
    """Real processes to their real ends: an interpreter that shuts down with a thread and exchanges under way.

    With time between them, the last rank waits for the first when rank 1 ends, and the first cannot even begin.
    """
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "3",
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(apart_s)],
            cwd=ROOT,
            env=os.environ | environment | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        said = [process.communicate(timeout=90)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [1, 9, 1], said
    for text in (said[0], said[2]):
        assert "rank 1 of 3 is gone" in text, text


LATE = """
import sys, time
import torch, torch.distributed as dist
from torch import nn
import nuq, nuq.exchange.missing

# so that the store, which the first rank keeps, has gone when the late one comes
nuq.exchange.missing._STORE_STAYS_S = 0.1
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(50, 50))
state = nuq.CompressionState(model, method="qsgdinf", collective=sys.argv[1], min_size=0, timeout_s=2.0)
model.register_comm_hook(state, nuq.compress_hook)
for step in range(3):
    if step == 2 and dist.get_rank() == 1:
        sys.stdin.read()  # until the first rank has ended
        time.sleep(2.5)
    model(torch.randn(4, 50)).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["gather", "server"])
def test_a_rank_that_comes_after_all_have_gone_names_itself(collective):
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LATE, collective],
            cwd=ROOT,
            env=os.environ | environment | {"RANK": str(rank)},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=90)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert "rank 1 of 2 did not answer in time" in said[0], said
    assert "rank 1 of 2 did not answer in time, " in said[1] and "s after its last exchange" in said[1], said


def waits_in_vain(_, given_s, own_s):
    """Rank 1 waits for rank 0, which has nothing to say in this group: the error."""
    group: Any = dist.new_group(timeout=timedelta(seconds=own_s))
    transport = Transport(group, timeout_s=given_s)
    assert transport.timeout == timedelta(seconds=given_s or own_s)
    if dist.get_rank() != 1:
        return ""
    with pytest.raises(RankLost) as lost:
        transport.swap({}, {0: 100}, "m")
    return str(lost.value)


@pytest.mark.parametrize(
    ("given_s", "waited"), [(0.5, r"timeout_s=0\.5"), (None, "timeout_s=None, the process group's own 0.7 s")]
)
def test_who_waited_in_vain_names_the_setting(ranks, given_s, waited):
    text = ranks.run(waits_in_vain, given_s, 0.7)[1]
    assert re.match(rf"rank 0 of 4 did not answer in time \({waited}; rank 1 saw: ", text), text


# --- a link that works ---


def swaps(group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    transport = Transport(group, timeout_s=20)
    others = [other for other in range(world) if other != rank]
    outgoing = {other: torch.full((rank * other,), 10 * rank + other, dtype=torch.uint8) for other in others}
    received = transport.swap(outgoing, {other: rank * other for other in others}, "messages")
    for other in others:
        assert torch.equal(received[other], torch.full((rank * other,), 10 * other + rank, dtype=torch.uint8))
    assert transport.bytes_sent["messages"] == sum(rank * other for other in others)
    assert transport.numbers([rank, -(2**62)], "control") == [[other, -(2**62)] for other in range(world)]
    words = ["", "ä" * 300, "three", "x"][:world]
    assert [text.strip() for text in transport.texts(words[rank], "control")] == words
    posted = [
        transport.post({other: torch.tensor([n], dtype=torch.uint8) for other in others}, dict.fromkeys(others, 1), "m")
        for n in range(9)
    ]
    for number in reversed(range(9)):  # in any order
        assert all(int(data) == number for data in posted[number].wait().values())
    with pytest.raises(ValueError, match="timeout_s=0"):
        Transport(group, timeout_s=0)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_rank_gets_what_was_sent_to_it(world, ranks):
    ranks.run(swaps, world=world)


def cannot_send(group):
    """What no rank is to blame for: PyTorch refuses the tensor, as it does DTensors."""
    transport, send = Transport(group, timeout_s=5), dist.isend
    for error in (
        NotImplementedError("Operator c10d.send.default"),
        RuntimeError("got mixed torch.Tensor and DTensor"),
    ):

        def refuses(*what: object, error: Exception = error, **how: object) -> None:
            del what, how
            raise error

        dist.isend = refuses
        try:
            with pytest.raises(type(error)) as raised:
                transport.swap({1 - transport.rank: torch.zeros(8, dtype=torch.uint8)}, {}, "messages")
        finally:
            dist.isend = send
        assert raised.value is error


def test_an_error_of_sending_that_tells_of_no_broken_connection(ranks):
    ranks.run(cannot_send, world=2)
