"""Steps of ``benchmarks/gpu/run`` in parts: what they tell where something is wrong.

The whole of them is rehearsed by ``--rehearse``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import methods, model_gradient
from benchmarks.gpu import bits, compile_kernels, gradients, one_step, paper, rank_checks, ranks, train_in_small
from benchmarks.gpu.steps import STEPS
from benchmarks.quantize import MAIN, fractions
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
    assert len(bits.statistics_checks(1000)) == 8 and len(bits.smaq_checks(1000)) == 9


def test_a_case_that_fails_is_told_and_the_others_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(by: object, device: str) -> bits.Tensors:
        raise torch.OutOfMemoryError("no memory")

    fine = bits.statistics_checks(1000)
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # so that what ``main`` sets is taken back
    monkeypatch.setattr(bits, "operator_checks", lambda size: {"large": refuses})
    monkeypatch.setattr(bits, "statistics_checks", lambda size: {name: fine[name] for name in list(fine)[:1]})
    monkeypatch.setattr(bits, "smaq_checks", lambda size: {})
    assert bits.main(["--device", "cpu", "--size", "1000"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["cases"] for line in lines] == [0, 1, 2, 2], "after each case"
    told = lines[-1]
    assert told["different"] == {"large": "failed: OutOfMemoryError: no memory"} and told["cases"] == 2
    assert told["compared_numbers"]["statistics on the CPU"] > 0
    monkeypatch.setattr(bits, "operator_checks", lambda size: {})
    assert bits.main(["--device", "cpu", "--size", "1000", "--seconds", "-1"]) == 1, "nothing was compared"


def test_a_run_under_the_sanitizer_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bits.sanitized("cpu", 10.0)["ran"] is False
    tool = tmp_path / "compute-sanitizer"
    monkeypatch.setattr(bits.shutil, "which", lambda name: str(tool))
    for end, errors in ((0, False), (1, True), (9, True)):
        tool.write_text(f"#!/bin/sh\necho '========= words'\nexit {end}\n")
        tool.chmod(0o755)
        assert bits.sanitized("cuda", 10.0) == {
            "ran": True,
            "exit_code": end,
            "errors": errors,
            "said": ["========= words"],
        }
    tool.write_text("#!/bin/sh\nsleep 99\n")
    assert bits.sanitized("cuda", 0.5) == {"ran": False, "why": "0 s were not enough"}


def test_nothing_but_skipped_tests_has_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, as the step calls it: pytest inside pytest shares too much."""
    skipped = "@pytest.mark.skip(reason='why')\ndef test_two(): pass\n"
    text = f"import pytest\ndef test_one(): pass\n{skipped}def test_three(): assert 0\n"
    (tmp_path / "test_some.py").write_text(text)

    def ended(*words: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "benchmarks.gpu.unit_tests", str(tmp_path / "test_some.py"), *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    code, told = ended("--names", "one or two")
    assert code == 0 and told["passed"] == 1 and list(told["skipped"].values()) == ["Skipped: why"]
    assert ended("--names", "one or two", "--device", "cuda")[0] == 1 and ended("--names", "two")[0] == 1
    code, told = ended("--names", "one or three")
    assert code == 1 and len(told["failed"]) == 1 and told["passed"] == 1


def test_outcomes_are_told_after_each_test(tmp_path: Path) -> None:
    """So that one that is killed at a limit costs only itself."""
    killed = "def test_b(): os.kill(os.getpid(), 9)\n"
    (tmp_path / "test_some.py").write_text(f"import os\ndef test_a(): print('words')\n{killed}")
    command = [sys.executable, "-m", "benchmarks.gpu.unit_tests", str(tmp_path / "test_some.py")]
    log = tmp_path / "log"
    with log.open("w") as file:
        assert subprocess.run(command, cwd=ROOT, stdout=file, timeout=100).returncode == -9
    assert one_step.told(log, 0, failed=True)["result"]["passed"] == 1


def test_every_kernel_is_compiled_once_for_what_differs() -> None:
    """Launches that Triton tells apart are kept, and no other; the tests' own are among them."""
    pytest.importorskip("triton")
    launches = compile_kernels.launches_of([2500])
    names = Counter(kernel.__name__ for kernel, _, _ in launches)
    assert {"encode_kernel", "decode_kernel", "hadamard_kernel", "outer_kernel", "code_kernel", "join_kernel"} <= {
        *names
    }
    assert len(launches) == len({repr(launch) for launch in launches})
    kinds = [compile_kernels._kind(one) for one in (1, 2, 16, 32, 1 << 40, 0.5, 2.5, torch.int8, torch.uint8)]
    assert [kinds.index(kind) for kind in kinds] == [0, 1, 2, 2, 4, 5, 5, 7, 8]


LAUNCHED = """
import json, os
from pathlib import Path
from benchmarks.gpu import bits, compile_kernels
from nuq.kernels.cuda import kernels
from tests.nuq.kernels import test_cuda, test_cuda_smaq
for known in (test_cuda.BIG, test_cuda.ROTATIONS, test_cuda.BIG_ROTATIONS, test_cuda_smaq.CASES):
    known.clear()
del test_cuda.CASES[2:]
test_cuda.ERRORS, bits.smaq_cases = {}, lambda size: []
launches = compile_kernels.launches_of([])
def cached():
    return len(list(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.cubin")))
late = list(compile_kernels.compiled(launches, 90, 1, -1.0))[-1]
done = list(compile_kernels.compiled(launches, 90, 2, 100.0))[-1]
before, ends = cached(), []
for case in test_cuda.CASES:
    try:
        test_cuda.encoded(kernels, case, "cpu")  # a real launch, as far as Triton comes without a GPU
    except AttributeError as error:
        ends.append(str(error))
print(json.dumps({"late": late, "done": done, "before": before, "after": cached(), "ends": ends}))
"""


def test_kernels_are_compiled_where_a_launch_looks_for_them(tmp_path: Path) -> None:
    """By several processes; the launch itself then compiles nothing. A limit is told."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    late, whole = found["late"], found["done"]
    assert late["not_reached"] == late["kernels"] - 1 and late["compiled"] == 1
    assert whole["compiled"] == whole["kernels"] >= 3 and whole["failed"] == {} and whole["not_reached"] == 0
    assert found["before"] == whole["kernels"] == found["after"]
    assert len(found["ends"]) == 2 and all("'Target' object has no attribute" in one for one in found["ends"])


def test_fractions_are_of_the_bytes_that_have_to_move() -> None:
    told = fractions(1 << 12, 3, "cpu")
    found = told["gpu"]["fraction_of_peak"]
    assert told["encode_fraction_of_peak"] == found[MAIN[0]] and told["decode_fraction_of_peak"] == found[MAIN[2]]
    assert len(found) == 6 and told["gpu"]["name"] == "CPU" and told["gpu"]["size"] == 1 << 12


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
    assert [methods.part_of("abcdefg", f"{part}/3") for part in (1, 2, 3)] == [list("adg"), list("be"), list("cf")]
    for text in ("0/3", "4/3", "1", "x/y", "-1/3"):
        with pytest.raises(ValueError, match=f"--part {text}: must be a part such as 1/3"):
            methods.part_of("abc", text)
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(
        model_gradient, "recorded", lambda model: model_gradient.Gradients("", {"x": (64,)}, [x, x], [x])
    )
    with pytest.raises(SystemExit, match="1"):
        methods.main(["--device", "cpu", "--methods", "sign", "trn", "--part", "1/1", "--seconds", "-1"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["not_reached"] == ["sign", "trn"]
