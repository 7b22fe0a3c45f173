"""A network of chosen speed on one machine: namespaces joined by a bridge, each limited by a token bucket.

::

    with network(4, rate_mbit=100) as net:      # root, iproute2
        process = subprocess.Popen(net.command(2, ["python", "program.py"]))
        net.set_rate(1000)                       # of the running namespaces

The bridge lives in a namespace of its own, so nothing is left outside the namespaces, and deleting them undoes
everything.  Their names carry the process that made them; those of a process that is gone are deleted by the next one.
Only what a rank sends is limited, as on a link that is as fast in both directions and never congested at the receiver.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

INTERFACE = "wire"  # interface of every rank, in its own namespace
PREFIX = "nuqwire"
SEGMENT_BYTES = 1448  # payload of a full TCP segment
TCP_HEADER_BYTES = 66  # Ethernet 14, IPv4 20, TCP with time stamps 32
QUEUE_MS = 50  # delay of a full queue
FASTEST_MBIT = 100_000
STREAM = """
import socket, sys, time
seconds = float(sys.argv[3])
if sys.argv[1] == "receive":
    server = socket.create_server((sys.argv[2], 29400))
    print("ready", flush=True)
    server.settimeout(10)
    source = server.accept()[0]
    memory, total, seen = bytearray(1 << 20), 0, []
    while count := source.recv_into(memory):
        total += count
        seen.append((time.perf_counter(), total))
    settled = [entry for entry in seen if entry[0] > seen[0][0] + seconds / 4]  # the bucket is empty by then
    print((settled[-1][1] - settled[0][1]) / (settled[-1][0] - settled[0][0]))
else:
    target, memory = socket.create_connection((sys.argv[2], 29400), timeout=10), bytes(1 << 20)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        target.sendall(memory)
"""


@dataclass(frozen=True)
class Counters:
    """The counts of what an interface has sent.

    They are bytes with the headers of Ethernet, IP and TCP, packets, and segments that TCP sent a second time.
    """

    num_bytes: int
    num_packets: int
    num_resent: int = 0

    def payload_since(self, earlier: Counters, *, with_repeats: bool = False) -> int:
        """The bytes of payload since ``earlier``.

        An acknowledgement is 66 bytes, and so is the header of a packet however long.

        A segment that TCP sent again, because a busy receiver was late to acknowledge it, counts once, unless
        ``with_repeats``: a slow link's queue drops packets before the interface has counted them.
        """
        sent = self.num_bytes - earlier.num_bytes - TCP_HEADER_BYTES * (self.num_packets - earlier.num_packets)
        return sent if with_repeats else sent - SEGMENT_BYTES * (self.num_resent - earlier.num_resent)


def read_counters(interface: str = INTERFACE) -> Counters:
    """The counters of this process's network namespace."""
    own = Path("/proc/self/net")
    return counters_of((own / "dev").read_text(), (own / "snmp").read_text(), interface)


def counters_of(devices: str, protocols: str, interface: str) -> Counters:
    """The counters of an interface in the texts of /proc/net/dev and /proc/net/snmp."""
    names, values = (line.split() for line in protocols.splitlines() if line.startswith("Tcp:"))
    resent = int(values[names.index("RetransSegs")])
    for line in devices.splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == interface:
            numbers = fields.split()  # 8 columns of what was received come first
            return Counters(int(numbers[8]), int(numbers[9]), resent)
    raise ValueError(f"this network namespace has no interface {interface}")


def why_not() -> str | None:
    """The reason why no network can be made here, in one sentence; None where it can."""
    if not sys.platform.startswith("linux"):
        return f"the simulated network needs Linux's network namespaces, and this is {sys.platform}"
    if absent := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"the simulated network needs {' and '.join(absent)} (package iproute2), which PATH does not have"
    if os.geteuid() != 0:
        return f"the simulated network needs root to make network namespaces, and this is user {os.geteuid()}"
    return None


def burst_bytes(rate_mbit: float) -> int:
    """The size of the token bucket.

    A small one delivers less than a fast link's rate, a large one lets a slow link's first bytes through at once.
    """
    return 64 << 10 if rate_mbit < 1000 else 256 << 10 if rate_mbit < 10_000 else 4 << 20


