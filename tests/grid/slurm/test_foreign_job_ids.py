"""A cluster that begins its job ids anew, and records that were damaged: nobody else's job is touched, no file is
written elsewhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grid.engine.slurm import scheduler
from grid.engine.slurm.scheduler_cache import Job
from grid.engine.states import ledger
from grid.engine.states.runs import named, prepare, runs_of
from grid.engine.states.state import Claim
from grid.engine.submission import planning
from tests.grid import bench
from tests.grid.bench import Bench


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys) as made:
        made.slurm.hold_all()
        yield made


def strangers(here: Bench) -> str:
    """The id of an array of somebody else's, the first one of a controller that knows nothing any more."""
    here.slurm.begin_anew()
    return here.slurm.run("sbatch", "--parsable", "--array=0-5", "--job-name=theirs", "--wrap", "true").stdout.strip()


def test_a_strangers_job_is_not_taken_for_ours(here: Bench) -> None:
    here.good("plan")
    here.good("submit")
    (record,) = here.records()
    assert strangers(here) == record.chunks[0].job_id
    assert "nothing to cancel" in here.good("cancel --yes")
    assert set(here.submitted().values()) == {"PENDING"}
    assert set(here.states().values()) == {"cancelled"}, "ours left the queue before they began"
    here.good("plan")
    here.good("submit")
    assert here.records()[1].chunks[0].job_id == "2"
    here.slurm.release_all()
    here.wait()
    assert here.starts() == {1: 1, 2: 1, 3: 1}


def test_nor_is_a_later_job_of_our_own_taken_for_an_earlier_one(here: Bench) -> None:
    here.good("plan")
    here.good("submit")
    here.slurm.begin_anew()
    here.good("plan --seeds 4,5,6")
    here.good("submit")
    assert [item.chunks[0].job_id for item in here.records()] == ["1", "1"]
    assert "nothing to cancel" in here.good("cancel --yes --seeds 1,2,3")
    assert set(here.submitted().values()) == {"PENDING"}
    assert "3 cancelled" in here.good("status --now --seeds 1,2,3"), "they left the queue before they began"
    assert "3 pending" in here.good("status --now --seeds 4,5,6")
    here.slurm.release_all()
    here.wait()
    assert here.starts() == {4: 1, 5: 1, 6: 1}
    assert "3 done" in here.good("status --now --seeds 4,5,6")


def test_nor_is_it_cancelled_because_an_earlier_job_of_its_id_was(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "here")
    here.good("plan")
    here.good("submit")
    here.good("cancel --yes")
    assert set(here.states().values()) == {"cancelled"}
    (noted,) = here.root.glob(f"jobs/sweeps/*/{ledger.CANCELLED}")
    assert [line.split("@")[::2] for line in noted.read_text().splitlines()] == [[f"1_{k}", "here"] for k in range(3)]
    here.age()
    here.slurm.begin_anew()
    here.good("plan")
    here.good("submit")
    assert [item.chunks[0].job_id for item in here.records()] == ["1", "1"]
    assert set(here.states().values()) == {"pending"}
    assert "cancelled 3 scripts" in here.good("cancel --yes")
    assert set(here.states().values()) == {"cancelled"}, "and now it was"


def test_the_word_of_a_cancellation_is_that_of_its_time(tmp_path: Path) -> None:
    ledger.folder_of(tmp_path, "tiny").mkdir(parents=True)
    (ledger.folder_of(tmp_path, "tiny") / ledger.CANCELLED).write_text("1_0\n1_1\n")  # as it was written before
    ledger.note_cancelled(tmp_path, "tiny", ["1_0", "2_0"], 100.0, "here")
    ledger.note_cancelled(tmp_path, "tiny", ["2_0"], 300.0, "here")
    ledger.note_cancelled(tmp_path, "tiny", ["2_0"], 900.0, "there")
    ledger.note_cancelled(tmp_path, "tiny", ["4_0"], 300.0, "")
    noted = ledger.cancelled(tmp_path, ["tiny", "without_any"])
    for element, at, cluster, recalled in (
        ("1_0", 500.0, "here", True),
        ("1_1", 500.0, "here", True),
        ("2_0", 200.0, "here", True),
        ("2_0", 500.0, "here", False),
        ("2_0", 500.0, "there", True),
        ("2_0", 500.0, "", True),
        ("2_0", 200.0, "elsewhere", False),
        ("3_0", 5.0, "here", False),
        ("4_0", 200.0, "here", True),
        ("4_0", 500.0, "here", False),
    ):
        case = element, at, cluster
        assert ledger.is_cancelled(noted, element, Claim(element, at, cluster=cluster)) is recalled, case
    assert ledger.is_cancelled(noted, "2_0", None) and ledger.is_cancelled(noted, "2_0", Claim("9_0", 1500.0))


