"""Style files: what they may say, that mistakes are told, and that figures follow them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis import figures, restyled
from analysis.__main__ import main
from analysis.logs.load import Logs, load
from analysis.restyled import Style, read_style
from tests.analysis.conftest import measured

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper_style.yaml"


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
    figure = drawn(logs, read_style(EXAMPLE))
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


def test_the_empty_style_changes_nothing(logs: Logs, tmp_path: Path) -> None:
    (tmp_path / "style.yaml").write_text("# nothing\n")
    assert read_style(tmp_path / "style.yaml") == restyled.OURS
    ours, again = (drawn(logs, style) for style in (restyled.OURS, read_style(tmp_path / "style.yaml")))
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("widht: 3", "unknown key 'widht'; did you mean 'width'?"),
        ("width: 0", r"width=0.0: must be a number of inches, 1.5 to 100"),
        ("names: {alqq: A}", "names: unknown method 'alqq'; did you mean 'alq'?"),
        ("order: alq", r"order='alq': must be a list"),
        ("rc: {font.sizee: 8}", "rc: unknown setting of matplotlib 'font.sizee'; did you mean 'font.size'?"),
        ("rc: {font.size: [8]}", r"rc.font.size=\[8\]: .*convert"),
        ("colors: {alq: blurple}", "colors.alq='blurple': must be a color"),
        ("legend: up", "legend='up': must be one of below, right, none"),
        ("names: {alq: A, amq: A}", "names: 'A': must not be empty, and of one method only"),
        ("rc: {legend.fontsize: null}", "rc.legend.fontsize=None: "),
        ("colors: {alq: none}", "colors.alq='none': must be a color"),
        ("formats: [gif]", "formats: unknown format 'gif'"),
        ("- width", "must be a mapping"),
        ("width: [", "is no YAML"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.yaml: {message}") as error:
        read_style(tmp_path / "mine.yaml")
    assert "\n" not in str(error.value)


def test_one_figure_of_a_paper_is_one_command(logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["figures", "s", "--only", "accuracy", "--style", str(EXAMPLE)]
    assert main([*words, "--methods", "qsgdinf,supersgd"]) == 0
    written = capsys.readouterr()
    assert written.out.splitlines() == ["figures/s/method=qsgdinf,supersgd/accuracy.pdf"]
    assert "more can be drawn" in written.err
    assert main(["figures", "s", "--list", "--json"]) == 0
    assert '"drawn": true' in capsys.readouterr().out
    assert main(["figures", "s", "--list", "--only", "levels"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in listed if line.startswith("*")] == ["levels"]
    for wrong, message in (
        (["--style", "nowhere.yaml"], "error: nowhere.yaml: No such file or directory"),
        (["--only", "levelz"], "error: unknown figure of the chosen runs 'levelz'; did you mean 'levels'"),
        (["--methods", "alqq"], "error: no run with method=alqq"),
        (["--panels", "acc"], "error: panels: unknown panel 'acc'"),
    ):
        assert main(["figures", "s", *wrong]) == 2
        assert capsys.readouterr().err.startswith(message)
