"""Colour, marker and dash of methods and of their settings: each can be told from the others, also in grey, also by who
sees no red.
"""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from analysis.groups.seed_groups import SeedGroup
from analysis.plots import style
from nuq.registry import METHODS


def seed_group(method: str, variant: int = 0) -> SeedGroup:
    return SeedGroup(method, variant, method, (), {})


def test_every_method_has_a_look_of_its_own() -> None:
    """Looks differ in grey too, and include methods that will be added and one of another code base."""
    assert len({to_rgb(colour) for colour in style.COLOURS}) == len(style.COLOURS)
    looks = [style.look(seed_group(name)) for name in [*METHODS, *(f"method{number}" for number in range(3))]]
    assert len({(look.colour, look.marker, look.dash) for look in looks}) == len(looks)
    assert len({(look.marker, look.dash) for look in looks[: len(METHODS)]}) == len(METHODS)


def test_forty_methods_would_differ_in_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "METHODS", dict.fromkeys(f"m{number}" for number in range(40)))
    looks = [style.look(seed_group(f"m{number}")) for number in range(40)]
    assert len({(look.marker, look.dash) for look in looks}) == 40
    assert len({(look.colour, look.marker) for look in looks}) == 40


def test_sixty_settings_of_one_method_differ() -> None:
    looks = [style.look(seed_group("alq", variant)) for variant in range(60)]
    assert len({(look.marker, look.dash, look.hollow) for look in looks}) == 60
    assert len({(look.colour, look.marker, look.hollow) for look in looks[:36]}) == 36, "also where lines are short"


def test_settings_of_one_method_differ_without_lines() -> None:
    looks = [style.look(seed_group("dgc", variant), lines=False) for variant in range(30)]
    assert len({(look.marker, look.hollow) for look in looks}) == 30


def linear(colour: str) -> np.ndarray:
    channels = np.array(to_rgb(colour))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


# Vienot, Brettel and Mollon (1999): what a person without red or green cones sees, in linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "no red cones": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
    "no green cones": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
}


PAPER = tuple(METHODS)[:12]
OFTEN = ("supersgd", "qsgd", "qsgdinf", "nuqsgd", "alq", "amq", "topk", "powersgd", "eden", "dgc")


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("methods", [PAPER, OFTEN])
def test_colours_of_methods_that_share_a_figure_can_be_told_apart(methods: tuple[str, ...], sight: str) -> None:
    """Distance in CIE Lab, of which about 2 is just visible; marker and dash come on top."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    shown = [np.clip(SIGHT[sight] @ linear(style.look(seed_group(name)).colour), 0, 1) for name in methods]
    x, y, z = np.cbrt(np.array([to_xyz @ colour for colour in shown]).T / np.array([[0.9505], [1.0], [1.089]]))
    lab = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
    distances = {(a, b): float(np.linalg.norm(lab[a] - lab[b])) for a, b in itertools.combinations(range(len(lab)), 2)}
    closest = min(distances, key=lambda pair: distances[pair])
    assert distances[closest] > 16, [methods[k] for k in closest]


def test_settings_of_one_method_share_its_colour_and_differ_in_dash_and_marker() -> None:
    first, second = style.look(seed_group("alq")), style.look(seed_group("alq", 1))
    assert (first.colour, first.marker) == (second.colour, second.marker)
    assert first.dash != second.dash
    assert first.hollow != second.hollow


def test_further_settings_of_one_method_have_other_markers_and_shades(subtests: pytest.Subtests) -> None:
    """SmaQ's sweep has the most settings of one method; black is as dark as a shade can be."""
    for method in METHODS:
        with subtests.test(method=method):
            looks = [style.look(seed_group(method, variant)) for variant in range(0, 12, 2)]
            assert len({look.marker for look in looks}) == 6
            assert len({look.colour for look in looks}) == (2 if looks[0].colour == "#000000" else 3)
            assert min(float(1 - np.mean(to_rgb(look.colour))) for look in looks) > 0.15, "none fades into the page"
