"""The sentences of ``CompressionState.summary``: the costs and the savings of a training's exchanges."""

from __future__ import annotations

from collections.abc import Mapping

from nuq.exchange.hook import speed_gate


def ring_bytes(num_coordinates: int, world: int, bytes_each: int) -> int:
    """The bytes that one rank sends for one all-reduce by a ring."""
    return 2 * (world - 1) * num_coordinates * bytes_each // world


def of_bytes(sent: int, num_coordinates: int, world: int, steps: int) -> str:
    """The sentence on the bytes that this rank has sent, compared with those of plain all-reduces."""
    if not steps or world == 1:
        return f"This rank sent {_bytes(sent)}."
    plain = {name: steps * ring_bytes(num_coordinates, world, each) for name, each in (("float32", 4), ("bfloat16", 2))}
    beside = [
        f"an all-reduce of {name} sends {_bytes(count)} ({count / max(sent, 1):.1f} times as much)"
        for name, count in plain.items()
    ]
    return f"This rank sent {_bytes(sent)}, where {' and '.join(beside)}."


def of_gate(asked: bool, measured: Mapping[str, float], num_coordinates: int, chosen: str, steps: int) -> str:
    """The sentence on the gate's decision.

    measured: seconds of a mean by collective, ``dense`` last; num_coordinates: of a step; steps: since then.
    """
    if not asked:
        return "Time against bfloat16 was not measured (gate=True does)."
    if not measured:
        before = f"The gate has said dense before this start: {_DENSE}."
        return before if chosen == "dense" else "The gate has not measured yet."
    (name, compressed), (_, dense) = measured.items()
    word = f"{_DENSE} since" if chosen == "dense" else f"messages by {name} since"
    probed = min(num_coordinates, speed_gate.MOST)
    saved = abs(dense - compressed) * num_coordinates / max(probed, 1) * steps
    return (
        f"The gate measured {1e3 * compressed:.3g} ms by {name} and {1e3 * dense:.3g} ms in bfloat16 for {probed:,} "
        f"coordinates: {word}, which saved about {saved:.3g} s of exchange in {steps} steps."
    )


def of_bits(by_vector: Mapping[str, float]) -> str:
    """The sentence on the bits a coordinate, vectors of as many together."""
    alike: dict[str, list[str]] = {}
    for name, bits in by_vector.items():
        alike.setdefault(f"{bits:.3g}", []).append(name)
    return f"Bits a coordinate: {'; '.join(f'{bits} of {_names(names)}' for bits, names in alike.items())}."


def _names(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")


def of_seconds(spent: Mapping[str, float]) -> str:
    """The sentence on where the exchanging threads' time went."""
    return f"Spent: {', '.join(f'{what} {seconds:.3g} s' for what, seconds in spent.items()) or 'nothing'}."


_DENSE = "bfloat16 by the backend's own all-reduce"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
