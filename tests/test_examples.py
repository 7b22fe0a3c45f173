"""Every script of ``examples/`` runs as its docstring says, ends well, and is short."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import grid_run
from grid.engine.submission import planning

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
CHECKOUT = ("args.py", "main.py", "grid_run.py", *("analysis", "examples", "files", "grid", "nuq", "settings", "train"))
MAX_LINES = 60
ON_RANKS = {  # what a rank's last line says, of which the part in brackets is alike on all ranks
    "train_ddp": r"rank \d: (\d+ bytes sent, collective gather)",
    "accumulate_ddp": r"rank \d: loss 2\.\d+ -> 1\.\d+, (\d+ bytes sent)",
    "train_fsdp": r"rank \d: loss 0\.0\d+()",
    "outer_loop": r"rank \d: loss 0\.[01]\d+, (parameters sum to -?[\d.]+)",
    "own_method": r"rank \d: (251600 bytes sent) where 8008000 are the gradients'",
}


def _run(*words: str, cwd: Path = ROOT) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_are_few_and_short() -> None:
    scripts = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert scripts == sorted([*ON_RANKS, "quantized_training", "my_sweep", "read_results"])
    assert len(scripts) <= 8
    for path in EXAMPLES.glob("*.*"):
        assert len(path.read_text().splitlines()) <= MAX_LINES, path.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_RANKS)
def test_ranks(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    (command,) = re.findall(rf"^torchrun (--nproc-per-node=2 examples/{name}\.py)$", text, re.MULTILINE)
    words = command.replace("examples/", f"{EXAMPLES}/").split()
    said = _run("-m", "torch.distributed.run", "--standalone", *words, cwd=tmp_path)
    alike = re.findall(ON_RANKS[name], said)  # lines of two ranks may run together
    assert len(alike) == 2 and len(set(alike)) == 1, said


def test_quantized_training() -> None:
    said = _run("examples/quantized_training.py")
    loss = re.match(r"loss (\d\.\d+); bytes of float32 over bytes kept:\n  compression_ratio: (\d\.\d+)\n", said)
    assert loss and float(loss[1]) < 0.01 and float(loss[2]) > 2.5, said


@pytest.mark.slow
def test_a_sweep_is_shown_run_drawn_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in CHECKOUT:
        (tmp_path / name).symlink_to(ROOT / name)  # its runs lie beside it
    text = (EXAMPLES / "my_sweep.py").read_text()
    for said, shorter in (("steps=40", "steps=4"), ("eval_every=20", "eval_every=2"), ("seeds=(1, 2)", "seeds=(1,)")):
        assert said in text
        text = text.replace(said, shorter)
    commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("python ")]
    assert [words[1] for words in commands] == ["show", "plan", "run", "analysis"]
    (tmp_path / "my_sweep.py").write_text(text)
    shutil.copy(EXAMPLES / "my_site.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "slurm_is_here", lambda: False)  # a SLURM of this machine would be asked
    said = {}
    for words in commands:
        words = [word.replace("examples/", "") for word in words]
        if words[1] == "plan":
            assert grid_run.main(words[1:], tmp_path) == 0
            said["plan"] = capsys.readouterr().out
        else:
            said[words[1]] = _run(*words, cwd=tmp_path)
    assert "5 experiments" in said["show"]
    assert "bits: 5 experiments" in said["plan"] and "2 cores, 4GB, 0:30:00" in said["plan"]
    assert "5 done" in said["run"]
    assert (tmp_path / "figures" / "my_sweep_bits" / "accuracy-bytes-bits=4.png").stat().st_size > 10_000
    told = _run("examples/read_results.py", "my_sweep_bits", cwd=tmp_path)
    assert re.search(r"supersgd +NaN +\d\.\d+ +NaN +1\n", told), told
    told = subprocess.run(
        [sys.executable, "examples/read_results.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert told.returncode == 1 and told.stderr == "which sweep? There are my_sweep_bits\n"
