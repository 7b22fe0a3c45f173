"""The positions on their axis of points with nearly equal bits or ratios."""

from collections.abc import Sequence

import numpy as np
import pytest

from analysis.plots import bits_figure

RATIOS = [
    1.0,
    3.998,
    4.0,
    2.0,
    2.0,
    5.738,
    5.74,
    5.951,
    5.931,
    5.948,
    5.94,
    4.0,
    3.931,
]  # formats on CIFAR-10, five kinds of tensors


def placed(values: Sequence[float], width: float = 3.4) -> tuple[np.ndarray, list[list[int]], float]:
    places, blocks, apart = bits_figure._side_by_side(values, width)
    return places, [block.tolist() for block in blocks], apart


def test_points_with_equal_bits_stand_side_by_side_in_order() -> None:
    places, blocks, _ = placed([3.03, 32.0, 3.03, 1.6, 3.04])
    assert places[0] < places[2] < places[4]
    assert places[2] == pytest.approx(3.03, rel=2e-3)
    assert (places[1], places[3]) == pytest.approx((32.0, 1.6))
    assert blocks == [[3], [0, 2, 4], [1]]
    crowded, _, _ = placed([2.0] * 7 + [1.6])
    assert crowded[7] < min(crowded[:7])


@pytest.mark.parametrize("width", [3.4, 7.0])
def test_points_stand_near_their_values(width: float) -> None:
    places, _, _ = placed(RATIOS, width)
    moved = np.abs(np.log2(places / np.array(RATIOS)))
    assert moved.max() < (0.12 if width == 3.4 else 0.06), "octaves; from 4 to 5.74 it is half of one"
    assert moved[0] == 0


def test_there_is_white_between_bands_and_every_point_has_its_width() -> None:
    for values in (RATIOS, [3.0] * 12 + [3.6] * 3 + [2.6, 32.0], list(np.linspace(3, 6, 40))):
        places, blocks, apart = placed(values)
        ends = np.log2([(places[block[0]], places[block[-1]]) for block in blocks])
        sides = np.array([0.6 * apart if len(block) > 1 else 0 for block in blocks])
        assert (ends[1:, 0] - sides[1:] - ends[:-1, 1] - sides[:-1]).min() > 0.5 * apart
        assert np.diff(np.sort(np.log2(places))).min() > 0.99 * apart


def test_what_differs_is_not_taken_together_and_keeps_its_order() -> None:
    values = [2.0] * 20 + [2.2] * 20 + [8.0]
    places, blocks, _ = placed(values)
    assert [len(block) for block in blocks] == [20, 20, 1]
    assert np.argsort(places, kind="stable").tolist() == list(range(41))


def test_one_value_and_equal_values() -> None:
    assert placed([4.0])[1] == [[0]]
    assert placed([4.0] * 3)[0][1] == pytest.approx(4.0)
