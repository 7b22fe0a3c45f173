"""What a run adds up over its steps and its attempts."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.exchange.exchanged import Exchanged


@dataclass
class Totals:
    """The values that a run adds up over its attempts, and within a round of local steps (or a step)."""

    bytes: int = 0  # bytes that the first worker encoded, the same in every split
    network_bytes: int = 0  # bytes that the first process handed to the network in its steps
    update_s: float = 0.0
    measure_s: float = 0.0
    round_bytes: int = 0  # of ``bytes`` those of the round
    round_means: int = 0  # of these the means

    def begin_round(self) -> None:
        self.round_bytes = self.round_means = 0

    def add(self, result: Exchanged, network_bytes: int) -> None:
        """Add a step."""
        self.bytes += result.bytes_per_worker
        self.round_bytes += result.bytes_per_worker
        self.round_means += result.means_bytes
        self.network_bytes += network_bytes
