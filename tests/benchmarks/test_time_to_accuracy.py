"""The tables of ``benchmarks.time_to_accuracy``, against rows by hand, its trainings in one process, and its errors."""

from dataclasses import replace

import pytest

from benchmarks import network, time_to_accuracy
from benchmarks.time_to_accuracy import TASKS, figures_of, reached, summary, with_range
from benchmarks.time_to_accuracy_rank import data_of, trained


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


def test_the_first_evaluation_at_the_target_counts():
    first = reached(ROWS[:3], 90.0)
    assert first is not None
    assert (first["step"], first["seconds"]) == (10, 2.0)
    assert reached(ROWS[:3], 95.1) is None


def test_times_are_of_every_seed_and_ratios_seed_by_seed():
    found = figures_of(ROWS, 90.0)
    assert found["supersgd"]["time_s"] == pytest.approx([2.0, 1.0])
    assert found["alq"]["time_s"] == pytest.approx([1.0, 1.5])
    assert found["alq"]["ratio"] == pytest.approx([2.0, 1.0 / 1.5])
    assert found["alq"]["step_ms"] == pytest.approx([100.0, 100.0])
    assert found["alq"]["bytes_per_step"] == 100.0
    assert with_range(found["alq"]["time_s"], 2) == "1.25 (1.00-1.50)"


def test_a_seed_that_does_not_get_there_leaves_no_time():
    found = figures_of(ROWS, 92.0)
    assert found["alq"]["time_s"] is None
    assert found["alq"]["num_reached"] == 1
    figures = summary(found, TASKS["digits"])
    assert figures["time_to_accuracy_s"] == {"supersgd": 3.0, "alq": None}
    assert figures["speedup_vs_bf16"] == {"supersgd": 1.0, "alq": None}


def test_where_no_network_can_be_made_one_sentence_says_why(monkeypatch):
    monkeypatch.setattr(network, "why_not", lambda: "no namespaces here")
    with pytest.raises(SystemExit, match=r"^benchmarks\.time_to_accuracy: no namespaces here$"):
        time_to_accuracy.main(["--seeds", "1"])


@pytest.mark.parametrize("name", ["digits", "text"])
def test_a_task_trains_and_counts_its_bytes(alone, name):
    task = replace(TASKS[name], width=16, steps=6, eval_every=3, levels_at=(2,))
    rows = {method: list(trained(task, data_of(task), method, seed=1)) for method in ("supersgd", "alq")}
    for found in rows.values():
        assert [row["step"] for row in found] == [3, 6]
        assert all(0 < row["accuracy"] < 100 and row["seconds"] > 0 for row in found)
