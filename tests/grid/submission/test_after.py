"""after(): a run starts when those that it waits for are done, here and under SLURM; else it is blocked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import grid_run
from grid.engine.states.ledger import WRITTEN, Chunk, Submission
from grid.engine.states.runs import prepare, runs_of
from grid.engine.states.state import State, gated
from grid.engine.submission.plan import Planned, arrays
from grid.engine.sweep import Sweep, load, point
from tests.grid import bench, fake
from tests.grid.bench import Bench

# The stand-in behaves by seed; each stage has a method of its own, by which its runs are told apart.
STAGES = """from grid.engine.sweep import Sweep, after, needs, point, product, union

def tiny() -> Sweep:
    \"\"\"Three stages.\"\"\"
    first = point("first", method="qsgd", steps=7)
    weights = {{"model.weights_file": "{{after}}/checkpoint.pt"}}
    then = product(point("then", weights, method="topk", steps=7), after("first"))
    last = product(point("last", method="trn", steps=7), after("then"), needs(mem="2G"))
    return Sweep(union(first, then, last), seeds={seeds}, folder="tiny", resources={resources})
"""


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys, cpus=8) as made:
        monkeypatch.setenv("NUQ_LAG_S", "0")  # files of this machine are seen at once
        made.family.write_text(STAGES.format(seeds=[1, 2], resources=bench.SMALL))
        yield made


def rows(here: Bench) -> dict[tuple[str, int], tuple[str, str]]:
    """The word and the reason of each label and seed; the scheduler is asked now."""
    found = json.loads(here.good("status --now --json"))["runs"]
    return {(row["label"], row["seed"]): (row["state"], row["reason"]) for row in found}


def words(here: Bench) -> dict[str, list[str]]:
    """The words of each label's seeds."""
    found: dict[str, list[str]] = {}
    for (label, _), (word, _) in rows(here).items():
        found.setdefault(label, []).append(word)
    return found


def began(here: Bench) -> list[str]:
    """The labels with seeds of the runs that began, in the order in which they did."""
    found = []
    for path in (here.root / "runs" / "tiny").glob("*/status.json"):
        method, _, rest = path.parent.name.partition("-")
        label = {"qsgd": "first", "topk": "then", "trn": "last"}[method]
        found.append((json.loads(path.read_text())["start"], f"{label} {rest.rpartition('-s')[2][0]}"))
    return [name for _, name in sorted(found)]


# --- what a sweep says --------------------------------------------------------------------------------------------


def test_each_seed_waits_for_its_own(here: Bench) -> None:
    experiments = load(str(here.family), "tiny").experiments()
    first, then, last = (experiments[2 * number : 2 * number + 2] for number in range(3))
    assert [item.after for item in first] == [{}, {}]
    assert [item.after for item in then] == [{item.name: "first"} for item in first]
    assert [item.after for item in last] == [{item.name: "then"} for item in then]
    files = [item.config["model"]["weights_file"] for item in then]
    assert files == [f"runs/tiny/{item.name}/checkpoint.pt" for item in first]
    alone = Sweep([point("last", method="trn", steps=7)], seeds=2).experiments()
    assert [item.name for item in last] == [item.name for item in alone], "to wait changes no identity"
    shown = here.good("show")
    assert "then waits for first\nlast waits for then\n" in shown


# --- states -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "firsts", "wanted"),
    [
        ("new", ["done", "done"], "new"),
        ("new", ["done", "new"], "waiting"),
        ("new", ["preempted"], "waiting"),
        ("cancelled", ["unknown"], "waiting"),
        ("new", ["running", "failed"], "blocked"),
        ("lost", ["diverged"], "blocked"),
        ("new", ["blocked"], "blocked"),
        ("blocked", ["done"], "new"),
        ("blocked", ["running"], "waiting"),
        ("failed", ["done"], "failed"),
        ("running", ["failed"], "running"),
        ("done", ["failed"], "done"),
        ("unknown", ["failed"], "unknown"),
        ("pending", ["failed"], "pending"),
    ],
)
def test_words(word: str, firsts: list[str], wanted: str) -> None:
    found = gated(State(word), [(f"x{number}", State(first)) for number, first in enumerate(firsts)])
    assert found.word == wanted
    if wanted in ("waiting", "blocked", "pending"):
        unmet = [f"x{number} ({first})" for number, first in enumerate(firsts) if first != "done"]
        assert found.reason == f"waits for {', '.join(unmet)}"


