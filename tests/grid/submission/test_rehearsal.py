"""Built before anything is queued: what cannot start is refused, and so are runs beside others that were made on other
data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from grid.engine.states.judge import judge
from grid.engine.states.runs import Run, runs_of
from grid.engine.states.state import State
from grid.engine.submission import rehearsal
from grid.engine.submission.rehearsal import rehearse
from grid.engine.sweep import Sweep, after, axis, point, product, union
from tests.grid import bench
from tests.grid.bench import Bench

REPO = Path(__file__).parents[3]
OWN, OTHER = (
    {"fingerprint": digits * 7, "num_train": number, "num_test": 9} for digits, number in (("ab", 600), ("cd", 50_000))
)
# Stands for train/rehearsal.py: writes down what it was asked, and answers as the file beside it says.
STAND_IN = """
import json, sys
asked = json.load(sys.stdin)
open("figures/asked.json", "w").write(json.dumps(asked))
print(json.dumps(json.load(open("figures/answer.json"))))
"""


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    with bench.bench(tmp_path, capsys) as made:
        for name in ("train", "figures"):  # the second is no part of the code
            (made.root / name).mkdir()
        (made.root / rehearsal.MODULE).write_text(STAND_IN)
        yield made


def answer(here: Bench, refused: list[str | None], data: list[dict[str, Any] | None] | None = None) -> None:
    (here.root / "figures" / "answer.json").write_text(json.dumps({"refused": refused, "data": data or []}))


def asked(here: Bench) -> dict[str, Any]:
    return json.loads((here.root / "figures" / "asked.json").read_text())


def test_runs_that_would_end_before_their_first_step_are_refused(here: Bench) -> None:
    answer(here, ["resnet8 needs 32x32"])
    problem = "3 runs (QSGD bits=3) would end before the first step: resnet8 needs 32x32"
    said = here("plan")
    assert said.code == 1 and f"problem: {problem}" in said.out
    assert "1 combination" in said.out, "what takes seconds is told before"
    here.refused("submit", f"nothing was submitted: {problem}")
    here.refused("run", f"nothing was started: {problem}")
    assert here.slurm.records() == [] and not list((here.root / "runs").glob("*/*/stdout.log"))
    answer(here, [""])
    assert "3 done" in here.good("run --slots 3")
    assert len(asked(here)["build"]) == 1, "seeds are no combination"


@pytest.mark.slow
def test_what_the_plan_has_built_is_not_built_again(here: Bench) -> None:
    answer(here, [""])
    here.good("plan")
    (here.root / "figures" / "asked.json").unlink()
    here.good("submit")
    assert not (here.root / "figures" / "asked.json").exists()
    here.wait()
    here.sweep((4,))
    answer(here, [None])
    assert "were not built beforehand" in here.good("plan")
    answer(here, ["too late"])
    here.refused("submit", "too late")  # the plan could not build it


def test_what_could_not_be_built_is_no_reason_against_it(here: Bench) -> None:
    (here.root / rehearsal.MODULE).write_text("raise SystemExit('no torch here')")
    assert "note: nothing was built beforehand, nor were the data looked at: no torch here" in here.good("plan")
    (here.root / rehearsal.MODULE).write_text("print('{')")
    assert "note: nothing was built beforehand" in here.good("plan")
    (here.root / rehearsal.MODULE).write_text(STAND_IN)
    answer(here, [None])
    assert (
        "note: 1 of 1 combinations of model, data and method were not built beforehand: that takes 60 s"
        in here.good("plan")
    )


def test_runs_on_other_data_are_told_before_they_count_as_done(here: Bench) -> None:
    """A sweep on 600 pictures, then with NUQ_DATA at the full CIFAR-10: not «34 done before»."""
    (here.root / "data" / "cifar10").mkdir(parents=True)
    here.sweep(shared={"steps": 7, "data": "cifar10"})
    answer(here, [""])
    here.good("run --slots 3")
    for path in (here.root / "runs").glob("*/*/status.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "data": OWN}))
    answer(here, [], [OTHER])
    told = ("3 runs (QSGD bits=3) made steps on other data: data=cifar10 had the fingerprint ababababababab (600 "
    "training and",
            "in data lies cdcdcdcdcdcdcd (50000 training", "NUQ_DATA")  # fmt: skip
    here.refused("run", "nothing was started", *told)
    assert all(words in here.good("status") for words in told)
    said = here("plan")
    assert said.code == 1 and all(words in said.out for words in told)
    assert [config["data"]["name"] for config in asked(here)["data"]] == ["cifar10"] and not asked(here)["build"]
    answer(here, [], [OWN])
    assert "3 done before" in here.good("run") and "nothing to submit" in here.good("plan")
    answer(here, [], [None])
    assert "3 done before" in here.good("run"), "what does not lie here is not known to differ"

    assert "not comparable" not in here.good("status")
    path = next((here.root / "runs").glob("*/*-s2-*/status.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": OTHER}))
    said = here.good("status")
    assert "not comparable: cifar10 was not the same for all: 2 runs on ababababababab (600 training" in said
    assert "1 run on cdcdcdcdcdcdcd (50000 training and 9 test examples)" in said


@pytest.mark.parametrize(
    "odd", [7, [], {"fingerprint": 3}, {"fingerprint": "ab", "num_train": "many"}, {"num_train": 3}, None]
)
def test_an_odd_note_of_data_is_none(odd: Any) -> None:
    assert judge({"state": "done", "data": odd}, None, None, None, 0.0).data in (
        "",
        "ab (0 training and 0 test examples)",
    )


def combinations(*points: Any) -> list[Run]:
    return runs_of(Sweep(union(*points), seeds=[1, 2], folder="x").experiments(), REPO)


@pytest.mark.parametrize("at", [2, 3, 5])
def test_forks_of_runs_that_kept_no_checkpoint_are_refused(tmp_path: Path, at: int) -> None:
    """Of a run of 5 steps that is done, the checkpoint of step 5 is there without checkpoint_at, too."""
    (tmp_path / rehearsal.MODULE.parent).mkdir()
    (tmp_path / rehearsal.MODULE).write_text("print('{')")
    start = point("start", steps=5, checkpoint_every=2, checkpoint_at=[2, 3])
    left = product(point("fork", {"fork.run": "{after}", "fork.at": at, "steps": 7}), after("start"))
    parent, fork = runs = runs_of(Sweep(union(start, left), folder="x").experiments(), tmp_path)
    parent.folder.path.mkdir(parents=True)
    (parent.folder.path / "checkpoint-2.pt").touch()

    def problems(word: str) -> Sequence[str]:
        return rehearse([fork], runs, {parent.run_dir: State(word), fork.run_dir: State("new")}, tmp_path).problems

    told = (
        f"1 run (fork) would find no checkpoint of step 3, as what they leave is done and ran without "
        f"checkpoint_at=[3]: move these run folders away to make them anew ({parent.run_dir})"
    )
    assert not problems("new") and problems("done") == ([told] if at == 3 else [])


@pytest.mark.slow
def test_the_real_ones_are_built() -> None:
    """They are built in a process of its own: shapes that do not fit, a method that does not, and what is right."""
    small = {"batch_size": 8, "model": "cnn", "data": "digits", "steps": 3}
    runs = combinations(
        product(point("good", **small), axis("method", ["alq", "powersgd"]), axis("optim.lr", [0.1, 0.2])),
        point("small", **{**small, "model": "resnet8"}),
        point("layers", **small, layers=["nothing.* = topk"]),
    )
    found = rehearse(runs, runs, {run.run_dir: State("new") for run in runs}, REPO)
    shape, layers = found.problems
    assert shape.startswith(
        "2 runs (small) would end before the first step: model=resnet8 needs images with 3 channels"
    )
    assert layers.startswith("2 runs (layers) would end before the first step: ") and "nothing.*" in layers
    assert not found.notes
