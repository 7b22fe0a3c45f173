"""mode=evaluate as a command: what it refuses, its help, and a run evaluated beside its training."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from settings import command_line
from tests.train.evaluated_runs import SETTINGS, logged, results

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mode=evaluate"], "run='': mode=evaluate needs the folder of a run"),
        (["mode=evalute", "run=x"], "unknown mode 'evalute'; did you mean 'evaluate'? (legal: evaluate, train)"),
        (
            ["mode=evaluate", "run=x", "workers=4"],
            "unknown setting of mode=evaluate, which takes all else from the run, 'workers'",
        ),
        (["mode=evaluate", "run=x", "method.bits=4"], "'method.bits' (legal: data_dir, device"),
        (["mode=evaluate", "run=x", "threads=-1"], "threads=-1: must be at least 0"),
        (["mode=evaluate", "run=x", "once=maybe"], "once='maybe': must be of type bool"),
        (["mode=evaluate", "mode=train"], "main.py does one thing at a time"),
        (["-m", "mode=evaluate", "run=x"], "-m and --cfg are for training"),
        (["run=x"], "unknown setting 'run'"),
    ],
)
def test_what_the_mode_does_not_read_is_refused(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import main

    monkeypatch.setattr(sys, "argv", ["main.py", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_help_shows_the_mode() -> None:
    text = command_line.help_text()
    for name, reason in {
        "run=''": "folder of the run",
        "patience_s=3600.0": "without a sign",
        "once=false": "the newest checkpoint",
    }.items():
        assert f"\n  {name}" in text and reason in text
    assert "mode=evaluate run=" in text


@pytest.mark.slow
def test_from_another_process_beside_a_run(tmp_path: Path) -> None:
    """The run itself evaluates nothing with eval_every=0; mode=train is what there is without a mode."""
    run_dir = tmp_path / "runs" / "sweep" / "run"
    more = {
        "eval_every": 0,
        "run_dir": run_dir,
        "steps": 400,
        "workers": 1,
        "optim.lr": 0.001,
    }  # at .1 it diverges after 55 steps
    words = [f"{name}={value}" for name, value in (SETTINGS | more).items()]
    with subprocess.Popen([sys.executable, str(ROOT / "main.py"), "mode=train", *words], cwd=ROOT) as training:
        try:
            deadline = time.monotonic() + 120
            while not (run_dir / "config.yaml").exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            command = [
                sys.executable,
                str(ROOT / "main.py"),
                "mode=evaluate",
                f"run={run_dir}",
                "poll_s=0.1",
                "patience_s=60",
            ]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
            assert done.returncode == 0, done.stderr
            assert training.wait(10) == 0
        finally:
            training.send_signal(signal.SIGKILL)
    steps = sorted(results(run_dir))
    assert steps[-1] == 400 and all(step % 2 == 0 for step in steps)
    assert sorted(logged(run_dir, "Vacc")) == steps
