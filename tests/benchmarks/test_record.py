"""What is measured is kept whole, with its commit and hardware, or the file stays as it was."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import record
from benchmarks.results import result_file
from benchmarks.results.measurements import CIFAR10, MEASUREMENTS, ROOT_USER, Benchmark, Sweep, missing

HARDWARE = {"hardware": "a processor (AVX2), 2 cores", "torch": "2.13.0"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git checkout of one commit; the hardware is a constant, since torch takes seconds to say its version."""
    monkeypatch.setattr(result_file, "hardware", lambda: HARDWARE)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "one"]):
        (tmp_path / "bench.py").write_text('print("a line"); print(\'{"x": 1.5}\')')
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def _head(root: Path) -> str:
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout[:12]


def test_a_benchmark_is_kept(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "drawn.png").write_bytes(b"picture")
    (root / ".gitignore").write_text("/drawn.png\n.gitignore\n")
    (root / "docs").mkdir()
    pictures = {"docs/page.png": "drawn.png"}
    path = record.record("x", Benchmark("python bench.py", "?", 1, pictures=pictures), root)
    assert "a line" in capsys.readouterr().out
    values = json.loads(path.read_text())
    assert path == root / "results" / "x.json"
    assert values.pop("seconds") >= 0
    assert values == {
        "command": "python bench.py",
        "commit": _head(root),
        "date": result_file.today(),
        **HARDWARE,
        "figures": {"x": 1.5},
        "pictures": {"docs/page.png": result_file.digest(root / "drawn.png")},
    }
    assert (root / "docs" / "page.png").read_bytes() == b"picture"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ('print("{}"); raise SystemExit(3)', "ended with 3"),
        ('print("no figures")', "the last line must be one JSON object, the figures, and is 'no figures'"),
        ("print([1])", "must be one JSON object"),
        ("", "must be one JSON object"),
    ],
)
def test_what_fails_leaves_the_old_file(root: Path, program: str, why: str) -> None:
    result_file.write("x", {"old": 1}, root)
    (root / "bench.py").write_text(program)
    with pytest.raises(record.Failed, match=why):
        record.record("x", Benchmark("python bench.py", "?", 1), root)
    assert result_file.read("x", root) == {"old": 1}
    assert list((root / "results").iterdir()) == [root / "results" / "x.json"]


def test_a_commit_is_marked_where_what_is_measured_differs_from_it(root: Path) -> None:
    for name in ("README.md", "docs/page.md", "results/x.json", "tests/test_x.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("new")
    assert result_file.commit(root) == _head(root)
    (root / "module.py").write_text("new")
    assert result_file.commit(root) == _head(root) + "-dirty"


def test_code_that_changes_meanwhile_marks_the_commit(root: Path) -> None:
    program = 'open("new.py", "w").close(); print(\'{"x": 1}\')'
    (root / "bench.py").write_text(program)
    subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e", "commit", "-qam", "2"], check=True
    )
    record.record("x", Benchmark("python bench.py", "?", 1), root)
    assert result_file.read("x", root)["commit"] == _head(root) + "-dirty"


def test_what_a_machine_lacks_is_named_before_anything_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUQ_DATA", str(root / "elsewhere"))
    needing = Benchmark("python bench.py", "?", 1, needs=(CIFAR10,))
    with pytest.raises(record.Failed, match="it needs CIFAR-10, which is not here"):
        record.record("x", needing, root)
    (root / "elsewhere" / "cifar10").mkdir(parents=True)
    record.record("x", needing, root)
    assert {need for one in MEASUREMENTS.values() for need in one.needs} >= {CIFAR10, ROOT_USER}
    for measurement in MEASUREMENTS.values():
        assert set(missing(measurement, root)) <= set(measurement.needs)


def test_without_git_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no git checkout"):
        record.record("x", Benchmark("python -c 'raise SystemExit(1)'", "?", 1), tmp_path)


@pytest.mark.slow
def test_hardware_is_that_of_this_machine() -> None:
    found = result_file.hardware()
    assert found["torch"] == torch.__version__
    assert f"), {len(os.sched_getaffinity(0))} core" in found["hardware"]
    assert result_file.instructions() in found["hardware"]


def test_an_unknown_name_says_the_legal_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["grid", "gird"]) == 2
    assert f"'gird': must be one of {', '.join(sorted(MEASUREMENTS))}" in capsys.readouterr().err


