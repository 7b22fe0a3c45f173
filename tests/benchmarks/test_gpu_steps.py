"""Steps of ``benchmarks/gpu/run`` in parts: what they tell where something is wrong.

The whole of them is rehearsed by ``--rehearse``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from typing import Any

import pytest
import torch

from benchmarks import model_gradient
from benchmarks.gpu import bits, gradients, paper, rank_checks, ranks
from benchmarks.gpu.steps import STEPS, Command
from benchmarks.quantize import MAIN, fractions
from settings import command_line, resolving
from tests.nuq.ranks import Outcome, Ranks


class Parsed(Exception):
    """In place of what a program does once it has parsed its words."""


OWN = [command for step in STEPS for command in (*step.commands, *step.rehearsal) if command[1] != "pytest"]


@pytest.mark.parametrize("command", OWN, ids=" ".join)
def test_programs_take_the_words_of_the_table(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    """Also those that only a GPU would hear, and for the trainer's settings what they mean."""
    parse = argparse.ArgumentParser.parse_args

    def only(self: argparse.ArgumentParser, given: Any = None) -> None:
        del given
        raise Parsed(parse(self, command[2:]))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only)
    with pytest.raises(Parsed) as found:
        importlib.import_module(command[1]).main()
    chosen = found.value.args[0]
    for model in chosen.model if command[1] == "benchmarks.train" else ():
        settings = command_line.parse_overrides(chosen.settings)
        assert resolving.resolve(
            {"data": chosen.data or "cifar10", "model": model, "device": chosen.device, **settings}
        )


def test_the_large_models_can_be_configured() -> None:
    for settings in (*gradients.MODELS.values(), *gradients.SMALL_MODELS.values()):
        assert resolving.resolve({"method": "supersgd", "workers": 1, **settings})


def test_bits_that_differ_are_found() -> None:
    mine = {"bytes": torch.arange(10, dtype=torch.uint8), "scales": torch.tensor([0.0, 1.0])}
    assert bits.differing(mine, {name: tensor.clone() for name, tensor in mine.items()}) == ""
    other = {"bytes": mine["bytes"].clone(), "scales": torch.tensor([-0.0, 1.0])}
    other["bytes"][7] = 0
    assert (
        bits.differing(mine, other)
        == "1 bytes of bytes differ, the first at 7; 1 bytes of scales differ, the first at 3"
    )


def test_checks_of_the_bits_reach_every_width_norm_type_and_odd_size() -> None:
    names = " ".join(bits.operator_checks(1000))
    assert all(
        f"num_levels={count}" in names for count in bits.LEVEL_COUNTS if count != 8
    )  # 8 is the default, and not named
    assert all(
        word in names for word in ("norm=linf", "norm=rms", "norm=quantile", "bfloat16", "float16", "n=1007", "n=999")
    )
    assert all(
        word in names
        for word in (
            "uniform=True dither=True",
            "stochastic=False",
            "accumulate=False",
            "rotation (1077, 1048576, True)",
        )
    )
    assert len(bits.statistics_checks(1000)) == 8 and len(list(bits.smaq_checks(1000))) == 9


def test_without_a_gpu_nothing_is_sanitized() -> None:
    assert bits.sanitized("cpu")["ran"] is False


def test_fractions_are_of_the_bytes_that_have_to_move() -> None:
    told = fractions(1 << 12, 3, "cpu")
    found = told["gpu"]["fraction_of_peak"]
    assert told["encode_fraction_of_peak"] == found[MAIN[0]] and told["decode_fraction_of_peak"] == found[MAIN[2]]
    assert len(found) == 6 and told["gpu"]["name"] == "CPU" and told["gpu"]["size"] == 1 << 12


def test_ages_methods_and_failures_of_gradients(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    monkeypatch.setenv("NUQ_DATA", str(tmp_path))
    monkeypatch.setattr(
        gradients, "SMALL_MODELS", {"ResNet-8": {"data": "cifar10", "model": "resnet8", "batch_size": 2}}
    )
    monkeypatch.setattr(gradients, "SMALL_AGES", (2, 5))
    monkeypatch.setattr(gradients, "CASES", ("supersgd", "alq bits=3"))
    assert gradients.main(["--device", "cpu", "--small", "--seconds", "60"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["models"]["ResNet-8"]
    assert told["stand_in"] is True and list(told["ages"]) == ["2", "5"]
    for age in told["ages"].values():
        assert age["methods"]["supersgd"]["error"] == 0 < age["methods"]["alq bits=3"]["error"]
        assert age["methods"]["alq bits=3"]["bits"] == pytest.approx(3, abs=0.1)
    some = model_gradient.Gradients("", {"x": (8,)}, [torch.ones(8)], [torch.full((8,), torch.nan)])
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


def test_a_name_that_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        paper.main(["--runs", "ALQQ"])
    assert "'ALQQ' is no run of this sweep; legal here: SGD, SuperSGD" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ([Outcome(value={"a": 1}), Outcome(value={})], {"a": 1}),
        ([Outcome(value={}), Outcome(error="Traceback\nValueError: no")], {"failed": "rank 1: ValueError: no"}),
        ([Outcome(hung=True), Outcome(value={})], {"failed": "rank 0: hung for 90 s"}),
        ([Outcome(value={}), Outcome(exit_code=-9)], {"failed": "rank 1: ended with -9"}),
    ],
)
def test_how_a_check_of_ranks_ended(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome], told: dict[str, object]
) -> None:
    group = Ranks(2)
    monkeypatch.setattr(group, "outcomes", lambda *arguments, **options: outcomes)
    assert ranks.checked(group, rank_checks.hook, "cpu", True) == told


def test_only_the_rank_that_is_meant_to_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Ranks(2)
    monkeypatch.setattr(
        group, "outcomes", lambda *arguments, **options: [Outcome(value={"noticed_s": 1}), Outcome(exit_code=7)]
    )
    assert ranks.checked(group, rank_checks.dies, "cpu", True) == {"noticed_s": 1}
