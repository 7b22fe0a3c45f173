"""Questions to SLURM, against what a real 22.05 prints; stand-ins on PATH note how they were asked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.slurm import commands, scheduler
from grid.engine.slurm.elements import compact, expand
from grid.engine.slurm.scheduler import Unreachable, ask, facts, find, history
from grid.engine.slurm.scheduler_cache import Facts, Job
from tests.grid.slurm_answers import CONFIG, Commands

# --- the queue ----------------------------------------------------------------------------------------------------


def test_one_squeue_tells_everything(slurm: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SQUEUE_USERS", "SACCT_FORMAT", "SCANCEL_INTERACTIVE"):
        monkeypatch.setenv(name, "somebody")
    found = ask(["47", "22", "79", "55", "47"])
    assert slurm.calls == ["squeue -h -a -r -t all -j 22,47,55,79 -o %i|%T|%V|%S|%e|%N|%r\x1f%j\x1f%o"]
    environment = (slurm.folder / "env").read_text().splitlines()
    assert {"LC_ALL=C", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0"} <= set(environment)
    assert not [line for line in environment if line.endswith("=somebody")], (
        "a filter of the user's shell would hide jobs"
    )
    assert found.reachable and found.cluster == "here" and found.ids == {"22", "47", "55", "79"}
    assert found.jobs == {
        "47_6": Job("PENDING", "JobArrayTaskLimit", queued=1795278260.0),
        "47_9": Job("PENDING", "JobArrayTaskLimit", queued=1795278260.0),
        "47_0": Job("RUNNING", node="n1", start=1795278269.0, queued=1795278260.0),
        "47_3": Job("COMPLETING", node="n1", start=1795278269.0, queued=1795278260.0),
        "22_0": Job("FAILED", "NonZeroExitCode", "n1", start=1795278191.0, end=1795278191.0),
        "79": Job("PENDING", "Nodes required for job are DOWN, DRAINED or reserved | see admin"),
        "55": Job("CANCELLED", "JobHeldUser", start=1795278320.0, end=1795278320.0),
    }
    assert found.job("55_7") == found.jobs["55"], "an array that was cancelled as a whole"
    assert found.job("47_1") is None and found.covers("47_1") and not found.covers("48_1")


def test_nothing_to_ask_asks_nobody(slurm: Commands) -> None:
    assert ask([]).jobs == {}
    assert not slurm.calls


def test_an_id_that_squeue_has_forgotten_is_an_answer(slurm: Commands) -> None:
    slurm.say("squeue", "", 1, "slurm_load_jobs error: Invalid job id specified\n")
    found = ask(["9999"])
    assert found.reachable and found.jobs == {} and found.covers("9999_1")


@pytest.mark.parametrize(
    ("text", "code", "error", "says"),
    [
        ("", 1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", "Unable to contact"),
        ("", 1, "", "ended with code 1"),
        ("47_[1,3,5,...]|PENDING|N/A|N/A|N/A||None\n", 0, "", "names a job"),
        ("47_1|PENDING|N/A|N/A\n", 0, "", "4 fields"),
        ("47_1|PENDING|N/A|N/A|N/A||None\nslurm_load_jobs: warning\n", 0, "", "1 fields"),
    ],
)
def test_an_answer_that_cannot_be_understood_is_none(
    slurm: Commands, text: str, code: int, error: str, says: str
) -> None:
    slurm.say("squeue", text, code, error)
    found = ask(["47"])
    assert not found.reachable and found.jobs == {} and says in found.error
    assert not found.covers("47_1")


def test_no_slurm_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no squeue on" in ask(["47"]).error
    with pytest.raises(Unreachable, match="there is no scontrol"):
        facts()


def test_a_controller_that_hangs_is_unreachable(slurm: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    (slurm.folder / "squeue").write_text("#!/bin/sh\nexec sleep 20\n")
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.2)
    assert "no answer within" in ask(["47"]).error


# --- accounting, facts, names -------------------------------------------------------------------------------------


def test_accounting_is_asked_once_for_ends_and_never_says_what_lives(
    slurm: Commands, tmp_path: Path, clock: list[float]
) -> None:
    cache, gone = tmp_path / "scheduler.json", ["16_8", "16_9", "22_0", "27", "45_2", "46_0", "46_1"]
    slurm.say("squeue", "")
    ask(["16", "22", "27", "45", "46"], cache=cache)
    since = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    found = history(gone, since, cache=cache)
    assert slurm.calls[1:] == [
        "sacct -X -P -n -S 2026-11-19T12:00:00 -j 16,22,27,45,46 -o JobID,State,ExitCode,Start,End,NodeList,JobName"
    ]
    assert found.jobs["16_8"] == Job("CANCELLED", "CANCELLED by 1000", "n2", 0, 1795278231.0, 1795278239.0)
    assert {name: (job.word, job.exit_code) for name, job in found.jobs.items()} == {
        "16_8": ("CANCELLED", 0), "16_9": ("TIMEOUT", 0), "22_0": ("FAILED", 3), "27": ("FAILED", 137),
        "45_0": ("CANCELLED", 0), "45_1": ("CANCELLED", 0), "45_2": ("CANCELLED", 0), "46_1": ("OUT_OF_MEMORY", 253),
    }  # fmt: skip
    assert found.jobs["46_1"].start is not None and found.jobs["45_2"].node == ""
    assert history(gone, since, cache=cache).jobs == found.jobs
    assert ask(["16"], cache=cache).jobs["16_9"].word == "TIMEOUT", "every later answer holds it"
    assert len(slurm.calls) == 2
    clock[0] += 301
    history(gone, since, cache=cache)
    assert slurm.calls[-1].split()[6:8] == ["-j", "46"], "only what is not known yet"


def test_without_accounting(slurm: Commands, tmp_path: Path) -> None:
    slurm.say("sacct", "", 1, "Slurm accounting storage is disabled\n")
    slurm.say("scontrol", CONFIG.replace("accounting_storage/slurmdbd", "(null)"))
    found = history(["16_8"], 0.0, cache=tmp_path / "scheduler.json")
    assert not found.reachable and "disabled" in found.error
    assert not facts(tmp_path / "scheduler.json").accounting
    slurm.say("squeue", "79\n")
    assert find("token", 0.0) == "79", "the queue's word is all there is"


def test_an_id_of_accounting_alone_does_not_answer_for_the_queue(slurm: Commands, tmp_path: Path) -> None:
    cache = tmp_path / "scheduler.json"
    history(["16_8"], 0.0, cache=cache)
    ask(["16"], cache=cache)
    assert [call.split()[0] for call in slurm.calls] == ["sacct", "squeue"]


def test_facts_are_asked_once_a_day(slurm: Commands, tmp_path: Path, clock: list[float]) -> None:
    cache = tmp_path / "scheduler.json"
    slurm.say("sacctmgr", "5000\n\n800\n")
    expected = Facts(2001, True, 300, 10000, 800)
    assert facts(cache) == facts(cache) == expected
    assert [call.split()[0] for call in slurm.calls] == ["scontrol", "sacctmgr"]
    clock[0] += 86401
    slurm.say("scontrol", "", 1, "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n")
    assert facts(cache) == expected, "old ones, where the controller is down"
    with pytest.raises(Unreachable, match="Unable to contact"):
        facts(None)


def test_a_lost_reply_is_settled_by_name(slurm: Commands) -> None:
    slurm.say("squeue", "47_[1-3%2]\n47_0\n")
    assert find("token", 1e9) == "47"
    assert slurm.calls == ["squeue -h -a -t all -n token -o %i"]
    slurm.say("squeue", "")
    slurm.say("sacct", "101_0\n101_1\n99\n")
    assert find("token", 1e9) == "101", "the latest"
    slurm.say("sacct", "")
    assert find("token", 1e9) is None
    slurm.say("squeue", "", 1, "slurm_load_jobs error: Unable to contact slurm controller\n")
    with pytest.raises(Unreachable):
        find("token", 1e9)


# --- ids and acts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("123", ["123"]),
        ("123;cluster", ["123"]),
        ("123_4", ["123_4"]),
        ("123_[5-9:2,12%4]", ["123_5", "123_7", "123_9", "123_12"]),
        ("123_[0]", ["123_0"]),
    ],
)
def test_expand(name: str, elements: list[str]) -> None:
    assert expand(name) == elements


@pytest.mark.parametrize(
    "name", ["", "x", "123_", "123_[]", "123_[1,2,...]", "123_[1-", "123+0", "123_[1;2]", "123.batch"]
)
def test_what_is_cut_short_is_not_guessed(name: str) -> None:
    with pytest.raises(Unreachable, match="names a job"):
        expand(name)


@given(st.sets(st.tuples(st.integers(1, 3), st.integers(0, 30))))
def test_compact_and_expand_are_inverse(pairs: set[tuple[int, int]]) -> None:
    elements = {f"{job}_{index}" for job, index in pairs}
    words = compact(elements)
    assert {element for word in words for element in expand(word)} == elements
    assert len(words) == len({job for job, _ in pairs})


def test_acts_name_elements_in_one_command(slurm: Commands) -> None:
    scheduler.cancel(["123_4", "123_5", "123_7", "99"])
    scheduler.cancel([])
    assert slurm.calls == ["scancel 99 123_[4-5,7]"]


def test_a_refusal_and_silence_are_told_apart(slurm: Commands) -> None:
    slurm.say("scancel", "", 1, "scancel: error: Kill job error on job id 5: Access/permission denied\n")
    with pytest.raises(ValueError, match=r"scancel refused.*permission denied"):
        scheduler.cancel(["5_1"])
    slurm.say("scancel", "", 1, "scancel: error: Unable to contact slurm controller (connect failure)\n")
    with pytest.raises(
        Unreachable, match=r"connect failure.*; it is not known whether the jobs were cancelled: look again with status"
    ):
        scheduler.cancel(["5_1"])
    slurm.say(
        "scancel", "", 1, "scancel: error: Kill job error on job id 5: Job/step already completing or completed\n"
    )
    scheduler.cancel(["5_1"])


def test_a_scancel_that_never_began_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unreachable, match="there is no scancel") as caught:
        scheduler.cancel(["5_1"])
    assert "not known" not in str(caught.value)
    (tmp_path / "scancel").write_text("#!/bin/sh\nwhile :; do :; done\n")
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.2)
    with pytest.raises(
        Unreachable, match=r"scancel gave no answer within .* not known whether the jobs were cancelled: look again"
    ):
        scheduler.cancel(["5_1"])
