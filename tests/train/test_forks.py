"""Forks: what goes on from another run's checkpoint is that run, but for what was changed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nuq.exchange.transport import Transport
from settings import fork_words, resolving, run_identity
from settings.command_line import jobs, parse_overrides
from tests.train.small_runs import BASE, run
from train import launch
from train.process import checkpoint
from train.process.config_file import read_config
from train.process.status import EXIT_BAD_SETTINGS
from train.steps.trainer import Trainer

ROOT = Path(__file__).parents[2]
FEEDBACK = {"method": "topk", "method.ratio": 0.1, "method.bucket_size": None, "method.update_at": None}


def _final(run_dir: Path) -> dict[str, Any]:
    return torch.load(run_dir / checkpoint.FILE, weights_only=True)


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second


@pytest.fixture(scope="module", params=["levels", pytest.param("feedback", marks=pytest.mark.slow), "rounds"])
def parent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run that kept step 3 of 4, and what its settings are beside BASE."""
    of = {"levels": {}, "feedback": FEEDBACK, "rounds": {"exchange.local_steps": 2, "exchange.outer_momentum": 0.5}}
    settings = {name: value for name, value in (BASE | of[request.param]).items() if value is not None}
    folder = tmp_path_factory.mktemp("runs") / "parent"
    assert launch.launch(resolving.resolve(settings | {"run_dir": str(folder), "checkpoint_at": [3]})) == 0
    return folder, settings


def _fork(parent: tuple[Path, dict[str, Any]], at: int, **more: Any) -> tuple[int, Path]:
    folder = parent[0].parent / f"fork-{at}-{'-'.join(map(str, more.values()))}"
    changed = {name.replace("__", "."): value for name, value in more.items()}
    settings = {**parent[1], "fork.run": str(parent[0]), "fork.at": at, "run_dir": str(folder), **changed}
    return launch.launch(resolving.resolve(settings)), folder


def test_a_fork_without_changes_is_the_run_that_it_left(parent: tuple[Path, dict[str, Any]]) -> None:
    code, folder = _fork(parent, 3)
    assert code == 0
    own, theirs = _final(folder), _final(parent[0])
    assert own.pop("identity") != theirs.pop("identity")
    for totals in (own["totals"], theirs["totals"]):
        del totals["update_s"], totals["measure_s"]
    assert _same(own, theirs)


def test_a_fork_with_another_method_starts_from_the_same_parameters(parent: tuple[Path, dict[str, Any]]) -> None:
    config = resolving.resolve(
        {name: value for name, value in parent[1].items() if not name.startswith("method")}
        | {"method": "trn", "fork.run": str(parent[0]), "fork.at": 3}
    )
    trainer = Trainer(config, device=torch.device("cpu"))
    state = checkpoint.at_step(parent[0], run_identity.identity(read_config(parent[0])), 3, torch.device("cpu")).state
    fresh = trainer.workers.state_dict()
    trainer.fork(state, same_method=False)
    own = trainer.state_dict()
    assert _same(own["workers"], fresh) and not _same(own["workers"], state["workers"])
    kept = ("model", "step", "totals", "optimizer" if "optimizer" in state else "local")
    assert all(_same(own[name], state[name]) for name in kept)


def test_a_fork_from_the_last_step_goes_further(parent: tuple[Path, dict[str, Any]]) -> None:
    code, folder = _fork(parent, 4, steps=6)
    assert code == 0 and _final(folder)["step"] == 6


def test_what_was_kept_stays_when_newer_checkpoints_come(parent: tuple[Path, dict[str, Any]]) -> None:
    kept = torch.load(checkpoint.of_step(parent[0], 3), weights_only=True)
    assert kept["step"] == 3 and _final(parent[0])["step"] == 4


