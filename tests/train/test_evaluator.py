"""mode=evaluate: a run's checkpoints evaluated by another process, and what it makes of runs that wait, end, break or
are none.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.logs.load import load
from settings import command_line, resolving
from tests.tiers import few
from tests.train.evaluated_runs import SETTINGS, STEPS, logged, results
from train import evaluator, models
from train.evaluator import Evaluator, follow, run
from train.launch import launch
from train.process import checkpoint
from train.process.run_folder import only_process_in

NAMES = ("Vloss", "Vacc", "Vcorrect", "Vwrong", "Verror")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``sweep/done``: a run that evaluated itself at 2, 4 and 6."""
    folder = tmp_path_factory.mktemp("runs") / "sweep" / "done"
    folder.mkdir(parents=True)
    assert launch(resolving.resolve(SETTINGS | {"run_dir": str(folder)})) == 0
    return folder


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / "sweep" / "done"))


def settings(run_dir: Path, **more: Any) -> command_line.Evaluation:
    return command_line.evaluation({"run": str(run_dir), "poll_s": 0.05, "patience_s": 0.2, **more})


def told(run_dir: Path, **values: Any) -> None:
    """The run's status with other values."""
    path = run_dir / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def files(run_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


def test_it_finds_what_the_trainer_found_and_leaves_its_files_alone(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(run_dir)
    own = {name: logged(run_dir, name) for name in NAMES}
    assert run(settings(run_dir)) == 0
    assert {name: content for name, content in files(run_dir).items() if not name.startswith("evaluator/")} == before
    assert sorted(results(run_dir)) == [4, 6], "both generations; the checkpoint of step 2 has been replaced"
    for step, values in results(run_dir).items():
        assert values == pytest.approx({name: own[name][step] for name in NAMES}, rel=1e-6)
    assert {name: logged(run_dir, name) for name in NAMES} == own, (
        "every step once, and the run's own where both evaluated"
    )
    assert (
        f"step 6/{STEPS}: test accuracy in % {own['Vacc'][6]:.2f}, test loss {own['Vloss'][6]:.4f}"
        in capsys.readouterr().out
    )


def test_the_model_in_which_local_steps_ended(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "sweep" / "done"
    local = {"exchange.local_steps": 2, "exchange.fragments": 2}
    assert launch(resolving.resolve(SETTINGS | local | {"run_dir": str(folder)})) == 0
    assert run(settings(folder)) == 0
    own = logged(folder, "Vloss")
    assert {step: values["Vloss"] for step, values in results(folder).items()} == pytest.approx(
        {step: own[step] for step in (4, 6)}, rel=1e-6
    )
    model = Evaluator(settings(folder)).model
    models.load_weights_file({"model": {"name": "cnn", "weights_file": str(folder / checkpoint.FILE)}}, model)
    ended = torch.load(folder / checkpoint.FILE, weights_only=True)["finished"]
    assert all(torch.equal(value, ended[name]) for name, value in model.state_dict().items())


@few(1, "own", [False, True])
def test_its_points_are_drawn_with_the_runs(own: bool, tmp_path: Path) -> None:
    """They are drawn too where they lie between the run's points, and where a later attempt has begun."""
    run_dir = tmp_path / "runs" / "sweep" / "run"
    assert (
        launch(
            resolving.resolve(
                SETTINGS | {"run_dir": str(run_dir), "eval_every": 6 if own else 0, "checkpoint_every": 3}
            )
        )
        == 0
    )
    loss = logged(run_dir, "loss")
    assert run(settings(run_dir, splits="both")) == 0
    told(run_dir, state="preempted")
    assert (
        launch(
            resolving.resolve(
                SETTINGS | {"run_dir": str(run_dir), "eval_every": 6 if own else 0, "checkpoint_every": 3}
            )
        )
        == 0
    )
    assert logged(run_dir, "loss") == loss
    assert sorted(logged(run_dir, "Vacc")) == [3, 6] == sorted(logged(run_dir, "Tacc"))
    assert (len(list(run_dir.glob("evaluator/events*"))), len(list(run_dir.glob("events*")))) == (1, 2)


def test_a_row_is_dated_when_the_checkpoint_was_written(run_dir: Path) -> None:
    os.utime(run_dir / checkpoint.FILE, (1e9, 1e9))
    shutil.rmtree(run_dir / "evaluator", ignore_errors=True)
    for path in run_dir.glob("events*"):
        path.unlink()
    assert run(settings(run_dir)) == 0
    rows = load(run_dir.parents[1], "sweep", cache=False).of_tags("Vacc")
    assert rows[rows.step == 6].wall_time.tolist() == [1e9]


def test_once(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(run_dir, state="running")
    assert run(settings(run_dir, once=True)) == 0
    assert sorted(results(run_dir)) == [6]
    assert run(settings(run_dir, once=True, eval_batch_size=100, splits="both")) == 0
    assert "Tacc" in results(run_dir)[6]
    for name in (checkpoint.FILE, checkpoint.PREVIOUS):
        (run_dir / name).unlink()
    assert run(settings(run_dir, once=True)) == 2
    assert "holds no checkpoint yet" in capsys.readouterr().err


def test_what_was_evaluated_is_not_evaluated_again(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(settings(run_dir)) == 0
    before = files(run_dir)
    monkeypatch.setattr(Evaluator, "evaluate", lambda *_: pytest.fail("evaluated again"))
    assert run(settings(run_dir)) == 0
    assert files(run_dir) == before


class Script:
    """A run that goes on while it is followed: one action at each look."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self.actions = list(actions)

    def sleep(self, seconds: float) -> None:
        del seconds
        if self.actions:
            self.actions.pop(0)()


def test_each_as_it_appears_until_the_run_is_done(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    newest, previous = run_dir / checkpoint.FILE, run_dir / checkpoint.PREVIOUS
    last, before = newest.read_bytes(), previous.read_bytes()
    newest.unlink()
    previous.unlink()
    status = json.loads((run_dir / "status.json").read_text())
    (run_dir / "status.json").unlink()
    script = Script(
        lambda: (run_dir / "status.json").write_text(json.dumps(status | {"state": "running", "step": 3})),
        lambda: newest.write_bytes(before[:-1000]),  # damaged
        lambda: (newest.unlink(), newest.write_bytes(before)),
        lambda: told(run_dir, state="preempted", step=4),
        lambda: told(run_dir, state="running", attempt=2),
        lambda: (os.replace(newest, previous), newest.write_bytes(last), told(run_dir, state="done")),
    )
    monkeypatch.setattr(evaluator.time, "sleep", script.sleep)
    assert follow(_held(run_dir), 1e9, 1.0) == 0
    out, errors = capsys.readouterr()
    lines = [line.partition(": test accuracy")[0].removeprefix(f"{run_dir}: ") for line in out.splitlines()]
    assert lines == [
        "waiting for it to start",
        "step 4/6",
        "preempted after step 4: waiting until it goes on",
        "step 6/6",
    ]
    assert errors.count("is damaged") == 1
    assert not script.actions


def _held(run_dir: Path) -> Evaluator:
    (run_dir / evaluator.FOLDER).mkdir(exist_ok=True)
    return Evaluator(settings(run_dir))


def test_a_checkpoint_replaced_while_it_is_read(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = checkpoint.checked

    def replaced(file: Any) -> Any:
        (run_dir / checkpoint.FILE).unlink(missing_ok=True)
        (run_dir / checkpoint.FILE).write_bytes(b"another")
        return read(file)

    monkeypatch.setattr(checkpoint, "checked", replaced)
    follow_once = _held(run_dir)
    evaluator._evaluate_new(follow_once, set())
    assert sorted(follow_once.results) == [4], "the newest was replaced before it was opened, the other after"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"state": "failed", "failure": {"message": "the disk broke"}}, "failed after step 6: the disk broke"),
        ({"state": "diverged", "failure": None}, "diverged after step 6: it does not say why"),
        ({"state": "running"}, "has been running at step 6, without a sign of getting on, for patience_s=0.2 seconds"),
        (
            {"state": "preempted"},
            "has been preempted at step 6, without a sign of getting on, for patience_s=0.2 seconds",
        ),
    ],
)
def test_runs_that_do_not_get_there(
    values: dict[str, Any], words: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(run_dir, **values)
    assert run(settings(run_dir)) == 1
    assert words in capsys.readouterr().err
    assert sorted(results(run_dir)) == [4, 6], "what is there is evaluated nevertheless"


def test_a_run_that_never_starts_and_one_whose_end_is_lost(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / checkpoint.FILE).write_bytes(b"")
    assert run(settings(run_dir)) == 1
    assert "is done, and its last checkpoint cannot be read" in capsys.readouterr().err
    (run_dir / "status.json").unlink()
    assert run(settings(run_dir)) == 1
    assert "has not started for patience_s=0.2 seconds" in capsys.readouterr().err


@pytest.mark.parametrize("values", [{"state": ["done"]}, {"state": "failed", "failure": 3}])
def test_a_damaged_status_is_named(values: dict[str, Any], run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(run_dir, **values)
    assert run(settings(run_dir)) == 1
    out, errors = capsys.readouterr()
    assert out.count("waiting for another status") == 1 and errors.count("\n") == 1
    assert errors.startswith(f"main.py: {run_dir}/status.json is damaged (")
    assert sorted(results(run_dir)) == [4, 6], "what is there is evaluated nevertheless"


def test_a_heartbeat_alone_is_no_sign_that_it_gets_on(run_dir: Path) -> None:
    told(run_dir, state="running")
    script = Script(*[lambda: (time.sleep(0.02), told(run_dir, heartbeat=time.time()))] * 50)
    held = _held(run_dir)
    with pytest.MonkeyPatch.context() as patch:
        real = time.sleep
        patch.setattr(
            evaluator,
            "time",
            type("Clock", (), {"sleep": lambda s: (real(0.02), script.sleep(s)), "monotonic": time.monotonic}),
        )
        assert follow(held, 0.3, 0.0) == 1


def _no_folder(run_dir: Path) -> None:
    shutil.rmtree(run_dir)


def _a_file(run_dir: Path) -> None:
    shutil.rmtree(run_dir)
    run_dir.write_text("")


def _damaged(run_dir: Path) -> None:
    (run_dir / "config.yaml").write_text("{")


def _another(run_dir: Path) -> None:
    path = run_dir / "config.yaml"
    path.write_text(path.read_text().replace("seed: 1\n", "seed: 2\n"))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_no_folder, "there is no such folder"),
        (_a_file, "there is no such folder"),
        (lambda run_dir: (run_dir / "config.yaml").unlink(), "there is no config.yaml in it"),
        (_damaged, "config.yaml is damaged (ParserError)"),
        (lambda run_dir: (run_dir / "config.yaml").write_text("batch: 3\n"), "unknown setting 'batch'"),
        (lambda run_dir: (run_dir / "config.yaml").write_text("- 3\n"), "config.yaml is damaged (AttributeError)"),
        (_another, "was written with other settings"),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(
    spoil: Callable[[Path], object], words: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(run_dir)
    assert run(settings(run_dir)) == 2
    errors = capsys.readouterr().err
    assert words in errors and errors.count("\n") == 1


def test_one_evaluator_at_a_time(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _held(run_dir)
    with only_process_in(run_dir / evaluator.FOLDER):
        assert run(settings(run_dir)) == 4
    assert "another process is evaluating this run" in capsys.readouterr().err


def test_a_strangers_checkpoint_runs_no_code(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path(run_dir / "ran").touch, ())

    torch.save({"identity": "x", "step": 6, "model": Evil()}, run_dir / checkpoint.FILE)
    assert run(settings(run_dir)) == 1
    assert "is no checkpoint of a run" in capsys.readouterr().err and not (run_dir / "ran").exists()


@pytest.mark.slow
def test_weights_that_training_began_with_are_not_asked_for(run_dir: Path) -> None:
    """The checkpoint is past them, and their file may be on another machine."""
    config = resolving.resolve(
        {"data": "cifar10", "model": "resnet18", "stand_in": True, "model.weights_file": "/nowhere/weights.pt"}
    )
    folder = run_dir.parent / "weighted"
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="holds no checkpoint yet"):
        Evaluator(settings(folder)).newest()


def test_configurations_older_than_a_setting_get_its_default(run_dir: Path) -> None:
    path = run_dir / "config.yaml"
    before = evaluator.read_config(run_dir)
    path.write_text(path.read_text().replace("label_smoothing: 0.0\n", ""))
    assert evaluator.read_config(run_dir) == before
