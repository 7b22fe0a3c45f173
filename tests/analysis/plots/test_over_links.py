"""The loss against predicted seconds: a panel for each link, and only where rounds differ in length."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.groups.seed_groups import groups
from analysis.plots.over_links import loss_over_links
from tests.analysis.synthetic import many_runs


def test_a_panel_for_each_link_with_a_point_for_each_length_of_a_round(tmp_path: Path) -> None:
    logs = many_runs(9, tmp_path)
    (group,) = groups(logs)
    assert loss_over_links(group, 3.4) == "all runs have the same exchange.local_steps"
    logs.settings["exchange.local_steps"] = [1, 1, 1, 4, 4, 4, 16, 16, 16]
    logs.settings["exchange.nesterov"] = [True] * 3 + [False] * 6  # without effect in the first three
    logs.settings["method.name"] = "supersgd"
    (group,) = groups(logs)
    figure = loss_over_links(group, 3.4)
    assert isinstance(figure, Figure)
    assert [axes.get_title() for axes in figure.axes] == ["10 Mbit/s", "100 Mbit/s", "1 Gbit/s"]
    losses = logs.of_tag("Vloss").iloc[-1].to_numpy().reshape(3, 3).mean(axis=1)
    lasts = []
    for axes in figure.axes:
        handles, found = axes.get_legend_handles_labels()
        assert found == ["SuperSGD"]
        seconds, loss = map(np.asarray, handles[0].get_data())  # type: ignore[attr-defined]
        assert sorted(loss) == pytest.approx(sorted(losses)) and len(seconds) == 3
        assert axes.texts[0].get_text() == "from the right:\nH = 1, 4, 16"
        lasts.append(seconds.mean())
    # 2,000 steps of a quarter of 10 ms, and of 2 MB a ring sends 1.5 times as much, whatever H in these made-up logs
    assert lasts == pytest.approx([5 + 2.4, 5 + 0.24, 5 + 0.024], rel=0.05)
    assert lasts[0] - lasts[1] == pytest.approx(2.4 - 0.24, rel=0.1)
