"""The command ``python -m nuq``: ``advise`` says whether compression pays for a training script on a link."""

from __future__ import annotations

import sys

from nuq.advice import command

COMMANDS = {"advise": command.main}


def main() -> int:
    """Run a command and return its exit code."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in COMMANDS:
        return COMMANDS[name](sys.argv[2:])
    legal = ", ".join(COMMANDS)
    if name in ("", "-h", "--help"):
        print(f"usage: python -m nuq {{{legal}}} ...\n\n{__doc__}")
        return 0
    print(f"error: {name!r} is no command of nuq (legal: {legal})", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
