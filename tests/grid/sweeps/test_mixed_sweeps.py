"""Other seeds and settings than the sweep's own, and other sweeps in the same folder: every command speaks of what was
submitted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grid.commands.submitting import _inherited
from grid.engine.submission.plan import Essence
from grid.engine.submission.planning import Options, Reviewed
from tests.grid.bench import Bench, bench


@pytest.fixture
def held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    """A sweep of seeds 1 and 2 on a cluster where nothing starts."""
    with bench(tmp_path, capsys) as here:
        here.sweep((1, 2))
        here.slurm.hold_all()
        yield here


def test_what_was_planned_with_other_seeds_is_meant_afterwards(held: Bench) -> None:
    held.good("plan --seeds 4")
    assert "4 runs" in held.good("submit")
    assert held.good("status").startswith("as in the last plan: --seeds 4\n")
    assert "4 pending" in held.good("status")
    assert held.good("collect --out -").count("runs/tiny/") == 4
    assert "cancelled 4 scripts" in held.good("cancel --yes")
    assert "4 cancelled" in held.good("status --now")


def test_what_is_queued_of_other_settings_is_told_and_cancelled_with_the_sweep(held: Bench) -> None:
    held.good("plan --set steps=9")
    held.good("submit")
    assert "to cancel" not in held.good("plan"), "it was never the sweep's own"
    held.good("submit")
    assert "also in the queue: 2 runs of other settings or seeds, job 1" in held.good("status")
    assert "cancelled 4 scripts" in held.good("cancel --yes")


def test_another_sweep_in_the_same_folder_is_left_alone(held: Bench) -> None:
    held.good("plan")
    held.good("submit")
    other = held.family.with_name("other.py")
    other.write_text(held.family.read_text().replace("seeds=(1, 2)", "seeds=(8,)"))
    said = replace(held, family=other).good("plan")
    assert "to cancel" not in said
    assert "give one of them its own folder" in said


def test_a_retry_keeps_cap_and_packing_of_the_plan(held: Bench) -> None:
    options = Options("g", "r", site="laptop", per_script=4, parallel=2, max_running=7, canary=True)
    plan = Reviewed("x", options, Essence({}, [], "", ""))
    assert _inherited(Options("g", "r", max_running=3), plan) == Options(
        "g", "r", site="laptop", per_script=4, parallel=2, max_running=3
    )
    assert _inherited(Options("g", "r"), None) == Options("g", "r")


def test_what_has_not_failed_is_no_kind_of_failure(held: Bench) -> None:
    held.refused("retry --kind cancelled --yes", "--kind cancelled: such runs have not failed", "plan", "submit")


def test_logs_of_a_run_that_said_nothing_are_those_of_its_job(held: Bench) -> None:
    held.good("plan")
    held.good("submit")
    log = held.root / "jobs" / "sweeps" / "tiny" / held.records()[0].id / "logs" / "s0c0_1_0.log"
    log.write_text("site profile x: activation failed\n")
    assert "activation failed" in held.good("logs 1")


def test_a_plan_is_found_however_its_file_is_named(held: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    held.good("plan --seeds 3")
    monkeypatch.chdir(held.family.parent)
    elsewhere = replace(held, family=Path("./mine.py"))
    assert elsewhere.good("status").startswith("as in the last plan: --seeds 3\n")
    assert "3 scripts" in elsewhere.good("submit")


@pytest.mark.slow
def test_cancel_leaves_other_sweeps_alone_and_admits_what_it_does_not_know(held: Bench) -> None:
    held.good("plan")
    held.good("submit")
    other = held.family.with_name("other.py")
    other.write_text(held.family.read_text().replace("seeds=(1, 2)", "seeds=(8,)"))
    assert replace(held, family=other).good("cancel --yes") == "nothing to cancel\n"
    same = held.family.parent / "else" / held.family.name  # its sweep has the same title, too
    same.parent.mkdir()
    shutil.copy(held.family, same)
    elsewhere = replace(held, family=same)
    assert elsewhere.good("cancel --yes") == "nothing to cancel\n"
    elsewhere.good("plan --set steps=9")
    elsewhere.good("submit")
    elsewhere.good("plan")
    assert elsewhere.good("cancel --yes") == "cancelled 2 scripts\n", "what it submitted with other settings"
    held.slurm.controller_down()
    held.refused("cancel --yes", "nothing was cancelled, for what is queued is not known")
    held.slurm.controller_up()
    assert "cancelled 2 scripts" in held.good("cancel --yes")
