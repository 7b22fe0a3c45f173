"""The curve of a seed group as a table, from the product's two halves of it."""

import pandas as pd

from analysis.groups.aggregate import mean_and_interval, runs_to_use, seeds
from analysis.groups.seed_groups import SeedGroup
from analysis.logs.load import Logs


def curve(logs: Logs, tag: str, seed_group: SeedGroup, *, geometric: bool = False) -> pd.DataFrame:
    """The mean, low end, high end and n of ``seeds`` at each step; ``geometric``: by the logarithm."""
    found = seeds(logs, tag, runs_to_use(logs, seed_group), geometric=geometric)
    mean, low, high = mean_and_interval(found.values, geometric=geometric)
    return pd.DataFrame(
        {"mean": mean, "low": low, "high": high, "n": len(found.runs)}, pd.Index(found.step, name="step")
    )