@dataclass(frozen=True)
class Network:
    """The namespaces of ``num_ranks`` ranks; rank r has the address 10.77.0.(r + 1)."""

    prefix: str
    num_ranks: int
    interface: ClassVar[str] = INTERFACE

    def namespace(self, rank: int) -> str:
        return f"{self.prefix}-{rank}"

    def address(self, rank: int) -> str:
        return f"10.77.0.{rank + 1}"

    def command(self, rank: int, arguments: Sequence[str]) -> list[str]:
        """The command that runs ``arguments`` in the rank's namespace."""
        return ["ip", "netns", "exec", self.namespace(rank), *arguments]

    def set_rate(self, rate_mbit: float) -> None:
        """Limit what every rank sends, running connections included."""
        if not 0 < rate_mbit <= FASTEST_MBIT:
            raise ValueError(f"rate_mbit={rate_mbit:g} must be above 0 and at most {FASTEST_MBIT}")
        for rank in range(self.num_ranks):
            limit = f"rate {round(rate_mbit * 1e6)}bit burst {burst_bytes(rate_mbit)} latency {QUEUE_MS}ms"
            _run(f"tc -n {self.namespace(rank)} qdisc replace dev {INTERFACE} root tbf {limit}".split())

    def raw_mbit(self, seconds: float = 1.0) -> float:
        """The payload rate of one TCP stream from rank 1 to rank 0, without the first quarter of the time."""
        program = [sys.executable, "-S", "-c", STREAM]
        rest = [self.address(0), str(seconds)]
        with subprocess.Popen(
            self.command(0, [*program, "receive", *rest]), stdout=subprocess.PIPE, text=True, errors="replace"
        ) as receiver:
            try:
                assert receiver.stdout is not None
                receiver.stdout.readline()
                _run(self.command(1, [*program, "send", *rest]))
                return float(receiver.communicate(timeout=30)[0]) * 8 / 1e6
            finally:
                receiver.kill()


@dataclass(frozen=True)
class Loopback:
    """The machine's own loopback in place of a network: as fast as it is, and without root."""

    num_ranks: int
    interface: ClassVar[str] = "lo"

    def address(self, rank: int) -> str:
        return "127.0.0.1"

    def command(self, rank: int, arguments: Sequence[str]) -> list[str]:
        return list(arguments)

    def set_rate(self, rate_mbit: float) -> None:
        """It stays as fast as it is."""


@contextlib.contextmanager
def network(num_ranks: int, rate_mbit: float) -> Iterator[Network]:
    """Make the namespaces, and delete them in the end whatever happens.

    Raises ValueError where it cannot be done here.
    """
    if reason := why_not():
        raise ValueError(reason)
    if not 2 <= num_ranks <= 250:
        raise ValueError(f"num_ranks={num_ranks} must be 2 to 250")
    delete_abandoned()
    made = Network(f"{PREFIX}{os.getpid()}", num_ranks)
    try:
        _join(made)
        made.set_rate(rate_mbit)
        yield made
    finally:
        for name in [name for name in _namespaces() if name.startswith(f"{made.prefix}-")]:
            _delete(name)


def network_or_loopback(
    shaped: bool, num_ranks: int, rate_mbit: float
) -> contextlib.AbstractContextManager[Network | Loopback]:
    """A ``network`` if ``shaped``, else this machine's loopback."""
    return network(num_ranks, rate_mbit) if shaped else contextlib.nullcontext(Loopback(num_ranks))


def delete_abandoned() -> None:
    """Delete the namespaces that a killed process left."""
    for name in _namespaces():
        process, _, _ = name.removeprefix(PREFIX).partition("-")
        if name.startswith(PREFIX) and process.isdecimal() and not Path(f"/proc/{process}").exists():
            with contextlib.suppress(ValueError):  # another one of us was faster
                _delete(name)


def _join(made: Network) -> None:
    switch = f"{made.prefix}-switch"
    commands = [
        f"netns add {switch}",
        f"-n {switch} link add bridge type bridge",
        f"-n {switch} link set bridge up",
    ]
    for rank in range(made.num_ranks):
        own, port = made.namespace(rank), f"port{rank}"
        commands += [
            f"netns add {own}",
            f"-n {own} link add {INTERFACE} type veth peer name {port} netns {switch}",
            f"-n {switch} link set {port} master bridge up",
            f"-n {own} address add {made.address(rank)}/24 dev {INTERFACE}",
            *(f"-n {own} link set {interface} up" for interface in (INTERFACE, "lo")),
        ]
    for command in commands:
        _run(["ip", *command.split()])


def _namespaces() -> list[str]:
    listed = json.loads(_run(["ip", "-json", "netns", "list"]) or "[]")
    return [entry["name"] for entry in listed]


def _delete(name: str) -> None:
    """Delete a namespace, and end what still runs in it.

    Otherwise its interfaces would live on with those processes.
    """
    for process in _run(["ip", "netns", "pids", name]).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), 9)
    _run(["ip", "netns", "delete", name])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ValueError(
            f"the simulated network cannot be made: `{' '.join(command[:8])}` says "
            f"{said[-1] if said else done.returncode!r}"
        )
    return done.stdout
