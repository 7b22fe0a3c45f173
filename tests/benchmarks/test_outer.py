"""The figures of ``benchmarks.outer`` against rows by hand, its trainings in one process, and the whole in small."""

import json
import math
from dataclasses import replace

import pytest
import torch

from benchmarks import outer, outer_rank
from benchmarks.outer import LINKS_MBIT, Measured, figures_of, first_at, holds
from benchmarks.outer_ways import DDP, SIZES, SPARSE, WAYS
from benchmarks.rank_processes import ROOT
from benchmarks.results import blocks
from tests.tiers import few


def losses(way, seed, num_bytes, *values):
    steps = (math.lcm(12, WAYS[way].every) * n for n in range(1, len(values) + 1))
    return {"way": way, "seed": seed, "losses": dict(zip(steps, values, strict=True)), "bytes": num_bytes}


def rounds(way, link, *seconds):
    told = {"way": way, "link": link, "step_s": 0.5, "bytes": 10, "interface_bytes": 12}
    return [{**told, "round_s": value} for value in seconds]


TRAININGS = [
    losses(DDP, 1, 2000, 3.0, 2.5, 2.0),  # to the target, 2.02, in 36 steps
    losses(DDP, 2, 2000, 3.0, 1.0, 1.0),  # 24 steps
    losses("diloco", 1, 4000, 3.0, 2.01, 2.0),  # 48
    losses("diloco", 2, 4000, 3.0, 1.5, 1.01),  # 72
    losses("alq", 1, 400, 3.0, 2.5, 2.02),  # 72
    losses("alq", 2, 400, 3.0, 0.9, 1.1),  # 48
    losses(SPARSE, 1, 16, 3.0, 2.5, 1.9),
    losses(SPARSE, 2, 16, 3.0, 2.5, 1.02),  # never
    losses("muloco", 1, 400, 1.0),
    losses("muloco", 2, 400, 1.0),
]
SLOW, FAST = "10 Mbit/s", "1 Gbit/s"
ROUNDS = [
    *(row for link in (SLOW, FAST) for row in rounds("diloco", link, 32.0, 30.0, 40.0)),
    *(row for link in (SLOW, FAST) for row in rounds("alq", link, 8.0)),
    *rounds(DDP, SLOW, 20.0, 19.0, 23.0),
    *rounds(DDP, FAST, 1.0),
    *(row for link in (SLOW, FAST) for name in (SPARSE, "muloco") for row in rounds(name, link, 0.1)),
]
FIGURES = figures_of(Measured({"parameters": 1000}, TRAININGS, ROUNDS))


def test_the_first_evaluation_at_the_target_counts():
    assert first_at({16: 3.0, 32: 2.0, 48: 2.1}, 2.0) == 32
    assert first_at({16: 3.0, 32: 2.1}, 2.0) is None


def test_seconds_are_the_rounds_to_the_target_times_the_median_round():
    slow = FIGURES["ways"]["diloco"]["links"][SLOW]
    assert slow["round_s"] == {"median": 32.0, "low": 30.0, "high": 40.0}
    assert slow["step_s"] == 1.333
    assert slow["seconds_to_target"] == {"median": 80.0, "low": 64.0, "high": 96.0}  # 2 and 3 rounds
    assert FIGURES["ways"][DDP]["links"][SLOW]["seconds_to_target"]["high"] == 36 * 20.0


def test_speed_ups_are_taken_seed_by_seed():
    slow = FIGURES["ways"]["alq"]["links"][SLOW]
    assert slow["speedup"] == {"median": 30.0, "low": 30.0, "high": 30.0}  # 36 x 20 s over 3 x 8 s, 24 x 20 over 2 x 8
    assert slow["speedup_vs_plain"] == {"median": 4.333, "low": 2.667, "high": 6.0}  # 64 s over 24, 96 over 16


def test_a_way_that_a_seed_leaves_short_of_the_target_has_no_time():
    sparse = FIGURES["ways"][SPARSE]
    assert sparse["num_reached"] == 1
    assert sparse["steps_to_target"] is None
    assert sparse["links"][SLOW]["speedup"] is None


def test_the_best_is_compressed_has_ddp_s_optimizer_and_is_chosen_on_the_slowest_link():
    assert (FIGURES["best"], FIGURES["link"]) == ("alq", "10 Mbit/s")
    assert FIGURES["speedup_to_loss"]["median"] == 30.0
    assert FIGURES["quickest"] == {SLOW: "alq", FAST: "alq"}  # there 20 s, DDP 30
    assert FIGURES["loss_ratio"] == {"median": 1.055, "low": 1.01, "high": 1.1}
    assert FIGURES["sparse_loco_ratio"] == 250.0  # 4 bytes of 1000 parameters over 16
    held = {"speedup_to_loss": True, "speedup_vs_plain_diloco": True, "loss_ratio": False, "sparse_loco_ratio": True}
    assert FIGURES["held"] == held


