"""Completion in a shell: what a real bash offers after the line of the documentation, and what is never done."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser

from args import GROUPS, SECTIONS
from grid.commands import completion
from grid.engine.sweeps.families import families, makers
from nuq.registry import METHODS
from nuq.settings import declared
from settings.command_line import Evaluation
from settings.completion import parser, settings, words
from tests.test_imports import HEAVY

ROOT = Path(__file__).parent.parent
# the line of the documentation, then for each line of input the words that bash would offer, as bash hands them over
BASH = r"""
switch_on=$1; shift
eval "$switch_on"
compopt() { :; }  # which bash takes from a key alone
for COMP_LINE in "$@"; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMP_WORDBREAKS=$' \t\n"\'><=;|&(:' COMPREPLY=()
    read -ra COMP_WORDS <<< "$COMP_LINE"
    _python_argcomplete_global "${COMP_WORDS[0]}"
    echo "${COMPREPLY[@]}"
done
"""


def _environment(**more: str) -> dict[str, str]:
    """This environment, where ``python`` is the one that runs the tests."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}


def _offered(*lines: str) -> list[list[str]]:
    (switch_on,) = re.findall(r"^eval .*$", (ROOT / "docs" / "start.md").read_text(), re.M)
    bash = shutil.which("bash") or "bash"
    command = [bash, "--norc", "-c", BASH, "bash", switch_on, *lines]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes_the_lines_of_grid_run() -> None:
    offered = {
        "python grid_run.py pl": ["plan"],
        "python grid_run.py --grid nuq --run_name imagenet_": ["imagenet_half", "imagenet_full"],
        "python grid_run.py run nu": ["nuq", "nuqsgd"],
        "python grid_run.py run nuq cifar10_full_resnet3": ["cifar10_full_resnet32"],
        "python grid_run.py show demo demo AL": ["ALQ", "ALQ-N"],
        "python grid_run.py run demo demo --sl": ["--slots"],
        "python grid_run.py run demo demo --set method=topk --set method.ra": ["method.ratio="],
        "python grid_run.py run --sweep method=topk method.ra": ["method.ratio="],
        "python grid_run.py run --sweep data=digits method=alq,qsgdi": ["alq,qsgdinf"],
        "python grid_run.py plan nuq mnist --site gpu": ["gpu_cluster"],
        "python grid_run.py collect demo demo --format ": ["csv", "json", "parquet", "latex"],
        "python grid_run.py diff grid/engine/sl": ["grid/engine/slurm/"],
        "python grid_run.py run nosuch ": [],
        "python grid_run.py run examples/my": ["examples/my_sweep.py"],
        "python setup.py run ": [],
    }
    assert dict(zip(offered, _offered(*offered), strict=True)) == offered


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_both() -> None:
    offered = {
        "python grid_run.py pl": ["plan"],
        "python grid_run.py show demo demo AL": ["ALQ", "ALQ-N"],
        "python main.py -m method=alq,qs": ["method=alq,qsgd", "method=alq,qsgdinf"],
        "python main.py method=topk method.ra": ["method.ratio="],
        "python grid_run.py run nosuch ": [],
    }
    assert "source files/completion.fish" in (ROOT / "docs" / "start.md").read_text()
    for line, wanted in offered.items():
        command = ["fish", "-N", "-c", "source files/completion.fish; complete -C $argv[1]", line]
        done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=True)
        assert [each.partition("\t")[0] for each in done.stdout.splitlines()] == wanted
        assert done.stderr == ""


@pytest.mark.slow
def test_bash_completes_the_lines_of_main() -> None:
    offered = {
        "python main.py method=alq_": ["alq_n", "alq_g", "alq_gn"],  # = divides words for bash
        "python main.py method=topk method.ra": ["method.ratio="],
        "python main.py method=alq -m data=dig": ["digits"],
        "python main.py exchange.collective=g": ["gather"],
        "python main.py mode=evaluate on": ["once="],
        "python main.py --cfg ": ["job", "hydra", "all"],
        "python main.py workers=": [],
        "python main.py nosuch": [],
    }
    assert dict(zip(offered, _offered(*offered), strict=True)) == offered


