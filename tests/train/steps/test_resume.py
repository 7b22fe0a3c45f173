"""A run that is stopped or killed and started again ends with the same bits as one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from nuq.levels import update_rules
from nuq.registry import METHODS
from settings import resolving, run_identity
from settings.optim import OPTIMIZERS
from tests import test_contract
from tests.tiers import few
from tests.train import trainings
from tests.train.emitted import BERT
from tests.train.glue_files import needs_extra
from tests.train.trainings import TRAININGS, digests
from train.launch import launch
from train.logs.run_log import Log
from train.process import checkpoint
from train.process.status import Status, read
from train.steps.train_loop import Preempted, run
from train.steps.trainer import Trainer

ROOT = Path(__file__).parents[3]
STEPS = 8
BASE = {
    "data": "digits",
    "model": "cnn",
    "batch_size": 8,
    "steps": STEPS,
    "eval_every": 4,
    "eval_train": False,
    "checkpoint_every": 3,
}
UPDATES = {"method.update_at": [2, 6], "method.num_samples": 3, "method.bucket_size": 1024}


class Killed(BaseException):
    """Stands for the end of the process at this point: nothing of ours may catch it."""


def config(name: str, **more) -> dict:
    return resolving.resolve(BASE | {"method": name} | (UPDATES if METHODS[name].adaptive else {}) | more)


def attempt(settings: dict, run_dir: Path, stop_at: int | None = None, kill_at: int | None = None) -> Trainer:
    run_dir.mkdir(exist_ok=True)
    trainer = Trainer(settings, device=torch.device("cpu"))

    def stop() -> bool:
        if trainer.step == kill_at:
            raise Killed
        return trainer.step == stop_at

    log = Log(run_dir, 1)
    try:
        run(trainer, run_dir, Status(run_dir, settings["steps"], "cpu", 1), log, stop)
    finally:
        log.close()
    return trainer


@few(("alq two_stage", "topk ef21", "casq"), "name", TRAININGS)
def test_killed_and_stopped_equals_undisturbed(name, tmp_path):
    settings = resolving.resolve(trainings.BASE | TRAININGS[name])
    undisturbed = attempt(settings, tmp_path / "undisturbed")
    folder = tmp_path / "disturbed"
    with pytest.raises(Killed):  # the checkpoint is of step 3, in the middle of gathering statistics and of a round
        attempt(settings, folder, kill_at=5)
    with pytest.raises(Preempted, match="step 4 of 8"):  # before the evaluation that is due there
        attempt(settings, folder, stop_at=4)
    with pytest.raises(Preempted, match="step 6 of 8"):
        attempt(settings, folder, stop_at=6)
    resumed = attempt(settings, folder)
    assert digests(resumed) == digests(undisturbed)
    assert resumed.totals.bytes == undisturbed.totals.bytes


@needs_extra
def test_bert_goes_on_from_its_state():
    more = {"data": "imdb", "stand_in": True, **BERT, "method": "topk", "method.ratio": 0.1}
    settings = resolving.resolve(trainings.BASE | more | {"data.length": 24, "data.vocabulary": 200})
    whole, half, rest = (Trainer(settings, device=torch.device("cpu")) for _ in range(3))
    for step in range(4):
        whole.train_step()
        (half if step < 2 else rest).train_step()
        if step == 1:
            rest.load_state_dict(half.state_dict())
    assert digests(rest) == digests(whole)


def test_every_kind_of_thing_that_a_checkpoint_holds_is_in_the_table():
    chosen = [resolving.resolve(trainings.BASE | settings) for settings in TRAININGS.values()]
    assert {config["method"]["name"] for config in chosen} >= set(METHODS) - test_contract.SLOW
    assert {config["optim"]["name"] for config in chosen} == set(OPTIMIZERS)
    collectives = {config["exchange"]["collective"] for config in chosen}
    assert collectives == {"gather", "two_stage", "server", "auto"}  # hierarchical depends on the split


@pytest.mark.slow
def test_the_p_of_amqs_last_update_is_among_its_starts_after_a_resume(tmp_path, monkeypatch):
    seen, solve = [], update_rules.amq
    monkeypatch.setattr(
        update_rules,
        "amq",
        lambda distribution, bits, **how: seen.append(how["previous"]) or solve(distribution, bits, **how),
    )
    settings = config("amq", **{"method.solver": "paper", "method.fit": "mixture", "method.bits": 4})
    undisturbed = attempt(settings, tmp_path / "undisturbed")
    *first, _, _ = seen
    last = seen[-2:]  # of the two encoders, at step 6; nothing before, at step 2
    assert None not in last and set(first) == {None}
    with pytest.raises(Preempted):
        attempt(settings, tmp_path / "disturbed", stop_at=4)
    seen.clear()
    assert digests(attempt(settings, tmp_path / "disturbed")) == digests(undisturbed)
    assert seen[-2:] == last


def test_a_checkpoint_from_before_the_second_encoding_goes_on(tmp_path):
    settings = config("alq")
    undisturbed = attempt(settings, tmp_path / "undisturbed")
    with pytest.raises(Preempted):
        attempt(settings, tmp_path / "older", stop_at=4)
    saved = torch.load(tmp_path / "older" / checkpoint.FILE, weights_only=True)
    del saved["workers"]["second"], saved["totals"]["network_bytes"]
    torch.save(saved, tmp_path / "older" / checkpoint.FILE)
    assert digests(attempt(settings, tmp_path / "older")) == digests(undisturbed)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    attempt(config("qsgd"), tmp_path)
    with pytest.raises(ValueError, match="other settings"):
        attempt(config("qsgd", seed=2), tmp_path)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    settings = config("alq", run_dir=str(tmp_path / "damaged"))
    undisturbed = attempt(settings, tmp_path / "undisturbed")
    folder = tmp_path / "damaged"
    with pytest.raises(Killed):
        attempt(settings, folder, kill_at=7)
    file = folder / checkpoint.FILE
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.warns(
        UserWarning, match=r"checkpoint.pt is damaged .*: going on from .*checkpoint.previous.pt, of step 3"
    ) as told:
        resumed = attempt(settings, folder)
    assert len(told) == 1 and digests(resumed) == digests(undisturbed)


def test_damaged_checkpoints_are_named(tmp_path):
    attempt(config("sgd"), tmp_path)
    for name in (checkpoint.FILE, checkpoint.PREVIOUS):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-100])
    with pytest.raises(
        ValueError, match=r"checkpoint.pt is damaged .* and .*checkpoint.previous.pt is damaged .*: move them away"
    ):
        attempt(config("sgd"), tmp_path)


def test_a_checkpoint_of_another_kind_of_state_is_named(tmp_path):
    settings = config("sgd")
    checkpoint.save(tmp_path, {"identity": run_identity.identity(settings), "step": 3, "model": {}})
    with pytest.raises(
        checkpoint.CheckpointError,
        match=r"checkpoint.pt does not fit this run .it has no model.conv1.weight.: move it away",
    ):
        attempt(settings, tmp_path)


@pytest.mark.parametrize("damage", ["empty", "cut", "random", "one bit", "another pickle"])
def test_any_damage_to_a_checkpoint_is_named_and_exits_2(damage, tmp_path, capsys):
    settings = config("sgd", run_dir=str(tmp_path), steps=2, eval_every=2)
    assert launch(settings) == 0
    (tmp_path / "status.json").unlink()
    file = tmp_path / checkpoint.FILE
    whole = bytearray(file.read_bytes())
    weights = torch.load(file, weights_only=True)["model"]["conv1.weight"].numpy().tobytes()
    place = whole.index(weights[:64])
    flipped = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    if damage == "another pickle":
        torch.save([1, 2], file)
    else:
        file.write_bytes(
            {"empty": b"", "cut": whole[:-50], "random": bytes(range(256)) * 9, "one bit": flipped}[damage]
        )
    assert launch(settings) == 2
    assert "checkpoint.pt is damaged" in capsys.readouterr().err
    assert read(tmp_path)["exit_code"] == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [("status.json", b"{"), ("status.json", b"[]")]
    + [("config.yaml", text) for text in (b"", b"a: [", b'a: "\x80\xff"', None)],
)
def test_damaged_files_of_a_run_are_named_and_exit_2(name, text, tmp_path, capsys):
    settings = config("sgd", run_dir=str(tmp_path), steps=2, eval_every=2)
    assert launch(settings) == 0
    (tmp_path / name).unlink() if text is None else (tmp_path / name).write_bytes(text)
    assert launch(settings) == 2
    assert name in capsys.readouterr().err


def test_divergence_keeps_the_last_good_checkpoint(tmp_path, capsys):
    settings = config("qsgdinf", run_dir=str(tmp_path), **{"optim.lr": 1e38, "checkpoint_every": 1})
    assert launch(settings) == 3
    status = read(tmp_path)
    assert status["state"] == "diverged" and status["exit_code"] == 3
    message = status["failure"]["message"]
    assert message in capsys.readouterr().err and message.startswith("step ") and ("'" in message or "loss" in message)
    step = int(message.split()[1].rstrip(":"))
    saved = checkpoint.find(tmp_path, run_identity.identity(settings), torch.device("cpu"))
    assert saved is not None and not saved.damage and saved.state["step"] == step
    assert all(bool(torch.isfinite(value).all()) for value in saved.state["model"].values())


def test_a_run_cannot_end_well_with_parameters_that_are_not_finite(tmp_path, capsys):
    more = {"optim.lr": 1e30, "optim.weight_decay": 1e30, "steps": 1, "eval_every": 1}
    assert launch(config("sgd", run_dir=str(tmp_path), **more)) == 3
    assert "step 0: the parameter" in capsys.readouterr().err
    assert not (tmp_path / checkpoint.FILE).exists()


def command(run_dir: Path, *more: str) -> list[str]:
    settings = ["data=digits", "model=cnn", "batch_size=8", "eval_train=false", "method=alq", "method.bucket_size=1024"]
    return [sys.executable, str(ROOT / "main.py"), *settings, f"run_dir={run_dir}", *more]


def _hear_control_c() -> None:
    """Let the child hear Ctrl-C: a shell that runs the tests in the background has SIGINT ignored, and children inherit
    that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def started(run_dir: Path) -> subprocess.Popen:
    """A long run that has been training for a while."""
    words = command(run_dir, "steps=100000", "optim.lr=0.001")  # at the default rate it diverges at step 105
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=_hear_control_c)
    deadline = time.time() + 60
    while not read(run_dir) or not list(run_dir.glob("events*")) or read(run_dir)["step"] == 0:
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.1)
    return process


