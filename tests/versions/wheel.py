"""The short check (``make wheel-test``): the wheel builds, installs with a compiler and without one, and works in both.

The environments are empty but for links to what this one has installed beside ``nuq`` (torch, numpy, pytest ...), so
that nothing is downloaded and pip, without an index, fails where a requirement is not met.  In the first the wheel is
installed, which holds the kernels.  In the second no program on the PATH is a compiler and the source archive is
installed: there ``nuq`` must say once that it has no kernels, and give what its PyTorch code gives.
"""

from __future__ import annotations

import os
import site
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.versions import environment
from tests.versions.rows import SHORT, SHORT_WITH_KERNELS

TOLD = "nuq runs without its C++ kernels (they are not built)"
# Encoded twice, so that a message that is given at every call is seen.
_USE = """
import torch
from nuq import native
from nuq.compressors.message import parse
from nuq.kernels.operators import Key
from nuq.registry import METHODS
compressor = METHODS["alq"].load()(METHODS["alq"].settings())
for step in range(2):
    data = compressor.encode(torch.linspace(-1, 1, 3000), Key(1, step, 3, "model")).to_bytes()
    assert torch.isfinite(compressor.decode(parse(data))).all()
print("kernels:", bool(native.instruction_sets()))
"""


def linked(python: Path) -> None:
    """Give the environment what this one has installed, less ``nuq`` and lines that add other folders."""
    (target,) = (python.parents[1] / "lib").glob("python*/site-packages")
    for place in map(Path, site.getsitepackages()):
        for entry in sorted(place.iterdir()):
            own = entry.name.startswith(("nuq", "__editable__", "__pycache__")) or entry.suffix in (".pth", ".egg-link")
            if not own and not os.path.lexists(target / entry.name):
                (target / entry.name).symlink_to(entry)


def check(name: str, package: Path, tree: Path, folder: Path, given: Mapping[str, str], kernels: bool) -> bool:
    """Install ``package``, use it, test it; whether all went well, after a line of what was found."""
    folder.mkdir()
    python = environment.create(sys.executable, folder / "environment", "--without-pip")
    linked(python)
    pip = [python, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "-q"]
    environment.run([*pip, "--no-index", "--no-build-isolation", package], folder, given)
    (tests := folder / "tests-only").mkdir()
    environment.tests_only(tree, tests)
    environment.versions(python, tests, given)
    said = environment.run([python, "-W", "default", "-c", _USE], tests, given)
    if said.count(TOLD) != (0 if kernels else 1) or f"kernels: {kernels}" not in said:
        expected = "kernels and no message" if kernels else "no kernels and one message"
        raise environment.StepError(f"{name}: expected are {expected}:\n{said}")
    counts = environment.test(python, tests, SHORT_WITH_KERNELS if kernels else SHORT, given)
    print(f"{counts.told}{name}: {counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped", flush=True)
    return not counts.failed and counts.passed > 0


def main() -> int:
    given = environment.clean(os.environ)
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        (tree := folder / "tree").mkdir()
        try:
            archive, wheel = environment.build(environment.sources(tree), folder / "dist")
            bare = environment.without_compiler(given, folder)
            good = [
                check("wheel, with kernels", wheel, tree, folder / "with", given, True),
                check("source archive, no compiler", archive, tree, folder / "without", bare, False),
            ]
        except environment.StepError as error:
            print(error, file=sys.stderr)
            return 1
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