def test_what_its_job_may_start_again_is_not_gated() -> None:
    held = State("preempted", held=True)
    assert gated(held, [("x", State("failed"))]) == held


# --- here ---------------------------------------------------------------------------------------------------------


def test_here_in_order(here: Bench) -> None:
    assert words(here) == {"first": ["new"] * 2, "then": ["waiting"] * 2, "last": ["waiting"] * 2}
    assert "why waiting: 2 waits for first (new); 2 waits for then (waiting)" in here.good("status")
    here.good("run --slots 4")
    order = began(here)
    assert all(order.index(f"first {seed}") < order.index(f"then {seed}") for seed in (1, 2))
    assert all(order.index(f"then {seed}") < order.index(f"last {seed}") for seed in (1, 2))
    assert words(here) == {label: ["done"] * 2 for label in ("first", "then", "last")}


@pytest.mark.slow
def test_here_what_has_failed_blocks(here: Bench) -> None:
    here.behave({2: "raise"})
    said = here("run --slots 4")
    assert said.code == 1
    assert "it waits for first (failed)" in said.out and "it waits for then (new)" in said.out
    assert "3 done, 1 failed, 2 not started" in said.out
    assert rows(here)["then", 2] == ("blocked", "waits for first (failed)")
    assert rows(here)["last", 2] == ("blocked", "waits for then (blocked)")
    assert here.good("failures").count("1 run: code: ") == 1, "what is blocked has not failed"
    said = here("run last")
    assert (said.code, said.out.count("not started: ")) == (1, 2)
    assert len(began(here)) == 4
    here.behave({})
    here.good("run --slots 4")
    assert len(began(here)) == 6


@pytest.mark.slow
def test_run_sh_looks_for_itself(here: Bench) -> None:
    made = runs_of(load(str(here.family), "tiny").experiments(), here.root)
    prepare(made)
    done = fake.bash(made[2].folder.script)
    assert (done.returncode, made[2].folder.status.exists()) == (5, False)
    assert (
        made[2].folder.log.read_text()
        == f"run.sh: not started, for it waits for {made[0].run_dir}, which is not done\n"
    )
    assert fake.bash(made[0].folder.script).returncode == 0
    assert fake.bash(made[2].folder.script).returncode == 0
    assert made[2].folder.state().word == "done"
    script = made[0].folder.script.read_text()
    assert "firsts" not in script
    # files of another node come late: a job looks again
    made[0].folder.status.rename(here.root / "late")
    made[2].folder.status.unlink()
    environ = fake.environment(SLURM_JOB_ID="7", NUQ_LAG_S="20.5")
    with subprocess.Popen(["bash", str(made[2].folder.script)], env=environ, cwd="/") as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.3)
        (here.root / "late").rename(made[0].folder.status)
        assert waiting.wait(20) == 0
    made[0].folder.status.unlink()
    made[2].folder.status.unlink()
    with subprocess.Popen(["bash", str(made[2].folder.script)], env=environ, cwd="/") as waiting:
        fake.until(lambda: b"sleep" in children(waiting.pid), "it does not wait")
        waiting.terminate()
        assert waiting.wait(20) == 75, "a signal while it waits asks for another turn"


