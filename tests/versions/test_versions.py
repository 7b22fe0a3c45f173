"""The matrix's own code, without an environment: choosing, counting, merging, and the table in the docs."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.versions import __main__ as command
from tests.versions import environment, table
from tests.versions.rows import FILES, ROWS, SHORT_WITH_KERNELS, Row
from tests.versions.table import Result

PROJECT = tomllib.loads((environment.ROOT / "pyproject.toml").read_text())["project"]
ROW = Row("lowest", "3.11", "2.8.0")


def test_the_docs_hold_the_table_of_the_results() -> None:
    results = table.load()
    assert results
    document = table.DOCUMENT.read_text()
    assert table.written(document, results) == document
    assert table.written(document, results[1:]) != document


def test_bounds_are_what_was_tried() -> None:
    """The lowest versions of the rows that passed are pyproject's bounds, and no row breaks one."""
    passed = [result for result in table.load() if result.passed and not result.failed]
    bounds = {requirement.name: requirement.specifier for requirement in map(Requirement, PROJECT["dependencies"])}
    bounds["python"] = SpecifierSet(PROJECT["requires-python"])
    for package, specifier in bounds.items():
        tried = {getattr(result, package).partition("+")[0] for result in passed}
        (least,) = [bound.version for bound in specifier if bound.operator == ">="]
        assert all(specifier.contains(version) for version in tried)
        lowest = [version for version in tried if version == least or version.startswith(f"{least}.")]
        assert lowest, f"{package}>={least} was never tried"


def test_rows_have_names_and_files_exist() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.installer for row in ROWS} == {"pip", "uv"}
    assert {row.python for row in ROWS} >= {"3.11", "3.12", "3.13"}
    assert all((environment.ROOT / name).is_file() for name in (*FILES, *SHORT_WITH_KERNELS))


def test_requirements_leave_out_what_is_not_pinned() -> None:
    assert Row("a", "3.11", "2.8.0", numpy="2.0.0").requirements() == ["torch==2.8.0", "numpy==2.0.0"]


def test_tools_are_those_of_the_tests() -> None:
    assert sorted(Requirement(text).name for text in environment.tools()) == ["beartype", "hypothesis", "pytest"]


REPORT = """<testsuites><testsuite name="a" tests="7" failures="1" errors="1" skipped="2" time="1.5"/>
<testsuite name="b" tests="2" failures="0" errors="0" skipped="0" time="0.25"/></testsuites>"""