@pytest.mark.parametrize("clock_s", [-3000.0, 0.0, 3000.0])
def test_it_is_that_of_one_life(tmp_path: Path, clock_s: float) -> None:
    # The controller's clock may be any, where the cancellation was noted with its own word.
    ledger.folder_of(tmp_path, "tiny").mkdir(parents=True)
    first, second = Job("RUNNING", queued=4000.0 + clock_s), Job("RUNNING", queued=4001.0 + clock_s)
    claim = Claim("1_0", 90.0, cluster="here")
    ledger.note_cancelled(tmp_path, "tiny", ["1_0"], 110.0, "here", {"1_0": first})
    noted = ledger.cancelled(tmp_path, ["tiny"])
    assert [ledger.is_cancelled(noted, "1_0", claim, job) for job in (None, first, second)] == [True, True, False]
    ledger.note_cancelled(tmp_path, "tiny", ["1_0"], 120.0, "here", {"1_0": second})
    assert ledger.is_cancelled(ledger.cancelled(tmp_path, ["tiny"]), "1_0", claim, second)
    ledger.note_cancelled(tmp_path, "tiny", ["2_0"], 110.0, "here")  # as it was written before
    noted = ledger.cancelled(tmp_path, ["tiny"])
    late = replace(claim, element="2_0")
    assert ledger.is_cancelled(noted, "2_0", late, Job("RUNNING", queued=150.0))
    assert not ledger.is_cancelled(noted, "2_0", late, Job("RUNNING", queued=200.0))


