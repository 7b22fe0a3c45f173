"""README, CONTRIBUTING and the pages of docs/ tell the truth: the code that would run a command in them parses it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grid_run
from benchmarks.gpu import prepare
from benchmarks.gpu import run as gpu_run
from benchmarks.gpu.steps import chosen
from nuq.advice import command as advise
from nuq.prediction.units import quantity
from nuq.settings import plugins
from nuq.testing import cases
from settings import command_line, fork_words, resolving
from tests import own_package

ROOT = Path(__file__).parent.parent
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
DOCUMENTS = {name: (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md")} | PAGES
README, CONTRIBUTING = DOCUMENTS["README.md"], DOCUMENTS["CONTRIBUTING.md"]
NEED_A_CLUSTER = {"plan", "submit", "retry", "cancel", "failures", "logs", "collect"}
SYSTEMS = {"learning-to-quantize", "ATOMO", "DGC", "SmaQ", "layer-wise"}
JOBS = "--prefix exp --cluster slurm --run_name cifar10_full_resnet32 --grid nuq --cluster_args 38,1,p100"


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _block_commands(text: str) -> Iterator[str]:
    for block in _blocks(text, "bash"):
        for line in block.splitlines():
            if command := shlex.join(shlex.split(line, comments=True)):
                yield command


def _rows() -> list[tuple[str, str, str]]:
    """(system, their command, our cell) of the table; an empty first cell continues the system above."""
    rows: list[tuple[str, str, str]] = []
    for line in PAGES["docs/coming_from.md"].splitlines():
        if not line.startswith("|") or line.startswith("|---"):
            continue
        system, there, here = (cell.strip() for cell in line.strip("|").split("|"))
        if system != "system":
            rows.append((system or rows[-1][0], there, here))
    return rows


COMMANDS = list(dict.fromkeys(command for text in DOCUMENTS.values() for command in _block_commands(text)))
ROWS = _rows()
LINES = [(there, command) for _, there, here in ROWS for command in re.findall(r"`([^`]+)`", here)]


# --- checking one command -----------------------------------------------------------------------------------------


def _check_overrides(words: list[str]) -> dict[str, Any]:
    overrides = [word for word in words if not word.startswith("-")]
    assert not [word for word in words if word.startswith("-") and word not in ("--help", "--cfg")]
    resolving.check_overrides(overrides)
    return resolving.resolve(command_line.parse_overrides(overrides))


def _check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert next(word for word in words if "=" not in word) in targets


def _check_file(path: str) -> None:
    """A script of the checkout, or one that the paper's own line writes."""
    if path.startswith("jobs/"):
        assert re.fullmatch(r"jobs/exp_([0-9]|[12][0-9]|3[0-7])\.sh|jobs/exp_slurm\.sbatch", path)
    else:
        assert (ROOT / path).is_file()


