"""The table of what a training's exchanges took and saved on this rank: about ten lines for people to read."""

from __future__ import annotations

from collections.abc import Mapping

from nuq.exchange.driver import Driver

MOST_ROWS = 5  # of bits
PLAIN = {"float32": 4, "bfloat16": 2}  # bytes of a coordinate in what messages are compared with


def ring_bytes(num_coordinates: int, world: int, bytes_each: int, *, passes: int = 2) -> int:
    """The bytes that one rank sends for one all-reduce by a ring, of two passes; one: a reduce-scatter or a gather."""
    return passes * (world - 1) * num_coordinates * bytes_each // max(world, 1)


def of_exchanges(
    title: str,
    driver: Driver,
    done: str,
    steps: int,
    num_coordinates: int,
    *,
    plain: str = "all-reduces",
    passes: int = 2,
    also_sent: int = 0,
    gate: str = "",
) -> str:
    """The table of a driver's exchanges, beside the same steps of a ring in full precision.

    done: the steps in words; plain, passes: what the ring does (``ring_bytes``); also_sent: bytes of other drivers.
    """
    world, sent = driver.transport.world, driver.bytes_sent + also_sent
    bits, seconds = driver.bits_by_vector(), driver.stats.seconds
    size = (num_coordinates, world)
    return table(title, done, steps, size, sent, bits, seconds, plain=plain, passes=passes, gate=gate)


def table(
    title: str,
    done: str,
    steps: int,
    size: tuple[int, int],
    sent: int,
    bits: Mapping[str, float],
    seconds: Mapping[str, float],
    *,
    plain: str,
    passes: int,
    gate: str = "",
) -> str:
    """The table of exchanges of so many coordinates on so many ranks (``size``); sent: bytes of this rank.

    bits: a coordinate, by the name of a vector; vectors of as many bits are one row.
    """
    rows = [
        ("steps", done),
        ("coordinates", f"{size[0]:,} on {size[1]} ranks"),
        ("sent", f"{_bytes(sent)} by this rank"),
    ]
    for of, each in PLAIN.items():
        if count := steps * ring_bytes(*size, each, passes=passes):
            rows.append((f"{of} {plain}", f"{_bytes(count)} ({count / max(sent, 1):.1f} times as much)"))
    rows += [("bits" if not number else "", row) for number, row in enumerate(bit_rows(bits))]
    rows += [("gate", gate)] * bool(gate)
    rows += [("seconds", ", ".join(f"{what} {spent:.3g}" for what, spent in seconds.items()))] * bool(seconds)
    width = max(len(name) for name, _ in rows)
    return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows)])


def bit_rows(by_vector: Mapping[str, float]) -> list[str]:
    """The bits a coordinate, vectors of as many in a row, and in how many rows more where there are many."""
    alike: dict[str, list[str]] = {}
    for name, bits in by_vector.items():
        alike.setdefault(f"{bits:.3g}", []).append(name)
    rows = [f"{bits} of {names[0]}" + f" and {len(names) - 1} more" * bool(names[1:]) for bits, names in alike.items()]
    return rows if len(rows) <= MOST_ROWS else [*rows[:MOST_ROWS], f"{len(rows) - MOST_ROWS} more"]


def of_gate(asked: bool, measured: Mapping[str, float], chosen: str) -> str:
    """The gate's decision.  measured: seconds of a mean by collective, ``dense`` last."""
    if not asked:
        return "none (gate=True measures the time against bfloat16)"
    if not measured:
        return "dense, as measured before this start" if chosen == "dense" else "not measured yet"
    (name, compressed), (_, dense) = measured.items()
    return f"{1e3 * compressed:.3g} ms by {name}, {1e3 * dense:.3g} ms in bfloat16: {chosen}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
