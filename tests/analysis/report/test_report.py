"""The report: every section, nothing from outside, nothing that a run's name could do."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.figures import ACROSS, means_of, named
from analysis.logs.load import load
from analysis.report import interactive, pictures, provenance, runs, sections
from analysis.report.write import How, write
from tests.analysis.conftest import measured
from tests.analysis.synthetic import many_runs
from tests.tiers import few

FEW = How(most_figures=1)
EVIL = "</script><img src=x onerror=alert(1)>"


class Markup(HTMLParser):
    """All tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        self.words += "" if self._in else data


@pytest.fixture
def sweep(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    for method, level in (("sgd", 1.0), ("alq", 3.0)):
        for seed in (1, 2):
            machine = {
                "python": "3.11.7",
                "torch": "2.13.0",
                "cpu": "A",
                "cores": 2,
                "gpu": "",
                "commit": "c0ffee" * 6,
                "dirty": seed == 2,
            }
            write_run(
                "demo",
                {"method": method, "seed": seed},
                measured(level, (0, 50, 100), seed),
                machine=machine,
                threads=2,
                device="cpu",
            )
    return tmp_path / "runs"


def page_of(sweep: Path, name: str = "demo", how: How = FEW) -> tuple[str, Markup]:
    path = write(load(sweep, name, cache=False), sweep.parent / "figures" / name, how)
    text = path.read_text(encoding="utf-8")
    return text, Markup(text)


def test_every_section_is_there_and_says_what_it_should(sweep: Path) -> None:
    text, markup = page_of(sweep)
    anchors = [attributes["id"] for tag, attributes in markup.tags if tag == "details" and "id" in attributes]
    wanted = ["summary", "results", "curves", "figures", "runs", "settings", "notes", "provenance"]
    assert [name for name in anchors if name in wanted] == wanted
    assert "failures" not in anchors
    assert sum(tag == "img" for tag, _ in markup.tags) == 1
    assert len(re.findall(r'<tr><th scope="row" title=', text)) == 4
    for words in (
        "4 runs: 4 done",
        "c0ffeec0ffee (2 runs); c0ffeec0ffee with changes (2 runs)",
        "python -m analysis report demo",
        "2.13.0",
    ):
        assert words in markup.words
    assert not list((sweep.parent / "figures" / "demo").glob(".*")), "nothing is left of writing"


@pytest.mark.slow
def test_nothing_is_loaded_from_anywhere_and_only_known_scripts_run(sweep: Path) -> None:
    _, markup = page_of(sweep)
    for tag, attributes in markup.tags:
        assert not {"src", "srcset", "action", "formaction", "data", "background"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
        link = attributes.get("href") or ""
        assert tag != "link" or link == "data:,"
        assert not re.match(r"[a-z]+://", link)
    (policy,) = (attributes["content"] or "" for tag, attributes in markup.tags if attributes.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert re.fullmatch(r"('sha256-[\w+/]{43}=' ?){3}", rules["script-src"])


def test_words_of_runs_stay_words(sweep: Path, write_run: Callable[..., Path]) -> None:
    failure = {"signature": f"RuntimeError{EVIL} at trainer.py:1 in step", "message": EVIL}
    run = write_run(
        "evil", {"method": "alq"}, measured(3.0, (0, 50)), state="failed", exit_code=1, failure=failure, host=EVIL
    )
    config = (run / "config.yaml").read_text().replace("device: auto", f"device: {json.dumps(EVIL)}")
    (run / "config.yaml").write_text(config)
    run.rename(run.with_name("<img src=x onerror=alert(1)>&'\""))
    text, markup = page_of(sweep, "evil")
    assert (
        sum(tag == "img" for tag, _ in markup.tags)
        == sum("data-packed" in attributes for _, attributes in markup.tags)
        > 0
    )
    assert sum(tag == "script" for tag, _ in markup.tags) == 4
    assert EVIL not in text
    assert EVIL in markup.words
    assert "1 run: 1 failed" in markup.words
    assert "1 run ended otherwise than planned, in 1 class of kind and signature." in markup.words


@few(1, "broken", ["no logs", "no settings", "no status", "one point", "damaged"])
def test_there_is_a_report_wherever_there_is_a_run(write_run: Callable[..., Path], tmp_path: Path, broken: str) -> None:
    rows = {"no logs": (), "one point": ([("Vacc", 5, 50.0)],)}.get(broken, (measured(3.0, (0, 50)),))
    run = write_run("odd", {"method": "alq"}, *rows, state=None if broken == "no status" else "done")
    if broken == "no settings":
        (run / "config.yaml").unlink()
    if broken == "damaged":
        (run / "status.json").write_text("{")
    _, markup = page_of(tmp_path / "runs", "odd")
    state = {"no logs": "done", "no status": "unknown", "damaged": "unknown"}.get(broken, "done")
    assert f"1 run: 1 {state}" in markup.words
    assert ("There is nothing to draw" in markup.words) == (broken in ("no logs", "no settings"))


def test_states_come_from_the_runs_alone(write_run: Callable[..., Path], tmp_path: Path) -> None:
    write_run("demo", {"seed": 1}, state="running", heartbeat=1000.0, host="elsewhere", step=7, steps=10)
    write_run("demo", {"seed": 2}, state=None)
    write_run("demo", {"seed": 3, "steps": 50}, [("loss", 50, 1.0)], state=None)
    write_run("demo", {"seed": 4}, state="diverged", failure={"message": "loss is nan"})
    logs = load(tmp_path / "runs", "demo", cache=False)
    early, late = runs.of(logs, now=1010.0), runs.of(logs, now=9000.0)
    assert early.counts() == {"running": 1, "new": 1, "done": 1, "diverged": 1} == runs.counts(logs, now=1010.0)
    assert late.counts() == {"lost": 1, "new": 1, "done": 1, "diverged": 1}
    assert [(group.kind, group.count) for group in late.failures] == [("non_finite", 1), ("lost", 1)]


def test_hours_count_cores_and_gpus() -> None:
    assert provenance._gpus("2 x NVIDIA H200, NVIDIA A100") == 3
    assert provenance._gpus("") == 1


@pytest.mark.slow
def test_pictures_take_turns_and_what_is_left_out_is_counted(sweep: Path) -> None:
    logs = load(sweep, "demo", cache=False)
    found = pictures.draw(logs, most=3, processes=1)
    assert [picture.name for picture in found.drawn if picture.name.startswith("overview")] == ["overview"]
    assert len(found.drawn) == 3
    (of_runs,) = (kinds for section, kinds in found.left_out.items() if section != ACROSS)
    assert {"accuracy", "overview-time", "accuracy-bytes", "levels"} <= set(of_runs)
    none = pictures.draw(logs, most=1, budget_bytes=100, processes=1)
    assert len([picture for picture in none.drawn if picture.packed]) == 0


def test_a_page_of_many_groups_has_their_first_overviews_and_names_the_rest(tmp_path: Path) -> None:
    logs = many_runs(2 * 3 + 8 * 3 * 30, tmp_path, steps=3)  # thirty bucket sizes
    figures = list(named(logs, 3.4))
    order = [figures[index] for index in pictures._by_importance(figures)][: pictures._enough(figures)]
    assert len(order) == pictures.MOST_OF_MANY
    against = ["against_bits", "against_bucket", "against_ratio"]
    across = [*against, "accuracy_per_bit", "error_per_bit", "variance_and_loss"]
    assert [figure.kind for figure in order] == ["overview", *across] + ["overview"] * 17
    few = list(named(many_runs(30, tmp_path, steps=3), 3.4))
    assert pictures._enough(few) == pictures.MOST
    markup = Markup(
        sections.figures(
            pictures.Pictures((), {"on a": ["accuracy", "accuracy-time", "levels"]}), "figures s draws all."
        )
    )
    assert (
        "3 more figures of this section left out here (accuracy against step, time; levels); figures s draws all."
        in markup.words
    )


def test_small_keeps_what_is_seen() -> None:
    svg = (
        '<?xml version="1.0"?>\n<svg><!-- x --><metadata>\n<a/></metadata>\n <path d="M 12.345678 0.015625 \nL '
        '-1.98765 3"/>\n</svg>'
    )
    assert pictures.small(svg) == '<svg><path d="M 12.34 0.015625 L -1.98 3"/></svg>'


def test_curves_are_the_means_of_the_figures_thinned(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "MOST_PER_CURVE", 2)
    found = interactive.curves(means_of(load(sweep, "demo", cache=False)))
    assert found is not None
    assert found.notes == ("curves are thinned to 2 points each",)
    (group,) = found.data["groups"]
    (accuracy,) = (each for each in group["quantities"] if each["title"] == "Validation accuracy")
    (alq,) = (curve for curve in accuracy["curves"] if curve["label"] == "ALQ")
    assert (alq["n"], found.data["xs"][alq["x"]["step"]]) == (2, [0, 100])
    assert alq["mean"] == pytest.approx([90 - 3 - 50 + 1.5, 90 - 3 - 50 / 3 + 1.5], rel=1e-4)
    assert alq["low"][0] < alq["mean"][0] < alq["high"][0]


@pytest.mark.slow
def test_two_thousand_runs_stay_below_ten_megabytes(tmp_path: Path) -> None:
    logs = many_runs(2000, tmp_path / "runs" / "many", steps=5, seeds=80)
    path = write(logs, tmp_path / "figures", How(most_figures=2))
    assert path.stat().st_size < 10_000_000
    assert path.read_text(encoding="utf-8").count('<tr><th scope="row" title=') == 2000
