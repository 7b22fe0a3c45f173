"""``benchmarks.links``: networks, baselines and arithmetic against values by hand, and cases in small."""

import json
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

from benchmarks.links import baselines, fsdp, network, ranks, wire
from benchmarks.links.__main__ import main
from benchmarks.links.models import MODELS, batch_of
from benchmarks.links.network import Counters, counters_of
from benchmarks.links.ranks import ROOT, Rank, ask_all, of_all_ranks
from benchmarks.links.wire import Case, bound_s
from benchmarks.results import result_file

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


def test_no_network_is_one_sentence(monkeypatch):
    monkeypatch.setattr(network.sys, "platform", "linux")
    monkeypatch.setattr(network.shutil, "which", lambda tool: None if tool == "tc" else tool)
    with pytest.raises(SystemExit, match=r"^benchmarks.links time_to_accuracy: .* needs tc \(package iproute2\)"):
        main(["time_to_accuracy", "--seeds", "1"])


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
    monkeypatch.setattr(ranks, "GRACE_S", 0.1)
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


def test_a_ring_sends_twice_what_all_but_one_rank_hold():
    assert [baselines.ring_bytes(1000, ranks) for ranks in (1, 2, 4)] == [0, 1000, 1500]


# --- wire ---


def test_a_ratio_is_taken_round_by_round_and_the_median_reported():
    found = {
        "nothing": rounds([0.1, 0.1, 0.3]),
        "fp32": rounds([4.0, 2.0, 6.0], 40.0, 40.0),
        "alq": rounds([1.0, 0.25, 0.5], 4.0, 4.4),
    }
    rows = wire.rows_of(CASE, 95.0, found)
    alq = rows[-1]
    assert alq["speedup_vs_fp32"] == [4.0, 8.0, 12.0]
    assert (alq["step_s"], alq["step_low_s"], alq["step_high_s"]) == (0.5, 0.25, 1.0)
    assert alq["compute_s"] == 0.1 and alq["exposed_s"] == pytest.approx(0.4)
    figures = wire.figures([*rows, *rows])
    of_alq = figures["cases"]["2 ranks, mlp, batch 32"]["100 Mbit/s"]["alq"]
    assert of_alq["speedup_vs_fp32"] == {"median": 8.0, "low": 4.0, "high": 12.0}
    assert (of_alq["runs"], of_alq["rounds"]) == (2, 6)
    assert figures["bytes_disagree"] == pytest.approx(1 - 4.0 / 4.4)


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


def test_the_kept_file_is_of_the_kept_rows():
    figures = wire.figures(wire.kept(ROOT / "results/wire/turns.jsonl", "02ff1e8"))
    assert json.loads(json.dumps(figures)) == result_file.read("wire")["figures"]
    with pytest.raises(ValueError, match="--commit abc: must be one of 02ff1e8, 7f31e67"):
        wire.kept(ROOT / "results/wire/turns.jsonl", "abc")


def test_every_large_model_has_eleven_million_parameters_and_its_own_batches(alone):
    assert list(MODELS) == list(wire.BATCHES)
    for make in MODELS.values():
        model = make()
        assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(11e6, rel=0.03)
        inputs, labels = batch_of(model, 2)
        assert torch.equal(inputs, batch_of(model, 2)[0])
        with torch.no_grad():
            assert model(inputs).shape[:-1] == labels.shape


# --- fsdp ---


@pytest.mark.slow
def test_sharded_training_in_small(capsys):
    main(["fsdp", "--quick", "--parity"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(found["cases"]) == list(fsdp.MODELS)
    for rates in found["cases"].values():
        assert list(rates) == ["loopback"] and list(rates["loopback"]) == list(fsdp.VARIANTS)
        assert all(row["step_s"]["median"] > 0 for row in rates["loopback"].values())
    assert found["speedup_1g_mlp"] == found["speedup_1g_gpt"] == "not measured"
    assert len(found["parity"]["losses"]["4 bits"]) == len(found["parity"]["seeds"])


def test_parity_is_a_difference_within_the_seeds_interval() -> None:
    plain = [2.30, 2.32, 2.34]  # +- 4.303 * 0.02 / sqrt(3)
    near, far = fsdp.judged(plain, [2.34, 2.36, 2.38]), fsdp.judged(plain, [2.36, 2.38, 2.40])
    assert near["plain"] == {"median": 2.32, "low": 2.3, "high": 2.34}
    assert (near["difference"], near["seeds_half_width"], near["parity"]) == (0.04, 0.0497, True)
    assert (far["difference"], far["difference_half_width"], far["parity"]) == (0.06, 0.0, False)
