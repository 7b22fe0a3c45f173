"""Steps of ``benchmarks/gpu/run`` in parts: what they tell where something is wrong.

The whole of them is rehearsed by ``--rehearse``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.errors import gradients as sources
from benchmarks.errors import methods
from benchmarks.errors.__main__ import main as errors
from benchmarks.gpu import gradients, paper, rank_checks, ranks, train_in_small
from benchmarks.gpu.steps import STEPS
from benchmarks.speed_cases import quantize
from benchmarks.speed_cases.quantize import MAIN
from nuq.kernels.cuda import operators
from settings import command_line, resolving
from tests.nuq.ranks import Outcome, Ranks
from train.steps import cuda_graphs

ROOT = Path(__file__).parents[2]


class Parsed(Exception):
    """In place of what a program does once it has parsed its words."""


OWN = [tuple(command.within(10.0)) for step in STEPS for command in (*step.commands, *step.rehearsal)]


@pytest.mark.parametrize("command", OWN, ids=" ".join)
def test_programs_take_the_words_of_the_table(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    """Also those that only a GPU would hear, and for the trainer's settings what they mean."""
    parse = argparse.ArgumentParser.parse_args

    def only(self: argparse.ArgumentParser, given: Any = None) -> None:
        del given
        raise Parsed(parse(self, command[2:]))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only)
    with pytest.raises(Parsed) as found:
        program = importlib.import_module(command[1])
        (importlib.import_module(f"{command[1]}.__main__") if hasattr(program, "__path__") else program).main()
    chosen = found.value.args[0]
    for model in chosen.model if command[2] == "train" else ():
        settings = command_line.parse_overrides(chosen.settings)
        assert resolving.resolve(
            {"data": chosen.data or "cifar10", "model": model, "device": chosen.device, **settings}
        )


def test_fractions_are_of_the_bytes_that_have_to_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told after each row; on a GPU, those of the kernels alone too."""
    every = [json.loads(json.dumps(known)) for known in quantize.fractions(1 << 12, 3, "cpu")]
    assert [len(known["gpu"]["fraction_of_peak"]) for known in every] == list(range(1, len(every) + 1))
    assert len(every) == len(quantize.ROWS + quantize.MORE_ROWS)
    assert every[0]["decode_fraction_of_peak"] == quantize.NOT_MEASURED
    told, found = every[-1], every[-1]["gpu"]["fraction_of_peak"]
    assert [told[f"{kind}_fraction_of_peak"] for kind in ("encode", "decode")] == [found[MAIN[0]], found[MAIN[2]]]
    assert told["gpu"]["name"] == "CPU" and told["gpu"]["size"] == 1 << 12
    measure = quantize.measure
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(
        quantize, "measure", lambda rows, size, repeats, device, clock: measure(rows, size, repeats, "cpu")
    )
    gpu = list(quantize.fractions(1 << 12, 3, "cuda"))[-1]["gpu"]
    assert gpu["kernel_fraction_of_peak"].keys() == gpu["fraction_of_peak"].keys() == found.keys()


def test_kernels_alone_are_launched_within_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing that waits for the GPU is done between the two events."""
    done: list[str] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            del enable_timing

        record = synchronize = lambda self: done.append("event")
        elapsed_time = lambda self, other: 2.0  # noqa: E731

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append("pause"))
    monkeypatch.setattr(operators, "check_scales", lambda *_: done.append("wait"))

    def call() -> None:
        done.append("call")
        operators.check_scales(torch.ones(1), "l2")

    assert quantize.kernel_seconds(call) == 2e-3
    assert done == ["pause", "event", "call", "event", "event"]
    done.clear()
    quantize.gpu_seconds(call)
    assert done == ["event", "call", "wait", "event", "event"]


