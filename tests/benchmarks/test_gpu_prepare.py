"""The wheels that ``benchmarks/gpu/prepare`` collects, and those that ``benchmarks/gpu/run`` takes of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from benchmarks.gpu import data, prepare, wheels
from settings.data import DATA


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel(folder: Path, name: str, module: str = "made") -> Path:
    """A real, empty wheel."""
    package, version = name.split("-")[:2]
    with ZipFile(folder / name, "w") as archive:
        info = f"{package}-{version}.dist-info"
        archive.writestr(f"{module}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return folder / name


def test_the_table_holds_what_its_packages_need() -> None:
    """Nothing is fetched as a dependency: the requirements of a package of the table are in the table, or are the
    machine's.
    """
    table = {plain(name) for name in (*prepare.PURE, *prepare.COMPILED, *prepare.GIVEN)}
    for name in (*prepare.PURE, *prepare.COMPILED):
        for needed in map(Requirement, metadata.requires(name) or ()):
            asked = needed.marker is None or needed.marker.evaluate(
                {"extra": "", "python_version": "3.12", "python_full_version": "3.12.3"}
            )
            assert not asked or plain(needed.name) in table, f"{name} needs {needed}"


def test_a_version_is_that_of_the_constraints() -> None:
    assert prepare.pinned("hydra-core", "a==1\nhydra-core==1.3.8\n") == "hydra-core==1.3.8"
    with pytest.raises(prepare.NotThere, match=r"scipy: constraints\.txt names no version"):
        prepare.pinned("scipy", "scipyx==1\n")
    constraints = (prepare.ROOT / "constraints.txt").read_text()
    assert all(prepare.pinned(name, constraints) for name in (*prepare.PURE, *prepare.COMPILED))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """pip's index: what it gives for ``download`` and ``wheel`` of a requirement.

    The commands are checked on the way.
    """
    known: dict[str, str] = {}

    def pip(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        del options
        verb = "wheel" if "wheel" in command else "download"
        assert "--no-deps" in command and (verb == "wheel" or "--only-binary=:all:" in command)
        name = known.get(f"{verb} {command[-1]}")
        if name is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")
        wheel(Path(command[-2]), name)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(prepare.subprocess, "run", pip)
    return known


def test_a_wheel_is_downloaded_or_built_and_replaces_older_ones(tmp_path: Path, index: dict[str, str]) -> None:
    wheel(tmp_path, "Some_thing-1.0-py3-none-any.whl")
    index["download some-thing==2.0"] = "some_thing-2.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    index["wheel sources==1.0"] = "sources-1.0-py3-none-any.whl"
    index["wheel compiled==1.0"] = "compiled-1.0-cp311-cp311-linux_x86_64.whl"
    found = prepare.collect("some-thing", "some-thing==2.0", tmp_path, "3.12", "x86_64")
    assert [path for path in tmp_path.iterdir() if path != found] == [] and found.name.startswith("some_thing-2.0")
    assert prepare.collect("sources", "sources==1.0", tmp_path, "3.12", "x86_64").name == "sources-1.0-py3-none-any.whl"
    with pytest.raises(
        prepare.NotThere,
        match=r"compiled==1\.0: no wheel for Python 3\.12 on x86_64 \(it is given out as sources alone",
    ):
        prepare.collect("compiled", "compiled==1.0", tmp_path, "3.12", "x86_64")
    with pytest.raises(prepare.NotThere, match=r"absent==1\.0: .*No matching distribution found"):
        prepare.collect("absent", "absent==1.0", tmp_path, "3.12", "x86_64")


def test_the_list_the_size_and_what_is_missing_are_told(
    tmp_path: Path, index: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "PURE", ("jaxtyping", "omegaconf"))
    monkeypatch.setenv("NUQ_DATA", str(tmp_path / "none"))
    constraints = (prepare.ROOT / "constraints.txt").read_text()
    index[f"download {prepare.pinned('jaxtyping', constraints)}"] = "jaxtyping-9-py3-none-any.whl"
    assert prepare.main(["--pure", "--to", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert (
        "jaxtyping-9-py3-none-any.whl" in told.out
        and "at most 60 should travel" in told.out
        and "omegaconf==" in told.err
    )
    assert (tmp_path / "wheels.txt").read_text().split()[1] == "jaxtyping-9-py3-none-any.whl"
    monkeypatch.setattr(prepare, "MOST_MB", 1e-4)
    assert prepare.main(["--pure", "--to", str(tmp_path)]) == 1
    assert "too large, the largest is jaxtyping-9" in capsys.readouterr().err
    assert prepare.main(["--python", "2.7", "--to", str(tmp_path)]) == 1
    assert "--python 2.7: must be a version such as 3.12" in capsys.readouterr().err


def test_pictures_travel_and_are_found_by_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of ``$NUQ_DATA``, seen from the caller's folder, and nothing beside them; their size is bounded."""
    home, to = tmp_path / "sets", tmp_path / "to"
    for name in ("train/cat/0001.jpg", "train/dog/0001.png", "test/cat/0001.JPG", "train/cat/notes.txt"):
        (home / data.NAME / name).parent.mkdir(parents=True, exist_ok=True)
        (home / data.NAME / name).write_text(name)
    monkeypatch.setattr(prepare, "PURE", ())
    monkeypatch.setenv("NUQ_DATA", "sets")
    monkeypatch.setenv("NUQ_CALLED_FROM", str(tmp_path))
    assert prepare.main(["--pure", "--to", "to"]) == 0
    assert f"{data.ARCHIVE}, of {home}" in capsys.readouterr().out and data.ARCHIVE in (to / "wheels.txt").read_text()
    monkeypatch.setattr(data, "ROOT", tmp_path / "checkout")
    environment, said = data.environment_of(to, tmp_path / "site", {}, tmp_path)
    assert environment == {"NUQ_DATA": str(tmp_path / "site/data")} and said == f"CIFAR-10 of {to / data.ARCHIVE}"
    assert [path.read_text() for path in data.pictures(tmp_path / "site/data")] == [
        "test/cat/0001.JPG",
        "train/cat/0001.jpg",
        "train/dog/0001.png",
    ]
    assert data.environment_of(to, tmp_path, {"NUQ_DATA": "sets"}, tmp_path) == ({"NUQ_DATA": str(home)}, "")
    monkeypatch.setattr(prepare, "MOST_MB", 1e-6)
    assert prepare.main(["--pure", "--to", "to"]) == 1
    assert f"too large, the largest is {data.ARCHIVE}" in capsys.readouterr().err
    assert prepare.main(["--pure", "--to", "to", "--no-data"]) == 0 and not (to / data.ARCHIVE).exists()
    assert "random pictures replace it" in data.environment_of(to, tmp_path, {}, tmp_path)[1]
    (to / data.ARCHIVE).write_bytes(b"no archive")
    assert "cannot be unpacked" in data.environment_of(to, tmp_path, {}, tmp_path)[1]


