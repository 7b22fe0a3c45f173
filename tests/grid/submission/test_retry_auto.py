"""retry --auto: more time and memory within bounds, so many attempts, and never what fails again by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grid.engine.slurm.site_yaml import load_site
from grid.engine.submission.retry import Bounds, remedy_for
from settings.resources import Resources
from tests.grid import bench
from tests.grid.bench import Bench

AUTO = "retry --auto --yes --max_time 3:00:00 --max_mem 2G"


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys, cpus=8) as made:
        yield made


def out_of_memory(here: Bench, attempt: int) -> None:
    """Let the run of seed 1, which waits, run out of memory in this attempt."""
    here.until_started({1: attempt, 2: 1, 3: 1})
    here.slurm.oom(here.element(1))
    here.wait()
    here.age()


def test_memory_grows_up_to_its_bound(here: Bench) -> None:
    here.sweep((1, 2, 3))
    here.behave({1: "wait", 2: "raise", 3: 3})
    here.good("plan")
    here.good("submit")
    out_of_memory(here, 1)
    here.refused(AUTO.replace("--yes", ""), "Start 1 run again?", "--yes says yes")
    shown = here.good(AUTO)
    assert "1 host_oom: again with 2048 MB instead of 1G (attempt 2 of 4)" in shown
    assert "1 code: left alone: it would fail again" in shown
    assert "1 non_finite: left alone: it would fail again" in shown
    out_of_memory(here, 2)
    shown = here.good(AUTO)
    assert "1 host_oom: left alone: it had 2048M, and may have no more" in shown
    assert shown.endswith("nothing to retry\n")
    shown = here.good(f"{AUTO} --max_attempts 2 --max_mem 64G")
    assert "1 host_oom: left alone: it was started 2 times, and --max_attempts is 2" in shown
    assert here.starts() == {1: 2, 2: 1, 3: 1}
    assert "1 host_oom: again with 4096 MB instead of 2048M\n" in here.good("retry --yes"), "a person may"


def test_bounds_of_the_site(here: Bench) -> None:
    site = here.root / "site.yaml"
    site.write_text("partition: main\npartitions:\n  main: {max_time: '1:30:00', mem: 8G}\n")
    here.good(f"plan --site {site}")
    assert "nothing to retry" in here.good("retry --auto --yes"), "the site of the last plan"
    site.write_text("partition: main\npartitions:\n  main: {max_time: '1:30:00'}\n")
    here.refused(
        "retry --auto", "--auto: memory has no bound: give --max_mem 64G, or mem of partition main in the site"
    )
    here.good("plan")
    here.refused(
        "retry --auto --max_mem 2G", "--auto: time has no bound: give --max_time 1-00:00:00, or max_time of a "
    )


def test_the_smaller_bound_counts(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("partition: small\npartitions:\n  small: {max_time: '3:00:00', mem: 8GB}\n")
    site = load_site(path)
    asked = Resources(time="2:00:00", mem="3G")

    def changes(kind: str, max_time: str, max_mem: str, parallel: int = 1) -> dict[str, object]:
        bounds = Bounds(max_time, max_mem)
        return dict(remedy_for(kind, asked, site, factor=2, parallel=parallel, bounds=bounds).changes)

    assert changes("time_limit", "2:30:00", "64G") == {"time": "02:30:00", "mem": "3G"}
    assert changes("time_limit", "9:00:00", "64G") == {"time": "03:00:00", "mem": "3G"}
    assert changes("host_oom", "9:00:00", "4G")["mem"] == "4096M"
    assert changes("host_oom", "9:00:00", "64G")["mem"] == "6144M"
    assert changes("host_oom", "9:00:00", "64G", parallel=2)["mem"] == "4096M", "two such runs fit the node"


def stopped(here: Bench, seed: int, attempt: int = 1) -> None:
    """Let the run, which waits, be preempted where preemption is the end of a job."""
    here.until_started({1: 1, 2: 1, 3: 1, seed: attempt})
    here.slurm.run("scontrol", "update", f"jobid={here.element(seed)}", "requeue=0")
    here.slurm.preempt(here.element(seed))
    here.wait()
    here.age()
    assert here.states()[seed] == "preempted"


def test_what_is_preempted_for_good_goes_on_from_its_checkpoint(here: Bench) -> None:
    here.behave({1: ["wait", "wait", 0]})
    here.good("plan")
    here.good("submit")
    stopped(here, 1)
    said = here.good("submit")
    assert "1 preempted: goes on from its checkpoint" in said and "submitted job" in said
    assert "submitted already" in here.good("submit")
    stopped(here, 1, 2)
    assert "1 preempted: goes on from its checkpoint (attempt 3 of 4)" in here.good(AUTO)
    here.wait()
    assert here.starts() == {1: 3, 2: 1, 3: 1}
    assert set(here.states().values()) == {"done"}


def test_submit_goes_on_with_no_other_code(here: Bench) -> None:
    here.behave({1: ["wait", 0]})
    here.good("plan")
    here.good("submit")
    stopped(here, 1)
    (here.root / "main.py").write_text((here.root / "main.py").read_text() + "# better\n")
    here.refused("submit", "1 run stopped at a checkpoint, and the code has changed since", "plan")


def test_whole_numbers_of_gpus_read_as_such(here: Bench) -> None:
    here.behave({1: ["raise", 0]})
    here.good("plan")
    here.good("submit")
    here.wait()
    for given, told in (("1", "gpus=1"), ("0.5", "gpus=0.5"), ("a100:2", "gpus=2")):
        assert f"1 code: again with {told} instead of 0" in here(f"retry --code --gpus {given}").out


def test_retry_says_what_it_submits(here: Bench) -> None:
    here.behave({1: ["raise", 0]})
    here.good("plan")
    here.good("submit")
    here.wait()
    said = here.good("retry --code --yes --time 12:00:00 --mem 2G")
    assert "1 code: again with mem=2G instead of 1G, time=12:00:00 instead of 1:00:00" in said
    (asked,) = [chunk.resources for chunk in here.records()[-1].chunks]
    assert (asked["time"], asked["mem"]) == ("12:00:00", "2G")
