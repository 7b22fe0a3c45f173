"""An upgrade in flight: half of a sweep of commit 3902daa2 has run, or waits, when the checkout moves to today's code.

``tests/compat/3902daa2/queue.zip`` is a checkout as that commit's ``plan`` and ``submit`` left it.  The site's
``max_submit: 8`` kept two of its ten scripts back, and every run has two ranks.  Its code is a stand-in (``MAIN`` in
``checkout.py``).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compat import WRITTEN, trainings
from tests.compat.test_runs import ALQ, TOPK, assert_same_bits, state, unpacked
from tests.slurm.checkout import MAIN, SITE, Checkout, queued, whole
from tests.slurm.cluster import Slurm

SEEDS = range(1, 11)
# It notes how many ranks each start of a run gets, and starts one.
PYTHON = f"""#!/bin/bash
ranks=1
if [ "$1 $2" = "-m torch.distributed.run" ]; then
  while [ "$1" != main.py ]; do
    case "$1" in --nproc-per-node=*) ranks="${{1#*=}}" ;; esac
    shift
  done
fi
for word; do
  case "$word" in seed=*) echo "${{word#*=}} $ranks" >>runs/ranks ;; esac
done
exec {sys.executable} -S -E "$@"
"""


@pytest.fixture
def before(quiet: Slurm, tmp_path: Path) -> Checkout:
    """The checkout of then, whose arrays are in the queue, and the environment of then."""
    root = unpacked("queue.zip", tmp_path) / "checkout"
    (snapshot,) = root.glob("jobs/code/*")
    (snapshot / "runs").symlink_to(root / "runs")  # archives hold no links
    (root / "python").write_text(PYTHON)
    (root / "python").chmod(0o755)
    environ = {**quiet.environ, "PYTHON": str(root / "python"), "OMP_NUM_THREADS": "1"}
    made = Checkout(root, quiet, "some", environ)
    waiting = {3: "wait", 4: "wait ok", 5: "wait ok", 6: "wait ok"}
    made.behave({2: "fail ok", **waiting})
    (path,) = root.glob("jobs/sweeps/some/*/submission.json")
    record = json.loads(path.read_text())
    for chunk in record["chunks"]:
        if chunk["job_id"]:
            file = path.parent / f"{chunk['name']}.sbatch"
            (file.parent / "logs").mkdir(exist_ok=True)
            chunk["job_id"] = made.shell("sbatch", "--parsable", str(file)).out.strip()
    path.write_text(json.dumps(record))
    made.wait_for_starts(dict.fromkeys(range(1, 7), 1))
    quiet.wait_until(lambda: {made.told(seed).get("state") for seed in (1, 2)} == {"done", "failed"})
    return made


@pytest.fixture
def checkout(before: Checkout) -> Iterator[Checkout]:
    """The same checkout, pulled to today's code; the limit that kept scripts back is gone."""
    root = before.root
    (root / "grid_run.py").symlink_to(Path(__file__).parents[2] / "grid_run.py")
    (root / "main.py").write_text(MAIN + "# of today\n")
    (root / "site.yaml").write_text(SITE.replace("cpus: 1", "cpus: 2"))
    kept = {name: value for name, value in before.environ.items() if name != "PYTHON"}
    today = {"NUQ_SITE": str(root / "site.yaml"), "NUQ_PYTHON": str(root / "python")}
    yield replace(before, environ={**kept, **today})
    before.slurm.run("scancel", "--user=root", "--full", check=False)