def test_a_folder_without_cifar10_is_told(tmp_path: Path) -> None:
    """Also one that ``$NUQ_DATA`` names: what was packed takes its place, and random pictures where nothing was."""
    sets, to, given = tmp_path / "sets", tmp_path / "to", {"NUQ_DATA": str(tmp_path / "sets")}
    (sets / data.NAME).mkdir(parents=True)
    for _ in range(2):
        environment, said = data.environment_of(to, tmp_path / "site", given, tmp_path)
        assert environment == given and said.startswith(f"no CIFAR-10 in {sets} ") and "random pictures" in said
        shutil.rmtree(sets, ignore_errors=True)
    to.mkdir()
    data.pack(sets, to / data.ARCHIVE)
    environment, said = data.environment_of(to, tmp_path / "site", given, tmp_path)
    assert environment["NUQ_DATA"] == str(tmp_path / "site/data") and said.endswith(f", since {sets} has none")
    for form in data.FORMS:
        (sets / form).mkdir(parents=True)
        assert data.environment_of(to, tmp_path / "site", given, tmp_path) == (given, "")
        (sets / form).rmdir()
    assert set(data.FORMS) == set(DATA["cifar10"].places[1:])


@pytest.mark.slow
def test_only_what_a_machine_lacks_is_installed(tmp_path: Path) -> None:
    """Neither pytest, which is here, nor torch is installed, whatever is in the folder; a wheel of another kind costs
    the others nothing.
    """
    for name in ("pytest-0.1-py3-none-any.whl", "torch-0.1-py3-none-any.whl"):
        wheel(tmp_path, name)
    wheel(tmp_path, "nuq_absent_a-0.1-py3-none-any.whl", "nuq_absent_a")
    wheel(tmp_path, "nuq_absent_b-0.1-cp27-cp27m-win32.whl", "nuq_absent_b")
    found = wheels.missing(tmp_path)
    assert sorted(found) == ["nuq-absent-a", "nuq-absent-b"] and wheels.missing(tmp_path / "none") == {}
    assert wheels.install(found, tmp_path / "site") == ["nuq-absent-b"]
    assert wheels.lacking(["nuq_absent.A", "nuq-absent-b", "pytest"], ["nuq-absent-a"]) == ["nuq-absent-b"]
    assert (tmp_path / "site" / "nuq_absent_a.py").exists() and not (tmp_path / "site" / "nuq_absent_b.py").exists()


