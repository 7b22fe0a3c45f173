"""Questions to SLURM, against what a real 22.05 prints; stand-ins on PATH note how they were asked."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.engine.slurm import scheduler, scheduler_cache
from grid.engine.slurm.scheduler import Unreachable, ask, expand, facts, find, history
from grid.engine.slurm.scheduler_cache import Answer, Facts, Job, Known

# Printed by squeue -h -a -t all -o '%i|%T|%V|%S|%e|%N|%r' (and name and script after \x1f) with times as seconds.
QUEUE = """\
47_[6,9%2]|PENDING|1795278260|N/A|N/A||JobArrayTaskLimit
47_0|RUNNING|1795278260|1795278269|1826814269|n1|None
47_3|COMPLETING|1795278260|1795278269|1795278271|n1|None
22_0|FAILED|1795278190|1795278191|1795278191|n1|NonZeroExitCode
79|PENDING|N/A|1826814269|N/A||Nodes required for job are DOWN, DRAINED or reserved | see admin
55|CANCELLED|1795278190|1795278320|1795278320||JobHeldUser
"""
# Printed by sacct -X -P -n -o JobID,State,ExitCode,Start,End,NodeList,JobName.
ACCOUNTS = """\
16_8|CANCELLED by 1000|0:0|1795278231|1795278239|n2|exp
16_9|TIMEOUT|0:0|1795278231|1795278239|n2|exp
22_0|FAILED|3:0|1795278191|1795278191|n1|exp
27|FAILED|0:9|1795278195|1795278195|n1|exp
45_[0-2]|CANCELLED by 0|0:0|None|1795278239|None assigned|exp
46_1|OUT_OF_ME+|0:125|2026-11-21T16:25:02|2026-11-21T16:25:09|n1|exp
46_0|RUNNING|0:0|1795278269|Unknown|n1|exp
"""
CONFIG = """\
Configuration data as of 2026-11-21T16:24:30
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = throwaway
MaxArraySize            = 2001
MaxJobCount             = 10000
MinJobAge               = 300 sec
SLURM_VERSION           = 22.05.8
TaskPluginParam         = (null type)
"""


class Commands:
    """Stand-ins for SLURM's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, name: str, text: str, code: int = 0, error: str = "") -> None:
        """From now on the command prints this."""
        (self.folder / f"{name}.out").write_text(text)
        (self.folder / f"{name}.err").write_text(error)
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\nd="{self.folder}"\nprintf "%s " {name} "$@" >>"$d/calls"\necho >>"$d/calls"\nenv >"$d/env"\n'
            f'cat "$d/{name}.out"\ncat "$d/{name}.err" >&2\nexit {code}\n'
        )
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return [line.strip() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    folder = tmp_path / "bin with 'quote"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("SLURM_CLUSTERS", "SLURM_CLUSTER_NAME"):
        monkeypatch.delenv(name, raising=False)
    conf = tmp_path / "slurm.conf"
    conf.write_text("# ClusterName=no\n clustername = here # the name\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    made = Commands(folder)
    made.say("squeue", QUEUE)
    made.say("sacct", ACCOUNTS)
    made.say("scontrol", CONFIG)
    made.say("scancel", "")
    return made


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
    monkeypatch.setattr(scheduler, "TIMEOUT_S", 0.2)
    assert "no answer within" in ask(["47"]).error


# --- the cache ----------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_795_280_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_a_young_answer_serves_every_command_and_ends_are_kept(
    slurm: Commands, tmp_path: Path, clock: list[float]
) -> None:
    cache = tmp_path / "jobs" / "scheduler.json"
    first = ask(["47", "22"], cache=cache)
    clock[0] += 39
    again = ask(["47"], cache=cache)
    assert again.source == "cache" and again.asked == first.asked and again.jobs["47_0"] == first.jobs["47_0"]
    assert len(slurm.calls) == 1
    assert ask(["47", "55"], cache=cache).source == "squeue", "another id was never asked for"
    slurm.say("squeue", "")
    now = ask(["47", "22"], cache=cache, max_age_s=0)
    assert now.source == "squeue"
    assert now.jobs.keys() == {"22_0"}, "what ended stays known; what was alive is gone"
    slurm.say("squeue", "22_0|PENDING|N/A|N/A|N/A||BeginTime\n")
    assert ask(["22"], cache=cache, max_age_s=0).jobs["22_0"].word == "PENDING", "somebody queued it again"


def test_it_backs_off(slurm: Commands, tmp_path: Path, clock: list[float]) -> None:
    cache = tmp_path / "scheduler.json"
    slurm.say("squeue", "", 1, "slurm_load_jobs error: Unable to contact slurm controller\n")
    asked_at, began = [], clock[0]
    while clock[0] - began < 1500:
        before = len(slurm.calls)
        assert not ask(["47"], cache=cache).reachable
        if len(slurm.calls) > before:
            asked_at.append(clock[0] - began)
        clock[0] += 20
    assert asked_at == [0, 40, 120, 280, 580, 880, 1180, 1480]
    assert "not asked again for 280 s" in ask(["47"], cache=cache).error
    before = len(slurm.calls)
    slurm.say("squeue", QUEUE)
    assert ask(["47"], cache=cache, max_age_s=0).reachable, "whoever must know asks now"
    assert len(slurm.calls) == before + 1
    clock[0] += 41
    assert ask(["47"], cache=cache).source == "squeue", "and the failures are forgotten"


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
    assert ask(["47"], cache=cache).source == "cache"
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
    assert found.jobs["16_8"] == Job("CANCELLED", "CANCELLED by 1000", "n2", 0, 0, 1795278231.0, 1795278239.0)
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
    assert ask(["16"], cache=cache).source == "squeue"


def test_facts_are_asked_once_a_day(slurm: Commands, tmp_path: Path, clock: list[float]) -> None:
    cache = tmp_path / "scheduler.json"
    slurm.say("sacctmgr", "5000\n\n800\n")
    expected = Facts("throwaway", "22.05.8", 2001, True, 300, 10000, 800)
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
    words = scheduler.compact(elements)
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
    monkeypatch.setattr(scheduler, "TIMEOUT_S", 0.2)
    with pytest.raises(
        Unreachable, match=r"scancel gave no answer within .* not known whether the jobs were cancelled: look again"
    ):
        scheduler.cancel(["5_1"])


def test_an_answer_of_a_thousand_elements_is_kept_small(tmp_path: Path) -> None:
    known = Known()
    known.put(5.0, ["1"], {f"1_{index}": Job("RUNNING", node="n1", start=5.0, queued=5.0) for index in range(1000)})
    path = tmp_path / "scheduler.json"
    scheduler_cache.write(path, "here", known, 5.0)
    assert path.stat().st_size < 70_000
    assert scheduler_cache.read(path, "here").ids == known.ids
    assert scheduler_cache.read(path, "here").answer(["1"], "cache", "here") == Answer(
        5.0, known.ids["1"][1], True, "cache", "", frozenset({"1"}), "here", {"1": 5.0}
    )  # fmt: skip
