"""The cost of a hundred thousand experiments: work is done once for what they have in common, whatever their number.

Counted, not timed; the times are those of ``python -m benchmarks.speed grid``.
"""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import args
from grid.engine.slurm.site import Site
from grid.engine.states import runs
from grid.engine.states.ledger import Chunk, Submission
from grid.engine.submission import planning
from grid.engine.sweep import Sweep, axis, load, point, product, union
from settings import resolving, run_identity

ROOT = Path(__file__).parents[3]


def _sweep(rates: int, seeds: int) -> Sweep:
    methods = union(point("ALQ", method="alq"), point("QSGD", method="qsgd"))
    points = product(
        point(data="digits"), methods, axis("method.bits=2,3"), axis("optim.lr", [0.01 * (1 + i) for i in range(rates)])
    )
    return Sweep(points, seeds=range(1, seeds + 1), folder="large", resources={"gpus": 0}, run_name="large")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of calls of each watched function."""
    found: Counter[str] = Counter()

    def watch(owner: Any, name: str) -> None:
        own = getattr(owner, name)

        def counted(*words: Any, **more: Any) -> Any:
            found[name] += 1
            return own(*words, **more)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in (
        (resolving, "check"),
        (resolving, "counting"),
        (yaml, "dump"),
        (copy, "deepcopy"),
        (Site, "check"),
        (Path, "iterdir"),
    ):
        watch(owner, name)
    return found


def test_what_experiments_share_is_checked_once(calls: Counter[str]) -> None:
    experiments = _sweep(rates=5, seeds=20).experiments()
    assert len({item.name for item in experiments}) == 2 * 2 * 5 * 20
    # sections of their own: 4 methods, 5 rates, 20 seeds, the settings beside the seed; one each of all others
    sections = len(args.SECTIONS) + len(args.GROUPS) - 2
    assert calls["check"] == 4 + 5 + 20 + 1 + sections
    assert calls["counting"] == calls["check"] + 2 * 20  # and of two sections at each point


def test_what_experiments_share_is_kept_once() -> None:
    first, *others = _sweep(rates=1, seeds=3).experiments()
    for item in others[:2]:
        assert all(item.config[part] is first.config[part] for part in (*args.SECTIONS, *args.GROUPS))


@pytest.mark.parametrize(
    "sweep", [("nuq", "cifar10_full_resnet8"), ("lss", "cifar10_cpu"), ("everything", "cpu"), ("dgc", "cpu")]
)
def test_configuration_and_identity_are_those_of_each_by_itself(sweep: tuple[str, str]) -> None:
    for item in load(*sweep, seeds=(1, 2)).experiments():
        alone = resolving.resolve(item.settings)
        assert list(item.config) == list(alone)
        assert item.config == alone
        assert item.name == run_identity.run_name(alone)


def test_an_illegal_seed_is_refused_wherever_it_stands() -> None:
    with pytest.raises(ValueError, match="seed=-1: must be at least 0"):
        Sweep([point(method="alq")], seeds=(1, -1)).experiments()


def test_run_folders_are_written_from_common_parts(tmp_path: Path, calls: Counter[str]) -> None:
    made = runs.runs_of(_sweep(rates=2, seeds=10).experiments(), tmp_path)
    runs.prepare(made)
    # what differs: 4 methods, 2 rates, 10 seeds, a folder for each; all else once
    assert calls["dump"] <= 4 + 2 + 10 + len(made) + len(resolving.resolve({}))
    for run in made:
        config = {**run.experiment.config, "run_dir": run.run_dir}
        assert run.folder.config.read_text() == yaml.safe_dump(config, sort_keys=False)


def test_resources_are_checked_once_for_each_shape(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = _sweep(rates=3, seeds=5)
    monkeypatch.setattr(planning, "named", lambda *names: (sweep, sweep.experiments()))
    made = planning.make(planning.Options("mine", "large"), tmp_path)
    assert len(made.plan.submit) == 60
    assert calls["check"] < 60
    assert len({id(item.resources) for item in made.plan.submit}) == 1


def test_a_record_is_written_without_a_copy_of_its_runs(tmp_path: Path, calls: Counter[str]) -> None:
    chunk = Chunk(
        "s0c0", {"gpus": 0}, [[f"runs/large/{number}"] for number in range(50)], after=[("afterok", "s0canary")]
    )
    item = Submission("large", "20260101-000000-000", "mine.large", {"digest": "0" * 64}, 1, [chunk])
    item.save(tmp_path)
    assert calls["deepcopy"] == 0
