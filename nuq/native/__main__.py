"""The command ``python -m nuq.native``: (re)build this checkout's C++ kernels and print the instruction sets."""

from __future__ import annotations

import sys

from nuq import native
from nuq.native import build


def main() -> int:
    """Build and report; returns the exit code 0, or 1 where there is no compiler."""
    try:
        target = build.build()
    except build.CompilerError as error:
        told = "The C++ kernels were not built, and nuq will use NumPy and PyTorch instead, slower"
        print(f"{told}: {error}", file=sys.stderr)
        return 1
    print(f"Built {target.name} ({build.digest()}), which runs here as: {', '.join(native.instruction_sets())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