def test_without_a_name_the_measurements_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(MEASUREMENTS)
    assert result_file.read("grid")["commit"] in lines[1 + list(MEASUREMENTS).index("grid")]


# --- sweeps -------------------------------------------------------------------------------------------------------

RUN: dict[str, Any] = {
    "end": 1795683982.6,
    "seconds": 215.68,
    "device": "cpu (x86_64, AVX512)",
    "machine": {"torch": "2.13.0", "cpu": "a processor", "cores": 2, "commit": "c9bd73c90f3847d141", "dirty": False},
}
ROW = {"label": "ALQ", "runs": 2, "complete": 2, "diverged": 0, "final_accuracy_percent": 47.659999847, "p_value": None}


class OfFiles(Sweep):
    """A sweep whose table is a file."""

    @property
    def commands(self) -> tuple[str, ...]:
        return ("python -c 'exit(1)'", "python -c 'print(open(\"table.json\").read())'")


SWEEP = OfFiles("family", "name", 2, "?", 1, "folder")


def _sweep(root: Path, rows: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    (root / "table.json").write_text(json.dumps({"rows": rows, "notes": ["a note"]}, indent=1))
    for number, run in enumerate(runs):
        (folder := root / "runs" / "folder" / str(number)).mkdir(parents=True)
        (folder / "status.json").write_text(json.dumps(run))


def test_a_sweep_is_kept_with_what_its_runs_noted(root: Path) -> None:
    other = {**RUN, "machine": {**RUN["machine"], "commit": "0123456789abcdef", "dirty": True}, "end": 0}
    without_git = {**other, "machine": {**RUN["machine"], "commit": ""}, "seconds": 0}
    _sweep(root, [ROW], [RUN, other, without_git])
    record.record("x", SWEEP, root)
    values = result_file.read("x", root)
    assert values["commit"] == "0123456789ab-dirty, c9bd73c90f38, not noted"
    assert values["hardware"] == "a processor, 2 cores, cpu (x86_64, AVX512)"
    assert (values["date"], values["seconds"]) == ("2026-11-26", 431.4)
    alq = {"label": "ALQ", "runs": 2, "complete": 2, "diverged": 0, "final_accuracy_percent": 47.66}
    assert values["figures"] == {"rows": {"ALQ": alq}, "notes": ["a note"]}


@pytest.mark.parametrize(
    ("rows", "runs", "why"),
    [
        ([{**ROW, "complete": 1}], [RUN], "'ALQ' of the sweep's table has 1 of 2 runs"),
        ([{**ROW, "complete": 1, "runs": 1}], [RUN], "'ALQ' of the sweep's table has 1 of 2 runs"),
        ([ROW, ROW], [RUN], "is there twice"),
        ([ROW], [], "or no run"),
        ([ROW], [{**RUN, "machine": {}}], "without its commit"),
    ],
)
def test_a_sweep_that_is_not_whole_is_not_kept(
    root: Path, rows: list[dict[str, Any]], runs: list[dict[str, Any]], why: str
) -> None:
    _sweep(root, rows, runs)
    with pytest.raises(record.Failed, match=why):
        record.record("x", SWEEP, root)
    assert not (root / "results").exists()


def test_a_run_that_diverged_is_counted(root: Path) -> None:
    _sweep(root, [{**ROW, "complete": 1, "diverged": 1}], [RUN])
    record.record("x", SWEEP, root)
    assert result_file.read("x", root)["figures"]["rows"]["ALQ"]["diverged"] == 1


def test_commands_are_those_of_the_checkout() -> None:
    """Modules that there are, and sweeps under the folders of their runs."""
    from grid.engine.sweeps.families import load

    for name, measurement in MEASUREMENTS.items():
        if isinstance(measurement, Sweep):
            experiments = load(measurement.family, measurement.name).experiments()
            assert {item.folder for item in experiments} == {measurement.folder}, name
            if not isinstance(measurement.seeds, int):
                assert {str(item.seed) for item in experiments} == set(measurement.seeds.split(",")), name
        else:
            module, *rest = measurement.command.split()[2:]
            path = result_file.ROOT / module.replace(".", "/")
            if path.is_dir():
                assert rest[0] in importlib.import_module(f"{module}.__main__").CASES, name
            else:
                assert path.with_suffix(".py").is_file(), name