def test_without_a_way_that_gets_there_no_bar_is_held():
    told = figures_of(Measured({"parameters": 1000}, TRAININGS[:2], rounds(DDP, SLOW, 1.0)))
    assert told["best"] is None
    assert not any(told["held"].values())
    assert holds("loss_ratio", 1.01) and not holds("loss_ratio", 1.011)


def test_without_root_one_sentence_says_why(monkeypatch, capsys):
    monkeypatch.setattr(outer, "why_not", lambda: "no namespaces here")
    with pytest.raises(SystemExit, match="2"):
        outer.main([])
    assert capsys.readouterr().err.endswith("error: no namespaces here; --quick needs none\n")


def test_a_number_of_turns_that_measures_nothing_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        outer.main(["--quick", "--turns", "0"])
    assert "--turns 0: must be at least 1" in capsys.readouterr().err


def test_a_training_takes_whole_rounds():
    size = replace(SIZES["quick"], steps=104)
    steps = {name: way.num_steps(size) for name, way in WAYS.items()}
    assert steps[DDP] == 104
    assert all(steps[name] % WAYS[name].every == 0 and steps[name] > 0 for name in WAYS)
    assert steps[SPARSE] == 204  # 17 rounds, of 17.3
    assert steps["alq"] == 144  # six, of 6.1


@few(2, "name", [DDP, "alq", "muloco"])
def test_a_way_trains_and_counts_its_bytes(alone, name):
    size = replace(SIZES["quick"], steps=48)
    dataset = outer_rank.data_of(size)
    training = outer_rank.begun(size, dataset, WAYS[name], seed=1)
    first = outer_rank.held_out_loss(training.model, dataset)
    told = outer_rank.trained(training, size, dataset)
    last = WAYS[name].num_steps(size)
    assert max(told["losses"]) == last
    assert first == pytest.approx(math.log(dataset.num_classes), rel=0.02)  # it knows nothing yet
    assert told["losses"][last] < first - 0.1
    again = outer_rank.timed(training)
    assert again["round_s"] >= WAYS[name].every * again["step_s"] / 2
    assert training.schedule.last_epoch == last + WAYS[name].every
    training.close()


def test_all_ways_begin_alike(alone):
    dataset = outer_rank.data_of(SIZES["quick"])
    trainings = [outer_rank.begun(SIZES["quick"], dataset, WAYS[name], seed=3) for name in (DDP, "alq")]
    assert torch.equal(*(torch.cat([p.flatten() for p in one.model.parameters()]) for one in trainings))
    assert torch.equal(*(one.batch(5)[0] for one in trainings))
    trainings[1].close()


@pytest.mark.slow
def test_the_whole_in_small(capsys):
    outer.main(["--quick", "--ways", "diloco", SPARSE, "--seeds", "1", "--turns", "1"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(told["ways"]) == [DDP, "diloco", SPARSE]
    assert (told["data"], told["seeds"], told["link"]) == ("text", 1, "loopback")
    plain = told["ways"]["diloco"]
    assert plain["bytes_a_round"] == pytest.approx(4 * told["parameters"], rel=0.01)
    assert told["sparse_loco_ratio"] > 10  # messages so small have headers
    assert all(row["links"]["loopback"]["round_s"]["median"] > 0 for row in told["ways"].values())


def test_the_page_can_be_written_whether_or_not_a_way_reaches_the_target():
    ends = {DDP: 2.0, "alq": 2.0, "diloco": 2.0, SPARSE: 3.0}
    trainings = [losses(name, 1, 16, ends.get(name, 1.0)) for name in WAYS]
    seconds = {name: 1.0 if name == "alq" else 2.0 for name in WAYS}
    told = [row for link in LINKS_MBIT for name in WAYS for row in rounds(name, link, seconds[name])]
    figures = figures_of(Measured({"parameters": 1000}, trainings, told))
    block, _ = blocks.of_page((ROOT / "docs/results/outer.md").read_text())
    page = block.words({"commit": "0123456789ab", "date": "2001-01-01", "hardware": "a processor", "figures": figures})
    assert "| 10 Mbit/s | DiLoCo, ALQ, H = 24 | 1.00 (1.00-1.00) | 24.0x (24.0-24.0) | 2.0x (2.0-2.0) |" in page
    assert "| SparseLoCo, H = 12 | 12 | 3.000 (3.000-3.000) | 1.500 (1.500-1.500) | not all seeds |" in page
