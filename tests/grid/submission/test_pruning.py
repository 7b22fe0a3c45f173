"""prune: what left a sweep is found, told with its reason, and put away; what may be alive is not."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grid_run
from analysis.logs.load import load, sweeps
from grid.engine.states import folder_lock, runs
from grid.engine.states.chunk_submission import only_one
from grid.engine.submission import planning, pruning
from grid.engine.sweeps import families
from tests.grid import bench, fake
from tests.grid.bench import Bench


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys) as made:
        yield made


def folders(here: Bench, below: str = "runs/tiny") -> dict[int, Path]:
    """The run folders by seed, of a sweep of one point."""
    found = [path.parent for path in (here.root / below).glob("[!.]*/config.yaml")]
    return {int(path.name.rpartition("-s")[2].partition("-")[0]): path for path in found}


def left(here: Bench) -> dict[str, tuple[str, str, str]]:
    """The name of each folder that left the sweep with seed 1: its state, why it left, and why it is left alone."""
    document = json.loads(here.good("prune --seeds 1 --json"))
    assert document["folder"] == "runs/tiny"
    return {Path(row["run"]).name: (row["state"], row["why"], row["left_alone"]) for row in document["runs"]}


def by_seed(here: Bench) -> dict[int, tuple[str, str, str]]:
    """The same by seed."""
    return {int(name.rpartition("-s")[2].partition("-")[0]): row for name, row in left(here).items()}


def test_seeds_that_left_are_archived(here: Bench) -> None:
    here("run --slots 2")
    assert here.good("prune") == "every run folder of runs/tiny is part of the sweep\n"
    here.sweep((1,))
    before = folders(here)
    files = {seed: sorted(path.name for path in folder.iterdir()) for seed, folder in before.items()}
    shown = here.good("prune --seeds 1")
    assert "seed 2 left the sweep" in shown and "seed 3 left the sweep" in shown and "seed 1" not in shown
    assert "2 run folders no longer part of the sweep, " in shown
    assert folders(here) == before, "listing moves nothing"
    here.refused("prune --seeds 1 --archive", "Move 2 run folders, ", "--yes says yes")
    assert folders(here) == before
    assert "moved to runs/.archive/tiny: 2 run folders" in here.good("prune --seeds 1 --archive --yes")
    assert set(folders(here)) == {1}
    archived = folders(here, "runs/.archive/tiny")
    assert {seed: sorted(path.name for path in folder.iterdir()) for seed, folder in archived.items()} == {
        seed: files[seed] for seed in (2, 3)
    }
    # nobody looks there, and analysis does where it is told to
    assert sweeps(here.root / "runs") == ["tiny"]
    assert sweeps(here.root / "runs" / ".archive") == ["tiny"]
    assert "beside them" not in here.good("status")
    assert here.good("prune --seeds 1 --archive --yes") == "every run folder of runs/tiny is part of the sweep\n"
    # what comes back is archived beside the first: nothing is overwritten, and nothing is counted twice
    shutil.copytree(archived[2], before[2])
    assert "moved to runs/.archive/tiny+2: 1 run folder" in here.good("prune --seeds 1 --archive --yes")
    shutil.copytree(archived[2], before[2])
    assert "--archive moves them to runs/.archive/tiny+3, " in here.good("prune --seeds 1")
    assert "moved to runs/.archive/tiny+3: 1 run folder" in here.good("prune --seeds 1 --archive --yes")
    assert sweeps(here.root / "runs" / ".archive") == ["tiny", "tiny+2", "tiny+3"]
    assert folders(here, "runs/.archive/tiny") == archived
    assert list(load(here.root / "runs" / ".archive", "tiny+2").settings["seed"]) == [2]


def test_runs_that_left_are_deleted_whole(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here("run --slots 2")
    here.sweep((1,))
    with monkeypatch.context() as interrupted:

        def rmtree(path: Path) -> None:
            (path / "status.json").unlink()
            raise KeyboardInterrupt

        interrupted.setattr(pruning.shutil, "rmtree", rmtree)
        assert here("prune --seeds 1 --delete --yes").code == 130
    assert len(folders(here)) == 2, "the half that is left is taken for nobody's run"
    assert "1 run folder no longer part of the sweep" in here.good("prune --seeds 1")
    halves = list((here.root / "runs/tiny").glob(".*.deleted"))
    rest = "the rest of 1 run folder whose deletion was interrupted"
    here.refused("prune --seeds 1 --delete", "Delete 1 run folder, ", f" and {rest}? Nobody")
    here.refused("prune --delete", f"Delete {rest}? Nobody")
    assert "deleted: " not in here.good("prune --seeds 1 --archive --yes")
    assert len(halves) == 1 and halves[0].is_dir(), "nobody has agreed yet"
    shutil.move(next((here.root / "runs/.archive/tiny").iterdir()), here.root / "runs/tiny")
    said = here.good("prune --seeds 1 --delete --yes")
    assert said.endswith(f"deleted: {rest}\ndeleted: 1 run folder\n")
    assert {path.name for path in (here.root / "runs" / "tiny").iterdir()} == {".sweeps", folders(here)[1].name}
    halves[0].mkdir()  # and nothing else has left
    assert here.good("prune --delete --yes").endswith(f"of the sweep\ndeleted: {rest}\n")
    assert not halves[0].exists()


def test_another_file_system(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here("run --slots 2")
    here.sweep((1,))

    def rename(path: Path, place: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(path), None, str(place))

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(pruning.os, "rename", rename)
        here.refused(
            "prune --seeds 1 --archive --yes", "lies on another file system than", "make that a link to a folder beside"
        )
    assert len(folders(here)) == 3


def test_each_reason(here: Bench) -> None:
    here.sweep((1,), bits=(2, 3), shared={"steps": 7, "batch_size": 16})
    here("run --slots 2")
    here.sweep((1,), bits=(3,), shared={"steps": 7})
    found = {name[:7]: row for name, row in left(here).items()}
    assert found["qsgd-2b"] == ("done", "its settings left the sweep", "")
    state, why, alone = found["qsgd-3b"]
    assert (state, alone) == ("done", "") and why.startswith("defaults moved: batch_size from 16 to ")
    (folder,) = (here.root / "runs" / "tiny").glob("qsgd-2b*")
    (folder / "config.yaml").write_text("{")
    (here.root / "runs" / "tiny" / "mine").mkdir()
    (here.root / "runs" / "tiny" / "mine" / "config.yaml").write_text("seed: 1\n")
    found = left(here)
    assert found[folder.name] == ("done", "its config.yaml cannot be read", "")
    assert found["mine"][2] == "its name is not one that a sweep gives"


def test_what_may_be_alive_is_left_alone(here: Bench) -> None:
    here.sweep((1, 2, 3, 4))
    here.behave({2: "go", 4: 1})
    here.good("plan --per_script 2 --max_running 1")
    here.good("submit")  # seeds 1 and 3 are a script, 2 and 4 the next
    here.until_started({1: 1, 2: 1, 3: 1})
    here.sweep((1,))
    found = by_seed(here)
    assert found[2][::2] == ("running", "it may be alive (running)")
    assert found[3][::2] == ("done", "")
    assert found[4][::2] == ("pending", "it may be alive (its turn comes in the job that runs on n1)")
    assert "moved to runs/.archive/tiny: 1 run folder" in here.good("prune --seeds 1 --archive --yes")
    (folders(here)[2] / "go").touch()
    here.wait()
    here.age()
    with_lock = os.open(folders(here)[4], os.O_RDONLY)
    fcntl.flock(with_lock, fcntl.LOCK_EX)
    found = by_seed(here)
    assert found[4][::2] == ("failed", "another process has it")
    os.close(with_lock)
    assert "deleted: 2 run folders" in here.good("prune --seeds 1 --delete --yes")
    assert set(folders(here)) == {1}


def test_a_run_that_is_being_started_is_left_alone(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start of run.sh, also before main.py has the folder, and where the runner itself is killed."""
    here.sweep((1, 2))
    here.behave({2: [1, 0]})
    assert here("run --slots 1").code == 1
    slow, go = here.root.with_name("python"), here.root.with_name("go")
    slow.write_text(f'#!/bin/sh\ntouch begun\nuntil [ -e "{go}" ]; do sleep 0.05; done\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("NUQ_PYTHON", str(slow))
    with here.apart("run --slots 1") as runner:
        fake.until((here.root / "begun").exists, "run.sh did not come to main.py", 30)
        runner.kill()
    here.sweep((1,))
    assert by_seed(here) == {2: ("failed", "seed 2 left the sweep", "another process has it")}
    assert "1 left alone" in here.good("prune --seeds 1 --delete --yes")
    go.touch()
    fake.until(lambda: by_seed(here)[2] == ("done", "seed 2 left the sweep", ""), "the run did not end")
    assert here.starts() == {1: 1, 2: 2}


def test_what_run_has_yet_to_start_stays(here: Bench) -> None:
    here.sweep((1, 2))
    here.behave({1: "go", 2: [1, 0]})
    with here.apart("run --slots 1") as runner:
        try:
            fake.until(lambda: here.starts().get(1) == 1, "the first run did not start", 30)
            here.sweep((3,))
            for way in ("--archive", "--delete"):
                here.refused(
                    f"prune --seeds 3, {way} --yes", "run is at work there, and starts what it has not started"
                )
            assert "1 run folder no longer part" in here.good("prune --seeds 3,")
        finally:
            (folders(here)[1] / "go").touch()
        runner.communicate(timeout=30)
    assert here.starts() == {1: 1, 2: 1}
    with folder_lock.unshared(here.root / "runs/tiny"):
        here.refused("run --seeds 3,", "runs/tiny: prune is at work there: wait for it")
    assert "deleted: 2 run folders" in here.good("prune --seeds 3, --delete --yes")


def test_two_sweeps_that_begin_at_once_are_both_noted(here: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    text = here.family.read_text()
    here.family.write_text(text + "\n" + text[text.index("def tiny") :].replace("def tiny", "def other"))
    of_both = [families.load(str(here.family), name) for name in ("tiny", "other")]
    looks = runs.left_over

    def slowly(*given: Any) -> list[Path]:
        time.sleep(0.2)
        return looks(*given)

    monkeypatch.setattr(runs, "left_over", slowly)
    threads = [threading.Thread(target=runs.sign, args=(sweep, here.root)) for sweep in of_both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (here.root / "runs/tiny/.sweeps").read_text().splitlines()
    assert sorted(lines) == sorted(runs.signature(sweep, here.root) for sweep in of_both)


def test_nothing_is_touched_while_the_queue_is_not_known(here: Bench) -> None:
    here.slurm.hold_all()
    here.good("plan")
    here.good("submit")
    here.sweep((1,))
    here.slurm.controller_down()
    shown = here.good("prune --seeds 1 --archive --yes")
    assert "the queue could not be looked at" in shown and shown.count("(it may be alive (") == 2
    assert len(folders(here)) == 3
    here.slurm.controller_up()


def test_what_a_plan_still_hands_over_is_left_alone(here: Bench) -> None:
    here.slurm.refuse_sbatch(after=0)
    here.good("plan")
    assert here("submit").code == 75
    here.sweep((1,))
    here.wait()
    assert by_seed(here)[3] == ("new", "seed 3 left the sweep", "the last plan still hands it over: submit")
    assert "deleted: 1 run folder" in here.good("prune --seeds 1 --delete --yes")
    here.good("plan")  # another plan takes its place
    assert by_seed(here) == {3: ("new", "seed 3 left the sweep", "")}


def test_runs_of_other_seeds_are_of_the_sweep(here: Bench) -> None:
    here.sweep((1,), bits=(2, 3))
    here("run --slots 2 --seeds 3")
    also = "4 runs of seeds 2, 3 are of this sweep, too: --seeds 3 shows all"
    assert also in here.good("status")
    assert also in here.good("plan")
    said = f"{also}; prune --seeds 1 lists them as left\nevery run folder of runs/tiny is part of the sweep\n"
    assert here.good("prune") == here.good("prune --archive --yes") == said
    assert "beside them" not in here.good("status --seeds 3")
    here.sweep((7,), bits=(3,))
    shown = here.good("status")
    assert "3 runs of seeds 1, 2, 3 are of this sweep, too: --seeds 1,2,3,7 shows all" in shown
    assert "3 folders of other settings beside them" in shown
    assert here.good("prune").count("its settings left the sweep") == 3
    odd = next((here.root / "runs/tiny").glob("qsgd-3b*"))
    odd.rename(odd.with_name(f"x-s{'9' * 30}-0123456789abcd"))  # no seed
    assert "it was named by older code" in here.good("prune")
    assert "runs of seeds 1, 2" not in here.good("prune --seeds 7,")


def test_a_part_of_the_sweep_and_a_plan_of_more_seeds(here: Bench) -> None:
    """What is not asked for now, and what a plan has beside the sweep, is part of it."""
    here("run --slots 2 --seeds 4")
    assert set(by_seed(here)) == {4}
    assert here.good("prune --seeds 1 --delete --yes").count("seed 4 left the sweep") == 1
    here("run --slots 2 --seeds 4")
    here.good("plan --seeds 4")
    assert left(here) == {}
    here.good("plan --seeds 1,")
    assert set(by_seed(here)) == {4}
    assert "every run folder" in here.good("prune --seeds 4")


def test_other_sweeps_of_the_folder(here: Bench) -> None:
    other = here.family.with_name("other.py")
    other.write_text(here.family.read_text().replace("[1, 2, 3]", "[5]"))
    here("run --slots 2")
    mine = here.family
    object.__setattr__(here, "family", other)
    here("run")
    object.__setattr__(here, "family", mine)
    assert left(here) == {}
    other.write_text("raise SystemExit\n")
    line = f"{other}: tiny"
    here.refused("prune", f"runs/tiny is also the folder of {line}, which cannot be read", "runs/tiny/.sweeps")
    other.unlink()
    here.refused("prune", f"{line}, which cannot be read (grid {other}: no such file", "runs/tiny/.sweeps")
    signed = here.root / "runs" / "tiny" / ".sweeps"
    signed.write_text(signed.read_text().replace(f"{line}\n", ""))
    assert set(by_seed(here)) == {5}


def test_nothing_is_known_to_have_left_where_the_sweeps_of_the_folder_are_not(here: Bench) -> None:
    """The list of a folder's sweeps is missing, odd, begun late, or has nothing of this one."""
    here("run --slots 2")
    here.sweep((1,))
    signed, own = here.root / "runs/tiny/.sweeps", f"{here.family}: tiny"
    write = f"write a line there for each sweep that has runs in the folder, this one's being {own!r}"
    unknown = "so which runs have left is not known: "

    def refused(what: str, end: str) -> None:
        before = signed.read_bytes() if signed.is_file() else None
        for words in ("--archive --yes", "--delete --yes", "--json"):
            said = here.refused(
                f"prune --seeds 1 {words}", f"runs/tiny/.sweeps, which lists the sweeps of the folder, {what}"
            )
            assert said.endswith(f"{end}\n")
        assert len(folders(here)) == 3 and (signed.read_bytes() if signed.is_file() else None) == before

    signed.rename(signed.with_name("aside"))
    refused("is missing", f"is missing, {unknown}{write}")
    signed.write_text("other.py: tiny\n")
    (here.root / "other.py").write_text(here.family.read_text().replace("[3]", "[2]"))
    refused(f"does not name this sweep ({own})", write)
    signed.write_bytes(f"{own}\n\xff\n".encode("latin-1"))
    refused("cannot be read (is no UTF-8", "a line for each of them (file: function)")
    signed.unlink()
    signed.mkdir()
    for command in ("run", "plan"):  # neither may write it anew
        here.refused(command, "cannot be read (Is a directory)")
    refused("cannot be read (Is a directory)", "a line for each of them (file: function)")
    signed.rmdir()
    here.good("run")  # signs, beside runs which it does not have; those of other seeds it does
    assert signed.read_text() == f"{own}\n"
    signed.unlink()
    odd = folders(here)[3]
    odd.rename(odd.with_name(odd.name[:-14] + "0123456789abcd"))
    here.good("run")
    older = "(runs that were here before this list)"
    assert signed.read_text() == f"{older}\n{own}\n"
    refused(f"has the line {older!r}", f"{write}, and take that line out")
    assert "1 folder of other settings beside them (see prune)" in here.good("status")
    signed.write_text(f"{own}\n")
    assert "deleted: 2 run folders" in here.good("prune --seeds 1 --delete --yes")


def test_runs_of_set_have_a_hint(here: Bench) -> None:
    here("run --slots 2 --set steps=8 --seeds 1")
    hint = "runs that were started with --set are part of the sweep where prune has the same --set\n"
    assert hint in here.good("prune")
    assert here.good("prune --set steps=8") == "every run folder of runs/tiny is part of the sweep\n"
    assert hint not in here.good("prune --set steps=9")


def test_seeds_are_of_this_sweep_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of another sweep of the folder are part of it with any seed; of a file within the checkout, too."""
    monkeypatch.setattr(planning, "slurm_is_here", lambda: False)
    root = fake.checkout(tmp_path / "co")
    file = root / "shared.py"
    function = "def {}() -> Sweep:\n    return Sweep([point(method='qsgd', steps={})], folder='both')\n"
    head = "from grid.engine.sweep import Sweep, point\n"
    file.write_text(head + function.format("a", 7) + function.format("b", 8))
    of_a, of_b = (runs.named(str(file), name, "2") for name in "ab")
    for sweep, experiments in (of_a, of_b):
        runs.prepare(runs.runs_of(experiments, root))
        runs.sign(sweep, root)

    def prune(*words: str) -> tuple[list[tuple[str, str]], str]:
        code = grid_run.main(["prune", str(file), "b", *words, "--json"], root)
        said = capsys.readouterr()
        found = json.loads(said.out)["runs"] if code == 0 else []
        return [(Path(row["run"]).name, row["why"]) for row in found], said.err

    assert prune() == ([], "")
    assert prune("--seeds", "1") == ([(of_b[1][1].name, "seed 2 left the sweep")], "")
    assert grid_run.main(["status", str(file), "b"], root) == 0
    assert grid_run.main(["plan", str(file), "b"], root) == 0
    said = capsys.readouterr().out
    assert "beside them" not in said and "no longer in the sweep" not in said
    file.write_text(head + function.format("b", 8))
    found, error = prune()
    assert found == [] and "runs/both is also the folder of shared.py: a, which cannot be read" in error


def test_two_terminals_and_bad_words(here: Bench) -> None:
    here("run --slots 2")
    here.sweep((1,))
    here.refused("prune --json --delete", "--json --delete: a document is of the list: give one")
    assert here("prune --archive --delete").code == 2
    with only_one(here.root, "tiny"):
        here.refused("prune --seeds 1 --delete --yes", "right now: wait for it")
        assert "2 run folders" in here.good("prune --seeds 1")
    assert len(folders(here)) == 3
