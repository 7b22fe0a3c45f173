"""The headline: its rates are those that the kept runs say, and nothing else tells its methods from theirs."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from grid import headline
from grid.engine.local import kept
from grid.engine.sweep import load

ROOT = Path(__file__).parents[3]


def test_the_chosen_rates_are_those_of_the_least_loss() -> None:
    """A run that diverged has no loss, and is not chosen."""
    losses: dict[str, dict[float, float]] = defaultdict(dict)
    for experiment in load("headline", "rates_cpu").experiments():
        rate = experiment.config["optim"]["lr"]
        status = json.loads((ROOT / kept.RESULTS / experiment.folder / experiment.name / "status.json").read_text())
        loss = status["metrics"].get("Vloss")
        losses[experiment.label.removesuffix(f" lr={rate:g}")][rate] = float("inf") if loss is None else loss
    best = {label: min(of_rate, key=lambda rate: of_rate[rate]) for label, of_rate in losses.items()}
    assert {label: rate for rate, labels in headline.CHOSEN_RATES.items() for label in labels} == best
    assert all(set(of_rate) == set(headline.TRIED_RATES) for of_rate in losses.values())


def test_long_runs_have_fresh_seeds_and_the_settings_of_the_tried_ones() -> None:
    tried = {each.label.rpartition(" lr=")[0]: each.config for each in load("headline", "rates_cpu").experiments()}
    long = headline.cifar10_cpu().experiments()
    assert headline.TRIED_SEED not in {each.seed for each in long}
    assert len({each.seed for each in long}) == 5
    labels = {each.label for each in long}
    assert labels - set(tried) == {f"ALQ first update {step}" for step in (0, 10, 100)}
    assert set(tried) <= labels
    for each in long:
        if each.label in tried:
            assert each.config["method"] == tried[each.label]["method"]