def test_steps_without_a_checkpoint_are_refused(
    parent: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, folder = _fork(parent, 1)
    assert code == EXIT_BAD_SETTINGS and not folder.exists()
    assert re.search(r"parent has no checkpoint of step 1 \(legal: (2, )?3, 4\): run it with", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"workers": 3}, "workers=3, where that run has 2; a fork keeps data, model, seed,"),
        ({"data__limit": 500}, "data.limit=500, where that run has 0"),
        ({"optim": "adam"}, "optim.name='adam', where that run has 'sgd'"),
    ],
)
def test_what_a_fork_must_keep(
    parent: tuple[Path, dict[str, Any]], change: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = _fork(parent, 3, **change)
    assert code == EXIT_BAD_SETTINGS and sentence in capsys.readouterr().err


def test_a_fork_keeps_the_groups_of_the_optimizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is remembered of parameters is saved in the order of their groups, so that it would go to others."""
    settings = {name: value for name, value in BASE.items() if not name.startswith("method.")}
    settings |= {"method": "supersgd", "optim.momentum": 0.9, "optim.weight_decay": 1e-3, "steps": 2}
    folder = tmp_path / "parent"
    layers = {"layers": ["conv1 = dgc ratio=0.1"], "checkpoint_at": [1]}
    assert launch.launch(resolving.resolve(settings | layers | {"run_dir": str(folder)})) == 0
    assert _fork((folder, settings), 1, layers=["conv1 = dgc ratio=0.2"])[0] == 0
    for changed in ({"layers": ["conv2 = dgc ratio=0.1"]}, {}, {**layers, "optim.decay_norms": False}):
        assert _fork((folder, settings), 1, **changed)[0] == EXIT_BAD_SETTINGS
        assert "groups of parameters, by where their momentum acts" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_named(
    parent: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "damaged"
    other.mkdir()
    (other / "config.yaml").write_bytes((parent[0] / "config.yaml").read_bytes())
    damaged = bytearray(checkpoint.of_step(parent[0], 3).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    checkpoint.of_step(other, 3).write_bytes(damaged)
    code, _ = _fork((other, parent[1]), 3)
    said = capsys.readouterr().err
    assert code == EXIT_BAD_SETTINGS and "no checkpoint of step 3 (legal: none; " in said and "its checksum" in said


def test_a_file_system_without_links_keeps_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    assert run(tmp_path / "run", checkpoint_at=[1, 3]) == 0
    assert [_step(tmp_path / "run", at) for at in (1, 3)] == [1, 3]


def test_a_run_that_was_killed_before_it_kept_a_checkpoint_keeps_it_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("train.process.checkpoint.keep", killed)
        assert run(tmp_path / "run", checkpoint_at=[3]) != 0
    assert not checkpoint.of_step(tmp_path / "run", 3).exists()
    assert run(tmp_path / "run", checkpoint_at=[3]) == 0 and _step(tmp_path / "run", 3) == 3


def _step(run_dir: Path, at: int) -> int:
    return torch.load(checkpoint.of_step(run_dir, at), weights_only=True)["step"]


def test_another_rank_gets_the_state_from_the_first(parent: tuple[Path, dict[str, Any]]) -> None:
    identity = run_identity.identity(read_config(parent[0]))
    device = torch.device("cpu")
    transport = Transport(None, timeout_s=5.0, device=device)
    found = checkpoint.on_all_ranks(lambda: checkpoint.at_step(parent[0], identity, 3, device), device, transport)
    assert found is not None and found.path == checkpoint.of_step(parent[0], 3)


# --- the words of a command line ---


def _spelled_out(*words: str) -> list[str]:
    named, config = fork_words.named(words, read_config)
    return fork_words.with_inherited(config, named)


def test_words_take_all_else_from_the_run(parent: tuple[Path, dict[str, Any]]) -> None:
    words = _spelled_out(f"fork={parent[0]}", "at=3", "optim.lr=0.5")
    config, theirs = resolving.resolve(parse_overrides(words)), read_config(parent[0])
    assert config["fork"] == {"run": str(parent[0]), "at": 3} and config["optim"]["lr"] == 0.5
    left_out = {"fork", "optim", "run_dir", "checkpoint_at"}
    assert {name: one for name, one in config.items() if name not in left_out} == {
        name: one for name, one in theirs.items() if name not in left_out
    }


def test_words_of_another_method_leave_those_of_the_first(parent: tuple[Path, dict[str, Any]]) -> None:
    words = _spelled_out(f"fork={parent[0]}/", "at=3", "method='qsgd'", "method.bits=2")
    method = resolving.resolve(parse_overrides(words))["method"]
    assert method == resolving.resolve({"method": "qsgd", "method.bits": 2})["method"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fork=runs/none", "at=3"], "fork='runs/none': there is no such folder; legal is the folder of a run"),
        (["fork=runs/none"], "fork=runs/none: give the step of its checkpoint, too, as in at=500"),
        (["fork=a", "fork=b", "at=3"], "fork=a fork=b: must be the folder of one run"),
        (["fork=a,b", "at=3"], "fork=a,b: must be the folder of one run"),
        (["fork=", "at=3"], "fork=: must be the folder of one run"),
        (["fork=a", "at=3", "at=5"], "fork=a at=3 at=5: a fork has one folder and one step; leave one out"),
        (["fork=a", "at=3", "fork.at=5"], "fork=a at=3 fork.at=5: a fork has one folder and one step"),
    ],
)
def test_words_that_make_no_fork(words: list[str], sentence: str) -> None:
    def read(folder: Path) -> dict[str, Any]:
        return read_config(folder, "fork")

    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        fork_words.named(words, read)


def test_words_without_a_fork_stay() -> None:
    assert _spelled_out("method=alq", "at=3") == ["method=alq", "at=3"]


def test_each_of_several_runs_takes_what_it_would_take_alone(parent: tuple[Path, dict[str, Any]]) -> None:
    """Under ``-m`` the run's own method keeps its settings, and another one has none of them."""
    own = read_config(parent[0])["method"]
    words, config = fork_words.named([f"fork={parent[0]}", "at=3", f"method={own['name']},trn"], read_config)
    together = fork_words.with_inherited(config, words)
    methods = [
        resolving.resolve(parse_overrides(fork_words.with_inherited(config, job)))["method"] for job in jobs(together)
    ]
    assert methods == [own, resolving.resolve({"method": "trn"})["method"]]


@pytest.mark.slow
def test_several_forks_by_main(parent: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    own = read_config(parent[0])["method"]
    command = [sys.executable, str(ROOT / "main.py"), "-m", f"fork={parent[0]}", "at=3", f"method={own['name']},trn"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    methods = [read_config(path)["method"] for path in (tmp_path / "runs" / "main").iterdir()]
    assert sorted(methods, key=lambda one: one["name"] == "trn") == [
        own,
        resolving.resolve({"method": "trn"})["method"],
    ]
    command += ["--config-dir", str(tmp_path)]
    said = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True).stderr
    assert said.startswith("main.py: fork=: several forks at once take no --config-name or --config-dir")


def test_a_fork_is_not_taken_for_that_of_another_run_with_the_end_of_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, lr in (("a", 0.1), ("b", 0.2)):
        assert run(tmp_path / place / "runs" / "left", checkpoint_at=[3], **{"optim.lr": lr}) == 0
    left = [str(tmp_path / place / "runs" / "left") for place in ("a", "b")]
    own = tmp_path / "own"
    assert run(own, **{"fork.run": left[0], "fork.at": 3}) == 0
    assert run(own, **{"fork.run": left[1], "fork.at": 3}) == EXIT_BAD_SETTINGS
    assert f"holds a fork of another run ({left[0]}): choose another folder" in capsys.readouterr().err
    shutil.move(tmp_path / "a", tmp_path / "moved")
    assert run(own, **{"fork.run": str(tmp_path / "moved" / "runs" / "left"), "fork.at": 3}) == 0


def test_a_fork_goes_on_without_the_run_that_it_left(parent: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    left, own = tmp_path / "left", tmp_path / "own"
    shutil.copytree(parent[0], left)
    words = [f"fork={left}", "at=3", f"run_dir={own}"]
    config = resolving.resolve(parse_overrides(_spelled_out(*words)))
    assert launch.launch(config) == 0
    shutil.rmtree(left)
    assert resolving.resolve(parse_overrides(_spelled_out(*words))) == config
    with pytest.raises(
        ValueError, match=r"there is no such folder; .*; a fork that has begun goes on without it where"
    ):
        _spelled_out(*words[:2])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"fork.at": 5}, "fork.at=5: is a step of the run in fork.run, which is empty"),
        ({"fork.run": "runs/a"}, "fork.at=0: must be from 1 to 999, below steps=1000"),
        ({"fork.run": "runs/a", "fork.at": 1000}, "fork.at=1000: must be from 1 to 999, below steps=1000"),
        ({"checkpoint_at": [10, 2000]}, "checkpoint_at=[10, 2000]: 2000 is above steps=1000"),
    ],
)
def test_settings_that_make_no_fork(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        resolving.resolve(settings)
