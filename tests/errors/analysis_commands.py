"""Errors of the analysis: its command lines, what they choose among runs, and style files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from analysis import axes, figures, restyled
from analysis.__main__ import main
from analysis.groups.seed_groups import check_titles
from analysis.groups.selection import select
from analysis.logs import cache
from analysis.logs.foreign.values import plain_yaml
from analysis.logs.load import load
from analysis.plots.curves import PLOTS
from analysis.plots.forked import each
from analysis.tables.columns import column_named
from tests.analysis.conftest import written_run
from tests.errors.rows import Row, cli, row

RUNS: Sequence[Mapping[str, Any]] = (
    {"method": "supersgd", "workers": 2},
    {"method": "supersgd", "workers": 4},
    {"method": "alq"},
)


def runs(folder: Path, settings: Sequence[Mapping[str, Any]] = RUNS) -> None:
    """The runs of a sweep ``demo``, with two points of their accuracies."""
    for one in settings:
        written_run(folder / "runs", "demo", one, [("Vacc", 10, 50.0), ("Vacc", 20, 60.0)])


def line(*words: str, files: Mapping[str, str] | None = None) -> Row:
    """A command line about the sweep ``demo``; ``files`` lie beside it."""

    def make(folder: Path) -> int:
        runs(folder)
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        return main([*words])

    return cli(f"python -m analysis {words[0]}", " ".join(words[1:]), make)


def where(*conditions: str, settings: Sequence[Mapping[str, Any]] = RUNS) -> Row:
    def make(folder: Path) -> None:
        runs(folder, settings)
        select(load(folder / "runs", "demo", cache=False), conditions)

    return row("python -m analysis --where", " ".join(conditions), make)


def style(text: str) -> Row:
    """A style file of one mistake."""

    def make(folder: Path) -> None:
        (folder / "mine.yaml").write_text(text)
        restyled.read_style(Path("mine.yaml"), [plot.name for plot in PLOTS])

    return row("python -m analysis --style", text.replace("\n", " / "), make)


def _cannot_draw(folder: Path) -> int:
    runs(folder)
    (folder / "mine.yaml").write_text("width: 3")
    with mock.patch.object(figures, "draw", mock.Mock(side_effect=ValueError("Image size is too large"))):
        return main(["figures", "demo", "--style", "mine.yaml"])


def _not_a_panel(folder: Path) -> None:
    runs(folder)
    with restyled.using(restyled.Style(panels=("acuracy",))):
        next(figures.named(load(folder / "runs", "demo", cache=False), 3.4))


def _one_name() -> None:
    with restyled.using(restyled.Style(labels={"ALQ": "ours", "AMQ": "ours"})):
        check_titles(["alq", "amq"])


def _kept_in_vain(folder: Path) -> None:
    entry: Any = SimpleNamespace(kept_in=None, part=None, run=0)
    with (
        mock.patch.object(cache, "_num_rows", lambda entry: 1),
        mock.patch.object(cache.parts, "write"),
        mock.patch.object(cache.parts, "opened", lambda *where, **how: None),
    ):
        cache.write(folder, "", {"one": entry}, {})


def _fails(item: int) -> int:
    raise NotADirectoryError(20, "Not a directory", "file")


def _in_a_process() -> None:
    each(_fails, [1, 2, 3, 4], 2)


def missing(sweep: str, *found: str) -> Row:
    def make(folder: Path) -> None:
        for name in found:
            written_run(folder / "runs", name, {"method": "alq"})
        load(Path("runs"), sweep, cache=False)

    return row("python -m analysis SWEEP", f"{sweep!r}, of {', '.join(found) or 'none'}", make)


ROWS = [
    line("watch", "demo", "--every", "0"),
    line("figures", "demo", "--target", "101"),
    line("report", "demo", "--most-figures", "-1"),
    line("figures", "demo", "--only", "levelz"),
    line("figures", "demo", "--style", "none.yaml"),
    cli("python -m analysis figures", "demo --style of what matplotlib cannot draw", _cannot_draw),
    line("table", "demo", "--sort", "fnal"),
    missing("dmo", "demo"),
    missing("demo"),
    row("analysis.axes.checked(axes)", "'wall'", lambda: axes.checked(["wall"])),
    row("analysis.tables.columns.column_named(name)", "'fnal'", lambda: column_named("fnal")),
    row("analysis.figures.named", "a panel that is none", _not_a_panel),
    row("python -m analysis --style", "one name for two methods", _one_name),
    row("python -m analysis figures", "an error in a process that draws", _in_a_process),
    row("the cache of logs", "a part that cannot be read", _kept_in_vain),
    row("hparams.yaml of another program", "no YAML", lambda: plain_yaml("a: [")),
    # conditions
    where("bit=3"),
    where("lr=.1"),
    where("bits=9"),
    where("bits"),
    where("ALQ"),
    where("method=ALQ,amq", settings=[{"method": "alq"}]),
    where("SuperSGD"),
    where("SuperSGD (workers 4)"),
    where("TopK"),
    where("bits=3", settings=[{"method": "supersgd"}]),
    # style files
    style("widht: 3"),
    style("width: 0"),
    style("width: 3\nwidth: 4"),
    style("order: alq"),
    style("order: [alq, amq,\n  alq]"),
    style("names:\n  alq: A\n  alqq: A"),
    style("names:\n  alq: A\n  amq: A"),
    style("names:\n- alq"),
    style("labels: {'': a}"),
    style("labels:\n  a: b\n  a: c"),
    style("colors: {alq: blurple}"),
    style("colors: {alq: none}"),
    style("formats:\n- pdf\n- gif"),
    style("panels:\n- acuracy"),
    style("# mine\nlegend: up"),
    style("rc:\n\n  nosuch: 8"),
    style("rc: {font.size: [8]}"),
    style("rc: {figure.figsize: [.1, .1]}"),
    style("rc:\n  font.size: 7\n  font.family: nosuch"),
    style("3: 4"),
    style("- width"),
    style("width: 3\nrc: {a: [\n"),
]
