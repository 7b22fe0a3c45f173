"""Answers of SLURM that are kept: for how long, for whom, and when their file is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.slurm import scheduler_cache
from grid.engine.slurm.scheduler import ask
from grid.engine.slurm.scheduler_cache import Answer, Job, Known
from tests.grid.slurm_answers import QUEUE, Commands


def test_a_young_answer_serves_every_command_and_ends_are_kept(
    slurm: Commands, tmp_path: Path, clock: list[float]
) -> None:
    cache = tmp_path / "jobs" / "scheduler.json"
    first = ask(["47", "22"], cache=cache)
    clock[0] += 39
    again = ask(["47"], cache=cache)
    assert again.asked == first.asked and again.jobs["47_0"] == first.jobs["47_0"]
    assert len(slurm.calls) == 1
    ask(["47", "55"], cache=cache)
    assert len(slurm.calls) == 2, "another id was never asked for"
    slurm.say("squeue", "")
    now = ask(["47", "22"], cache=cache, max_age_s=0)
    assert len(slurm.calls) == 3
    assert now.jobs.keys() == {"22_0"}, "what ended stays known; what was alive is gone"
    slurm.say("squeue", "22_0|PENDING|N/A|N/A|N/A||BeginTime\n")
    assert ask(["22"], cache=cache, max_age_s=0).jobs["22_0"].word == "PENDING", "somebody queued it again"


def test_after_a_failure_it_is_left_alone_for_40_s(slurm: Commands, tmp_path: Path, clock: list[float]) -> None:
    cache = tmp_path / "scheduler.json"
    slurm.say("squeue", "", 1, "slurm_load_jobs error: Unable to contact slurm controller\n")
    asked_at, began = [], clock[0]
    while clock[0] - began < 300:
        before = len(slurm.calls)
        assert not ask(["47"], cache=cache).reachable
        if len(slurm.calls) > before:
            asked_at.append(clock[0] - began)
        clock[0] += 20
    assert asked_at == [*range(0, 300, 40)], "once it is back, nobody waits for longer"
    assert "not asked again for 20 s" in ask(["47"], cache=cache).error
    before = len(slurm.calls)
    slurm.say("squeue", QUEUE)
    assert ask(["47"], cache=cache, max_age_s=0).reachable, "whoever must know asks now"
    assert len(slurm.calls) == before + 1
    clock[0] += 41
    assert ask(["47"], cache=cache).reachable
    assert len(slurm.calls) == before + 2, "and the failures are forgotten"


def test_two_clusters_share_a_folder(slurm: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "scheduler.json"
    ask(["47"], cache=cache)
    monkeypatch.setenv("SLURM_CLUSTERS", "there")
    slurm.say("squeue", "CLUSTER: there\n")
    other = ask(["47"], cache=cache)
    assert other.cluster == "there" and other.jobs == {}
    monkeypatch.delenv("SLURM_CLUSTERS")
    assert ask(["47"], cache=cache).jobs.keys() >= {"47_0"}
    assert len(slurm.calls) == 2


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"format": 1, "clusters": 3}', '{"format": 99}',
     '{"format":1,"clusters":{"here":{"ids":{"47":{"asked":1e99,"jobs":3}}}}}',
     '{"format":1,"clusters":{"here":{"ids":{"47":{"asked":1795279999.0,"jobs":{"47_0":{"word":7}}}},'
     '"failures":["a",1],"facts":{"asked":1.0}}}}'],
)  # fmt: skip
def test_a_damaged_cache_costs_one_question(slurm: Commands, tmp_path: Path, clock: list[float], text: str) -> None:
    cache = tmp_path / "scheduler.json"
    cache.write_text(text)
    assert ask(["47"], cache=cache).jobs["47_0"].word == "RUNNING"
    assert ask(["47"], cache=cache).reachable
    assert len(slurm.calls) == 1


def test_a_cache_that_cannot_be_written_is_no_error(slurm: Commands, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ask(["47"], cache=tmp_path / "file" / "scheduler.json").reachable
    assert ask(["47"], cache=tmp_path).reachable, "a folder in its place"
    assert not list(tmp_path.glob(".*"))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda part: st.dictionaries(st.text(max_size=4), part),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["ids", "history", "failures", "facts"]),
        JSON | st.just({"47": {"asked": 1.0, "jobs": {"47_1": {}}}}),
    )
)
def test_any_section_is_read(section: dict[str, object]) -> None:
    known = scheduler_cache._known(json.loads(json.dumps(section)))
    assert isinstance(known, Known)
    assert all(isinstance(job, Job) for _, jobs in known.ids.values() for job in jobs.values())


def test_an_answer_of_a_thousand_elements_is_kept_small(tmp_path: Path) -> None:
    known = Known()
    known.put(5.0, ["1"], {f"1_{index}": Job("RUNNING", node="n1", start=5.0, queued=5.0) for index in range(1000)})
    path = tmp_path / "scheduler.json"
    scheduler_cache.write(path, "here", known, 5.0)
    assert path.stat().st_size < 70_000
    assert scheduler_cache.read(path, "here").ids == known.ids
    assert scheduler_cache.read(path, "here").answer(["1"], "here") == Answer(
        5.0, known.ids["1"][1], True, "", frozenset({"1"}), "here", {"1": 5.0}
    )
