"""Plug-ins: a package of a user's own in help, settings, scripts, snapshots, runs and figures."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import args
import grid_run
from analysis.groups.seed_groups import SeedGroup
from analysis.plots import style
from benchmarks import method_pages
from grid import everything
from grid.commands.report import changes
from grid.engine.scripts.snapshot import drift, snapshot
from grid.engine.states.runs import prepare, runs_of, sign
from grid.engine.sweep import load
from nuq.registry import METHODS
from nuq.settings import plugins
from settings import command_line, resolving
from settings.data import DATA
from settings.models import MODELS
from settings.run_identity import identity, run_name
from tests import own_package
from tests.grid.scripts.code_trees import code_tree

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with own_package.restored():
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own, with the package in it."""
    made = tmp_path / "own"
    own_package.write(made)
    monkeypatch.syspath_prepend(made)
    return made


TOY = {"method": "mine", "method.bits": 3, "data": "light", "model": "tiny"}


def test_the_example_of_the_page_is_the_package() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    assert f"```python\n# my_package/__init__.py{own_package.INIT}```" in page


def test_a_package_is_imported_by_the_option(folder: Path) -> None:
    del folder
    words = plugins.start(["show", "--import", "my_package", "demo", "--import=my_package", "demo"])
    assert words == ["show", "demo", "demo"]
    assert [name in args.GROUPS[group] for group, name in (("method", "mine"), ("data", "light"))] == [True, True]
    assert "\n method=mine\n  method.bits=4  [>= 1, <= 8]\n      bits of one toy code\n" in command_line.help_text()
    config = resolving.resolve(TOY)
    assert config["plugins"] == ["my_package==1.2"]
    assert run_name(config).startswith("mine-3b-tiny-light-s1-")
    assert resolving.resolve({"method": "qsgd"})["plugins"] == []
    for settings in ({"layers": ["fc = mine"]}, {"tensors.weights": "mine bits=2"}):
        assert resolving.resolve(settings)["plugins"] == ["my_package==1.2"], "wherever a method is named"


def test_sweeps_pages_and_figures_have_it_unasked(folder: Path) -> None:
    del folder
    plugins.load("my_package")
    found = [item for item in everything.cpu().experiments() if item.settings["method"] == "mine"]
    assert {(item.label, item.config["method"]["bits"]) for item in found} == {("My method 3 bits", 3)}
    page = method_pages.page("mine")
    assert page.startswith("# My method\n\nEqually spaced levels between plus and minus the largest magnitude, ")
    assert "| `bits` | `4` | 1 to 8 | bits of one toy code |" in page
    looks = [style.look(SeedGroup(name, 0, name, (), {})) for name in METHODS]
    assert [(look.colour, look.marker, look.dash) for look in looks].count(
        (looks[-1].colour, looks[-1].marker, looks[-1].dash)
    ) == 1


