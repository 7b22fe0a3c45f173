"""Site profiles: the examples, what a partition can give, mistakes in one sentence, and the bash that a job starts
with.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid.engine.scripts.preamble import quoted
from grid.engine.slurm import site_yaml
from grid.engine.slurm.site import Partition, Site
from grid.engine.slurm.site_yaml import load_site, read_site
from settings.resources import Resources

EXAMPLES = sorted(site_yaml.EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_loads_and_says_what_it_is(path: Path) -> None:
    made = load_site(path)
    assert made.name == path.stem
    assert load_site(path.stem) == made, "an example is found by its name"
    assert path.read_text().startswith("# ")
    made.check(Resources().merged(made.resources()))
    checked = subprocess.run(
        ["bash", "-n"], input="\n".join(made.preamble()), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_examples_are_of_every_kind() -> None:
    made = {path.stem: load_site(path) for path in EXAMPLES}
    assert {"laptop", "gpu_cluster", "cpu_cluster"} <= set(made)
    assert made["laptop"].preamble() == []
    used = {name for item in made.values() for name, value in vars(item).items() if value not in (None, (), {}, "")}
    assert used == set(vars(Site())) - {"exclude"}, "every key is shown in an example (exclude: in a comment)"


def test_where_a_profile_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_yaml, "ROOT", tmp_path)
    monkeypatch.delenv("NUQ_SITE", raising=False)
    assert load_site() == Site()
    (tmp_path / "site.yaml").write_text("account: here")
    assert load_site() == Site(name="site", account="here")
    monkeypatch.setenv("NUQ_SITE", "laptop")
    assert load_site().name == "laptop"
    assert load_site(tmp_path / "site.yaml").account == "here"
    with pytest.raises(FileNotFoundError, match=r"'nowhere': no such file; .* grid/sites: cpu_cluster, gpu_cluster"):
        load_site("nowhere")


def test_yaml_without_its_surprises() -> None:
    made = read_site(
        "defaults: {time: 12:00:00}\nmail: {user: a, on: [FAIL]}\nenvironment: {A: no, B: 007, C: 1e3, D: 0x1F, E: "
        "1_000}",
        "f",
    )
    assert made.defaults == {"time": "12:00:00"}
    assert made.mail is not None
    assert made.mail.on == ("FAIL",)
    assert made.environment == {"A": "no", "B": "007", "C": "1e3", "D": "0x1F", "E": "1_000"}
    assert read_site("", "f", "n") == Site(name="n")
    assert read_site("account:\nmodules: []", "f") == Site()
    assert read_site("defaults: {time: 90, mem: 4000}", "f").defaults == {"time": "90", "mem": "4000"}


CLUSTER = Site(
    name="c",
    partition="gpu",
    constraint="new",
    partitions={
        "gpu": Partition(max_time="24:00:00", gpus=4, cpus=32, mem="100G", nodes=2),
        "big": Partition(max_time="7-0", gpus=8, cpus=128, mem="2T", nodes=4, constraint="huge"),
        "free": Partition(),
        "cpu": Partition(gpus=0),
    },
)


@pytest.mark.parametrize(
    ("asked", "parallel", "sentence"),
    [
        (Resources(ranks=8), 1, r"gpus=8 per node: its nodes have 4 \(partitions that can: big, free\)"),
        (Resources(gpus=2), 3, r"gpus=6 per node for 3 runs at a time: its nodes have 4"),
        (Resources(ranks=3, nodes=3), 1, r"nodes=3: at most 2 per job"),
        (Resources(cpus=40), 1, r"40 cores per node \(cpus=40 a rank\): its nodes have 32"),
        (Resources(mem="60GB"), 2, r"mem=122880M per node for 2 runs at a time: its nodes have 100G"),
        (Resources(time="25:00:00"), 1, r"time=1-01:00:00: at most 1-00:00:00 \(partitions that can: big, free\)"),
    ],
)
def test_what_a_partition_cannot_give(asked: Resources, parallel: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"^partition 'gpu' of site c cannot give {sentence}") as caught:
        CLUSTER.check(asked, parallel)
    assert "\n" not in str(caught.value)
    CLUSTER.check(asked.merged({"partition": "free"}), parallel)
    CLUSTER.check(asked.merged({"partition": "gpu,big"}), parallel)
    Site().check(asked, parallel)


def test_check_knows_the_partitions_by_name() -> None:
    CLUSTER.check(Resources(ranks=4, time="24:00:00", mem="100G", cpus=8))
    with pytest.raises(
        ValueError, match=r"unknown partition of site c 'gpuu'; did you mean 'gpu'\? \(legal: big, cpu, free, gpu\)"
    ):
        CLUSTER.check(Resources(partition="gpuu"))
    with pytest.raises(ValueError, match=r"partition 'cpu' of site c cannot give gpus=1 per node: its nodes have none"):
        CLUSTER.check(Resources(partition="cpu"))
    only = Site(name="c", partition="gpu", partitions={"gpu": Partition(gpus=1)})
    with pytest.raises(ValueError, match=r"\(no partition of site c can\)"):
        only.check(Resources(gpus=2))
    Site(name="c").check(Resources(partition="anything"))


def test_what_a_profile_gives_by_default() -> None:
    made = load_site("gpu_cluster")
    assert made.resources() == {
        "cpus": 6,
        "mem": "32GB",
        "time": "12:00:00",
        "partition": "gpu",
        "account": "my_group",
        "qos": "normal",
    }
    assert made.resources("gpu_long")["constraint"] == "long"
    assert Site().resources() == {}


# --- the job's first lines ----------------------------------------------------------------------------------------


def _bash(site: Site, then: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    text = "\n".join(["set -u", *site.preamble(), then])
    return subprocess.run(
        ["bash", "-c", text],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


VALUES = [
    "plain",
    "two words",
    "it's",
    'a "quoted" one',
    "back\\slash",
    "a\\\\b",
    "new\nline",
    "!x *? ~ #",
    "$A/b",
    "${A}b",
    "\\$A",
    "${N:-or $A}",
]


@pytest.mark.parametrize("value", VALUES)
def test_values_arrive_whole_and_only_variables_are_expanded(value: str) -> None:
    expected = value.replace("${N:-or $A}", "or a b").replace("${A}", "a b")
    expected = expected.replace("\\$", "\0").replace("$A", "a b").replace("\0", "$")
    done = _bash(Site(environment={"V": value}), 'printf %s "$V"', A="a b")
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


@pytest.mark.parametrize(
    "value",
    [
        "$(x)",
        "`x`",
        "${x@P}",
        "${!x}",
        "$[1]",
        "${x:1}",
        "${x:-$(y)}",
        "${x:-`y`}",
        "$",
        "a$ b",
        "$'x'",
        "$1",
        "${a[0]}",
    ],
)
def test_nothing_is_executed(value: str) -> None:
    with pytest.raises(ValueError, match="no command is run"):
        quoted(value, "environment.A")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.sampled_from("$`(){}[]\\\"'!&;|<>*?~#@%:-=+ \nAx1"), max_size=12), max_size=20))
def test_whatever_is_accepted_runs_nothing(values: list[str]) -> None:
    accepted = {f"V{number}": value for number, value in enumerate(values) if _accepted(value)}
    show = "".join(f'printf "%s\\0" "${name}"; ' for name in accepted)
    done = _bash(Site(environment=accepted), show, A="a", x="b", Ax="c", xA="d", **dict.fromkeys(_names(accepted), "e"))
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.split("\0")[:-1]
    assert len(found) == len(accepted)
    for value, got in zip(accepted.values(), found, strict=True):
        if "$" not in value:
            assert got == value


def _accepted(value: str) -> bool:
    try:
        quoted(value, "environment.V")
    except ValueError:
        return False
    return True


def _names(values: dict[str, str]) -> set[str]:
    """Variables that the values read, so that none is missing."""
    return {name for value in values.values() for name in quoted(value, "v")[1]} - {"A", "x", "Ax", "xA"}


def test_a_variable_that_is_not_set_is_told() -> None:
    done = _bash(Site(name="my 'site", environment={"DATA": "$SCRATCH/data"}), "echo went on")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("site profile my 'site on ")
    assert "SCRATCH is not set here, and environment.DATA needs it ($SCRATCH/data); ${SCRATCH:-text}" in done.stderr


def test_a_variable_in_place_of_another_must_be_set_too() -> None:
    site = Site(name="s", scratch="${SLURM_TMPDIR:-/tmp/$WHO}")
    done = _bash(site, "echo went on")
    assert (done.returncode, done.stdout) == (2, "")
    assert "WHO is not set here, and scratch needs it (${SLURM_TMPDIR:-/tmp/$WHO})" in done.stderr
    assert _bash(site, SLURM_TMPDIR="/tmp").returncode == 0
    assert _bash(Site(environment={"A": "a:${A:-}"}), 'printf %s "$A"').stdout == "a:"


def test_modules_and_activation(tmp_path: Path) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text('module() { : "$UNSET"; echo "module $*"; [ "$2" != bad ]; }\n')
    site = Site(name="s", modules=("gcc/12", "cuda"), activate=(': "$UNSET"', "echo active"))
    done = _bash(site, "case $- in *u*) echo strict ;; esac", MODULESHOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "module load gcc/12\nmodule load cuda\nactive\nstrict\n")
    done = _bash(Site(name="s", modules=("bad",)), "echo went on", MODULESHOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "module load bad\n")
    assert "module load bad failed" in done.stderr
    done = _bash(Site(name="s", activate=("source /nowhere/activate",)), "echo went on")
    assert (done.returncode, done.stdout) == (2, "")
    assert "activation failed: source /nowhere/activate" in done.stderr


def _staging(tmp_path: Path) -> Site:
    source = tmp_path / "it's data"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a").write_text("a")
    (source / "link").symlink_to(source / "sub" / "a")
    site = read_site(
        "scratch: $LOCAL\nstage:\n- {from: $FROM, to: data/set 1}\n- {from: $FROM/sub/a, to: $LOCAL/one}", "f"
    )
    return site


def _node(tmp_path: Path) -> dict[str, str]:
    return {"LOCAL": str(tmp_path / "no de"), "FROM": str(tmp_path / "it's data")}


def _found(tmp_path: Path) -> list[str]:
    node = tmp_path / "no de"
    return sorted(str(path.relative_to(node)) for path in node.rglob("*") if path.is_file())


def test_data_is_staged_once(tmp_path: Path) -> None:
    site = _staging(tmp_path)
    done = _bash(site, 'echo "$NUQ_SCRATCH"', **_node(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/no de\n", "")
    assert _found(tmp_path) == ["data/set 1/link", "data/set 1/sub/a", "one"]
    assert not (tmp_path / "no de/data/set 1/link").is_symlink(), "the copy stands alone"
    (tmp_path / "no de/data/set 1/sub/a").write_text("kept")
    assert _bash(site, **_node(tmp_path)).returncode == 0
    assert (tmp_path / "no de/data/set 1/sub/a").read_text() == "kept", "a second script finds it there"


def test_two_scripts_on_a_node_copy_once(tmp_path: Path) -> None:
    site = _staging(tmp_path)
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "cp"
    slow.write_text(f'#!/bin/sh\necho copied >>"{tmp_path}/count"\nsleep 0.3\nexec /bin/cp "$@"\n')
    slow.chmod(0o755)
    text = "\n".join(["set -u", *site.preamble()])
    environment = {"PATH": f"{slow.parent}:{os.environ['PATH']}", **_node(tmp_path)}
    both = [subprocess.Popen(["bash", "-c", text], env=environment) for _ in range(3)]
    assert [process.wait(timeout=30) for process in both] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "copied\ncopied\n", "one for the folder, one for the file"
    assert _found(tmp_path) == ["data/set 1/link", "data/set 1/sub/a", "one"]


def test_what_a_killed_script_left_is_cleared_away(tmp_path: Path) -> None:
    site = _staging(tmp_path)
    ended = subprocess.run(["bash", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    node = os.uname().nodename
    folder = tmp_path / "no de" / "data"
    (folder / f"set 1.lock.{node}").mkdir(parents=True)
    (folder / f"set 1.lock.{node}" / "pid").write_text(ended)
    (folder / f"set 1.part.{node}.{ended}").mkdir()
    (folder / f"set 1.part.{node}.{ended}" / "half").write_text("x")
    done = _bash(site, **_node(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert _found(tmp_path) == ["data/set 1/link", "data/set 1/sub/a", "one"]


def test_a_signal_ends_the_wait_for_another_script(tmp_path: Path) -> None:
    lock = tmp_path / "no de" / "data" / f"set 1.lock.{os.uname().nodename}"
    lock.mkdir(parents=True)
    (lock / "pid").write_text(str(os.getpid()))
    text = "\n".join(["signalled=", "trap 'signalled=TERM' TERM", "echo here", *_staging(tmp_path).preamble()])
    environment = {"PATH": os.environ["PATH"], **_node(tmp_path)}
    waiting = subprocess.Popen(["bash", "-c", text], env=environment, stdout=subprocess.PIPE, text=True)
    with waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "here\n"
        waiting.terminate()
        assert waiting.wait(timeout=30) == 75, "checkpointed in a way: nothing has begun, please requeue"
    assert lock.is_dir(), "the lock is its holder's"


def test_staging_fails_with_a_sentence(tmp_path: Path) -> None:
    site = _staging(tmp_path)
    done = _bash(site, "echo went on", **{**_node(tmp_path), "FROM": "/nowhere"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "stage: there is no /nowhere" in done.stderr
    (tmp_path / "it's data" / "dangling").symlink_to("/nowhere")
    done = _bash(site, "echo went on", **_node(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "data/set 1 failed; is the disk full?" in done.stderr
    assert _found(tmp_path) == [], "nothing half is left"
    (tmp_path / "no de" / "data").rmdir()
    (tmp_path / "no de" / "data").write_text("")
    done = _bash(site, "echo went on", **_node(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be made" in done.stderr


def test_every_node_of_a_job_is_staged(tmp_path: Path) -> None:
    site = _staging(tmp_path)
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\necho "$1 $2 $3" >>"{tmp_path}/asked"\nshift 3\nexec "$@"\n')
    srun.chmod(0o755)
    done = _bash(site, **{**_node(tmp_path), "PATH": f"{srun.parent}:{os.environ['PATH']}", "SLURM_NNODES": "2"})
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "asked").read_text() == "--nodes=2 --ntasks=2 --ntasks-per-node=1\n" * 2
    assert _found(tmp_path) == ["data/set 1/link", "data/set 1/sub/a", "one"]
