"""``python -m benchmarks.errors CASE``."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import cases
from benchmarks.errors import mean, mean_levels, methods, norms, per_bit

CASES = {"methods": methods, "per_bit": per_bit, "mean": mean, "mean_levels": mean_levels, "norms": norms}


def main(arguments: Sequence[str] | None = None) -> None:
    cases.main("errors", CASES, arguments)


if __name__ == "__main__":
    main()