def test_a_half_run_sweep_goes_on(slurm: Slurm, checkout: Checkout) -> None:
    first, second = checkout.ids()
    (record,) = checkout.records()
    now = dict(zip(SEEDS, ["done", "failed", *["running"] * 4, *["pending"] * 2, *["new"] * 2], strict=True))
    assert checkout.states() == now
    names = {seed: Path(row["run"]).name for seed, row in checkout.rows().items()}
    told = checkout.status()
    assert "1 done, 1 failed" in told and "4 running" in told and "2 pending" in told, told

    # What was kept back goes on with the code of then.  The scripts of three runs are written again meanwhile.
    assert "going on with" in checkout.run("submit")
    written = checkout.call("--grid", "sweeps.py", "--run_name", "some", "--seeds", "5,6,7")
    assert written.code == 0, written.out
    assert "cancelled 1 script" in checkout.run("cancel", names[8], "--yes")
    assert "cancelled 1 script" in checkout.run("cancel", names[4], "--yes")
    slurm.wait_until(lambda: checkout.told(4)["state"] == "preempted")
    slurm.run("scontrol", "requeue", f"{first}_4")  # 5, by an admin
    # 6, as at its time limit; scancel may fail because the job takes the signal and ends at once
    slurm.run("scancel", "--signal=USR2", "--batch", f"{second}_0", check=False)
    third = checkout.ids()[-1]
    slurm.wait_until(lambda: {checkout.told(seed).get("state") for seed in (5, 6, 7, 9, 10)} == {"done"})
    now |= {4: "cancelled", 8: "cancelled", **dict.fromkeys((5, 6, 7, 9, 10), "done")}
    assert checkout.states() == now
    assert checkout.starts() == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 1, 9: 1, 10: 1}

    # What failed and what was cancelled goes on with today's code.
    for words in (("retry", "--code", "--yes"), ("plan",), ("submit",)):
        done = checkout.call(words[0], "sweeps.py", "some", *words[1:], hours_later=0.1)
        assert done.code == 0, done.out
    checkout.go()
    checkout.wait_until_over()
    assert checkout.states() == dict.fromkeys(SEEDS, "done")
    assert checkout.starts() == {**dict.fromkeys(SEEDS, 1), **dict.fromkeys((2, 4, 5, 6), 2)}
    of_today = {checkout.told(seed)["code"] for seed in (2, 4, 8)}
    assert len(of_today) == 1
    assert {checkout.told(seed)["code"] for seed in SEEDS} - of_today == {Path(record["code"]["path"]).name}
    assert checkout.told(4)["attempt"] == 2
    ranks = Counter((checkout.root / "runs/ranks").read_text().split("\n")[:-1])
    assert ranks == {f"{seed} 2": count for seed, count in checkout.starts().items()}
    ended = queued(slurm, first, second, third)
    ended.pop(f"{second}_2", None)  # SLURM may forget what was cancelled before it began
    assert {job: state for job, state in ended.items() if state != "COMPLETED"} == {
        f"{first}_1": "FAILED", f"{first}_3": "CANCELLED",
    }  # fmt: skip
    assert "nothing to submit" in checkout.run("plan")


def test_checkpoints_go_on_with_real_ranks(quiet: Slurm, tmp_path: Path) -> None:
    """One process of 3902daa2 stopped both runs in the middle; two ranks of today's code end them."""
    then = unpacked("runs.zip", tmp_path / "then")
    sweep = (then / "sweep.py").read_text().replace('"gpus": 0', '"gpus": 0, "ranks": 2').replace("1G", "3G")
    checkout = whole(tmp_path / "checkout", quiet, sweep, "digits")
    (checkout.root / "runs").mkdir()
    (then / "stopped").rename(checkout.root / "runs/digits")
    checkout.submit("--seeds", "1")
    checkout.wait_until_over()
    for name in (ALQ, TOPK):
        folder, undisturbed = checkout.root / "runs/digits" / name, then / "done" / name
        told = json.loads((folder / "status.json").read_text())
        assert (told["state"], told["attempt"]) == ("done", 2), (folder / "stdout.log").read_text()
        assert state(folder)["step"] == state(undisturbed)["step"]
        assert state(folder)["totals"]["network_bytes"] > 0
        if (WRITTEN / "arithmetic").read_text() == trainings.arithmetic():
            expected = state(undisturbed)
            del expected["totals"]["network_bytes"]  # one process sends nothing
            assert_same_bits(state(folder), expected)
