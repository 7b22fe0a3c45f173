"""Watching: the page is written when there is news, and what goes wrong meanwhile is waited out."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from analysis.logs.load import load
from analysis.report.watch import watch
from analysis.report.write import How
from tests.analysis.conftest import measured

HOW = How(most_figures=1, every_s=5)


def watched(sweep: Path, steps: Sequence[Callable[[], object]], *, until_ended: bool = False) -> tuple[int, Path]:
    """Watch a sweep; between the looks these things happen, after them Ctrl-C."""
    events = iter(steps)

    def sleep(seconds: float) -> None:
        assert seconds == 5
        step = next(events, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    folder = sweep.parents[1] / "figures"
    return watch(
        sweep, lambda: load(sweep.parent, sweep.name), folder, HOW, until_ended=until_ended, sleep=sleep
    ), folder / "report.html"


@pytest.fixture
def run(write_run: Callable[..., Path]) -> Path:
    return write_run("demo", {"method": "alq"}, measured(3.0, (0, 50)), state="running", heartbeat=9e9)


def is_done(run: Path) -> None:
    (run / "status.json").write_text(json.dumps({"state": "done"}))


@pytest.mark.slow
def test_it_ends_with_the_runs_and_leaves_a_page_that_stays(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages: list[str] = []
    page = run.parents[2] / "figures" / "report.html"
    code, path = watched(
        run.parent, [lambda: pages.append(page.read_text(encoding="utf-8")), lambda: is_done(run)], until_ended=True
    )
    assert code == 0
    assert '<body data-every="5">' in pages[0]
    assert "<body>" in path.read_text(encoding="utf-8")
    first, last, end = (line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines())
    assert (first, last) == (f"1 unknown: {path}", f"1 done: {path}")  # its heartbeat lies in the future
    assert end == "every run that has begun has ended"


@pytest.mark.slow
def test_it_draws_only_news_and_stops_with_a_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_done(run)
    _, path = watched(run.parent, [lambda: None, lambda: None])
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.endswith(f"1 done: {path}")
    assert last.endswith(f"stopped watching; {path} is the last report")
    assert "<body>" in path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_goes_wrong_meanwhile_is_waited_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = run.parents[2] / "away"
    half = next(run.glob("events*"))
    whole = half.read_bytes()
    steps = [
        lambda: half.write_bytes(whole[: len(whole) // 2]),
        lambda: shutil.move(run.parent, away),
        lambda: shutil.move(away, run.parent),
        lambda: half.write_bytes(whole),
    ]
    assert watched(run.parent, steps)[0] == 0
    said = capsys.readouterr().out
    assert said.count("waiting: no sweep 'demo'") == 1
    assert "Traceback" not in said


def test_a_sweep_that_does_not_exist_is_an_error(run: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no sweep 'demi'"):
        watched(run.parent.with_name("demi"), [])
