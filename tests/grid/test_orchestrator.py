"""plan, submit, status, retry, cancel, logs, failures and collect, from end to end on a SLURM in virtual time."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from grid.engine.slurm.site_yaml import load_site
from grid.engine.submission.retry import remedy_for
from settings.resources import Resources
from tests.grid import bench
from tests.grid.bench import Bench


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Iterator[Bench]:
    name = request.node.name
    real = name in ("test_from_plan_to_results", "test_several_runs_a_script_share_its_gpus")
    with bench.bench(tmp_path, capsys, gpus=2, cpus=8, opinion="from_plan" in name, real=real) as made:
        yield made


def test_from_plan_to_results(here: Bench) -> None:
    here.behave({2: "raise"})
    shown = here.good("plan --scripts")
    assert "mine.tiny: 3 experiments; code snapshot " in shown
    assert "new    3     3" in shown
    assert "s0c0   3        3                     0 GPUs, 1 core, 1G, 1:00:00" in shown
    assert "left: unknown, for no sibling of the 3 runs is done yet" in shown
    assert f"next: python grid_run.py submit {here.family} tiny" in shown
    (written,) = [line.split()[1] for line in shown.splitlines() if line.startswith("wrote ")]
    assert "new  " in here.good("status")
    before = {path.name: path.read_text() for path in (here.root / written).parent.iterdir() if path.is_file()}
    assert here.slurm.records() == []
    assert not (here.root / "runs").exists()
    said = here.good("submit")
    assert "submitted job 1: 3 scripts, 3 runs" in said
    (record,) = here.records()
    after = {
        path.name: path.read_text()
        for path in record.place(here.root).iterdir()
        if path.is_file() and path.name in before
    }
    assert after == before, "exactly the scripts that the plan showed"
    here.wait()
    shown = here.good("status")
    assert "2 done" in shown
    assert "1 failed" in shown
    assert "incomplete: 1 seed group of 1" in shown
    assert "seeds 2 missing, 2 done" in shown
    assert "3/7" in shown
    # logs: the failed one's without a name
    shown = here.good("logs")
    assert "seed 2: " in shown
    assert "RuntimeError: shape 17 does not fit" in shown
    assert len(here.good("logs -n 1").splitlines()) == 2
    assert "seed 3: " in here.good("logs 3")
    assert "exit code 1: runs/tiny/" in here.good("logs 2 --job")
    here.refused("logs -n 0", "--lines 0: must be at least 1")
    # failures
    shown = here.good("failures")
    assert "1 run: code: RuntimeError at main.py in <module>: " in shown
    assert "shape N does not fit" in shown
    assert "for example runs/tiny/qsgd-3b-cnn-digits-s2-" in shown
    # collect
    assert "wrote " in here.good("collect")
    rows = list(csv.DictReader(io.StringIO((here.root / "runs" / "tiny" / "runs.csv").read_text())))
    assert [row["state"] for row in rows] == ["done", "failed", "done"]
    assert [row["job"] for row in rows][1] == "1_1"
    assert {row["setting.method"] for row in rows} == {"qsgd"}
    assert len(set(map(len, rows))) == 1
    # a bug is left alone until the code is better
    assert "1 code: left alone" in here.good("retry --yes")
    assert here.sbatches() == 1
    here.behave({})
    assert "submitted job" in here.good("retry --yes --code")
    here.wait()
    assert "no run has failed" in here.good("failures")
    assert here.starts() == {1: 1, 2: 2, 3: 1}
    shown = here.good("plan")
    assert "done   3" in shown
    assert "next:" not in shown


def test_out_of_memory_in_a_script_of_several_runs(here: Bench) -> None:
    """The one that ate it gets more, those that were killed with it or had yet to come run as they were."""
    here.sweep((1, 2, 3, 4))
    here.behave({1: "eats 300", 2: "eats 200", 3: "eats 1500", 4: 0})
    here.good("plan --per_script 4 --parallel 3")
    here.good("submit")
    here.until_started({1: 1, 2: 1, 3: 1})
    here.slurm.oom("1_0")
    here.wait()
    here.age()
    shown = here.good("failures")
    assert "1 run: host_oom: " in shown
    assert "qsgd-3b-cnn-digits-s3" in shown and "1500 of 1024 MB; " in shown
    assert "2 runs: killed: killed when another run of its script ran out of memory" in shown
    assert "1 run: killed: its turn had not come when another run of its script ran out of memory" in shown
    assert shown.count("out of memory: qsgd-3b-cnn-digits-s3") == 2
    here.behave({})
    shown = here.good("retry --yes")
    assert "1 host_oom: again with 2048 MB instead of 1G" in shown
    assert "3 killed: again as it was" in shown
    asked = {chunk.resources["mem"]: sum(len(runs) for runs in chunk.elements) for chunk in here.records()[-1].chunks}
    assert asked == {"1G": 3, "2048M": 1}
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 2, 4: 1}
    assert set(here.states().values()) == {"done"}


def test_one_run_of_several_is_killed(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is killed as the kernel does it: the script lives, and notes 137; the others go on."""
    here.sweep((1, 2, 3))
    here.behave({1: "eats 1000", 2: "eats 200", 3: 0})
    here.good("plan --per_script 3 --parallel 3")
    here.good("submit")
    here.until_started({1: 1, 2: 1, 3: 1})
    for seed in (1, 2):
        here.slurm.kill_run(here.run(seed))
    here.wait()
    here.age(15)
    shown = here.good("failures")
    assert "1 run: host_oom: exit code 137 with its memory full" in shown and "-s1-" in shown
    assert "1 run: killed: exit code 137" in shown
    assert shown.endswith(" tiny [--kind KIND] [--code]\n")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("grid.engine.submission.planning.slurm_is_here", lambda: False)
        assert here.good("failures").endswith(" tiny --here [--kind KIND] [--code]\n"), "what can be done there"
    shown = here.good("retry --yes")
    assert "1 host_oom: again with 2048 MB instead of 1G" in shown
    assert "1 killed: again as it was" in shown