def test_a_setting_imports_it_and_holds_its_version(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored configuration is enough to go on, and another version is told, not taken."""
    stored = resolving.resolve(TOY | {"plugins": ["my_package"]})
    assert resolving.resolve(TOY | {"plugins": ["my_package==1.2"]}) == stored
    with pytest.raises(ValueError, match=r"plugins=\['my_package'\]: my_package has no effect, as neither method, "):
        resolving.resolve({"plugins": ["my_package"]})
    with pytest.raises(ValueError, match=r"plugins='my package': must be the name of a package, or name==version"):
        resolving.resolve({"plugins": ["my package"]})
    monkeypatch.setattr(sys.modules["my_package"], "__version__", "1.3")
    with pytest.raises(ValueError, match=r"1\.2.*1\.3"):
        plugins.load.cache_clear()
        resolving.resolve(TOY | {"plugins": stored["plugins"]})
    plugins.load.cache_clear()
    moved = resolving.resolve(TOY)
    assert moved["plugins"] == ["my_package==1.3"]
    assert identity(moved) != identity(stored)


def test_an_installed_package_is_imported_by_its_entry_point(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_package.install(folder, "my-package", "1.2", "[nuq.plugins]\nmy_package = my_package\n")
    assert plugins.start(["list"]) == ["list"]
    assert "mine" in METHODS
    own_package.install(tmp_path / "site", "other-things", "3", "[nuq.plugins]\nother = other\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ValueError, match="other-things"):
        plugins.start(["list"])


ENTRY = "from nuq.registry import METHODS, Method\nfrom nuq.settings.quantizers import SGD\n"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "x = 1",
        "\nimport nothing_here",
        "def (",
        "raise SystemExit(3)",
        ENTRY + "METHODS['alq'] = Method('x', SGD, 'bad:x')",
        ENTRY + "METHODS['m'] = 3",
        ENTRY + "METHODS['m'] = Method('x', SGD, 'nowhere:x')",
    ],
)
def test_what_is_wrong_is_one_sentence(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "bad.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(METHODS)
    assert grid_run.main(["list", "demo", "--import", "bad"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("grid_run.py: plug-in bad: ") and said.count("\n") == 1
    assert before == METHODS


def test_a_sweep_of_the_package(folder: Path, tmp_path: Path) -> None:
    """By its module's name, or from a file that imports the package."""
    del folder
    first = load("my_package.sweeps", "toys").experiments()
    file = tmp_path / "sweep.py"
    file.write_text("import my_package\nfrom my_package.sweeps import TASK\nfrom grid.engine.sweep import Sweep\n"
                    "def toys() -> Sweep:\n    return Sweep([TASK])\n")  # fmt: skip
    assert [item.config["plugins"] for item in (*first, *load(str(file), "toys").experiments())] == [
        ["my_package==1.2"]
    ] * 3
    for name in ("my_package.nothing", "no_package.sweeps"):
        with pytest.raises(ValueError, match=rf"^grid {name}: there is no module of this name here; install its"):
            load(name, "toys")


def test_the_script_imports_it_and_hints_name_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from grid.commands.options import again

    del folder
    assert grid_run.main(["--import", "my_package", "show", "my_package.sweeps", "toys", "1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["config"]["plugins"] == ["my_package==1.2"]
    assert "  'plugins=['\"'\"'my_package==1.2'\"'\"']'\n" in shown["script"]
    assert again("retry", "demo", "demo") == "python grid_run.py retry demo demo --import my_package"
    assert grid_run.main(["show", "demo", "demo", "1", "--json"]) == 0
    assert "plugins" not in json.loads(capsys.readouterr().out)["script"], "as it was without plug-ins"


def test_a_plan_tells_which_runs_are_of_another_version(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    prepare(runs_of(load("my_package.sweeps", "toys").experiments(), tmp_path))
    monkeypatch.setattr(sys.modules["my_package"], "__version__", "1.3")
    sweep = load("my_package.sweeps", "toys")
    plan, view = SimpleNamespace(folder="toys", title=sweep.title), SimpleNamespace(submissions=[])
    made: Any = SimpleNamespace(sweep=sweep, runs=runs_of(sweep.experiments(), tmp_path), plan=plan, view=view)
    (told,) = changes(made, tmp_path)
    assert told.startswith("changed: plug-ins were my_package==1.2 and are my_package==1.3: 2 earlier runs (mine-2b-")
    assert told.endswith(") no longer count; installing the old keeps them")


def test_prune_says_which_plug_in_its_runs_need(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def prune(file: str, *words: str) -> tuple[int, str]:
        code = grid_run.main(["prune", str(tmp_path / file), "toys", *words], tmp_path)
        said = capsys.readouterr()
        return code, said.out + said.err

    words = "from grid.engine.sweep import Sweep, point\ndef toys() -> Sweep:\n    return Sweep([{}], folder='toys')\n"
    (tmp_path / "both.py").write_text(words.format("point(method='sgd'), point(method='mine')"))
    (tmp_path / "one.py").write_text(words.format("point(method='sgd')"))
    plugins.load("my_package")
    made = load(str(tmp_path / "both.py"), "toys")
    sign(load(str(tmp_path / "one.py"), "toys"), tmp_path)
    prepare(runs_of(made.experiments(), tmp_path))
    assert prune("both.py") == (0, "every run folder of runs/toys is part of the sweep\n")
    assert "its settings left the sweep" in prune("one.py")[1]
    del METHODS["mine"], DATA["light"], MODELS["tiny"]  # as where nothing has imported it
    code, told = prune("both.py")
    assert code == 2 and "both.toys, point 2 of 2: unknown method 'mine'" in told
    used = "; runs in runs/toys used my_package==1.2, not imported here: give --import my_package\n"
    assert told.endswith(used)
    sign(made, tmp_path)
    code, told = prune("one.py")
    assert code == 2 and "runs/toys is also the folder of both.py: toys, which cannot be read" in told
    assert told.endswith(used)
    (tmp_path / "runs/toys/.sweeps").write_text("one.py: toys\n")
    code, told = prune("one.py", "--delete", "--yes")
    assert code == 0 and "not known without its plug-in my_package==1.2  (give --import my_package)" in told
    assert told.endswith("\n0 run folders no longer part of the sweep, 0 kB; 1 more not known\n")
    assert len(list(tmp_path.glob("runs/toys/*/config.yaml"))) == 2, "nothing is deleted"


@pytest.mark.parametrize("git", [True, False])
def test_a_snapshot_takes_a_folder_of_ones_own_along(
    git: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = code_tree(tmp_path / "checkout", git=git)
    plain, _ = snapshot(tree)
    code, name = snapshot(tree, ["my_package"])
    assert (code.digest != plain.digest, code.commit) == (True, plain.commit)
    copy = tree / name
    for text, file in ((own_package.MODEL, "my_package/model.py"), ("\nprint(1)\n", "main.py")):
        assert (copy / file).read_text() == text.lstrip()
    assert drift(tree, code.digest) == []
    (folder / "my_package" / "model.py").write_text("x = 1\n")
    (folder / "my_package" / "new.py").write_text("")
    assert drift(tree, code.digest) == ["my_package/model.py", "my_package/new.py"]
    assert snapshot(tree, ["my_package"])[1] != name
    assert (copy / "my_package" / "model.py").read_text() == own_package.MODEL.lstrip()
    # the version of then, also where the package itself does not say it
    importlib.import_module("my_package")
    own_package.install(folder, "my-package", "1.2", "")
    monkeypatch.delattr(sys.modules["my_package"], "__version__")
    _, name = snapshot(tree, ["my_package"])
    assert (tree / name / "my_package-1.2.dist-info" / "METADATA").read_text().endswith("Version: 1.2\n")


def test_a_package_in_place_of_folders_that_are_no_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = code_tree(tmp_path / "checkout", git=True)
    own_package.write(tree / "results")
    (tree / "results" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tree)
    with pytest.raises(
        ValueError, match=r"^plug-in results: /.*: jobs get no copy of .*docs.*; give the package anoth"
    ):
        snapshot(tree, ["results"])
    # within such a folder, by PYTHONPATH, a package is copied like any other
    monkeypatch.syspath_prepend(tree / "results")
    code, name = snapshot(tree, ["my_package"])
    assert (tree / name / "my_package" / "model.py").read_text() == own_package.MODEL.lstrip()
    (tree / "results" / "my_package" / "model.py").write_text("x = 1\n")
    assert drift(tree, code.digest) == ["my_package/model.py"]


def test_an_installed_copy_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = code_tree(tmp_path / "checkout", git=False)
    own_package.write(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    assert snapshot(tree, ["my_package"]) == snapshot(tree)


def run(folder: Path, *words: str, code: int = 0, **more: str) -> str:
    """What a command prints."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "NUQ_PYTHON": sys.executable, **more}
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_it_trains_in_two_processes_is_evaluated_and_drawn(folder: Path, tmp_path: Path) -> None:
    own_package.install(folder, "my-package", "1.2", "[nuq.plugins]\nmy_package = my_package\n")
    runs = tmp_path / "runs" / "toys"
    words = ["method=mine", "data=light", "model=tiny", "workers=2", "batch_size=8", "steps=4", "eval_every=4"]
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "main.py")
    run(folder, sys.executable, *torchrun, *words, f"run_dir={runs}/one")
    config = yaml.safe_load((runs / "one" / "config.yaml").read_text())
    assert config["plugins"] == ["my_package==1.2"]
    assert "test accuracy" in run(folder, sys.executable, "main.py", "mode=evaluate", f"run={runs}/one", "once=true")
    told = run(
        folder, sys.executable, "-m", "analysis", "table", "toys", "--runs", str(runs.parent), "--out", str(tmp_path)
    )
    assert "My method" in told
    init = folder / "my_package" / "__init__.py"
    init.write_text(init.read_text().replace("1.2", "1.3"))
    told = run(folder, sys.executable, "main.py", *words, f"run_dir={runs}/one", code=2)
    assert "holds a run of other settings" in told


CONTRACT = "[pytest11]\nnuq = nuq.testing.options\n[nuq.plugins]\nmy_package = my_package\n"


def contract(folder: Path, *words: str, code: int = 0) -> str:
    """What the contract's command prints where nuq alone is, without this checkout."""
    alone = folder / "site"
    if not alone.exists():
        alone.mkdir()
        (alone / "nuq").symlink_to(ROOT / "nuq")
    command = [sys.executable, "-m", "pytest", "--pyargs", "nuq.testing", "-q", "-p", "no:cacheprovider", *words]
    environ = {**os.environ, "PYTHONPATH": f"{alone}:{folder}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_contract_is_held_outside_the_repository(folder: Path) -> None:
    """As the issue has it: ``pytest --pyargs nuq.testing --method mine``; and it finds what breaks it."""
    own_package.install(folder, "my-package", "1.2", CONTRACT)
    told = contract(folder, "--method", "mine")
    assert int(told.splitlines()[-1].split(" passed")[0].split()[-1]) >= 30
    compressor = folder / "my_package" / "compressor.py"
    compressor.write_text(compressor.read_text().replace("reference.uniforms(x.numel(), key)", "0.5"))
    assert "test_unbiased[" in contract(folder, "--method", "mine bits=2", "-k", "unbiased", "-rf", code=1)
    assert "ERROR: unknown method 'mina'; did you mean 'mine'?" in contract(folder, "--method", "mina", code=4)
    assert "ERROR: nuq.testing: say which method, as in --method mine" in contract(folder, code=4)