def test_what_is_there_in_a_version_that_will_not_do_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's bounds count, and those of other wheels: OmegaConf reads what ANTLR 4.9 wrote, nothing later."""
    there = {"pytest": "7.4.4", "antlr4-python3-runtime": "4.13.2", "scipy": "1.18.1", "beartype": "0.20"}
    for name in ("pytest-9.2.0", "scipy-1.17.1", "beartype-0.23.1", "antlr4_python3_runtime-4.9.3", "numpy-2.4.6"):
        wheel(tmp_path, f"{name}-py3-none-any.whl")
    with ZipFile(wheel(tmp_path, "omegaconf-2.3.1-py3-none-any.whl"), "a") as archive:
        archive.writestr(
            "a.dist-info/METADATA",
            "Name: omegaconf\nRequires-Dist: antlr4-python3-runtime (==4.9.*)\n\nRequires-Dist: x\n",
        )
    assert (
        wheels._needs(tmp_path / "omegaconf-2.3.1-py3-none-any.whl") == []
    )  # those of the first METADATA, which says nothing
    monkeypatch.setattr(
        wheels, "_needs", lambda path: ["antlr4-python3-runtime (==4.9.*)"] if path.name.startswith("omega") else []
    )
    monkeypatch.setattr(wheels, "_version", there.get)
    assert sorted(wheels.missing(tmp_path)) == ["antlr4-python3-runtime", "omegaconf", "pytest"]
    assert wheels.refused_version("pytest", wheels.bounds_of()) == "7.4.4 is not >=9.0"


@pytest.mark.parametrize(
    ("version", "bound", "inside"),
    [
        ("8.4", ">=8.4", True),
        ("8.4.0", ">8.4", False),
        ("8.10", ">=8.4", True),
        ("8.3.9", ">=8.4", False),
        ("1.6", "<1.6", False),
        ("1.5.4", "<1.6", True),
        ("2.11.0+cu130", ">=2.11", True),
        ("4.9.3", "==4.9.*", True),
        ("4.13", "==4.9.*", False),
        ("4.13", "!=4.9.*", True),
        ("4", "==4.0.*", True),
        ("2.0.0", "==2", True),
        ("1.4.9", "~=1.4.2", True),
        ("1.5", "~=1.4.2", False),
        ("1.9", "~=1.4", True),
        ("1.0", "words", True),
    ],
)
def test_versions_and_bounds(version: str, bound: str, inside: bool) -> None:
    assert wheels.within(version, bound) is inside


def test_bounds_are_read_from_requirements(tmp_path: Path) -> None:
    path = tmp_path / "a-1-py3-none-any.whl"
    needs = ["pluggy <2,>=1.5", "colorama >=0.4 ; sys_platform == 'win32'", "Some.Thing[extra] (>=2)", "free"]
    with ZipFile(path, "w") as archive:
        archive.writestr(
            "a-1.dist-info/METADATA", "\n".join(["Name: a", *(f"Requires-Dist: {one}" for one in needs), "", "Text"])
        )
    bounds = wheels.bounds_of([path])
    assert bounds["pluggy"] == ["<2", ">=1.5"] and bounds["some-thing"] == [">=2"] and "colorama" not in bounds
    assert bounds["torch"] == [">=2.11"] and bounds["submitit"] == [">=1.5", "<1.6"]
    (tmp_path / "b-1-py3-none-any.whl").write_bytes(b"no archive")
    assert wheels._needs(tmp_path / "b-1-py3-none-any.whl") == []


def test_a_python_without_pip_takes_wheels_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "_installed", lambda target, *paths: False)
    minor, machine = sys.version_info.minor, os.uname().machine
    fit = {
        "pure": "py2.py3-none-any",
        "own": f"cp3{minor}-cp3{minor}-manylinux_2_28_{machine}.manylinux_2_17_{machine}",
    }
    fit["stable"] = f"cp39-abi3-manylinux2014_{machine}"
    other = {
        "old": f"cp39-cp39-manylinux2014_{machine}",
        "new": f"cp3{minor + 1}-abi3-manylinux2014_{machine}",
        "third": "py3-none-win32",
    }
    other["arm"] = f"cp3{minor}-cp3{minor}-manylinux2014_other"
    found = {name: wheel(tmp_path, f"{name}-0.1-{tags}.whl", name) for name, tags in (fit | other).items()}
    found["damaged"] = tmp_path / "damaged.whl"
    assert wheels.install(found, tmp_path / "site") == [*other, "damaged"]
    assert sorted(path.stem for path in (tmp_path / "site").glob("*.py")) == sorted(fit)