def test_each_kind_of_failure_has_its_remedy(here: Bench) -> None:
    here.sweep((1, 2, 3, 4, 5))
    here.behave({1: "stuck", 2: "wait", 3: 2, 4: 3, 5: "raise"})
    here.good("plan")
    here.good("submit")
    here.until_started(dict.fromkeys(range(1, 6), 1))
    here.slurm.time_limit(here.element(1))
    here.slurm.oom(here.element(2))
    for seed, word in {1: "TIMEOUT", 2: "OUT_OF_MEMORY"}.items():  # the warning was not heeded
        here.slurm.wait(here.element(seed), state=word)
    here.wait()
    here.age()
    assert set(here.states().values()) == {"failed", "diverged"}
    shown = here.good("failures")
    for kind in ("time_limit", "host_oom", "settings", "non_finite", "code"):
        assert f"1 run: {kind}: " in shown, shown
    here.refused("retry", "Start 2 runs again?", "--yes")
    here.behave({})
    shown = here.good("retry --yes")
    assert "1 time_limit: again with 02:00:00 instead of 1:00:00" in shown
    assert "1 host_oom: again with 2048 MB instead of 1G" in shown
    assert shown.count("left alone") == 3 or "left alone" in shown
    asked = {chunk.elements[0][0].split("-")[4]: chunk.resources for chunk in here.records()[-1].chunks}
    assert (asked["s1"]["time"], asked["s1"]["mem"]) == ("02:00:00", "1G")
    assert (asked["s2"]["time"], asked["s2"]["mem"]) == ("1:00:00", "2048M")
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 1, 4: 1, 5: 1}
    here.good("retry --yes --kind settings")
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 2, 4: 1, 5: 1}
    here.good("retry --yes --code")
    here.wait()
    assert here.starts() == {1: 2, 2: 2, 3: 2, 4: 2, 5: 2}
    assert set(here.states().values()) == {"done"}
    assert "nothing to retry" in here.good("retry --yes")


