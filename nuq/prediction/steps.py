"""The step time of data-parallel training whose gradients are exchanged as messages, or by a dense all-reduce.

A step is a forward pass, a backward pass during which DDP's buckets become ready one after another, and a tail (the
optimizer) after the last of them.  One lane handles the buckets in that order, each through the stages of its
collective: encode, wire, decode-and-add (the hook receives in a second lane, which the model leaves out, as it does the
overlap of rounds of two stages).  The lane runs beside the computation; where both share a core
(``Profile.shared_core``), a stage's processor time takes turns with the computation in equal parts, and only waiting
for the wire is free.

Per bucket of n coordinates, M workers, a frame of m(n) bytes (its tensors' messages), links of B bytes/s
per machine of L workers (flat: L = 1)::

    ring         dense; bytes sent per rank: 2 (M-1)/M w n, w bytes a coordinate, in 2 (M-1) rounds
    tree         dense, pipelined: 2 w n, in 2 ceil(log2 M) rounds: what large jobs use, since a ring's rounds add up
    gather       encode n; (M-1) m(n) sent, directly to every other; decode M n
    two_stage    encode n in M shards; (M-1) m(n/M); decode M (n/M), encode n/M anew; (M-1) m'(n/M); decode n
                 (r rounds of this, with n/r coordinates each, where n is r times ``SHARD`` M or more)
    server       encode n; rank 0 receives (M-1) m(n), decodes M n, encodes n, sends (M-1) m'(n); decode n
    power        PowerSGD's: encode n; both factors to every other, one after the other (from three workers on in two
                 stages, 2 (M-1)/M of their bytes); decode n
    hierarchical float32 ring inside a machine; gather or two_stage among the machines' first ranks; float32 back again

A wire stage takes ``rounds * latency + max(bytes / B, its processor time)``, processor time being bytes / host rate +
messages * message_s; beside the computation on a shared core a round waits ``busy_latency_s``.  What makes a mean of
decoded messages (zeros, the division, the check) goes at ``mean_gb_s``.  The model leaves out jitter, stragglers and
congestion inside the network; the agreement on levels (one small collective per update).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from nuq.prediction.message_size import DENSE, FACTORED, AnyFormat, Format, MeasuredFormat
from nuq.prediction.rates import Bucket, Model, Profile
from nuq.settings.exchange import SHARD

POWER = "power"
SPARSE_COLLECTIVES = ("gather", "two_stage", "server", "hierarchical")
DENSE_COLLECTIVES = ("ring", "tree")
BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * 2**20, 2**20  # DDP's defaults
COORDINATES_PER_TENSOR = 200_000  # ResNet-18: 180,000
_SLOWEST, _FASTEST = 1e5, 1e14  # bit/s: where break-even is looked for
_STEPS_PER_DECADE = 4


@dataclass(frozen=True)
class Network:
    """A network of workers.

    bandwidth, local_bandwidth: bit/s of a machine's link to the others, and of a worker's inside its machine.
    """

    workers: int
    bandwidth: float
    per_machine: int = 1
    local_bandwidth: float = 100e9

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise ValueError(f"workers={self.workers}: must be at least 2, one worker exchanges nothing")
        if not self.per_machine >= 1 or self.workers % min(self.per_machine, self.workers):
            raise ValueError(f"workers={self.workers}: must be a multiple of per_machine={self.per_machine}")

    @property
    def local_workers(self) -> int:
        """The number of workers on one machine."""
        return min(self.per_machine, self.workers)


@dataclass(frozen=True)
class Variant:
    """The formats that travel: the first stage's and the second's."""

    first: AnyFormat
    second: AnyFormat

    @property
    def collectives(self) -> tuple[str, ...]:
        if self.first.kind == FACTORED:
            return (POWER,)
        return DENSE_COLLECTIVES if self.first.kind in DENSE else SPARSE_COLLECTIVES

    def of_means(self, workers: int) -> AnyFormat:
        """The format of a mean of so many workers' messages."""
        return self.second.of_mean(workers) if isinstance(self.second, MeasuredFormat) else self.second