def _check_grid(words: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command for real, in an empty folder, less the training."""
    import grid.engine.local.slots

    if words[0] in NEED_A_CLUSTER:
        # argparse takes the words (else SystemExit); here there is no SLURM, no run that has begun, and no data
        assert grid_run.main(words, root) in (0, 1, 2)
        return
    started: list[Any] = []

    def pretend(runs: Any, *_: Any) -> Any:
        started.extend(runs)
        return grid.engine.local.slots.Outcome(done=list(runs))

    def pretend_process(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(_check_overrides(command[command.index("train.dry_run") + 1 :]))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(grid.engine.local.slots, "run_with_progress", pretend)
    monkeypatch.setattr(subprocess, "run", pretend_process)
    assert grid_run.main(words, root) == 0
    if words[0] in ("run", "dry-run"):
        assert started


def _check_analysis(words: list[str], root: Path) -> None:
    """Parsed, and refused only because there are no runs, which a prediction without RUN does not need."""
    from analysis.__main__ import main

    if words[0] in ("predict", "dgc", "smaq"):
        of_runs = words[0] == "predict" and bool(words[1:]) and not words[1].startswith("-")
        at_root = [str(root / word) if word.startswith("runs/") else word for word in words]  # where there are none
        assert main(at_root) == (2 if of_runs else 0)
        return
    assert main([*words, "--runs", str(root)]) in (1, 2)  # argparse would raise SystemExit


def _check_benchmark(module: str, words: list[str]) -> None:
    """Its file or folder is there, may be run, and names its case and adds each option."""
    path = ROOT / module.replace(".", "/")
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    assert all(file.is_file() for file in files)
    source = "".join(file.read_text() for file in files)
    assert '__name__ == "__main__"' in source
    if path.is_dir():
        assert f'"{words[0]}": ' in (path / "__main__.py").read_text(), f"{module} has no case {words[0]}"
    for option in (word for word in words if word.startswith("-")):
        assert f'"{option}"' in source, f"{module} has no {option}"


def check(command: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail unless the code that ``command`` names takes it."""
    words = shlex.split(command)
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    match words:
        case ["make", *rest]:
            _check_make(rest)
        case ["python", "main.py", "mode=evaluate", *rest]:
            assert command_line.evaluation(command_line.parse_overrides(rest)).run
        case ["python", "main.py", str(run), *rest] if run.startswith("fork="):
            words, config = fork_words.named([run, *rest], lambda _: resolving.resolve({"method": "supersgd"}))
            _check_overrides(fork_words.with_inherited(config, words))
        case ["python", "main.py", *rest]:
            _check_overrides(plugins.start(rest))
        case ["python", "-m", "nuq", "advise", *rest]:
            options, of_script = advise.parser().parse_known_args(plugins.start(rest))
            assert options.script.suffix == ".py" and quantity(options.link, "--link") and options.ranks > 1
            assert not {"--link", "--ranks", "--method"} & set(of_script)
        case ["python", "-m", "train.dry_run", *rest]:
            _check_overrides(rest)
        case ["torchrun", processes, "main.py", *rest]:
            found = re.fullmatch(r"--nproc-per-node=(\d+)", processes)
            assert found
            assert 1 <= int(found.group(1)) <= _check_overrides(rest)["workers"]
        case ["python", "grid_run.py", *rest]:
            _check_grid(rest, root, monkeypatch)
        case ["python", "-m", "analysis", *rest]:
            _check_analysis(rest, root)
        case ["python", "-m", module, *rest] if module.startswith("benchmarks."):
            _check_benchmark(module, rest)
        case ["tensorboard", "--logdir", folder]:
            assert folder.startswith("runs/") and importlib.util.find_spec("tensorboard")
        case ["bash" | "sbatch", path]:
            _check_file(path)
        case ["benchmarks/gpu/prepare" as path, *rest]:
            assert os.access(ROOT / path, os.X_OK) and prepare.command_line().parse_args(rest)
        case ["benchmarks/gpu/run" as path, *rest]:
            assert os.access(ROOT / path, os.X_OK) and chosen(gpu_run.command_line().parse_args(rest).steps)
        case ["pytest", "-p", "nuq", "--pyargs", "nuq.testing", *rest]:
            rest = plugins.start(rest)
            assert set(rest[::2]) == {"--method"} and all(cases.build(name) for name in rest[1::2])
        case ["eval", line]:
            assert line in (ROOT / "docs" / "start.md").read_text(), "tests/test_completion.py runs the line from there"
        case ["git", "clone", *_] | ["cd", _] | ["source", ".venv/bin/activate"] | ["pip", "install", "."]:
            pass
        case _:
            pytest.fail(f"the tests do not know how to check {command!r}")


# --- the tests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_command_blocks(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "my_package" not in command:
        check(command, tmp_path, monkeypatch)
        return
    own_package.write(tmp_path / "own")
    monkeypatch.syspath_prepend(tmp_path / "own")
    with own_package.restored():
        check(command, tmp_path, monkeypatch)


@pytest.mark.parametrize(("there", "command"), LINES)
def test_lines_of_the_table(there: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(command, tmp_path, monkeypatch)


def test_the_table_is_whole() -> None:
    assert {system for system, _, _ in ROWS} == SYSTEMS
    for _, there, here in ROWS:
        assert there
        assert "`" in here or here.startswith(("not yet", "never")), f"{there}: neither a line nor 'not yet'"
    assert ("python grid_run.py " + JOBS) in {command for _, command in LINES}


def test_readme_trains_sweeps_and_draws() -> None:
    starts = (
        "python main.py ",
        "torchrun ",
        "python grid_run.py --prefix",
        "python grid_run.py run demo demo",
        "python grid_run.py plan ",
        "python grid_run.py submit ",
        "python -m analysis figures",
    )
    commands = list(_block_commands(README))
    assert not [start for start in starts if not any(command.startswith(start) for command in commands)]
    assert {"make demo", "make test"} <= set(commands)


@pytest.mark.parametrize(
    "command",
    [
        "make dmo",
        "python main.py method=alqn",
        "python main.py method=trn method.bits=3",
        "torchrun --nproc-per-node=5 main.py workers=4",
        "python grid_run.py run demo dmo",
        "python grid_run.py --prefx exp --grid nuq --run_name mnist",
        "python -m analysis figure demo",
        "bash pjobs/resnet33.sh",
        "bash jobs/exp_38.sh",
        "python -m benchmarks.method --quick",
        "python -m benchmarks.errors methods --quickly",
        "python -m benchmarks.errors method --quick",
    ],
)
def test_wrong_commands_are_caught(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((AssertionError, ValueError, SystemExit)):
        check(command, tmp_path, monkeypatch)


def test_the_tree_is_there() -> None:
    (tree,) = _blocks(PAGES["docs/house.md"], "")
    generated = {"runs/", "figures/"}
    for line in tree.splitlines():
        for name in re.split(r" {2,}", line)[0].split():
            assert name in generated or (ROOT / name).exists(), f"{name} of the tree is not there"


@pytest.mark.parametrize("document", ["README.md", "docs/methods.md"])
def test_the_families_are_those_of_the_registry(document: str) -> None:
    from nuq.registry import METHODS

    table = DOCUMENTS[document].split("\n| family | methods |")[1].split("\n\n")[0]
    cells = "".join(line.split("|")[2] for line in table.splitlines()[2:])
    assert set(re.findall(r"`(\w+)`", cells)) == set(METHODS)


def test_readme_counts_the_methods_of_the_registry() -> None:
    from nuq.registry import METHODS

    exact = {"sgd", "supersgd"}
    assert exact < METHODS.keys() and len(exact) == 2
    assert re.findall(r"(\d+) methods, two of them in full precision", README) == [str(len(METHODS))]


def test_the_text_beside_the_front_figure_names_its_curves() -> None:
    from nuq.registry import METHODS

    drawn = json.loads((ROOT / "results/time_to_accuracy.json").read_text())["figures"]["methods"]
    text = README.split("time_to_accuracy readme -->")[1].split("<!-- end -->")[0]
    assert [method for method in drawn if METHODS[method].title not in text] == []


def test_the_command_for_the_drill_of_the_whole_mission_names_that_drill_alone() -> None:
    (word,) = re.findall(r'`make slurm-test ARGS="-k (\w+)"`', CONTRIBUTING)
    paths = list((ROOT / "tests" / "slurm").glob("test_*.py"))
    drills = [name for path in paths for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)]
    (found,) = [name for name in [*drills, *(path.stem for path in paths)] if word in name]
    assert found == "test_the_six_methods_with_a_preemption_end_with_the_figures_of_undisturbed_runs"
