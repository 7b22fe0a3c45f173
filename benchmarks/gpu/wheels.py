"""The wheels of a folder that this Python needs, and their installation into another folder, without a network.

It uses only the standard library. A package that is there counts where its version is within the bounds of
``pyproject.toml`` and of the folder's other wheels: an old pytest, or an ANTLR that OmegaConf cannot read, is replaced
for the steps. torch, Triton and NumPy never are.
"""

from __future__ import annotations

import importlib.metadata
import operator
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from benchmarks.gpu import processes

ROOT = Path(__file__).parents[2]
KEPT = ("torch", "triton", "numpy")  # packages of the machine that are never replaced
INSTALL_S = 120.0
_ORDERS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?", re.DOTALL)
_BOUND = re.compile(r"(~=|===|==|!=|>=|<=|>|<)\s*([0-9][0-9A-Za-z.+!-]*?)(\.\*)?")

Bounds = dict[str, list[str]]  # package name -> the bounds of its version: ">=8.4", "==4.9.*"


def plain(name: str) -> str:
    """The name of a package, in the one way to write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# --- bounds ---


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version without the zeros at the end.

    What a version says beyond them (rc1, +cu130) is left out.
    """
    found = re.match(r"\d+(?:\.\d+)*", version.rpartition("!")[2])
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def within(version: str, bound: str) -> bool:
    """Whether a version is in a bound such as ``>=8.4``, ``==4.9.*`` or ``~=1.4``; any other counts as kept."""
    found = _BOUND.fullmatch(bound.strip())
    if not found:
        return True
    sign, number, starts = found.groups()
    mine, its = _release(version), _release(number)
    given = [int(one) for one in re.findall(r"\d+", number)]  # 4.0 asks for its zero
    padded = list(mine) + [0] * len(given)
    if sign == "~=":
        return mine >= its and padded[: len(given) - 1] == given[:-1]
    if sign in _ORDERS:
        return _ORDERS[sign](mine, its)
    same = padded[: len(given)] == given if starts else mine == its
    return same != (sign == "!=")


def _add(bounds: Bounds, requirements: Iterable[str]) -> None:
    """Add the bounds that requirements set for versions, except requirements under a condition."""
    for requirement in requirements:
        found = _REQUIREMENT.fullmatch(requirement)
        if found and not found[3]:
            bounds.setdefault(plain(found[1]), []).extend(bound for bound in found[2].split(",") if bound.strip())


def _needs(wheel: Path) -> list[str]:
    """The requirements that a wheel names."""
    with suppress(OSError, BadZipFile), ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".dist-info/METADATA"):
                lines = archive.read(name).decode(errors="replace").split("\n\n")[0].splitlines()
                return [line.partition(":")[2] for line in lines if line.startswith("Requires-Dist:")]
    return []


def bounds_of(wheels: Iterable[Path] = ()) -> Bounds:
    """The bounds of the project, and those that these wheels set for their needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds: Bounds = {}
    for requirements in (project["dependencies"], *project["optional-dependencies"].values()):
        _add(bounds, requirements)
    for wheel in wheels:
        _add(bounds, _needs(wheel))
    return bounds


def refused_version(name: str, bounds: Bounds) -> str:
    """The words ``1.0 is not >=8.4`` where this Python's package is outside its bounds, else nothing."""
    version = _version(name)
    broken = [bound for bound in bounds.get(name, ()) if version is not None and not within(version, bound)]
    return f"{version} is not {', '.join(sorted(set(broken)))}" if broken else ""


def _version(name: str) -> str | None:
    """The version of this Python's package; None where there is none, or a damaged one."""
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, KeyError):
        return None


# --- wheels ---


def missing(folder: Path) -> dict[str, Path]:
    """The wheels whose package this Python has not, or not in a version that will do, by package.

    Of several wheels of one package the last by name counts.
    """
    if not folder.is_dir():
        return {}
    there = {plain(wheel.name.partition("-")[0]): wheel for wheel in sorted(folder.glob("*.whl"))}
    bounds = bounds_of(there.values())
    return {
        name: wheel
        for name, wheel in there.items()
        if name not in KEPT and (_version(name) is None or refused_version(name, bounds))
    }


def lacking(names: Iterable[str], installed: Iterable[str]) -> list[str]:
    """The packages that are neither here nor installed for the steps."""
    return [name for name in names if plain(name) not in installed and _version(name) is None]


def _fits(wheel: Path) -> bool:
    """Whether a wheel is for this Python and this processor, as its name tells; it must be Linux's."""
    pythons, abis, platforms = (part.split(".") for part in wheel.stem.split("-")[-3:])
    minor = sys.version_info.minor
    older = {f"cp3{number}" for number in range(minor + 1)} if "abi3" in abis else set[str]()
    return bool({"py3", f"cp3{minor}", *older} & {*pythons}) and any(
        platform == "any" or (platform.startswith("manylinux") and platform.endswith(f"_{os.uname().machine}"))
        for platform in platforms
    )


def _unpacked(wheel: Path, target: Path) -> bool:
    """Unpack a wheel into a folder; returns whether that worked.

    That is all that pip does with these wheels; not every Python has pip.
    """
    try:
        if not _fits(wheel):
            return False
        with ZipFile(wheel) as archive:
            archive.extractall(target)
    except (OSError, ValueError, BadZipFile):
        return False
    return True


def _installed(target: Path, *wheels: Path) -> bool:
    """Install wheels by pip, whatever its settings on this machine are; returns whether that worked."""
    options = ["--isolated", "--disable-pip-version-check", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
    command = [sys.executable, "-m", "pip", *options, "--target", str(target), *map(str, wheels)]
    return processes.heard(command, limit_s=INSTALL_S, folder=ROOT, environment=os.environ)[0].exit_code == 0


def install(wheels: Mapping[str, Path], target: Path) -> list[str]:
    """Install wheels into a folder, without a network.

    Returns the names of those that could not be installed.
    """
    if not wheels or _installed(target, *wheels.values()):
        return []
    return [name for name, wheel in wheels.items() if not (_installed(target, wheel) or _unpacked(wheel, target))]