@dataclass(frozen=True)
class Stage:
    """A stage of an exchange: its time alone, the part of it on the processor, and its rounds between ranks."""

    seconds: float
    cpu_s: float
    rounds: int = 0


@dataclass(frozen=True)
class Prediction:
    """A predicted step: its time, what the exchange adds to the computation, and bytes sent by the busiest rank."""

    step_s: float
    exposed_s: float
    collective: str
    bytes_sent: int


def ddp_buckets(parameters: int, tensors: int = 0) -> Model:
    """A model of many tensors (0: one per 200,000 coordinates) in full buckets, ready by their share of parameters."""
    first, size = min(parameters, FIRST_BUCKET_BYTES // 4), BUCKET_BYTES // 4
    sizes = [first] + [size] * ((parameters - first) // size)
    sizes += [parameters - sum(sizes)] * (parameters > sum(sizes))
    tensors = tensors or math.ceil(parameters / COORDINATES_PER_TENSOR)
    done, buckets = 0, []
    for size in sizes:
        done += size
        buckets.append(Bucket(size, done / parameters, max(1, round(tensors * size / parameters))))
    return Model(tuple(buckets))


# --- one bucket ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Costs:
    """The stages from a profile's rates; busy: how many ranks take turns on one core (1: each has its own)."""

    profile: Profile
    network: Network
    busy: float = 1.0

    def _cpu(self, seconds: float) -> Stage:
        return Stage(seconds * self.busy, seconds * self.busy)

    def encode(self, form: AnyFormat, coordinates: float, messages: float = 1, frames: int = 1) -> Stage:
        return self._cpu(self.profile.codecs[form.kind].encode_s(coordinates, messages, frames))

    def decode(
        self, form: AnyFormat, coordinates: float, messages: float = 1, frames: int = 1, means: float = 0.0
    ) -> Stage:
        """The stage that decodes messages; means: the coordinates of the means that they make, if any."""
        seconds = self.profile.codecs[form.kind].decode_s(coordinates, messages, frames)
        return self._cpu(seconds + 4e-9 * means / self.profile.mean_gb_s)

    def wire(self, out_bytes: float, local_bytes: float, handled_bytes: float, messages: int, rounds: int) -> Stage:
        """The stage that moves bytes over the network.

        out_bytes: through the machine's link; local_bytes: inside it; handled_bytes: by one rank, sent and as many
        received.
        """
        cpu = (handled_bytes / (1e9 * self.profile.host_gb_s) + messages * self.profile.message_s) * self.busy
        seconds = max(8 * out_bytes / self.network.bandwidth, 8 * local_bytes / self.network.local_bandwidth, cpu)
        return Stage(rounds * self.profile.latency_s + seconds, cpu, rounds)

    def direct(self, size: float, frames: int = 1) -> Stage:
        """The stage in which every rank sends frames of this many bytes each to every other, one behind the other."""
        workers, local = self.network.workers, self.network.local_workers
        size, messages = frames * size, frames * (workers - 1)
        return self.wire(local * (workers - local) * size, (local - 1) * size, (workers - 1) * size, messages, 1)

    def to_one(self, size: float) -> Stage:
        """The stage in which every rank sends to rank 0 (or, the other way, is sent).

        The link and processor of rank 0 are the narrow ones, one way at a time.
        """
        workers, local = self.network.workers, self.network.local_workers
        return self.wire((workers - local) * size, (local - 1) * size, (workers - 1) * size / 2, workers - 1, 1)


def stages(
    collective: str, variant: Variant, bucket: Bucket, network: Network, profile: Profile, busy: float = 1.0
) -> tuple[list[Stage], int]:
    """The stages of one bucket, in order, and the bytes that the busiest rank sends for it."""
    costs = Costs(profile, network, busy)
    if collective in DENSE_COLLECTIVES:
        return _dense(collective, variant.first, bucket.coordinates + bucket.whole, costs)
    if collective == "hierarchical":
        return _hierarchical(variant, bucket, costs)
    if collective == POWER:
        return _power(variant.first, bucket, costs)
    workers, n, tensors = network.workers, bucket.coordinates, bucket.tensors
    first, second = variant.first, variant.of_means(workers)
    whole = 4 * bucket.whole  # bytes beside the messages
    if collective == "gather":
        size = first.frame_bytes(n, tensors) + whole
        decode = costs.decode(first, workers * n, workers * tensors, workers, means=n)
        return [costs.encode(first, n, tensors), costs.direct(size), decode], round((workers - 1) * size)
    if collective == "two_stage":
        # share and pieces of one shard: a tensor is cut where a shard ends
        rounds = max(n // (workers * SHARD), 1)
        shards = rounds * workers
        share, pieces = n / shards, (tensors + shards - 1) / shards
        sizes = [form.frame_bytes(share, pieces) + whole / shards for form in (first, second)]
        return [
            costs.encode(first, n, shards * pieces, shards),
            costs.direct(sizes[0], rounds),
            costs.decode(first, n, shards * pieces, shards, means=n / workers),
            costs.encode(second, n / workers, rounds * pieces, rounds),
            costs.direct(sizes[1], rounds),
            costs.decode(second, n, shards * pieces, shards),
        ], round((workers - 1) * rounds * sum(sizes))
    assert collective == "server", collective
    sizes = [form.frame_bytes(n, tensors) + whole for form in (first, second)]
    return [
        costs.encode(first, n, tensors),
        costs.to_one(sizes[0]),
        costs.decode(first, workers * n, workers * tensors, workers, means=n),
        costs.encode(second, n, tensors),
        costs.to_one(sizes[1]),
        costs.decode(second, n, tensors),
    ], round((workers - 1) * sizes[1])


def _dense(collective: str, form: AnyFormat, coordinates: int, costs: Costs) -> tuple[list[Stage], int]:
    workers, local = costs.network.workers, costs.network.local_workers
    whole = 2 * coordinates * (4 if form.kind == "fp32" else 2)
    sent = whole * (workers - 1) / workers if collective == "ring" else whole
    rounds = 2 * (workers - 1) if collective == "ring" else 2 * math.ceil(math.log2(workers))
    wire = costs.wire(sent if workers > local else 0, sent if local > 1 else 0, sent, rounds, rounds)
    return [costs.encode(form, coordinates), wire, costs.decode(form, coordinates)], round(sent)


def _power(form: AnyFormat, bucket: Bucket, costs: Costs) -> tuple[list[Stage], int]:
    n, tensors, workers = bucket.coordinates, bucket.tensors, costs.network.workers
    size = (form.frame_bytes(n, tensors) + 4 * bucket.whole) / 2  # of each of the two rounds
    if workers > 2:
        size, rounds = size / workers, 4
    else:
        rounds = 2
    wires = [costs.direct(size)] * rounds
    found = [costs.encode(form, n, tensors), *wires, costs.decode(form, n, tensors)]
    return found, round(rounds * (workers - 1) * size)


def _hierarchical(variant: Variant, bucket: Bucket, costs: Costs) -> tuple[list[Stage], int]:
    n, network = bucket.coordinates + bucket.whole, costs.network
    local = network.local_workers
    inside = replace(costs, network=replace(network, workers=local))
    (_, ring, added), ring_bytes = _dense("ring", Format("fp32", 32), n, inside)
    back_bytes = (local - 1) * 4 * n
    back = costs.wire(0, back_bytes, back_bytes / 2, local - 1, 1)  # the first rank sends, one way
    between, sent = [], 0
    if network.workers > local:
        machines = Network(network.workers // local, network.bandwidth)
        ways = ("gather", "two_stage")
        choices = (stages(name, variant, bucket, machines, costs.profile, costs.busy) for name in ways)
        between, sent = min(choices, key=lambda found: sum(stage.seconds for stage in found[0]))
    return [ring, added, *between, back], ring_bytes + sent + back_bytes


# --- one step -----------------------------------------------------------------------------------------------------


def schedule(
    model: Model, compute_s: float, buckets: Iterable[list[Stage]], *, shared_core: bool, busy_round_s: float = 0.0
) -> float:
    """Seconds of a step whose buckets go through these stages; ``buckets`` as in ``model.buckets``.

    busy_round_s: what a round takes in addition, on a shared core, while the computation goes on.
    """
    forward, tail = model.forward * compute_s, model.tail * compute_s
    computation = compute_s - tail
    now = done = 0.0  # done: seconds of the computation that are behind us
    for bucket, its_stages in zip(model.buckets, buckets, strict=True):
        ready = forward + bucket.ready * (computation - forward)
        if ready > done:  # the lane waits, the computation has the core
            now, done = now + ready - done, ready
        for stage in its_stages:
            left = stage.seconds
            if shared_core:
                left += min(stage.rounds * busy_round_s, computation - done)
            use = stage.cpu_s / left if shared_core and left else 0.0
            lane, core = (1.0, 1 - use) if use <= 0.5 else (0.5 / use, 0.5)  # speeds while both run
            if left <= 0:
                continue
            if done < computation:
                both = min(left / lane, (computation - done) / core)
                now, left = now + both, left - both * lane
                done = computation if done + both * core >= computation * (1 - 1e-12) else done + both * core
            now += max(left, 0.0)
    return now + (computation - done) + tail


def predict(
    variant: Variant,
    model: Model,
    compute_s: float,
    network: Network,
    profile: Profile,
    collective: str = "auto",
    busy: float = 1.0,
) -> Prediction:
    """The step with this collective (``hierarchical`` needs several workers a machine) or the quickest (``auto``)."""
    legal = [name for name in variant.collectives if name != "hierarchical" or network.local_workers > 1]
    if collective not in ("auto", *legal):
        raise ValueError(f"collective {collective!r}: must be one of auto, {', '.join(legal)} here")
    found = []
    for name in legal if collective == "auto" else [collective]:
        per_bucket = [stages(name, variant, bucket, network, profile, busy) for bucket in model.buckets]
        step_s = schedule(
            model,
            compute_s,
            [steps for steps, _ in per_bucket],
            shared_core=profile.shared_core,
            busy_round_s=max(profile.busy_latency_s - profile.latency_s, 0.0),
        )
        found.append(Prediction(step_s, step_s - compute_s, name, sum(sent for _, sent in per_bucket)))
    return min(found, key=lambda prediction: prediction.step_s)


def gains(
    step_s: Callable[[float], float], baseline_s: Callable[[float], float], bandwidth: float = _SLOWEST
) -> tuple[float, float]:
    """The bandwidths in bit/s from and up to which the first is quicker than the second, or 0 and 0.

    Of several such ranges the one that holds ``bandwidth``, or is nearest to it.  From 0 where the first is quicker on
    the slowest links, up to inf where on the fastest.  It is looked for in steps of a quarter decade, then by bisection
    to a ten-thousandth.
    """

    def pays(at: float) -> bool:
        return step_s(at) < baseline_s(at)

    def edge(inside: float, outside: float) -> float:
        while not 1 / 1.0001 <= outside / inside <= 1.0001:
            middle = math.sqrt(inside * outside)
            inside, outside = (middle, outside) if pays(middle) else (inside, middle)
        return math.sqrt(inside * outside)

    ladder = [_SLOWEST]
    while ladder[-1] < _FASTEST:
        ladder.append(ladder[-1] * 10 ** (1 / _STEPS_PER_DECADE))
    ladder = sorted({*ladder, bandwidth})
    paying = [number for number, at in enumerate(ladder) if pays(at)]
    if not paying:
        return 0.0, 0.0
    first = last = min(paying, key=lambda number: abs(math.log(ladder[number] / bandwidth)))
    while first - 1 in paying:
        first -= 1
    while last + 1 in paying:
        last += 1
    low = edge(ladder[first], ladder[first - 1]) if first else 0.0
    high = edge(ladder[last], ladder[last + 1]) if last + 1 < len(ladder) else math.inf
    return low, high
