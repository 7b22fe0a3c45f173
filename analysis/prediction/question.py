"""The question that a prediction answers, and the text form of its figures."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.prediction import steps as predict
from nuq.prediction.rates import Model, Profile
from nuq.prediction.steps import Network, Prediction, Variant

BASELINE = "bf16"


@dataclass(frozen=True)
class Row:
    """Methods that cost the same, under one label."""

    label: str
    methods: tuple[str, ...]
    variant: Variant


@dataclass(frozen=True)
class Question:
    """A question to the cost model: everything but workers and bandwidth."""

    profile: Profile
    model: Model
    compute_s: float
    rows: tuple[Row, ...]
    per_machine: int
    local_bandwidth: float
    collective: str

    def step(self, row: Row, workers: int, bandwidth: float) -> Prediction:
        """The predicted step of one row, with the collective that was asked for where it is one of the row's."""
        network = Network(workers, bandwidth, self.per_machine, self.local_bandwidth)
        chosen = self.collective if self.collective in row.variant.collectives else "auto"
        return predict.predict(row.variant, self.model, self.compute_s, network, self.profile, chosen)

    def gains(self, row: Row, workers: int) -> tuple[float, float]:
        """The bandwidths in bit/s from and up to which a row is quicker than bf16 (``steps.gains``)."""
        baseline = next(row for row in self.rows if row.label == BASELINE)
        return predict.gains(
            lambda bandwidth: self.step(row, workers, bandwidth).step_s,
            lambda bandwidth: self.step(baseline, workers, bandwidth).step_s,
        )
