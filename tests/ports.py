"""Ports for servers that a test starts."""

from __future__ import annotations

import contextlib
import random
import socket

# Below the ports that systems hand to outgoing connections (32768 on Linux): one that is free here and now could
# otherwise be some client's before the server has bound it.  And below those of job scripts (20000 and above).
_PORTS = range(12000, 20000)


def free_ports(count: int) -> list[int]:
    """So many ports on which nothing listens, drawn at random, so that tests side by side do not draw the same."""
    found: list[int] = []
    draw = random.SystemRandom()
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = draw.choice(_PORTS)
            with contextlib.suppress(OSError):
                held.enter_context(socket.socket()).bind(("", port))
                found.append(port)
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
