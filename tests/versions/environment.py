"""Environments: an interpreter, what is installed into it, and tests that see the installed library alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ("pytest", "hypothesis", "beartype")  # what the library's tests need beside the library
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++")


class StepError(RuntimeError):
    """A step of an environment that failed: what it was, and the end of what it said."""


def run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """The output of a command (stdout, then stderr); StepError where it failed."""
    given = clean(os.environ) if environment is None else environment
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=dict(given), capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise StepError(f"`{' '.join(words)}` failed with {done.returncode}:\n{said}")
    return done.stdout + done.stderr


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would show Python another library than the installed one, or choose its kernels."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in environment.items() if name not in unwanted and not name.startswith("NUQ_")}


def without_compiler(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment with a PATH, made in ``folder``, of links to all programs but compilers; no $CC, no $CXX."""
    programs = folder / "programs"
    programs.mkdir()
    for place in environment.get("PATH", "").split(os.pathsep):
        for program in sorted(Path(place).glob("*")) if place else ():
            if not _compiles(program.name) and not os.path.lexists(programs / program.name):
                (programs / program.name).symlink_to(program.absolute())
    return {name: value for name, value in environment.items() if name not in ("CC", "CXX")} | {"PATH": str(programs)}


def _compiles(program: str) -> bool:
    """Whether a word is a compiler, such as ``g++-12`` or ``x86_64-linux-gnu-gcc``."""
    words = program.split("-")
    return any(word in COMPILERS for word in words)


def interpreter(version: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """A Python of that version (``"3.12"``) that makes environments: on the PATH, else pyenv's newest; else None."""
    name = f"python{version}"
    found = [shutil.which(name, path=environment.get("PATH", ""))]
    pyenv = Path(environment.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    patches = [path for path in pyenv.glob(f"{version}.*") if path.name.rpartition(".")[2].isdigit()]
    found += [str(path / "bin" / name) for path in sorted(patches, key=lambda path: -int(path.name.rpartition(".")[2]))]
    for candidate in found:
        if candidate is not None and Path(candidate).exists():
            check = [candidate, "-c", "import ensurepip, venv"]  # pyenv's shims are there for all versions and fail
            if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                return Path(candidate)
    return None


def sources(target: Path) -> Path:
    """A copy of what git knows of the checkout, uncommitted edits included: building leaves nothing in the checkout."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    for name in run(command, ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def build(tree: Path, target: Path) -> tuple[Path, Path]:
    """The source archive and the wheel that is built out of it, so that an archive without a needed file is noticed.

    ``python -m build`` and not ``pip wheel``, which builds from the checkout and would not see that.  Nothing is
    downloaded: setuptools is this environment's.
    """
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", target, tree], tree)
    (archive,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return archive, wheel


def tests_only(tree: Path, target: Path) -> Path:
    """A folder with the tests and pytest's settings, and no library beside them."""
    shutil.copytree(tree / "tests", target / "tests")
    shutil.copy2(tree / "pyproject.toml", target)
    return target


def tools() -> list[str]:
    """The packages that the tests need, with the bounds of pyproject.toml."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    return [text for text in listed if text.startswith(TOOLS) and not text.startswith("pytest-")]


def create(python: Path | str, target: Path, *options: str) -> Path:
    """A virtual environment's interpreter."""
    run([python, "-m", "venv", *options, target], target.parent)
    return target / "bin" / "python"


def install(python: Path, installer: str, requirements: Sequence[str | Path], folder: Path) -> None:
    """Install by pip, or by uv (which pip installs first)."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    if installer == "uv":
        run([*pip, "uv"], folder)
        run([python, "-m", "uv", "pip", "install", "-q", "--python", python, *requirements], folder)
    else:
        run([*pip, *requirements], folder)


_VERSIONS = """
import importlib.metadata, json, platform, nuq, torch
found = {"nuq": nuq.__file__, "python": platform.python_version(), "torch": torch.__version__}
for name in ("numpy", "scipy", "triton", "jaxtyping"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = ""
print(json.dumps(found))
"""


def versions(python: Path, folder: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The versions that are installed; StepError where ``nuq`` is not the environment's own."""
    found = json.loads(run([python, "-c", _VERSIONS], folder, environment).splitlines()[0])
    place = Path(found.pop("nuq"))
    if not place.is_relative_to(python.parents[1]) or "site-packages" not in place.parts:
        raise StepError(f"nuq is {place}, not the one installed in {python.parents[1]}")
    return found


@dataclass(frozen=True)
class Counts:
    """The counts of one run of pytest; errors (of collection or a fixture) count as failed."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    told: str = ""  # the end of what pytest printed, where something failed


def test(python: Path, folder: Path, files: Sequence[str], environment: Mapping[str, str] | None = None) -> Counts:
    """Run ``files`` in ``folder``; StepError where pytest itself fails."""
    report = folder / "report.xml"
    given = clean(os.environ) if environment is None else environment
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", *files]
    done = subprocess.run(command, cwd=folder, env=dict(given), capture_output=True, text=True, check=False)
    if not report.exists():
        raise StepError(f"pytest ended with {done.returncode} and no report:\n{(done.stdout + done.stderr)[-2000:]}")
    found = counted(report.read_text())
    if done.returncode and not found.failed:
        raise StepError(f"pytest ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return Counts(found.passed, found.failed, found.skipped, found.seconds, done.stdout[-6000:] if found.failed else "")


FAILED = "failed: "


def rehearse(python: Path, version: str, torchvision: str, tree: Path, folder: Path) -> str:
    """How ``benchmarks/gpu/run --rehearse`` ended in the checkout ``tree`` with this Python and that torchvision.

    What else the steps need comes from the wheels that ``benchmarks/gpu/prepare`` collects for it.
    """
    wheels, out, began = folder / "wheels", folder / "rehearsal", time.monotonic()
    given = clean(os.environ) | {"PYTHON": str(python)}
    try:
        run([python, "-m", "pip", "install", "-q", "--no-deps", f"torchvision=={torchvision}"], folder)
        run([tree / "benchmarks/gpu/prepare", "--to", wheels, "--python", version, "--no-data"], tree, given)
        run(
            [python, "-m", "nuq.native"], tree, given
        )  # as in a checkout that was set up; its minutes are not the steps'
        began = time.monotonic()
        run([tree / "benchmarks/gpu/run", "--rehearse", "--wheels", wheels, "--out", out], tree, given)
    except StepError as error:
        told = str(error).splitlines()
        return FAILED + next((line for line in told[1:] if "FAILED" in line or "not end" in line), told[-1])
    return f"passed in {time.monotonic() - began:.0f} s"


def counted(report: str) -> Counts:
    """The counts of a JUnit report."""
    suites = list(ElementTree.fromstring(report).iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    return Counts(tests - failures - errors - skipped, failures + errors, skipped, seconds)
