"""Style files: what they may say, that mistakes are told, and that figures follow them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis import figures, restyled
from analysis.__main__ import main
from analysis.logs.load import Logs, load
from analysis.plots.curves import PLOTS
from analysis.restyled import Style, read_style
from tests.analysis.conftest import measured

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper_style.yaml"
PANELS = [plot.name for plot in PLOTS]


@pytest.fixture
def logs(write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Logs:
    for method, level in (("supersgd", 1.0), ("alq", 2.0), ("qsgdinf", 3.0)):
        rows = [
            *measured(level, (0, 50)),
            *((tag, step, 50.0 + level) for tag in ("Vacc", "Vloss") for step in (0, 50)),
        ]
        write_run("s", {"method": method}, rows)
    monkeypatch.chdir(tmp_path)
    return load(tmp_path / "runs", "s")


def drawn(logs: Logs, style: Style, name: str = "overview") -> Figure:
    with restyled.using(style):
        figure = next(figure for figure in figures.named(logs, 3.4) if figure.name == name).make()
    assert isinstance(figure, Figure)
    return figure


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_example_is_a_style(logs: Logs) -> None:
    figure = drawn(logs, read_style(EXAMPLE, PANELS))
    assert figure.get_figwidth() == 3.3
    assert [axes.get_title("left") for axes in figure.axes] == [
        "(a) variance relative to SuperSGD",
        "(b) test accuracy (%)",
    ]
    assert legend(figure) == ["full precision", "ALQ", "QSGD, L∞"]
    colors = {str(line.get_label()): to_hex(line.get_color()) for line in figure.axes[1].lines}
    assert (colors["full precision"], colors["ALQ"]) == ("#000000", "#d55e00")
    label = figure.axes[0].xaxis.label
    assert (label.get_fontsize(), label.get_fontfamily()) == (7, ["serif"])  # pyright: ignore
    sizes = {axes._left_title.get_size() for axes in figure.axes}  # pyright: ignore[reportAttributeAccessIssue]
    assert sizes == {7}, "other words are as large"


@pytest.mark.slow
def test_the_empty_style_changes_nothing(logs: Logs, tmp_path: Path) -> None:
    (tmp_path / "style.yaml").write_text("# nothing\n")
    assert read_style(tmp_path / "style.yaml", PANELS) == restyled.OURS
    ours, again = (drawn(logs, style) for style in (restyled.OURS, read_style(tmp_path / "style.yaml", PANELS)))
    assert legend(ours) == legend(again) == ["SuperSGD", "QSGDinf", "ALQ", "SGD (reference)"]
    assert [text.get_text() for text in ours.findobj(Text)] == [text.get_text() for text in again.findobj(Text)]


def test_the_legend_has_its_place(logs: Logs) -> None:
    below = drawn(logs, restyled.OURS, "accuracy")
    right = drawn(logs, Style(legend="right", width=5, height=2), "accuracy")
    inside = drawn(logs, Style(legend="upper left"), "accuracy")
    assert len(below.legends) == len(right.legends) == 1
    assert right.get_size_inches().tolist() == [5, 2]
    assert not inside.legends
    assert inside.axes[0].get_legend() is not None
    assert inside.get_figheight() < below.get_figheight()
    without = drawn(logs, Style(legend="none"), "accuracy")
    assert not without.legends
    assert without.axes[0].get_legend() is None


def test_sizes_may_be_words_and_what_matplotlib_refuses_is_told(
    logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert legend(drawn(logs, Style(rc={"legend.fontsize": "small"}), "accuracy"))
    (tmp_path / "large.yaml").write_text("rc: {figure.dpi: 0}\nformats: [png]\n")
    assert main(["figures", "s", "--only", "accuracy", "--style", "large.yaml"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: large.yaml: ")


def test_svg_of_equal_data_is_equal(logs: Logs, tmp_path: Path) -> None:
    with restyled.using(Style(formats=("svg",))):
        named = next(figure for figure in figures.named(logs, 3.4) if figure.name == "accuracy")
        one, other = (figures.draw([named], tmp_path / name, processes=1).paths[0] for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_one_panel_is_an_overview_without_a_letter(logs: Logs) -> None:
    figure = drawn(logs, Style(panels=("accuracy",)))
    assert [axes.get_title("left") for axes in figure.axes] == ["validation accuracy (%)"]
    with restyled.using(Style(panels=("acuracy",))), pytest.raises(ValueError, match="did you mean 'accuracy'"):
        next(figures.named(logs, 3.4))


def test_one_figure_of_a_paper_is_one_command(logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["figures", "s", "--only", "accuracy", "--style", str(EXAMPLE)]
    assert main([*words, "--methods", "qsgdinf,supersgd"]) == 0
    assert capsys.readouterr().out.splitlines() == ["figures/s/method=qsgdinf,supersgd/accuracy.pdf"]
    assert main(["figures", "s", "--list", "--json"]) == 0
    assert '"drawn": true' in capsys.readouterr().out
    assert main(["figures", "s", "--list", "--only", "levels"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in listed if line.startswith("*")] == ["levels"]
    (tmp_path / "old.yaml").write_text("rc:\n  font.sizee: 8\n")
    for wrong, message in (
        (["--style", "old.yaml"], "error: old.yaml: line 2: rc: unknown setting of matplotlib 'font.sizee'"),
        (["--only", "accuracy,,levels"], "error: --only: a name must not be empty\n"),
        (["--methods", "alq", "alq"], "error: --methods: 'alq' is given twice\n"),
        (["--panels", ""], "error: --panels: a name must not be empty\n"),
        (["--x", "step", "step"], "error: --x: 'step' is given twice\n"),
        (["--style", "nowhere.yaml"], "error: nowhere.yaml: No such file or directory"),
        (["--only", "levelz"], "error: unknown figure of the chosen runs 'levelz'; did you mean 'levels'"),
        (["--methods", "alqq"], "error: no run with method=alqq"),
        (["--panels", "acc"], "error: panels: unknown panel 'acc'"),
    ):
        assert main(["figures", "s", *wrong]) == 2
        assert capsys.readouterr().err.startswith(message)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "name"), [("names: {qsgdinf: ALQ}", "ALQ"), ("names: {qsgdinf: A}\nlabels: {ALQ: A}", "A")]
)
def test_two_methods_of_one_name_are_not_drawn_as_one(
    text: str, name: str, logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    drawing = ["figures", "s", "--only", "accuracy", "--style", "mine.yaml"]
    assert main(drawing) == 2
    assert f"error: '{name}' would be the name of two methods in these figures, " in capsys.readouterr().err
    assert not (tmp_path / "figures").exists()
    (tmp_path / "mine.yaml").write_text("names: {qsgdinf: ALQ, alq: QSGDinf}\nformats: [svg]\n")
    assert main(drawing) == 0


def test_words_that_fit_nothing_are_told(logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(
        "labels: {accurazy: A, validation accuracy (%): acc, ALQ: ours}\nformats: [svg]\n"
    )
    words = ["figures", "s", "--only", "accuracy", "levels", "--methods", "alq", "trn", "--style", "mine.yaml"]
    assert main(words) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    there = "'ALQ', 'levels at the end of training', 'training step', 'validation accuracy (%)'"
    assert notes[:3] == [
        "note: no run with method=trn (there are: alq, qsgdinf, supersgd)",
        "note: --methods leaves out SuperSGD, with which 1 of these runs would be compared; --methods alq trn supersgd "
        "keeps it",
        f"note: mine.yaml: labels: no drawn figure has 'accurazy' (there are: {there})",
    ]


@pytest.mark.slow
def test_a_size_without_room_is_told(logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.yaml").write_text("width: 1.5\nheight: 1.5\nrc: {font.size: 30}\n")
    assert main(["figures", "s", "--only", "overview", "--style", "tiny.yaml"]) == 1
    told = "note: overview: not drawn, 1.5 by 1.5 inches leave no room for its panels: choose a larger width or height"
    assert capsys.readouterr().err.startswith(told)


def test_the_list_names_what_can_be_drawn_and_nothing_else(
    write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each figure that it marks or names is drawn, and none that it leaves out."""
    for seed in (1, 2):
        write_run("s", {"method": "alq", "seed": seed}, [("Vacc", step, 5.0 + step) for step in (0, 10, 20)])
    monkeypatch.chdir(tmp_path)
    every = {one.name: one for one in figures.named(load(tmp_path / "runs", "s"), 3.4)}
    assert main(["figures", "s", "--list"]) == 0
    said = capsys.readouterr()
    words = set(re.findall(r"[\w-]+", said.out))
    can = {name for name, one in every.items() if not isinstance(one.make(), str)}
    assert {name for name in every if name in words} == can == {"accuracy", "accuracy-time", "time_to_accuracy"}
    assert len(said.out.splitlines()) == 2 and "levels" in said.err
    assert {name for name, one in every.items() if not one.missing()} == can


