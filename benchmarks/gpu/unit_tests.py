"""Tests, with their outcomes as a JSON object, on a line after each test and at last.

Run it as ``python -m benchmarks.gpu.unit_tests FILE .. [--names EXPRESSION]``.

On a GPU a skipped test counts as one that failed, since pytest itself would be content with nothing but skipped ones.
Warnings are no errors here: PyTorch may warn of a device. The exit code is 1 where a test failed or none passed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest


class Outcomes:
    """A plugin that counts what passed, keeps what did not, and prints both after each test."""

    def __init__(self, device: str) -> None:
        self.device, self.passed = device, 0
        self.failed: list[str] = []
        self.skipped: dict[str, str] = {}
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w")  # pytest captures the other one

    def told(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def pytest_runtest_logfinish(self) -> None:
        print(f"\n{json.dumps(self.told())}", file=self._out, flush=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.skipped:
            place = report.longrepr
            self.skipped[report.nodeid] = str(place[2] if isinstance(place, tuple) else place)[:300]
        elif report.when == "call":
            self.passed += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print pytest's own words, then the JSON object, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.unit_tests", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--names", default="", help="pytest's -k")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu", help="cuda: nothing may be skipped")
    chosen = parser.parse_args(arguments)
    outcomes = Outcomes(chosen.device)
    given = [
        "-v",
        "-p",
        "no:cacheprovider",
        "-W",
        "default",
        *chosen.files,
        *(["-k", chosen.names] if chosen.names else []),
    ]
    code = int(pytest.main(given, plugins=[outcomes]))
    print(json.dumps({**outcomes.told(), "pytest_exit_code": code}))
    return int(code != 0 or not outcomes.passed or (chosen.device == "cuda" and bool(outcomes.skipped)))


if __name__ == "__main__":
    sys.exit(main())