def test_ages_methods_and_failures_of_gradients(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    monkeypatch.setenv("NUQ_DATA", str(tmp_path))
    small = {
        "resnet": {"data": "cifar10", "model": "resnet8", "batch_size": 2},
        "gpt": {"data": "cifar10", "model": "no such model"},
    }
    monkeypatch.setattr(gradients, "SMALL_MODELS", small)
    monkeypatch.setattr(gradients, "SMALL_AGES", (2, 5))
    monkeypatch.setattr(gradients, "CASES", ("supersgd", "alq bits=3"))
    assert gradients.main(["--device", "cpu", "--small", "--seconds", "60"]) == 1, "one of two models failed"
    lines = [json.loads(line)["models"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [list(line["resnet"]["ages"]) for line in lines] == [["2"], ["2", "5"], ["2", "5"]], "after each age"
    assert lines[-1]["gpt"]["failed"].startswith("ValueError: ")
    told = lines[-1]["resnet"]
    assert told["stand_in"] is True and list(told["ages"]) == ["2", "5"]
    for age in told["ages"].values():
        assert age["methods"]["supersgd"]["error"] == 0 < age["methods"]["alq bits=3"]["error"]
        assert age["methods"]["alq bits=3"]["bits"] == pytest.approx(3, abs=0.1)
    some = sources.Gradients("", [torch.ones(8)], [torch.full((8,), torch.nan)], shapes={"x": (8,)})
    failed = gradients.errors(some, time.monotonic() + 60)["alq bits=3"]["failed"]
    assert failed.startswith("NonFiniteError: ")
    assert gradients.errors(some, time.monotonic() - 1)["supersgd"] == {"skipped": "no time was left"}


def test_the_papers_runs_in_fewer_steps() -> None:
    runs = {one.label: one.config for one in paper.shortened(400, "resnet32", 128).experiments()}
    assert list(runs) == ["SGD", "SuperSGD", "NUQSGD", "QSGDinf", "TRN", "ALQ", "ALQ-N", "AMQ", "AMQ-N"]
    for config in runs.values():
        assert config["steps"] == 400 and config["schedule"]["at"] == [200, 300] and config["measure"]["every"] == 0
        assert config["workers"] == 4 and config["batch_size"] == 128 and config["model"]["name"] == "resnet32"
    assert runs["ALQ"]["method"]["update_at"] == [100, 2000] and runs["ALQ"]["method"]["solver"] == "paper"


def test_a_run_that_has_no_time_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("NUQ_DATA", str(tmp_path))
    (config,) = [one.config for one in paper.shortened(2, "resnet8", 2).experiments() if one.label == "SuperSGD"]
    found = paper.train({**config, "threads": 1}, "cpu", time.time())
    assert (
        found["steps"] == 0 and found["whole"] is False and found["stand_in"] is True and 0 <= found["accuracy"] <= 100
    )


@pytest.mark.slow
def test_one_process_a_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One that crashes, one that hangs and one that says nothing are alone in it."""
    ends = {
        "SGD": "import os; os.kill(os.getpid(), 9)",
        "ALQ": "import time; time.sleep(99)",
        "AMQ": "print('no words')",
        "TRN": "print('words'); print('{\"steps\": 2}')",
    }
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        return real([sys.executable, "-c", ends[command[command.index("--alone") + 1]]], **options)

    monkeypatch.setattr(paper.subprocess, "run", run)
    assert paper.main(["--runs", *ends, "--at-once", "4", "--seconds", "8", "--device", "cpu"]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert list(told) == list(ends), "in the order that was asked for"
    assert [row.get("failed") for row in told.values()] == [
        "exit code -9: no word",
        "it hung, and was killed",
        "exit code 0: no word",
        None,
    ]


def test_a_name_that_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        paper.main(["--runs", "ALQQ"])
    assert "'ALQQ' is no run of this sweep; legal here: SGD, SuperSGD" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ([Outcome(value={"a": 1}), Outcome(value={})], {"a": 1}),
        ([Outcome(value={}), Outcome(error="Traceback\nValueError: no")], {"failed": "rank 1: ValueError: no"}),
        ([Outcome(hung=True), Outcome(value={})], {"failed": "rank 0: hung for 60 s"}),
        ([Outcome(value={}), Outcome(exit_code=-9)], {"failed": "rank 1: ended with -9"}),
    ],
)
def test_how_a_check_of_ranks_ended(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome], told: dict[str, object]
) -> None:
    group = Ranks(2)
    monkeypatch.setattr(group, "outcomes", lambda *arguments, **options: outcomes)
    assert ranks.checked(group, rank_checks.hook, "cpu", True) == told


def test_checks_without_time_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Ranks, "outcomes", lambda *arguments, **options: [Outcome(value={})])
    assert ranks.main(["--device", "cpu", "--checks", "nccl"]) == 0
    assert list(json.loads(capsys.readouterr().out.splitlines()[-1])["checks"]) == ["nccl of 1", "nccl of 2"]
    assert ranks.main(["--device", "cpu", "--seconds", "1"]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(told["failed"]) == len(ranks.CHECKS) and all(
        one["failed"] == "no time was left" for one in told["checks"].values()
    )


def test_a_refusal_of_nccl_is_no_failure_for_two_ranks_on_one_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tensor: torch.Tensor, group: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(rank_checks.dist, "all_reduce", refuse)
    monkeypatch.setattr(rank_checks.dist, "ProcessGroup", object)
    monkeypatch.setattr(rank_checks.dist, "new_group", lambda *arguments, **options: object())
    for words, world, refused in (
        ("NCCL error\nDuplicate GPU detected : rank 0 and rank 1", 2, True),
        ("NCCL error\nDuplicate GPU detected : rank 0 and rank 1", 1, False),
        ("NCCL error\nno socket interface found", 2, False),
    ):
        monkeypatch.setattr(rank_checks.dist, "get_world_size", lambda group, world=world: world)
        if refused:
            assert rank_checks.nccl(None, "cpu", True) == {"refused": words.splitlines()[-1]}  # type: ignore[arg-type]
        else:
            with pytest.raises(RuntimeError, match="NCCL error"):
                rank_checks.nccl(None, "cpu", True)  # type: ignore[arg-type]


def test_only_the_rank_that_is_meant_to_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Ranks(2)
    monkeypatch.setattr(
        group, "outcomes", lambda *arguments, **options: [Outcome(value={"noticed_s": 1}), Outcome(exit_code=7)]
    )
    assert ranks.checked(group, rank_checks.dies, "cpu", True) == {"noticed_s": 1}


def test_a_recorded_graph_is_replayed_on_the_same_memory() -> None:
    """The trainer's own ``Recorded``, with graphs for the CPU: new inputs give new results; reading back is refused."""
    weight = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def passed(x: torch.Tensor, y: torch.Tensor, factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = ((x @ weight - y) ** 2).mean()
        flat = torch.empty(15)
        flat.view(5, 3).copy_(torch.autograd.grad(loss * factor, [weight])[0])
        return flat, loss.detach()

    batches = [torch.randn(2, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    given = [(batch[:, :5], batch[:, 5:], torch.tensor(2.0)) for batch in batches]
    with train_in_small.graphs_on_cpu():
        recorded = cuda_graphs.Recorded(passed, *given[0])
        with torch.no_grad():
            weight.mul_(0.5)  # as an optimizer does between two replays
        for one in given:
            assert all(map(torch.equal, recorded(*one), passed(*one)))
        with pytest.raises(RuntimeError, match="read back"):
            cuda_graphs.Recorded(lambda x, y, factor: (x * float(factor), y), *given[0])


def test_a_part_of_the_methods_and_those_without_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ["abcdefg"[methods.part(f"{part}/3")] for part in (1, 2, 3)] == ["adg", "be", "cf"]
    for text in ("0/3", "4/3", "1", "x/y", "-1/3"):
        with pytest.raises(ValueError, match=f"--part {text}: must be a part such as 1/3"):
            methods.part(text)
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(sources, "source", lambda model: sources.Gradients("", [x, x], [x], shapes={"x": (64,)}))
    errors(["methods", "--device", "cpu", "--methods", "sign", "trn", "--pairs", "1"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [list(line["methods"]) for line in lines] == [["sign"], ["sign", "trn"], ["sign", "trn"]], "after each"
    assert [line["not_reached"] for line in lines] == [["trn"], [], []]
    with pytest.raises(SystemExit, match="1"):
        errors(["methods", "--device", "cpu", "--methods", "sign", "trn", "--part", "1/1", "--seconds", "-1"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["not_reached"] == ["sign", "trn"]