def test_a_remedy_never_asks_for_more_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("partition: small\npartitions:\n  small: {max_time: '3:00:00', mem: 4GB}\n")
    site = load_site(path)
    asked = Resources(time="2:00:00", mem="3G", exclude="n7")
    assert remedy_for("time_limit", asked, site, factor=2).changes == {"time": "03:00:00", "mem": "3G", "exclude": "n7"}
    assert remedy_for("host_oom", asked, site, factor=2).changes["mem"] == "4096M"
    assert remedy_for("host_oom", Resources(mem="1G"), site, factor=1.5).changes["mem"] == "1536M"
    assert remedy_for("node_failure", asked, site, factor=2, node="n1").changes["exclude"] == "n7,n1"
    assert remedy_for("node_failure", asked, site, factor=2, node="n7").changes["exclude"] == "n7"
    for kind in ("node_failure", "network_timeout", "lost", "code"):
        assert remedy_for(kind, asked, site, factor=2).changes == {"time": "2:00:00", "mem": "3G", "exclude": "n7"}
    assert "time" not in remedy_for("time_limit", Resources(), site, factor=2).changes, (
        "the partition's default is not known"
    )


def test_several_runs_a_script_share_its_gpus(here: Bench) -> None:
    here.sweep((1, 2, 3, 4), resources={**bench.SMALL, "gpus": 0.5})
    assert "1 GPU, 2 cores, 2048M" in here.good("plan --per_script 2 --parallel 2")
    assert "2 scripts, 4 runs" in here.good("submit")
    here.wait()
    assert here.starts() == {1: 1, 2: 1, 3: 1, 4: 1}
    assert set(here.states().values()) == {"done"}


def test_a_canary_saves_the_others(here: Bench) -> None:
    here.behave({1: "raise"})
    shown = here.good("plan --canary")
    assert "s0canary" in shown
    here.good("submit")
    here.wait()
    here.age()
    assert here.starts() == {1: 1}
    assert here.states() == {1: "failed", 2: "cancelled", 3: "cancelled"}
    here.behave({})
    here.good("retry --yes --code")
    here.good("plan --canary --max_running 1")
    here.good("submit")
    here.wait()
    assert here.starts() == {1: 2, 2: 1, 3: 1}
    assert set(here.states().values()) == {"done"}


def test_caps_reach_slurm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.bench(tmp_path, capsys, max_array_size=3) as here:
        here.sweep((1, 2, 3, 4))
        here.slurm.hold_all()
        here.good("plan --max_running 1")
        here.good("submit")
        texts = [path.read_text() for path in sorted(here.records()[0].place(here.root).glob("*.sbatch"))]
        assert ["array=0-1%1" in text for text in texts] == [True, True]
        assert ["--dependency=afterany:1\n" in text for text in texts] == [False, True]
        here.slurm.release_all()
        here.wait()
        jobs = sorted(here.slurm.records(), key=lambda job: job["start"])
        assert all(left["end"] <= right["start"] for left, right in itertools.pairwise(jobs)), "one at a time"
        assert set(here.starts().values()) == {1}


def test_code_drift_is_told_and_does_not_reach_what_is_queued(here: Bench) -> None:
    here.slurm.configure(real=True)
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    main = here.root / "main.py"
    main.write_text(main.read_text() + "\nraise SystemExit(9)\n")
    assert "code drift: 3 runs in the queue execute snapshot" in here.good("plan")
    assert "since then changed: main.py" in here.good("plan")
    here.slurm.release_all()
    here.wait()
    assert set(here.states().values()) == {"done"}


@pytest.mark.slow
def test_what_is_queued_is_not_started_here(here: Bench) -> None:
    here.slurm.hold_all()
    here.good("plan --seeds 1,2")
    here.good("submit")
    said = here("run --slots 1")
    assert said.code == 1
    assert said.out.count("not started: ") >= 2
    assert here.starts() == {3: 1}
    here.slurm.release_all()
    here.wait()
    assert here.starts() == {1: 1, 2: 1, 3: 1}
    assert json.loads(here.plan_file().read_text())["options"]["seeds"] == "1,2"


def test_cancel_one_and_only_what_has_not_begun(here: Bench) -> None:
    here.behave({1: "wait"})
    here.good("plan --max_running 1")
    here.good("submit")
    here.until_started({1: 1})
    here.refused("cancel", "Cancel 3 scripts with 3 unfinished runs?", "--yes says yes")
    assert "cancelled 1 script" in here.good("cancel 2 --yes")
    assert "cancelled 1 script" in here.good("cancel --pending --yes")
    assert "nothing to cancel" in here.good("cancel --pending --yes")
    here.good("cancel --yes")
    here.wait()
    here.age()
    assert here.starts() == {1: 1}
    assert set(here.states().values()) == {"cancelled"}
