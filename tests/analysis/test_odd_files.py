"""One bad file in one run is a note on that run, and costs the others nothing: everything is drawn, tabled and reported
without it.
"""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis.__main__ import main
from files import plain
from files.plain import Unreadable
from grid.engine.slurm import site_yaml
from grid.engine.states.run_files import RunFolder, read_ledger
from grid.engine.states.runs import read_config
from tests.analysis.conftest import measured
from tests.tiers import few

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP = 5000
YAML = {
    "deep lists": ("[" * DEEP + "]" * DEEP, "nested deeper than 64 levels"),
    "deep tables": ("{a: " * DEEP + "1" + "}" * DEEP, "nested deeper"),
    "deep dashes": ("- " * DEEP + "x", "nested deeper"),
    "deep lines": ("\n".join(" " * level + "a:" for level in range(900)), "nested deeper"),
    "aliases of aliases": (BOMB, "more than 200000 values"),
    "itself": ("a: &a [*a]", "nested deeper"),
    "a huge number": ("seed: " + "9" * 400, "a number of more than 64 bits"),
    "a number that Python refuses": ("seed: " + "9" * 5000, "is no YAML"),
    "half a character": ('name: "\\uD800"', "config.yaml"),
    "no UTF-8": (b"name: \xff\xfe", "no UTF-8"),
    "a list": ("[1, 2]", "no table of settings"),
    "no YAML": ("{a: [", "is no YAML"),
    "tags": ("!!python/object/apply:os.system [touch hacked]", "is no YAML"),
    "too large": ("# " + "x" * plain.TEXT_BYTES, "larger than 4 MB"),
    "infinite": ("method: {name: alq}\nsteps: -.inf\n", "the number -inf"),
    "nan": ("schedule: {name: step, at: [.nan]}\n", "the number nan"),
    "odd keys": ("1: 2\nnull: 4\nmethod: {name: '$\\alpha^{$', 3: $}\n", None),
    "dollars": ("method: {name: 'a$b$_{c'}\nmodel: {name: $\\frac$}\nseed: 1\ntrajectory: $_$\n", None),
}
JSON = {
    "deep": ("[" * 100_000, "nested deeper than 64 levels"),
    "deep objects": ('{"a":' * 300 + "1" + "}" * 300, "nested deeper"),
    "huge": ('{"step": ' + "9" * 400 + "}", "a number of more than 64 bits"),
    "half a character": ('{"state": "\\ud800"}', "half a character"),
    "a number": ("7", "no table"),
    "cut": ('{"state": "do', "is no JSON"),
    "infinite": (
        '{"state": "done", "step": Infinity, "steps": -Infinity, "seconds": 1e999, "start": NaN, "threads": 1e308}',
        None,
    ),
    "odd kinds": (
        '{"state": ["done"], "metrics": [1], "seconds": {"a": 1}, "failure": 3, "machine": "x", "data": [], "slurm": '
        "1}",
        None,
    ),
    "escapes": ('{"state": "failed", "failure": {"message": "\\u001b[2J$\\\\frac$", "signature": "\\u0000$_{"}}', None),
}


@pytest.fixture
def bad(write_run: Callable[..., Path]) -> Path:
    """A run beside two good ones of each of two methods."""
    for method in ("alq", "sgd"):
        for seed in (1, 2):
            write_run("s", {"method": method, "seed": seed, "steps": 102}, measured(2, (0, 51, 102), seed))
    return write_run("s", {"method": "alq", "seed": 3, "steps": 102}, measured(2, (0, 51, 102), 3))


def check(
    bad: Path, note: str | None, capsys: pytest.CaptureFixture[str], commands: tuple[str, ...] = ("table",)
) -> None:
    """The good ones are there, the bad one is a note where ``note`` is one, and nothing is a traceback."""
    runs = str(bad.parents[1])
    for command in commands:
        few = ["--most-figures", "1"] if command == "report" else []
        assert main([command, "s", "--runs", runs, "--out", str(bad.parents[2] / "figures"), *few]) == 0, command
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        if note:
            assert bad.name in said.err and note in said.err
        if command == "table":
            assert "ALQ" in said.out and "SGD" in said.out


