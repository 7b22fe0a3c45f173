"""Figures: what they show, that nothing covers anything, and that odd sweeps end in a sentence."""

import itertools
import zlib
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

from analysis import curves, figures, style
from analysis.cells import Cell, Group, groups
from analysis.load import Logs, load
from nuq.registry import METHODS
from tests.analysis.conftest import measured

CURVES = ("est_var", "relative_var", "nb_error", "validation_loss", "training_loss", "accuracy")
NAMES = [*CURVES, "bits_accuracy", "levels", "levels_steps", "overview"]


def cell(method: str, variant: int = 0) -> Cell:
    return Cell(method, variant, method, (), {})


def test_every_method_has_a_colour_and_a_marker_of_its_own() -> None:
    looks = [style.look(cell(name)) for name in METHODS]
    assert len({look.colour for look in looks}) == len(METHODS)
    assert len({look.marker for look in looks}) == len(METHODS)
    assert len({to_rgb(colour) for colour in style.COLOURS}) == len(style.COLOURS)


def linear(colour: str) -> np.ndarray:
    channels = np.array(to_rgb(colour))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


# Vienot, Brettel and Mollon (1999): what a person without red or green cones sees, in linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "no red cones": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
    "no green cones": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
}


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_of_the_paper_s_methods_can_be_told_apart(sight: str) -> None:
    """Distance in CIE Lab, of which about 2 is just visible; marker and dash come on top."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    shown = [np.clip(SIGHT[sight] @ linear(colour), 0, 1) for colour in style.COLOURS[:12]]  # the paper's come first in METHODS
    x, y, z = np.cbrt(np.array([to_xyz @ colour for colour in shown]).T / np.array([[0.9505], [1.0], [1.089]]))
    lab = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
    distances = {(a, b): float(np.linalg.norm(lab[a] - lab[b])) for a, b in itertools.combinations(range(len(lab)), 2)}
    closest = min(distances, key=lambda pair: distances[pair])
    assert distances[closest] > 16, [list(METHODS)[k] for k in closest]


def test_settings_of_one_method_share_its_colour_and_differ_in_dash_and_marker() -> None:
    first, second = style.look(cell("alq")), style.look(cell("alq", 1))
    assert (first.colour, first.marker) == (second.colour, second.marker)
    assert first.dash != second.dash
    assert first.hollow != second.hollow


def test_a_method_that_the_table_does_not_know_is_drawn_too() -> None:
    assert style.look(cell("brand_new")).colour not in {style.look(cell(name)).colour for name in METHODS}


@pytest.fixture
def one(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., tuple[Logs, Group]]:
    """A sweep of some methods and seeds, and its only group."""

    def made(methods: list[str], seeds: int = 2, steps: tuple[int, ...] = (0, 51, 102), **settings: object) -> tuple[Logs, Group]:
        for level, method in enumerate(methods, 1):
            for seed in range(1, seeds + 1):
                write_run("s", {"method": method, "seed": seed, **settings}, measured(level, steps, seed))
        logs = load(tmp_path / "runs", "s")
        (group,) = groups(logs)
        return logs, group

    return made


def panel(group: Group, name: str) -> tuple[Figure, str | None]:
    figure = Figure()
    (plot,) = (plot for plot in curves.PLOTS if plot.name == name)
    return figure, curves.curves(figure.add_subplot(), group, plot)


def test_curves_are_means_with_drops_and_bands(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"], **{"schedule": "step", "schedule.at": [60, 200]})
    figure, problem = panel(group, "validation_loss")
    assert problem is None
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    waves = [[1 + 0.1 * ((step * 7 + seed * 3) % 5) for seed in (1, 2)] for step in (0, 51, 102)]
    by_hand = [2 / (1 + step / 100) * (first * second) ** 0.5 for step, (first, second) in zip((0, 51, 102), waves, strict=True)]
    np.testing.assert_allclose(np.asarray(lines["ALQ"].get_xydata())[:, 1], by_hand, rtol=1e-6)
    assert [np.asarray(line.get_xydata())[0, 0] for line in axes.lines if line.get_gid() == "drop"] == [60]  # 200 lies beyond the last step
    assert len(axes.collections) == 2
    assert axes.get_yscale() == "log"


def test_linear_axes_show_arithmetic_means(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"])
    figure, _ = panel(group, "accuracy")
    lines = {line.get_label(): np.asarray(line.get_xydata()) for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines["ALQ"][:, 1], [90 - 2 - 50 / (1 + step / 50) + 1.5 for step in (0, 51, 102)], rtol=1e-6)


def test_references_stand_in_for_methods_that_were_not_run(one: Callable[..., tuple[Logs, Group]]) -> None:
    _, group = one(["sgd", "alq"])
    figure, _ = panel(group, "est_var")
    labels = {line.get_label(): line for line in figure.axes[0].lines}
    assert "SuperSGD (reference)" in labels
    assert "SGD (reference)" not in labels
    waves = [np.exp(np.mean([np.log(1e-5 * (1 + 0.1 * ((step * 7 + seed * 3) % 5))) for seed in (1, 2)])) for step in (0, 51, 102)]
    np.testing.assert_allclose(np.asarray(labels["SuperSGD (reference)"].get_xydata())[:, 1], waves, rtol=1e-6)


def test_all_figures_of_all_methods_keep_clear_of_their_legend(
    one: Callable[..., tuple[Logs, Group]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, _ = one(list(METHODS), seeds=1, steps=(0, 61, 122), **{"schedule": "step", "schedule.at": [60]})
    checked: list[str] = []

    def check(figure: Figure, folder: Path, name: str) -> list[Path]:
        figure.draw_without_rendering()
        page = figure.bbox
        panels = [axes.bbox for axes in figure.axes]
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert all(Bbox.intersection(box, panel) is None for panel in panels), name
            assert within(box, page), name
        texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_visible() and text.get_text()]
        assert min(float(text.get_fontsize()) for text in texts) >= 7, name
        for axes in figure.axes:
            assert within(axes.get_tightbbox(), page), (name, "a label is cut")
        checked.append(name)
        return []

    def within(box: BboxBase | None, page: BboxBase) -> bool:
        return box is not None and box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1

    monkeypatch.setattr(figures, "save", check)
    drawn = figures.draw(logs, tmp_path)
    assert (checked, drawn.notes) == (NAMES, ())


def test_files_are_png_and_pdf_with_embedded_truetype_and_no_date(one: Callable[..., tuple[Logs, Group]], tmp_path: Path) -> None:
    _, group = one(["alq"])
    with matplotlib.rc_context(style.RC):
        figure, _ = panel(group, "accuracy")
        png, pdf = figures.save(figure, tmp_path / "f", "accuracy")
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


ODD = {
    "one point": (
        [("Vacc", 0, 10.0), ("est_var", 0, 1e-5), ("levels/0", 0, -1.0), ("levels/1", 0, 1.0)],
        {"accuracy", "est_var", "levels", "overview"},
    ),
    "non-finite": ([("Vacc", 0, float("nan")), ("Vloss", 0, float("inf")), ("est_var", 0, float("-inf"))], set()),
    "zero on a log axis": ([("Vloss", 0, 0.0), ("est_var", 0, 0.0), ("est_var", 10, 0.0)], set()),
    "minibatch loss only": ([("loss", step, 1.0 + step) for step in range(0, 100, 20)], {"training_loss"}),
    "constant": (
        [("Vacc", step, 50.0) for step in (0, 10)] + [("Vloss", step, 1.0) for step in (0, 10)],
        {"accuracy", "validation_loss", "overview"},
    ),
    "unknown tags": ([("something/else", 3, 1.0)], set()),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_sweeps_give_figures_or_sentences(
    write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rows, expected = ODD[kind]
    write_run("s", {"method": "alq"}, rows)
    drawn_names: list[str] = []

    def draw(figure: Figure, folder: Path, name: str) -> list[Path]:
        figure.draw_without_rendering()
        drawn_names.append(name)
        return [folder / name]

    monkeypatch.setattr(figures, "save", draw)
    drawn = figures.draw(load(tmp_path / "runs", "s"), tmp_path)
    assert set(drawn_names) == expected
    assert {note.split(": not drawn, ")[0] for note in drawn.notes} == set(NAMES) - expected


def test_points_with_equal_bits_stand_side_by_side_in_order() -> None:
    places = curves._side_by_side([3.03, 32.0, 3.03, 1.6, 3.04])
    assert places[0] < places[2] < places[4]
    assert places[2] == pytest.approx(3.03)
    assert places[1] == 32.0
    crowded = curves._side_by_side([2.0] * 7 + [1.6])
    assert crowded[7] < min(crowded[:7])