@pytest.mark.parametrize("line", ["python main.py method=", "python grid_run.py show demo demo "])
def test_nothing_heavy_is_imported_at_a_key(line: str) -> None:
    """Hydra, NumPy and torch would each be waited for; the module that runs a sweep is not needed either."""
    environment = _environment(COMP_LINE=line, COMP_POINT=str(len(line)), _ARGCOMPLETE="2", PYTHONPROFILEIMPORTTIME="1")
    environment["_ARGCOMPLETE_STDOUT_FILENAME"] = os.devnull
    done = subprocess.run(
        ["python", shlex.split(line)[1]], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    modules = {found.rpartition("|")[2].strip() for found in done.stderr.splitlines() if "import time:" in found}
    assert "settings.completion" in modules or "grid.commands.completion" in modules
    assert not modules & (HEAVY | {"hydra", "omegaconf", "rich", "grid.engine.submission", "grid.engine.local"})


def test_a_file_of_sweeps_is_read_and_not_executed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from pathlib import Path\nPath('executed').touch()\n"
        "def bits() -> Sweep:\n    '''Bits.'''\ndef other() -> int: ...\ndef broken() -> 'Sweep': raise\n"
    )
    assert completion.sweeps_in(file) == {"bits": "Bits.", "broken": ""}
    parsed = argparse.Namespace(grid=str(file), run_name="bits")
    assert list(completion.run_names("b", parsed)) == ["bits", "broken"]
    assert completion.labels("", parsed) == {}
    assert not (tmp_path / "executed").exists()
    file.write_text("def half(")
    assert completion.sweeps_in(file) == completion.sweeps_in(tmp_path / "absent.py") == {}


def test_every_sweep_of_every_family_is_offered() -> None:
    offered = completion.families("", argparse.Namespace())
    assert list(offered) == families()
    assert all(offered.values())
    for family in families():
        assert list(completion.run_names("", argparse.Namespace(grid=family))) == list(makers(family))


def test_settings_and_values_are_those_of_the_tables() -> None:
    assert [text.removeprefix("method=") for text in settings("method=", ())] == list(METHODS)
    of_topk = list(settings("method.", ["method=alq", "method=topk"]))
    assert of_topk == [f"method.{name}=" for name in declared(METHODS["topk"].settings)]
    assert settings("method.", ["method=nosuch"]) == {}
    assert {f"{group}=" for group in GROUPS} < set(settings("", ()))
    sections = {name.partition(".")[0] for name in settings("", ()) if "." in name}
    assert set(SECTIONS) <= sections
    assert list(settings("eval_train=", ())) == ["eval_train=true", "eval_train=false"]
    assert list(settings("method=alq,supers", ())) == ["method=alq,supersgd"]
    assert "seed=" not in settings("se", ["seed=1"]), "what is given is not offered again"
    assert all(settings("", ()).values()), "each with its reason"


def test_the_words_of_main_follow_its_mode() -> None:
    assert list(words("mode=", ())) == ["mode=train", "mode=evaluate"]
    assert list(words("", ["mode=evaluate"])) == [f"{name}=" for name in declared(Evaluation)]
    assert "mode=" not in settings("", ()), "no setting of a sweep"


def test_the_flags_of_main_are_hydras() -> None:
    theirs = {word: action.choices for action in get_args_parser()._actions for word in action.option_strings}
    ours = {word: action.choices for action in parser()._actions for word in action.option_strings}
    del ours["--import"]  # taken out before Hydra sees the line
    assert {word: list(choices or ()) for word, choices in ours.items()} == {
        word: list(theirs[word] or ()) for word in ours
    }


def test_hydras_own_completion_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "main.py", "-sc", "install=bash"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "docs/start.md" in done.stderr