@pytest.mark.slow
def test_control_c_ends_at_once_and_in_order(tmp_path):
    process = started(tmp_path)
    try:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "Traceback" not in errors, errors
    assert read(tmp_path)["state"] == "preempted" and not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_saves_and_asks_for_a_requeue(number, tmp_path):
    process = started(tmp_path)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    status = read(tmp_path)
    assert status["state"] == "preempted" and status["step"] > 0
    assert not list(tmp_path.glob(".*"))  # nothing half-written
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == status["step"]


@pytest.mark.slow
def test_exit_codes_and_a_finished_run(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def run(*more: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            command(tmp_path, *more), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )

    assert run("method=alqq").returncode == 2
    assert run("steps=3", "eval_every=3").returncode == 0
    before = (tmp_path / "status.json").read_text()
    again = run("steps=3", "eval_every=3")
    assert again.returncode == 0 and "done already" in again.stdout and again.stderr == ""
    assert (tmp_path / "status.json").read_text() == before and json.loads(before)["step"] == 3
    other = run("steps=4")
    assert other.returncode == 2 and "other settings" in other.stderr


def test_a_finished_run_whose_last_checkpoint_is_damaged(tmp_path, capsys, monkeypatch):
    settings = config("sgd", run_dir=str(tmp_path), steps=1, eval_every=0)
    assert launch(settings) == 0
    (tmp_path / checkpoint.FILE).write_bytes(b"")
    capsys.readouterr()
    assert launch(settings) == 0
    told = f"main.py: {tmp_path / checkpoint.FILE}, the last checkpoint of this run, is damaged (it is empty)\n"
    assert capsys.readouterr() == (f"{tmp_path}: done already\n", told)
    (tmp_path / checkpoint.FILE).unlink()
    assert launch(settings) == 0 and capsys.readouterr().err == "", "it may be wanted no more"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launch(settings) == 0 and capsys.readouterr().out == "", "one rank says it for all"


def test_what_killed_attempts_left_half_written_is_tidied(tmp_path):
    for name in ("status.json", "config.yaml", checkpoint.FILE):
        (tmp_path / f".{name}.99.tmp").touch()
    assert launch(config("sgd", run_dir=str(tmp_path), steps=1, eval_every=0)) == 0
    assert not list(tmp_path.glob(".*"))
