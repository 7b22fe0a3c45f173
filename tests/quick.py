"""`make test`: two pytest processes side by side, each over half of the rooms, so that each reads half of the tests.

    python -m tests.quick [PYTEST'S ARGUMENTS]

Where an argument is a path, one process runs what it names.  Left out beside what is marked slow: the tests of
benchmarks and of rows of versions, which `make test-all` runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
FIRST = ("compat", "errors", "nuq", "test_contract.py", "test_doc_examples.py", "test_examples.py", "test_plugins.py")
LEFT_OUT = ("benchmarks", "slurm", "versions")
NOTHING_CHOSEN = 5  # pytest's exit code


def halves() -> list[list[str]]:
    """The rooms and files of ``tests/`` of each process."""
    own = {path.name for path in TESTS.glob("test_*.py")}
    own |= {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*/test_*.py")}
    others = sorted(own - {*FIRST, *LEFT_OUT})
    return [[f"tests/{name}" for name in names] for names in (FIRST, others)]


def main(arguments: list[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", "-m", "not slow", *arguments]
    if any((ROOT / word.partition("::")[0]).exists() for word in arguments):
        return subprocess.call(pytest, cwd=ROOT)
    first, second = halves()
    with tempfile.TemporaryFile() as said:
        beside = subprocess.Popen([*pytest, *second], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        codes = [subprocess.call([*pytest, *first], cwd=ROOT)]
        codes.append(beside.wait())
        said.seek(0)
        sys.stdout.buffer.write(said.read())
    return max((code for code in codes if code != NOTHING_CHOSEN), default=NOTHING_CHOSEN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
