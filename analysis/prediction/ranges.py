"""Lists and ranges of numbers, as the options of ``predict`` name them."""

from __future__ import annotations

from nuq.prediction.units import quantity

_LADDER_FROM = 100  # a wider range has two bandwidths a decade, a narrower one three


def counts_of(text: str, name: str = "--workers", least: int = 2) -> list[int]:
    """The whole numbers of a text: ``8..1024`` is both ends and the powers of two between, ``8,16`` these two."""
    found: set[int] = set()
    for ends in [_ends(part, name) for part in text.split(",")]:
        if any(end % 1 or end < least for end in ends):
            raise ValueError(f"{name} {text!r}: must be whole numbers from {least}, such as 8..1024 or 8,16")
        found |= {int(end) for end in ends}
        found |= {2**k for k in range(64) if len(ends) == 2 and ends[0] <= 2**k <= ends[1]}
    return sorted(found)


def bandwidths_of(text: str) -> list[float]:
    """The bandwidths that a text names, in bit/s: ``1G,10G`` is these two.

    ``100M..400G`` is both ends and in between 1 and 4 (up to two decades: 1, 2 and 5) times powers of ten bit/s.
    """
    found: set[float] = set()
    for part in text.split(","):
        ends = _ends(part, "--bandwidth")
        found |= set(ends)
        if len(ends) == 2:
            steps = (1, 4) if ends[1] / ends[0] > _LADDER_FROM else (1, 2, 5)
            ladder = (step * 10.0**power for power in range(-1, 16) for step in steps)
            found |= {value for value in ladder if ends[0] < value < ends[1]}
    return sorted(found)


def _ends(part: str, name: str) -> list[float]:
    words = part.split("..")
    ends = [quantity(word, name) for word in words if word or len(words) == 1]
    if len(ends) < len(words) or len(ends) > 2 or ends[0] > ends[-1]:
        raise ValueError(f"{name} {part!r}: a range is written LOW..HIGH, the lower end first")
    return ends
