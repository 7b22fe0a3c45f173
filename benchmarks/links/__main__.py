"""``python -m benchmarks.links CASE``."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import cases
from benchmarks.links import advise, fsdp, outer, prediction, time_to_accuracy, whatif, wire

CASES = {
    "wire": wire,
    "fsdp": fsdp,
    "outer": outer,
    "time_to_accuracy": time_to_accuracy,
    "advise": advise,
    "whatif": whatif,
    "prediction": prediction,
}


def main(arguments: Sequence[str] | None = None) -> None:
    cases.main("links", CASES, arguments)


if __name__ == "__main__":
    main()
