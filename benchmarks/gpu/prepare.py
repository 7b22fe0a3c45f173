"""The wheels that a bare machine may lack and the pictures of CIFAR-10, collected in a folder.

Run it as ``benchmarks/gpu/prepare [--to wheels] [--python 3.12] [--pure] [--no-data]``.

They are what the steps import beside torch, Triton, NumPy and torchvision, which belong together and are taken as they
are there: at the versions of ``constraints.txt``, without dependencies (all are in the table), for a Python and Linux
of the other machine's kind. A package that is given out as sources alone becomes a wheel here, if a pure one.
``benchmarks/gpu/run`` installs what its machine has not, and leaves the rest. CIFAR-10 is looked for as ``main.py``
does, in ``$NUQ_DATA``, else in ``data``; where it is not there as pictures, that is told.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import data

ROOT = Path(__file__).parents[2]
FROM = "NUQ_CALLED_FROM"  # the folder that a user's relative paths start from; the shell scripts tell it
MOST_MB = 60.0  # the files that travel to such a machine are bounded
LIST = "wheels.txt"
PURE = (
    "jaxtyping",  # nuq's annotations
    "wadler_lindig",
    "hydra-core",  # the grammar of settings
    "omegaconf",
    "antlr4-python3-runtime",
    "tensorboardX",  # the trainer's logs
    "pytest",
    "iniconfig",
    "packaging",
    "pluggy",
    "Pygments",
    "hypothesis",  # given out compiled by now, for one version of Python each; small
    "sortedcontainers",
    "beartype",
)
COMPILED = ("PyYAML", "protobuf", "pillow", "scipy")
GIVEN = ("torch", "triton", "numpy", "torchvision")  # packages that the machine has
GLIBC = (17, 24, 27, 28, 31, 34)  # the newest that wheels may ask for: pip matches each number exactly


class NotThere(Exception):
    """A package that could not be collected, in one sentence."""


def pinned(name: str, constraints: str) -> str:
    """The requirement ``name==version`` as constraints.txt has it."""
    found = re.search(rf"^{re.escape(name)}==(\S+)$", constraints, re.MULTILINE | re.IGNORECASE)
    if not found:
        raise NotThere(f"{name}: constraints.txt names no version of it")
    return f"{name}=={found[1]}"


def commands(requirement: str, to: Path, python: str, machine: str) -> list[list[str]]:
    """The pip commands to try, one after the other: the wheel for the other machine, or one that is built here."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    platforms = [f"--platform=manylinux_2_{number}_{machine}" for number in GLIBC] + [
        f"--platform=manylinux2014_{machine}"
    ]
    kind = ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms]
    return [
        [*pip, "download", "--no-deps", *kind, "--dest", str(to), requirement],
        [*pip, "wheel", "--no-deps", "--wheel-dir", str(to), requirement],
    ]


def wheels_of(name: str, folder: Path) -> set[Path]:
    """The wheels of a package in a folder, whatever way its name is written."""

    def plain(text: str) -> str:
        return re.sub(r"[-_.]+", "-", text).lower()

    return {path for path in folder.glob("*.whl") if plain(path.name.partition("-")[0]) == plain(name)}


def collect(name: str, requirement: str, to: Path, python: str, machine: str) -> Path:
    """The wheel of a package, and no other version of it.

    Raises NotThere with pip's last words.
    """
    for old in wheels_of(name, to):
        old.unlink()
    words = "no word"
    for command in commands(requirement, to, python, machine):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        words = (done.stderr.strip().splitlines() or [words])[-1]
        wheels = wheels_of(name, to)
        if done.returncode == 0 and len(wheels) == 1:
            (wheel,) = wheels
            if "wheel" in command and not wheel.name.endswith("-none-any.whl"):
                wheel.unlink()  # built for this machine
                words = "it is given out as sources alone, and is not pure Python"
                break
            return wheel
    raise NotThere(f"{requirement}: no wheel for Python {python} on {machine} ({words})")


def command_line() -> argparse.ArgumentParser:
    """The options of ``benchmarks/gpu/prepare``."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu/prepare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, help="folder (wheels in the checkout)")
    parser.add_argument("--python", default="3.12", help="version of the other machine's Python (3.12)")
    parser.add_argument("--machine", default="x86_64", help="its processor (x86_64)")
    parser.add_argument("--pure", action="store_true", help=f"without {', '.join(COMPILED)}: where these are there")
    parser.add_argument("--no-data", action="store_true", help="without CIFAR-10")
    return parser


def take_pictures(to: Path, start: Path) -> int:
    """Pack CIFAR-10 into the folder where it is there, and tell it; returns the bytes."""
    archive, folder = to / data.ARCHIVE, data.folder_of(os.environ, start)
    archive.unlink(missing_ok=True)
    if not data.pictures(folder):
        where = f"{folder / data.NAME}/{{train,test}}/<class>/ ($NUQ_DATA names another folder)"
        print(f"   0.00 MB  CIFAR-10: no pictures in {where}; random ones replace them")
        return 0
    data.pack(folder, archive)
    print(f"{archive.stat().st_size / 1e6:7.2f} MB  {archive.name}, of {folder}", flush=True)
    return archive.stat().st_size


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect the wheels and the pictures, tell their size, and write the list.

    The exit code is 1 where something is missing or too large.
    """
    chosen = command_line().parse_args(arguments)
    start = Path(os.environ.get(FROM) or Path.cwd())
    chosen.to = start / chosen.to if chosen.to else ROOT / "wheels"
    try:
        chosen.to.mkdir(parents=True, exist_ok=True)
        if not re.fullmatch(r"3\.\d+", chosen.python):
            raise NotThere(f"--python {chosen.python}: must be a version such as 3.12")
    except (OSError, NotThere) as error:
        print(f"benchmarks/gpu/prepare: {error}", file=sys.stderr)
        return 1
    constraints, wheels, missing = (ROOT / "constraints.txt").read_text(), [], []
    for name in PURE if chosen.pure else PURE + COMPILED:
        try:
            wheels.append(collect(name, pinned(name, constraints), chosen.to, chosen.python, chosen.machine))
            print(f"{wheels[-1].stat().st_size / 1e6:7.2f} MB  {wheels[-1].name}", flush=True)
        except NotThere as error:
            missing.append(name)
            print(f"benchmarks/gpu/prepare: {error}", file=sys.stderr)
    sizes = {wheel.name: wheel.stat().st_size for wheel in wheels}
    if chosen.no_data:
        (chosen.to / data.ARCHIVE).unlink(missing_ok=True)
    elif num_bytes := take_pictures(chosen.to, start):
        sizes[data.ARCHIVE] = num_bytes
    (chosen.to / LIST).write_text("".join(f"{size:>10}  {name}\n" for name, size in sizes.items()))
    total = sum(path.stat().st_size for path in (*chosen.to.glob("*.whl"), *chosen.to.glob(data.ARCHIVE))) / 1e6
    print(
        f"{total:7.2f} MB  in {chosen.to}, in {len(sizes)} files and maybe others that were there; at most "
        f"{MOST_MB:g} should travel"
    )
    if total > MOST_MB:
        largest = max(sizes, key=sizes.__getitem__, default="")
        print(
            f"benchmarks/gpu/prepare: too large, the largest is {largest}; --pure leaves out {', '.join(COMPILED)}, "
            f"--no-data {data.ARCHIVE}",
            file=sys.stderr,
        )
    return int(bool(missing) or total > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