def test_where_figures_are_not_named_it_is_told_how_to_see_more(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "draw", lambda wanted, folder: figures.Drawn((), (), frozenset()))
    main(["figures", "s"])
    assert "--list" in capsys.readouterr().err
    main(["figures", "s", "--only", "accuracy"])
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_dollar_is_a_dollar_unless_mathematics_is_asked_for(logs: Logs) -> None:
    names, found = {"alq": "ALQ$_{32}$"}, []
    for rc in ({}, {"text.parse_math": True}):
        (entry,) = [
            text for text in drawn(logs, Style(names=names, rc=rc)).legends[0].get_texts() if "$" in text.get_text()
        ]
        found.append(entry.get_window_extent())
    assert found[1].width < 0.8 * found[0].width, "the dollars, the braces and the underscore are not drawn"


@pytest.mark.slow
def test_panels_without_room_beside_a_legend_are_told(
    logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    style = f"width: 4.2\nheight: 2.2\nformats: [svg]\nnames: {{alq: {'long name ' * 6}}}\nlegend: "
    drawing = ["figures", "s", "--only", "overview", "--panels", "relative_var", "accuracy", "--style", "mine.yaml"]
    (tmp_path / "mine.yaml").write_text(style + "right")
    assert main(drawing) == 1
    room = "4.2 by 2.2 inches leave no room for its panels: choose a larger width or height"
    rest = " (1.5 to 100 inches), another place of the legend or smaller fonts\n"
    assert capsys.readouterr().err.startswith(f"note: overview: not drawn, {room}{rest}")
    (tmp_path / "mine.yaml").write_text(style + "below")
    assert main(drawing) == 0
    (tmp_path / "mine.yaml").write_text(style.replace("4.2", "9") + "right")
    assert main(drawing) == 0


def test_a_name_of_other_runs_leads_to_that_of_these(
    write_run: Callable[..., Path], logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run("s", {"method": "alq", "workers": 2}, measured(2.0, (0, 50)))
    assert main(["figures", "s", "--list", "--only", "accuracy-workers=2"]) == 0
    assert "*  accuracy-workers=2 " in capsys.readouterr().out
    assert main(["figures", "s", "--where", "workers=2", "--only", "accuracy-workers=2"]) == 2
    said = capsys.readouterr().err
    assert "unknown figure of the chosen runs 'accuracy-workers=2'; did you mean 'accuracy'? (legal: " in said
    assert said.endswith("; --where and --methods choose the runs, and with the same, --list names the figures\n")
