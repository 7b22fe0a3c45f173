"""The wire benchmark's own arithmetic and errors, its baselines' means, and a network where one can be made."""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks import baselines, network, rank_processes, wire, wire_rank
from benchmarks.network import Counters, counters_of
from benchmarks.pipeline_bound import bound_s, of_all_ranks
from benchmarks.rank_processes import Rank, ask_all
from benchmarks.wire import Case

TABLE = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|\
bytes    packets errs drop fifo colls carrier compressed
    lo:    5000      50    0    0    0     0          0         0 \
    5000      50    0    0    0     0       0          0
  wire:    7777      77    0    0    0     0          0         0 \
 1066000    1000    0    0    0     0       0          0
"""
PROTOCOLS = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs
Tcp: 1 900 1000 7 0
"""
CASE = Case(2, "mlp", 32, "100M")


def rounds(seconds, num_bytes=0.0, interface=0.0):
    told = {"stages_s": {}, "bytes": [(num_bytes, interface)] * 2}
    return [{"step_s": value, "buckets": [(0.5 * value, 7)], **told} for value in seconds]


# --- the network ---


def test_payload_is_what_was_sent_without_a_header_per_packet():
    assert counters_of(TABLE, PROTOCOLS, "wire") == Counters(1066000, 1000, 7)
    assert Counters(1066000, 1000).payload_since(Counters(66000, 0)) == 1000000 - 66000
    assert Counters(660, 10).payload_since(Counters(0, 0)) == 0  # acknowledgements only
    assert Counters(10000, 0, 5).payload_since(Counters(0, 0, 3)) == 10000 - 2 * 1448  # what TCP repeats counts once


def test_an_interface_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="has no interface wireless"):
        counters_of(TABLE, PROTOCOLS, "wireless")


def test_the_bucket_grows_with_the_rate():
    assert [network.burst_bytes(rate) for rate in (100, 1000, 10_000)] == [64 << 10, 256 << 10, 4 << 20]


