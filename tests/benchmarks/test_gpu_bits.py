"""The step ``bits`` of ``benchmarks/gpu/run``: kernels compiled ahead, what is compared, and what is told of tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import bits, compile_kernels, one_step

ROOT = Path(__file__).parents[2]


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
    assert len(bits.statistics_checks(1000)) == 16 and len(bits.smaq_checks(1000)) == 9


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_outcomes_are_told_after_each_test(tmp_path: Path) -> None:
    """So that one that is killed at a limit costs only itself."""
    killed = "def test_b(): os.kill(os.getpid(), 9)\n"
    (tmp_path / "test_some.py").write_text(f"import os\ndef test_a(): print('words')\n{killed}")
    command = [sys.executable, "-m", "benchmarks.gpu.unit_tests", str(tmp_path / "test_some.py")]
    log = tmp_path / "log"
    with log.open("w") as file:
        assert subprocess.run(command, cwd=ROOT, stdout=file, timeout=100).returncode == -9
    assert one_step.told(log, 0, failed=True)["result"]["passed"] == 1


@pytest.mark.slow
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
from nuq.kernels.cuda import operators
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
        test_cuda.encoded(operators, case, "cpu")  # a real launch, as far as Triton comes without a GPU
    except AttributeError as error:
        ends.append(str(error))
print(json.dumps({"late": late, "done": done, "before": before, "after": cached(), "ends": ends}))
"""


@pytest.mark.slow
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