def test_nor_for_one_that_was_submitted_by_hand(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = strangers(here)
    (run, *_) = runs_of(named(str(here.family), "tiny")[1], here.root)
    prepare([run])
    slurm = {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": job, "SLURM_JOB_NAME": "mine"}
    told = {"state": "running", "host": "n1", "pid": 1, "start": 5.0, "heartbeat": time.time() - 5000, "slurm": slurm}
    run.folder.status.write_text(json.dumps(told))
    assert here.states()[1] == "unknown", "its own job may have left the queue just now"
    monkeypatch.setattr("grid.engine.states.judge.LAG_S", 0.0)
    assert here.states()[1] == "lost"
    assert "nothing to cancel" in here.good("cancel --yes")
    assert set(here.submitted().values()) == {"PENDING"}
    run.folder.status.write_text(json.dumps({**told, "slurm": {**slurm, "SLURM_JOB_NAME": "theirs"}}))
    assert here.states()[1] == "pending"


def test_which_jobs_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "{}_0|RUNNING|N/A|N/A|N/A|n1|None\x1f{}\x1f{}\n"
    rows = [
        row.format(*values)
        for values in ((47, "theirs", "/x/y.sbatch"), (48, "ours", "/x/y.sbatch"), (49, "renamed", "/a/it/s0.sbatch"))
    ]
    rows += [
        row.format(50, "any", ""),
        "51_0|RUNNING|N/A|N/A|N/A|n1|None\n",
        "47_1|PENDING|N/A|N/A|N/A||None\x1fours|n\x1f/it/s0.sbatch.sbatch\n",
    ]
    marks = {str(number): {"ours", "it/s0.sbatch"} for number in (47, 48, 49, 51)}
    monkeypatch.setattr(scheduler, "output_of", lambda command: "".join(rows))
    found = scheduler.ask(["47", "48", "49", "50", "51"], marks=marks)
    assert found.jobs.keys() == {"48_0", "49_0", "50_0", "51_0"}, "a job may be renamed; its script is still ours"
    assert found.covers("47_0"), "ours is gone"
    ends = "".join(
        f"{number}_0|COMPLETED|0:0|1795278231|1795278239|n2|{name}\n" for number, name in ((47, "theirs"), (48, "ours"))
    )
    monkeypatch.setattr(scheduler, "output_of", lambda command: ends)
    assert scheduler.history(["47_0", "48_0"], 0.0, marks=marks).jobs.keys() == {"48_0"}


# --- damaged records ----------------------------------------------------------------------------------------------

PLANS: dict[str, tuple[str, Any]] = {
    "id": ("id", "../../../evil"),
    "id, a number": ("id", 7),
    "per_script": ("options.per_script", "zwei"),
    "per_script, none": ("options.per_script", 0),
    "parallel": ("options.parallel", 2),
    "max_running": ("options.max_running", -1),
    "seeds": ("options.seeds", 5),
    "overrides": ("options.overrides", "optim.lr=1"),
    "site": ("options.site", ["x"]),
    "canary": ("options.canary", "no"),
    "resources": ("options.resources", {"mem": "much"}),
    "resources, unknown": ("options.resources", {"memory": "1G"}),
    "ignore": ("options.ignore", ["everything"]),
    "grid": ("options.grid", None),
    "an option": ("options.colour", "green"),
    "essence": ("essence", []),
    "runs": ("essence.runs", ["runs/tiny/a"]),
    "needs": ("essence.runs", {"runs/tiny/a": 3}),
    "cancel": ("essence.cancel", {"a": 1}),
    "code": ("essence.code", 1.5),
}


def test_every_value_of_a_plan_is_checked(here: Bench) -> None:
    here.good("plan --seeds 2")
    whole = here.plan_file().read_text()
    for name, (path, value) in PLANS.items():
        values = json.loads(whole)
        *parents, last = path.split(".")
        place = values
        for parent in parents:
            place = place[parent]
        place[last] = value
        here.plan_file().write_text(json.dumps(values))
        with pytest.raises(ValueError, match=r"plan\.json is damaged .*make the plan again"):
            planning.reviewed(here.root, "tiny")
        if name in ("id", "per_script"):
            for command in ("submit", "retry --yes"):
                here.refused(command, "plan.json is damaged")
    for command in ("status", "failures", "logs", "collect --out -", "cancel --yes"):
        said = here(command)
        assert "Traceback" not in said.err
        assert "plan.json is damaged" in said.err, command
        assert said.code == (2 if command == "logs" else 0), said
    here.good("plan")
    here.good("submit")
    assert not list(here.root.parent.glob("evil*")) + list(here.root.glob("evil*"))


CHUNKS: dict[str, tuple[str, Any]] = {
    "job id": ("job_id", "1; rm -rf"),
    "job id, a path": ("job_id", "../../1"),
    "job id, none": ("job_id", ""),
    "name": ("name", "../x"),
    "state": ("state", "half"),
    "elements": ("elements", [["/etc"]]),
    "elements, up": ("elements", [["runs/../../x"]]),
    "elements, text": ("elements", ["runs/tiny/a"]),
    "resources": ("resources", {"cpus": "three"}),
    "cap": ("cap", 0),
    "after": ("after", [["sometime", "s0c0"]]),
    "after nobody": ("after", [["afterok", "nobody"]]),
    "at": ("at", "noon"),
    "first": ("first", -1),
    "scripts": ("scripts", "/etc/x"),
    "cluster": ("cluster", 3),
}
RECORDS: dict[str, Any] = {
    "id": "../x",
    "folder": "..",
    "title": 3,
    "parallel": 0,
    "code": {"path": "../.."},
    "is_part": "no",
    "chunks": {},
}


@pytest.mark.parametrize("name", [*CHUNKS, *RECORDS])
def test_every_value_of_a_record_is_checked(tmp_path: Path, name: str) -> None:
    runs = [["runs/tiny/a"], ["runs/tiny/b"]]
    chunk = ledger.Chunk(
        "s0c0", {"mem": "1G"}, runs, state=ledger.SUBMITTED, job_id="12", at=5.0, after=[("afterany", "s0c0")]
    )
    item = ledger.Submission("tiny", "20260101-000000-abcd", "g.x", {"digest": "0", "path": "jobs/code/0"}, 1, [chunk])
    item.save(tmp_path)
    assert ledger.read_all(tmp_path, "tiny") == [item]
    path = item.place(tmp_path) / ledger.RECORD
    values = json.loads(path.read_text())
    if name in CHUNKS:
        values["chunks"][0][CHUNKS[name][0]] = CHUNKS[name][1]
    else:
        values[name] = RECORDS[name]
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"is damaged .*put it back"):
        ledger.read(path)
