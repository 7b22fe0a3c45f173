"""Whole trainings of ``benchmarks.links`` against rows by hand, and in small."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from analysis.prediction import profile, validate
from analysis.prediction.runs import Setup
from benchmarks.links import outer, rank, time_to_accuracy, whatif
from benchmarks.links.__main__ import main
from benchmarks.links.outer import DDP, SIZES, SPARSE, WAYS, Measured, figures_of
from benchmarks.links.ranks import ROOT
from benchmarks.links.time_to_accuracy import TASKS
from benchmarks.results import blocks

# --- outer ---


def losses(way, seed, num_bytes, *values):
    steps = (math.lcm(12, WAYS[way].every) * n for n in range(1, len(values) + 1))
    return {"way": way, "seed": seed, "losses": dict(zip(steps, values, strict=True)), "bytes": num_bytes}


def rounds_on(way, link, *seconds):
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
    *(row for link in (SLOW, FAST) for row in rounds_on("diloco", link, 32.0, 30.0, 40.0)),
    *(row for link in (SLOW, FAST) for row in rounds_on("alq", link, 8.0)),
    *rounds_on(DDP, SLOW, 20.0, 19.0, 23.0),
    *rounds_on(DDP, FAST, 1.0),
    *(row for link in (SLOW, FAST) for name in (SPARSE, "muloco") for row in rounds_on(name, link, 0.1)),
]
FIGURES = figures_of(Measured({"parameters": 1000}, TRAININGS, ROUNDS))


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
    told = figures_of(Measured({"parameters": 1000}, TRAININGS[:2], rounds_on(DDP, SLOW, 1.0)))
    assert told["best"] is None
    assert not any(told["held"].values())
    assert outer.holds("loss_ratio", 1.01) and not outer.holds("loss_ratio", 1.011)


def test_a_training_takes_whole_rounds():
    size = replace(SIZES["quick"], steps=104)
    steps = {name: way.num_steps(size) for name, way in WAYS.items()}
    assert steps[DDP] == 104
    assert all(steps[name] % WAYS[name].every == 0 and steps[name] > 0 for name in WAYS)
    assert steps[SPARSE] == 204  # 17 rounds, of 17.3
    assert steps["alq"] == 144  # six, of 6.1


def test_the_page_can_be_written_whether_or_not_a_way_reaches_the_target():
    ends = {DDP: 2.0, "alq": 2.0, "diloco": 2.0, SPARSE: 3.0}
    trainings = [losses(name, 1, 16, ends.get(name, 1.0)) for name in WAYS]
    seconds = {name: 1.0 if name == "alq" else 2.0 for name in WAYS}
    told = [row for link in outer.LINKS_MBIT for name in WAYS for row in rounds_on(name, link, seconds[name])]
    figures = figures_of(Measured({"parameters": 1000}, trainings, told))
    block, _ = blocks.of_page((ROOT / "docs/results/outer.md").read_text())
    page = block.words({"commit": "0123456789ab", "date": "2001-01-01", "hardware": "a processor", "figures": figures})
    assert "| 10 Mbit/s | DiLoCo, ALQ, H = 24 | 1.00 (1.00-1.00) | 24.0x (24.0-24.0) | 2.0x (2.0-2.0) |" in page
    assert "| SparseLoCo, H = 12 | 12 | 3.000 (3.000-3.000) | 1.500 (1.500-1.500) | not all seeds |" in page


@pytest.mark.parametrize("name", [DDP, pytest.param("alq", marks=pytest.mark.slow), "muloco"])
def test_a_way_trains_and_counts_its_bytes(alone, monkeypatch, name):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    size, way = replace(SIZES["quick"], steps=48), WAYS[name]
    training = rank.begun(way.spec(size, 1))
    first = rank.evaluated(training)["loss"]
    assert first == pytest.approx(math.log(rank.data_of("text num_test=8", "gpt").num_classes), rel=0.02)
    rows = rank.trained(training, way.num_steps(size), math.lcm(12, way.every))
    assert rows[-1]["step"] == way.num_steps(size) and rows[-1]["loss"] < first - 0.1
    again = rank.measured(training, way.every)
    assert again["step_s"] >= again["median_step_s"] / 2
    assert training.schedule.last_epoch == way.num_steps(size) + way.every
    training.close()


def test_all_ways_begin_alike(alone):
    trainings = [rank.begun(WAYS[name].spec(SIZES["quick"], 3)) for name in (DDP, "alq")]
    assert torch.equal(*(torch.cat([p.flatten() for p in one.whole.parameters()]) for one in trainings))
    assert torch.equal(*(one.batch(5)[0] for one in trainings))
    trainings[1].close()


@pytest.mark.slow
def test_local_steps_in_small(capsys):
    main(["outer", "--quick", "--ways", "diloco", SPARSE, "--seeds", "1", "--turns", "1"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(told["ways"]) == [DDP, "diloco", SPARSE]
    assert (told["data"], told["seeds"], told["link"]) == ("text", 1, "loopback")
    assert told["ways"]["diloco"]["bytes_a_round"] == pytest.approx(4 * told["parameters"], rel=0.01)
    assert told["sparse_loco_ratio"] > 10  # messages so small have headers


# --- time to accuracy ---


def training(method, seed, seconds_per_step, accuracies):
    rows = enumerate(accuracies, 1)
    return [
        {
            "method": method,
            "seed": seed,
            "step": 5 * n,
            "seconds": 5 * n * seconds_per_step,
            "bytes_sent": 500 * n,
            "accuracy": accuracy,
        }
        for n, accuracy in rows
    ]


ROWS = [
    *training("supersgd", 1, 0.2, [50.0, 90.0, 95.0]),
    *training("alq", 1, 0.1, [50.0, 90.0, 94.0]),
    *training("supersgd", 2, 0.2, [90.0, 80.0, 95.0]),
    *training("alq", 2, 0.1, [80.0, 89.9, 91.0]),
]


def test_times_are_of_every_seed_and_ratios_seed_by_seed():
    found = time_to_accuracy.figures_of(ROWS, 90.0)
    assert found["supersgd"]["time_s"] == pytest.approx([2.0, 1.0])
    assert found["alq"]["time_s"] == pytest.approx([1.0, 1.5])
    assert found["alq"]["ratio"] == pytest.approx([2.0, 1.0 / 1.5])
    assert found["alq"]["step_ms"] == pytest.approx([100.0, 100.0])
    assert found["alq"]["bytes_per_step"] == 100.0


def test_a_seed_that_does_not_get_there_leaves_no_time():
    found = time_to_accuracy.figures_of(ROWS, 92.0)
    assert found["alq"]["time_s"] is None
    assert found["alq"]["num_reached"] == 1
    figures = time_to_accuracy.summary(found, "digits", 92.0)
    assert figures["time_to_accuracy_s"] == {"supersgd": 3.0, "alq": None}
    assert figures["speedup_vs_bf16"] == {"supersgd": 1.0, "alq": None}


@pytest.mark.parametrize("name", ["digits", "text"])
def test_a_task_trains_and_counts_its_bytes(alone, name):
    small = {"digits": "mlp widths=[16,16]", "text": "gpt layers=1 heads=1 width=16"}[name]
    task = replace(TASKS[name], spec=replace(TASKS[name].spec, model=small))
    for method in ("supersgd", "alq"):
        training = rank.begun(task.of(method, 1, (2,)))
        rows = rank.trained(training, 6, 3)
        assert [row["step"] for row in rows] == [3, 6]
        assert all(0 < row["accuracy"] < 100 and row["seconds"] > 0 for row in rows)
        training.close()


# --- predictions ---


def row(predicted_s, measured_s, target=(math.nan, 1.0), method="alq", link="30 Mbit/s", every=1):
    return whatif.row_of(method, link, Setup(2, every, 3e7), (predicted_s, target[0]), (measured_s, target[1]))


def test_errors_are_relative_to_what_was_measured():
    figures = whatif.figures_of(
        [row(11.0, 10.0), row(8.0, 10.0, (6.0, 4.0)), row(10.5, 10.0, (3.0, math.nan), every=4)]
    )
    assert (figures["predict_median_error"], figures["predict_worst_error"]) == (0.1, -0.2)
    assert (figures["target_median_error"], figures["num_reached"], figures["num_runs"]) == (0.5, 1, 3)
    assert figures["runs"]["alq"]["30 Mbit/s"]["4"]["error"] == 0.05


def test_a_run_that_fails_is_told_with_its_last_words(tmp_path):
    with pytest.raises(RuntimeError, match=r"^main.py method=alk run_dir=.*: ended with 2: .*'alk'"):
        whatif.train(["method=alk", f"run_dir={tmp_path}"], None)


@pytest.mark.slow
def test_predictions_in_small(capsys):
    main(["whatif", "--quick", "--methods", "alq", "--steps", "8"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["num_runs"], told["steps"]) == (2, 8)
    assert all(one["measured_s"] > 0 and one["predicted_s"] > 0 for one in told["runs"]["alq"]["loopback"].values())


MEASURED: dict[str, Any] = {
    "commit": "abc",
    "ranks": 2,
    "model": "mlp",
    "batch": 32,
    "rate_mbit": 1000,
    "raw_mbit": 950.0,
    "variant": "bf16",
    "step_s": 0.25,
    "compute_s": 0.08,
}


def test_steps_that_the_cost_model_is_far_off_from_are_named(tmp_path, capsys):
    (found,) = validate.validated([MEASURED], profile.read(profile.DEFAULT)).predictions
    near, far = MEASURED | {"step_s": found.step_s * 1.1}, MEASURED | {"step_s": found.step_s * 2, "batch": 8}
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (near, far)))
    main(["prediction", str(file), "--commit", "abc"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["far_off"] == ["mlp of batch 8 on 2 ranks at 1 Gbit/s (-50 %)"]
    assert told["of_commit"]["worst_error"] == pytest.approx(0.5)
    assert told["of_all"]["rows"] == 2
    even = [math.inf if found == "always" else found for found in told["break_even"].values()]
    assert even == sorted(even, reverse=True)
    with pytest.raises(SystemExit, match="no row is of a method"):
        main(["prediction", str(file), "--commit", "def"])