def test_who_is_not_root_is_told_in_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(network.shutil, "which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(network.sys, "platform", "linux")
    monkeypatch.setattr(network.os, "geteuid", lambda: 1000)
    with pytest.raises(
        SystemExit, match=r"^benchmarks\.wire: the simulated network needs root .* and this is user 1000$"
    ):
        wire.main(["--ranks", "2"])


def test_absent_tools_are_named(monkeypatch):
    monkeypatch.setattr(network.sys, "platform", "linux")
    monkeypatch.setattr(network.shutil, "which", lambda tool: None if tool == "tc" else tool)
    with pytest.raises(ValueError, match=r"needs tc \(package iproute2\)"), network.network(2, 100):
        pass


def test_namespaces_go_whatever_happens_and_those_of_a_dead_process_too():
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    abandoned = f"{network.PREFIX}{gone.pid}-0"
    if (
        network.why_not()
        or subprocess.run(["ip", "netns", "add", abandoned], capture_output=True, check=False).returncode
    ):
        pytest.skip("no network namespaces can be made here")
    with pytest.raises(KeyError, match="crash"), network.network(2, 100) as net:
        names = network._namespaces()
        assert {net.namespace(0), net.namespace(1)} < set(names)
        assert abandoned not in names
        net.set_rate(1000)
        for rate in (0, -1, 10**6):
            with pytest.raises(ValueError, match=r"rate_mbit=(0|-1|1e\+06) must be above 0 and at most 100000"):
                net.set_rate(rate)
        sleeper = subprocess.Popen(net.command(0, ["sleep", "60"]))
        while Path(f"/proc/{sleeper.pid}/comm").read_text() != "sleep\n":  # until it is inside
            time.sleep(0.01)
        raise KeyError("crash")
    assert not [name for name in network._namespaces() if name.startswith(net.prefix)]
    assert sleeper.wait(10) == -9


# --- the figures ---


def test_a_ratio_is_taken_round_by_round_and_the_median_reported():
    found = {
        "nothing": rounds([0.1, 0.1, 0.3]),
        "fp32": rounds([4.0, 2.0, 6.0], 40.0, 40.0),
        "bf16": rounds([2.0, 1.0, 3.0], 20.0, 20.0),
        "alq": rounds([1.0, 0.25, 0.5], 4.0, 4.4),
    }
    rows = {row["variant"]: row for row in wire.rows_of(CASE, 95.0, found)}
    assert rows["alq"]["speedup_vs_fp32"] == [4.0, 8.0, 12.0]
    assert (rows["alq"]["step_s"], rows["alq"]["step_low_s"], rows["alq"]["step_high_s"]) == (0.5, 0.25, 1.0)
    assert rows["alq"]["compute_s"] == 0.1 and rows["alq"]["exposed_s"] == pytest.approx(0.4)
    result = wire.summary(list(rows.values()))
    assert (result["speedup_vs_fp32_100M"], result["speedup_vs_bf16_100M"]) == (8.0, 4.0)
    assert result["spread"]["speedup_vs_fp32_100M"] == [4.0, 12.0]
    assert result["speedup_vs_bf16_1G"] == result["slowdown_vs_bf16_10G"] == "not measured"
    assert result["bytes_agree"] == pytest.approx(1 - 4.0 / 4.4, abs=1e-4)


def test_a_step_of_the_bound_sends_bucket_after_bucket_once_their_gradients_are_there():
    buckets = [(1.0, 30), (2.0, 10)]  # the optimizer takes .5 s
    assert bound_s(buckets, 2.5, 0, 8) == 2.5
    assert bound_s(buckets, 2.5, 4e6, 8) == 1.0 + 3.0 + 1.0 + 0.5  # the link is never idle
    assert bound_s(buckets, 2.5, 0.4e6, 8) == pytest.approx(2.0 + 0.1 + 0.5)  # it waits for the last gradients
    assert of_all_ranks([[(1.0, 30), (1.5, 10)], [(0.5, 30), (2.0, 10)]]) == buckets
    assert of_all_ranks([[], []]) == []


def test_efficiency_is_the_bound_over_what_was_measured_round_by_round():
    found = {"nothing": rounds([0.1, 0.2, 0.1]), "alq": rounds([0.5, 0.5, 1.0], 4e6, 4e6)}
    rows = {row["variant"]: row for row in wire.rows_of(CASE, 100.0, found)}
    assert rows["nothing"]["efficiency"] == pytest.approx([1, 1, 1])
    assert rows["alq"]["efficiency"] == pytest.approx([0.42 / 0.5, 0.52 / 0.5, 0.42])  # .32 s to send 4 MB
    assert rows["alq"]["bound_s"] == pytest.approx(0.42)
    result = wire.summary(list(rows.values()))
    assert result["efficiency_100M"] == pytest.approx(0.84) and result["efficiency4_100M"] == "not measured"
    assert result["spread"]["efficiency_100M"] == pytest.approx([0.42, 1.04])


def test_a_slowdown_is_above_one_where_ours_is_slower():
    found = {"nothing": rounds([0.1]), "bf16": rounds([0.2]), "alq": rounds([0.4]), "alq_gate": rounds([0.3])}
    assert wire.summary(wire.rows_of(Case(2, "mlp", 32, "10G"), 9500.0, found))[
        "slowdown_vs_bf16_10G"
    ] == pytest.approx(1.5)


def test_only_the_mlp_s_rows_count_for_the_bars():
    found = {"nothing": rounds([0.1]), "bf16": rounds([2.0]), "fp32": rounds([4.0]), "alq": rounds([0.5])}
    other = Case(2, "resnet18", 32, "100M")
    assert wire.summary(wire.rows_of(other, 95.0, found))["speedup_vs_bf16_100M"] == "not measured"


def test_a_rank_that_ends_is_named_with_its_last_words(monkeypatch):
    def rank(program):
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  open as long as the rank
        command = [sys.executable, "-S", "-c", program]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        return Rank(process, errors)

    answers, dies, waits = (
        rank("input(); print('{}', flush=True); input()"),
        rank("raise SystemExit('out of memory')"),
        rank("input(); input()"),
    )
    monkeypatch.setattr(rank_processes, "GRACE_S", 0.1)
    try:
        with pytest.raises(RuntimeError, match=r"^ranks ended during \{'do': 'measure'\}: rank 1: out of memory$"):
            ask_all([answers, dies, waits], {"do": "measure"})
        waits.process.kill()
        with pytest.raises(RuntimeError, match=r": rank 0: killed by signal 9$"):
            ask_all([waits], {"do": "measure"})
    finally:
        for one in (answers, dies, waits):
            one.process.kill()
            one.process.communicate()  # reaps it, whether or not it has read its last command
            one.errors.close()


# --- the models ---


def test_every_model_has_eleven_million_parameters_and_its_own_batches(alone):
    assert list(wire_rank.MODELS) == list(wire.BATCHES)
    for make in wire_rank.MODELS.values():
        model = make()
        assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(11e6, rel=0.03)
        inputs, labels = wire_rank.batch_of(model, 2)
        assert torch.equal(inputs, wire_rank.batch_of(model, 2)[0])
        with torch.no_grad():
            assert model(inputs).shape[:-1] == labels.shape


# --- the baselines ---


@dataclass(frozen=True)
class Gradients:
    """The gradients of a layer without and with a baseline's hook, for the same inputs, and the baseline's state."""

    plain: nn.Linear
    received: nn.Linear
    state: Any

    @property
    def weights(self) -> tuple[Tensor, Tensor]:
        assert self.plain.weight.grad is not None and self.received.weight.grad is not None
        return self.plain.weight.grad, self.received.weight.grad


def gradients_of(name, steps=1):
    torch.manual_seed(3)
    plain, wrapped = nn.Linear(40, 30), nn.Linear(40, 30)
    wrapped.load_state_dict(plain.state_dict())
    ddp = DistributedDataParallel(wrapped)
    state = baselines.with_baseline(ddp, name)
    inputs = torch.randn(16, 40)
    for _ in range(steps):
        for model in (plain, ddp):
            model.zero_grad()
            model(inputs).square().sum().backward()
    return Gradients(plain, wrapped, state)


def test_bf16_is_the_gradient_rounded(alone):
    plain, received = gradients_of("bf16").weights
    assert torch.equal(received, plain.to(torch.bfloat16).float())


def test_nothing_and_fp32_leave_one_rank_s_gradient_alone(alone):
    for name in ("nothing", "fp32"):
        found = gradients_of(name)
        assert torch.equal(*found.weights) and found.state.bytes_sent == 0


def test_nothing_tells_when_the_gradients_of_each_bucket_are_there(alone):
    before = time.perf_counter()
    (bucket,) = gradients_of("nothing", steps=2).state.buckets  # of the last step
    assert before < bucket[0] < time.perf_counter() and bucket[1] == 40 * 30 + 30


def test_powersgd_sends_low_rank_and_keeps_the_rest(alone):
    found = gradients_of("powersgd")
    plain, received = found.weights
    (residual,) = found.state.residual.values()
    assert torch.linalg.matrix_rank(received) == baselines.RANK
    torch.testing.assert_close(received + residual, plain)
    torch.testing.assert_close(found.received.bias.grad, found.plain.bias.grad)


def test_powersgd_s_residual_stays_bounded(alone):
    found = gradients_of("powersgd", steps=30)
    plain, received = found.weights
    (residual,) = found.state.residual.values()
    assert residual.norm() < 3 * plain.norm()  # 21 if what was left behind were not sent later
    assert not torch.allclose(received, gradients_of("powersgd").weights[1])


def test_a_ring_sends_twice_what_all_but_one_rank_hold():
    assert [baselines.ring_bytes(1000, ranks) for ranks in (1, 2, 4)] == [0, 1000, 1500]