def test_counting_a_report() -> None:
    assert environment.counted(REPORT) == environment.Counts(passed=5, failed=2, skipped=2, seconds=1.75)


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_an_interpreter_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    given = {"PATH": str(tmp_path / "shims"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert environment.interpreter("3.98", given) is None
    _program(tmp_path / "shims" / "python3.98", "exit 127")
    assert environment.interpreter("3.98", given) is None
    old = _program(tmp_path / "pyenv" / "versions" / "3.98.9" / "bin" / "python3.98", "exit 0")
    assert environment.interpreter("3.98", given) == old
    new = _program(tmp_path / "pyenv" / "versions" / "3.98.10" / "bin" / "python3.98", "exit 0")
    assert environment.interpreter("3.98", given) == new
    first = _program(tmp_path / "shims" / "python3.98", "exit 0")
    assert environment.interpreter("3.98", given) == first


def test_no_compiler_is_on_the_path_that_has_none(tmp_path: Path) -> None:
    names = {"g++", "c++", "cc", "clang++", "x86_64-linux-gnu-gcc-12", "git", "accord"}
    for name in names:
        _program(tmp_path / "bin" / name, "exit 0")
    found = environment.without_compiler({"PATH": str(tmp_path / "bin"), "CXX": "g++", "HOME": "h"}, tmp_path)
    assert set(os.listdir(found["PATH"])) == {"git", "accord"}
    assert set(found) == {"PATH", "HOME"}


def test_a_failed_step_says_what_and_why(tmp_path: Path) -> None:
    with pytest.raises(environment.StepError, match=r"(?s)failed with 3:\nof its own"):
        environment.run([sys.executable, "-c", "import sys; print('of its own'); sys.exit(3)"], tmp_path)


def test_a_library_of_the_checkout_is_refused(tmp_path: Path) -> None:
    """An environment whose nuq is elsewhere; its Python is pretended."""
    python = tmp_path / "environment" / "bin" / "python"
    _program(python, """echo '{"nuq": "/checkout/nuq/__init__.py", "torch": "1"}'""")
    with pytest.raises(environment.StepError, match=r"nuq is /checkout/nuq/__init__\.py, not the one installed"):
        environment.versions(python, tmp_path)
    own = tmp_path / "environment" / "lib" / "site-packages" / "nuq" / "__init__.py"
    _program(python, f"""echo '{{"nuq": "{own}", "torch": "1"}}'""")
    assert environment.versions(python, tmp_path) == {"torch": "1"}


def test_a_rehearsal_is_one_of_the_checkout_with_the_rows_python(tmp_path: Path) -> None:
    """With the wheels that were collected for it, and a failure in the words of the step."""
    (row,) = [row for row in ROWS if row.rehearsed_with]
    assert row.name == "gpu-machine"
    said = tmp_path / "said"
    python = _program(tmp_path / "python", f'echo "$@" >> {said}')
    for name, text in (("prepare", ""), ("run", 'echo "bits: done"; echo "ranks: FAILED, exit code 1"; exit $END')):
        _program(tmp_path / "benchmarks" / "gpu" / name, f'echo {name} "$PYTHON" "$@" >> {said}\n{text}')
    for end, expected in (("0", r"passed in \d+ s"), ("1", r"failed: ranks: FAILED, exit code 1")):
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("END", end)
            told = environment.rehearse(python, row.python, row.rehearsed_with, tmp_path, tmp_path)
        assert re.fullmatch(expected, told)
        assert Result("a", "d", "3.12", "2.11.0", passed=1, rehearsal=told).bad is (end == "1")
    installed, collected, built, rehearsed = said.read_text().splitlines()[:4]
    assert built == "-m nuq.native"
    assert installed.endswith("torchvision==0.26.0") and "--no-deps" in installed
    assert collected == f"prepare {python} --to {tmp_path}/wheels --python 3.12 --no-data"
    assert rehearsed == f"run {python} --rehearse --wheels {tmp_path}/wheels --out {tmp_path}/rehearsal"


def test_results_go_through_the_file_and_replace_their_row(tmp_path: Path) -> None:
    old = Result("lowest", "2026-01-01", "3.11", "2.8.0", passed=5)
    other = Result("newest", "2026-01-01", "3.11", "2.15.0", passed=5)
    absent = Result("lowest", "2026-01-02", "3.11", "2.8.0", run=False, reason="no python3.11")
    new = Result("lowest", "2026-01-03", "3.11", "2.8.0", passed=6)
    assert table.merged([other], old) == [old, other]  # the matrix's order
    assert table.merged([old, other], absent) == [old, other]
    assert table.merged([old, other], new) == [new, other]
    assert table.merged([other], absent) == [absent, other]
    table.save([old, absent], tmp_path / "results" / "versions.json")
    assert table.load(tmp_path / "results" / "versions.json") == [old, absent]


def test_what_is_bad() -> None:
    assert not Result("a", "d", "3.11", "2.8.0", passed=1).bad
    assert Result("a", "d", "3.11", "2.8.0", passed=1, failed=1).bad
    assert Result("a", "d", "3.11", "2.8.0").bad  # no test ran
    assert Result("a", "d", "3.11", "2.8.0", reason="pip failed").bad
    assert not Result("a", "d", "3.11", "2.8.0", run=False, reason="no python").bad


def test_a_missing_interpreter_and_a_failure_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "interpreter", lambda version: None)
    result, _ = command.outcome(ROW, tmp_path, tmp_path)
    assert not result.bad
    assert re.search(r"not run here: no python3\.11 on the PATH", table.table([result]))
    full = _program(tmp_path / "python", "echo no room; exit 1")
    monkeypatch.setattr(environment, "interpreter", lambda version: full)
    result, told = command.outcome(ROW, tmp_path, tmp_path)
    assert result.bad
    assert "no room" in told
    assert "| failed: `" in table.table([result])


def test_a_row_that_fails_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "DOCUMENT", tmp_path / "versions.md")
    table.DOCUMENT.write_text(f"a\n{table.BEGIN}\n{table.END}\nb\n")
    monkeypatch.setattr(table, "load", list)
    monkeypatch.setattr(table, "save", lambda results: None)
    monkeypatch.setattr(environment, "sources", lambda target: target)
    monkeypatch.setattr(environment, "build", lambda tree, target: (target, target))
    asked: list[str] = []

    def pretend(row: Row, wheel: Path, tree: Path) -> tuple[Result, str]:
        asked.append(row.name)
        return Result(row.name, "d", row.python, row.torch, passed=3, failed=int(row.name == ROWS[0].name)), ""

    monkeypatch.setattr(command, "outcome", pretend)
    assert command.main([]) == 1
    assert asked == [row.name for row in ROWS]
    assert ROWS[-1].name in table.DOCUMENT.read_text()
    assert command.main(["--only", ROWS[1].name]) == 0
    assert command.main(["--list"]) == 0
    assert f"torch=={ROWS[0].torch}" in capsys.readouterr().out
