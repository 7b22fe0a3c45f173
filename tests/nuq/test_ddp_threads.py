"""The threads of the DDP hook: beside the backward pass, and beside each other."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed as dist

import nuq
from nuq.exchange.transport import Swap, Transport
from tests.nuq.small_training import backward, hooked, net, wrapped

SEVERAL = {"bucket_cap_mb": 0.002}


def overlaps(group):
    """The first bucket is not exchanged before the second one has been handed over, so the backward pass goes on
    meanwhile.
    """
    rank, again, seen = dist.get_rank(group), threading.Event(), []
    model = wrapped(group, net(), **SEVERAL)
    state = nuq.CompressionState(model, method="alq", min_size=0, collective="two_stage", timeout_s=30)

    def hook(_, bucket):
        future = nuq.compress_hook(state, bucket)
        seen.append(bucket.index())
        if bucket.is_last():
            again.set()
        return future

    model.register_comm_hook(None, hook)
    backward(model, rank, 0)  # one bucket; DDP lays them out anew
    again.clear()
    seen.clear()
    mean, result, inside = state._here.driver.collective.mean, state._threads._result, []
    post = Transport.post

    def patient(*arguments):
        assert again.wait(20), "the hook waited for the exchange"
        mean(*arguments)

    def callback(job, **told):
        inside.append(threading.get_ident())
        time.sleep(0.01)
        try:
            return result(job, **told)
        finally:
            inside.pop()

    def watched(transport, *arguments):
        assert threading.get_ident() not in inside, "a collective inside a future's callback"
        assert threading.current_thread().name == "nuq sends"
        return post(transport, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state._here.driver.collective, "mean", patient)
        patch.setattr(state._threads, "_result", callback)
        patch.setattr(Transport, "post", watched)
        backward(model, rank, 1)
    assert seen == [0, 1, 2][: len(seen)] and len(seen) > 1
    assert {"encode", "wire", "decode"} <= state.seconds.keys()
    state.close()
    assert not state._threads.runs


def test_exchanges_overlap_the_backward_pass(ranks):
    ranks.run(overlaps, world=2)


def sends_on(group):
    """The second bucket is sent before the first has come: on one rank its receiver waits for that."""
    model = wrapped(group, net(), **SEVERAL)
    state = nuq.CompressionState(model, method="alq", min_size=0, collective="gather", timeout_s=30)
    model.register_comm_hook(state, nuq.compress_hook)
    backward(model, dist.get_rank(group), 0)  # DDP lays its buckets out anew
    begin, wait, begun, second = state._here.driver.collective.begin, Swap.wait, [], threading.Event()

    def counted(*arguments):
        end = begin(*arguments)
        begun.append(threading.current_thread().name)
        if len(begun) == 2:
            second.set()
        return end

    def patient(swap):
        if threading.current_thread().name == "nuq receives":
            assert second.wait(20), "the first bucket was waited for before the second was sent"
        return wait(swap)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state._here.driver.collective, "begin", counted)
        patch.setattr(Swap, "wait", patient)
        backward(model, dist.get_rank(group), 1)
    assert begun[:2] == ["nuq sends"] * 2
    state.close()


def test_a_bucket_is_sent_while_the_one_before_is_on_its_way(ranks):
    ranks.run(sends_on, world=2)


def threads(group):
    """The state's thread leaves alone how many threads PyTorch computes with."""
    model, state = hooked(group, net(), method="alq")
    torch.set_num_threads(3)
    try:
        backward(model, dist.get_rank(group), 0)
        state.close()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


def test_the_number_of_threads_stays(ranks):
    ranks.run(threads, world=1)