def children(pid: int) -> bytes:
    """The command lines of a process's children."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return b" ".join(Path(f"/proc/{child}/cmdline").read_bytes() for child in found)


# --- under SLURM --------------------------------------------------------------------------------------------------


def test_slurm_in_order(here: Bench) -> None:
    shown = here.good("plan")
    assert "waiting  4     4" in shown
    assert [chunk.after for chunk in plan_chunks(here)] == [[], [["afterany", "s0c0"]], [["afterany", "s1c0"]]]
    here.slurm.hold_all()
    here.good("submit")
    assert rows(here)["then", 1] == ("pending", "waits for first (pending)")
    here.slurm.release_all()
    here.wait()
    order = began(here)
    assert all(order.index(f"first {seed}") < order.index(f"then {seed}") for seed in (1, 2))
    assert all(order.index(f"then {seed}") < order.index(f"last {seed}") for seed in (1, 2))
    assert words(here) == {label: ["done"] * 2 for label in ("first", "then", "last")}
    assert "nothing to submit" in here.good("plan")


def plan_chunks(here: Bench) -> list[Chunk]:
    """The arrays of a plan."""
    return [Chunk(**chunk) for chunk in json.loads(here("plan --json").out)["arrays"]]


def test_slurm_what_has_failed_blocks_its_own_seed(here: Bench) -> None:
    here.behave({2: "raise"})
    here.good("plan")
    here.good("submit")
    here.wait()
    here.age()
    assert {name: word for name, (word, _) in rows(here).items()} == {
        **{(label, 1): "done" for label in ("first", "then", "last")},
        ("first", 2): "failed",
        **{(label, 2): "blocked" for label in ("then", "last")},
    }
    assert "why blocked: waits for first (failed); waits for then (blocked)" in here.good("status").replace("1 ", "")
    shown = here.good("plan")
    assert "nothing to submit; 1 failed" in shown
    assert "1 code: left alone" in here.good("retry --yes")
    here.behave({})
    here.good("retry --yes --code")
    assert {rows(here)[label, 2][0] for label in ("then", "last")} <= {"waiting", "new"}
    here.wait()
    assert "waiting" in here.good("plan")
    here.good("submit")
    here.wait()
    assert words(here) == {label: ["done"] * 2 for label in ("first", "then", "last")}
    assert len(began(here)) == 6


def test_slurm_what_is_in_the_queue_is_waited_for(here: Bench) -> None:
    """A plan made while the first runs are queued takes nothing that waits for them."""
    whole = here.family.read_text()
    here.family.write_text(whole.replace("union(first, then, last)", "union(first)" + " " * 14))
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    here.family.write_text(whole + "\n")
    assert "nothing to submit" in here.good("plan")
    here.slurm.release_all()
    here.wait()
    here.good("plan")
    here.good("submit")
    here.wait()
    assert words(here) == {label: ["done"] * 2 for label in ("first", "then", "last")}


def test_what_a_queued_run_waits_for_is_not_pruned(here: Bench) -> None:
    here.family.write_text(STAGES.format(seeds=[1], resources=bench.SMALL))
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    (first,) = (here.root / "runs/tiny").glob("qsgd-*")
    assert fake.bash(first / "run.sh").returncode == 0, "by hand"
    here.family.write_text(STAGES.format(seeds=[1], resources=bench.SMALL).replace("steps=7", "steps=9"))
    found = {Path(row["run"]).name[:4]: row for row in json.loads(here.good("prune --json"))["runs"]}
    assert (found["qsgd"]["state"], found["qsgd"]["left_alone"]) == ("done", "a queued run waits for it")
    assert "3 left alone" in here.good("prune --delete --yes") and first.is_dir()


def test_the_original_line_refuses(here: Bench) -> None:
    code = grid_run.main(["--grid", str(here.family), "--run_name", "tiny", "--cluster_args", "6"], here.root)
    assert code == 2
    assert "point 'then': waits for other runs, and what this command line writes cannot: use `plan` and `submit`" in (
        here.capture.readouterr().err
    )
    assert not (here.root / "jobs").exists()


def planned(name: str, *firsts: str, mem: str = "1G") -> Planned:
    return Planned(f"runs/x/{name}", name, "new", {"mem": mem}, [f"runs/x/{first}" for first in firsts])


def test_arrays_of_stages() -> None:
    items = [planned("a"), planned("b", "a"), planned("c", mem="2G"), planned("d", "c"), planned("e", "b", "c")]
    chunks = arrays(items)
    assert [(chunk.name, chunk.runs) for chunk in chunks] == [
        ("s0c0", ["runs/x/a"]),
        ("s1c0", ["runs/x/c"]),
        ("s2c0", ["runs/x/b", "runs/x/d"]),
        ("s3c0", ["runs/x/e"]),
    ]
    ends = [[name for _, name in chunk.after] for chunk in chunks]
    assert ends == [[], [], ["s0c0", "s1c0"], ["s1c0", "s2c0"]]
    capped = arrays(items, cap=1)
    names = [chunk.name for chunk in capped]
    assert all(names.index(first) < names.index(chunk.name) for chunk in capped for _, first in chunk.after)


def test_a_stage_in_two_waves() -> None:
    chunks = arrays([planned("a"), planned("b"), planned("c", "a")])
    item = Submission("x", "1", "x.x", {"digest": ""}, 1, chunks).split("s0c0", 1)
    assert [(chunk.name, [name for _, name in chunk.after]) for chunk in item.chunks] == [
        ("s0c0w0", []),
        ("s0c0", []),
        ("s1c0", ["s0c0", "s0c0w0"]),
    ]
    assert {chunk.state for chunk in item.chunks} == {WRITTEN}


def test_slurm_waits_for_the_last_life(here: Bench) -> None:
    """A preempted run is queued again, and what waits for it goes on waiting; scripts hold several runs."""
    here.behave({1: ["wait", 0], 2: 0})
    here.good("plan --per_script 2")
    here.good("submit")
    for job, label in enumerate(("first", "then", "last"), start=1):
        here.slurm.until(lambda: began(here)[-1:] == [f"{label} 1"], f"{label} has not begun")  # noqa: B023
        here.slurm.preempt(f"{job}_0")
    here.wait()
    order = began(here)
    assert order.index("first 1") < order.index("then 1") < order.index("last 1")
    assert here.starts() == {1: 6, 2: 3}
    assert words(here) == {label: ["done"] * 2 for label in ("first", "then", "last")}


def test_slurm_canaries_of_stages(here: Bench) -> None:
    """The canary of a stage finds what it waits for failed: the others of its stage are planned again."""
    here.behave({1: "raise"})
    here.good("plan --canary")
    here.good("submit")
    here.wait()
    here.age()
    assert words(here)["first"] == ["failed", "cancelled"]
    assert rows(here)["then", 1] == ("blocked", "waits for first (failed)")
    assert rows(here)["then", 2] == ("waiting", "waits for first (cancelled)")
    here.good("plan")
    here.good("submit")
    here.wait()
    assert words(here) == {"first": ["failed", "done"], "then": ["blocked", "done"], "last": ["blocked", "done"]}


def test_slurm_stages_in_waves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What does not fit the queue is handed over later, with runs that an earlier submission found blocked."""
    with bench.bench(tmp_path, capsys, max_submit=3) as here, pytest.MonkeyPatch.context() as at_once:
        at_once.setenv("NUQ_LAG_S", "0")
        here.family.write_text(STAGES.format(seeds=[1, 2], resources=bench.SMALL))
        for _ in range(2):
            here.behave({2: "raise"})
            here.good("plan")
            while (said := here("submit --yes")).code == 75:
                here.wait()
            assert said.code == 0, said
            here.wait()
            here.age()
            assert words(here) == {
                "first": ["done", "failed"],
                "then": ["done", "blocked"],
                "last": ["done", "blocked"],
            }
        here.behave({})
        here.good("retry --yes --code")
        here.wait()
        here.good("plan")
        while here("submit --yes").code == 75:
            here.wait()
        here.wait()
        assert words(here) == {label: ["done"] * 2 for label in ("first", "then", "last")}
