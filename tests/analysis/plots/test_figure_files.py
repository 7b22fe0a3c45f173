"""Figures as files, and what a caller can ask of them."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from analysis import figures
from analysis.logs.load import Logs, load
from analysis.plots import style
from analysis.plots.finished import laid_out, save, styled
from tests.analysis.conftest import measured


@pytest.fixture
def logs(write_run: Callable[..., Path], tmp_path: Path) -> Logs:
    for level, method in enumerate(("sgd", "alq"), 1):
        write_run("s", {"method": method}, measured(level, (0, 51, 102)))
    return load(tmp_path / "runs", "s")


def figure(logs: Logs, name: str, target: float | None = None) -> Figure:
    (made,) = (
        named.make() for named in figures.named(logs, style.WIDTHS["column"], target=target) if named.name == name
    )
    assert isinstance(made, Figure)
    return made


def test_an_accuracy_that_was_asked_for_is_the_target(logs: Logs) -> None:
    shown = figure(logs, "time_to_accuracy", 42).findobj(Text)
    assert "to 42.00 % validation accuracy" in [text.get_text() for text in shown if isinstance(text, Text)]


def test_a_label_is_not_cut_where_a_smaller_panel_has_longer_ticks() -> None:
    """The numbers above the panel make it lower, and 2.5, 5.0, ... stand where 0, 5, ... stood."""

    def drawn(_: None, width: float) -> Figure:
        made = style.new_figure(width, 3.25)
        axes = made.add_subplot()
        axes.set(ylim=(0, 16), xlabel="one\ntwo", ylabel="quantity")
        for row in range(3):
            axes.annotate("1.2", (0.5, 1.01 + 0.06 * row), xycoords="axes fraction", va="bottom", fontsize=7)
        keys = [Line2D([], [], label=str(number)) for number in range(5)]
        made.legend(handles=keys, loc="outside lower center")
        return made

    made = styled(drawn, None, 3.4)
    assert isinstance(made, Figure)
    with rc_context(laid_out()):
        box = made.axes[0].get_tightbbox()
    assert box is not None and box.x0 >= 0


def test_saving_does_not_lay_out_again(logs: Logs, tmp_path: Path) -> None:
    made = figure(logs, "accuracy")
    save(made, tmp_path, "accuracy")
    assert made.get_layout_engine() is None


def test_files_are_png_and_pdf_with_embedded_truetype_and_no_date(logs: Logs, tmp_path: Path) -> None:
    png, pdf = save(figure(logs, "accuracy"), tmp_path / "f", "accuracy")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    content = pdf.read_bytes()
    streams = [part.split(b"stream\n", 1)[-1] for part in content.split(b"\nendstream")]
    objects = content + b"".join(unpacked(part) for part in streams)
    assert b"/FontFile2" in objects
    assert b"/Type3" not in objects
    assert b"/CreationDate" not in objects
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == ["accuracy.pdf", "accuracy.png"]


def unpacked(part: bytes) -> bytes:
    try:
        return zlib.decompress(part)
    except zlib.error:
        return b""