@pytest.mark.slow
@pytest.mark.parametrize("kind", YAML)
def test_an_odd_configuration(kind: str, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, note = YAML[kind]
    (bad / "config.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    check(bad, note, capsys, ("table",) if note else ("table", "report"))
    found = read_config(bad)
    assert (found is None) == (note is not None)
    assert not Path("hacked").exists()


@few(2, "kind", JSON)
def test_an_odd_status(kind: str, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, note = JSON[kind]
    (bad / "status.json").write_text(content)
    check(bad, note, capsys, ("table",) if note else ("table", "report"))
    state = RunFolder(bad).state()
    assert note is None or kind == "huge" or (state.word == "unknown" and (note in state.reason or note == "no table"))


def replaced(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            before = os.getcwd()
            os.chdir(path.parent)  # the address is short
            one.bind(path.name)
            os.chdir(before)


@pytest.fixture(params=["FIFO", "device", "socket", "folder"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@few(2, "name", ["config.yaml", "status.json", "events"])
def test_what_is_no_file_is_not_read(name: str, kind: str, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(bad.glob("events*")) if name == "events" else bad / name
    replaced(path, kind)
    said = {"folder": None, "socket": "cannot be read (OSError)"}
    check(bad, said.get(kind, f"is a {kind}, no regular file"), capsys)
    for other in ("stdout.log", "ledger"):
        replaced(bad / other, kind)
    assert RunFolder(bad).tail() == "" and read_ledger(bad / "ledger") == {}


def test_events_larger_than_memory_are_not_read(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hole of 4 TB in a file of some kB."""
    os.truncate(next(bad.glob("events*")), 1 << 42)
    check(bad, "is larger than 1024 MB", capsys)


def test_other_systems_files_too(tmp_path: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (name, content) in enumerate(
        [("log.txt", "Namespace({" + "(" * 9000), ("hparams.yaml", BOMB), ("meta_tags.csv", "a," + "(" * 9000)]
    ):
        folder = bad.parent / f"foreign{number}"
        folder.mkdir()
        (folder / "events.out.tfevents.1.x").write_bytes(next(bad.glob("events*")).read_bytes())
        (folder / name).write_text(content)
    check(bad, None, capsys, ("table",))
    os.unlink(bad.parent / "foreign0" / "log.txt")
    os.mkfifo(bad.parent / "foreign0" / "log.txt")
    check(bad, None, capsys, ("table",))


@pytest.mark.slow
def test_names_with_dollars_and_braces(
    write_run: Callable[..., Path], bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad.rename(bad.with_name(r"a$\frac{1$ {0} %s _^"))
    sweep = bad.parent.rename(bad.parent.with_name(r"s$_{$x"))
    runs = str(sweep.parent)
    assert (
        main(["report", sweep.name, "--runs", runs, "--out", str(bad.parents[2] / "figures"), "--most-figures", "2"])
        == 0
    )
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["deep lists", "deep dashes", "aliases of aliases", "no UTF-8", "too large", "a huge number"]
)
def test_a_site_profile_is_read_as_carefully(name: str, tmp_path: Path) -> None:
    content = YAML[name][0]
    path = tmp_path / "site.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match="^" + str(path)) as refused:
        site_yaml.load_site(path)
    assert "\n" not in str(refused.value)


def test_a_site_profile_is_a_file(kind: str, tmp_path: Path) -> None:
    replaced(tmp_path / "site.yaml", kind)
    with pytest.raises((ValueError, OSError), match=f"is a {kind}, no regular file|Is a directory|No such device"):
        site_yaml.load_site(tmp_path / "site.yaml")


def test_a_file_that_waits_for_more_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the kernel's, regular by its kind, whose reading would block, gives None."""

    class Waiting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return None  # type: ignore[return-value]

        def fileno(self) -> int:
            return 0

    monkeypatch.setattr(plain, "opened", lambda path: Waiting())
    for limit in (plain.TEXT_BYTES, None):
        with pytest.raises(Unreadable, match="waits for more"):
            plain.read_bytes(tmp_path / "status.json", limit)


def test_what_runs_write_themselves_is_read() -> None:
    """Aliases of a few values, nan, 64 bits, any letter."""
    values = {
        "seed": 2**64 - 1,
        "loss": float("nan"),
        "name": "\N{GREEK SMALL LETTER MU}\N{SNOWMAN}",
        "at": [1, [2, [3]]],
    }
    assert str(plain.checked(json.loads(json.dumps(values)))) == str(values)
    with pytest.raises(Unreadable, match="more than 64 bits"):
        plain.checked([2**65])
