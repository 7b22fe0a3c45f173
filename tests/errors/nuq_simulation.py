"""Errors of the exchange of several workers in one process (``nuq.simulation``), and of what travels between them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from nuq.compressors.frame import Frame
from nuq.compressors.message import Message
from nuq.exchange import transport
from nuq.exchange.collectives import parameter_server
from nuq.exchange.driver import Memory
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import MARKER, PayloadCodec, checked
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback
from nuq.settings.layers import parsed
from nuq.simulation import Workers
from tests.errors.nuq_messages import KEY, compressor
from tests.errors.nuq_ranks import alone
from tests.errors.rows import Row, row

SHAPES = {"weight": torch.Size((20, 10)), "bias": torch.Size((10,))}
LAYOUT = FlatLayout((Segment("weight", 0, 4), Segment("bias", 4, 2)))


def workers(method: str = "topk", num: int = 3, collective: str = "gather", **given: Any) -> Workers:
    """Workers of a small model.  given: of the exchange, of feedback (kind, both) and momentum."""
    (layer,) = parsed([f"* = {method}"])
    feedback = {key: given.pop(key) for key in ("kind", "both") if key in given}
    memory = Memory(Feedback(**feedback), given.pop("momentum", 0.0)) if feedback else None
    exchange = Exchange(collective=collective, **given)
    return Workers(layer.method, layer.settings, num, SHAPES, 1, torch.device("cpu"), exchange=exchange, memory=memory)


def built(given: str, **how: Any) -> Row:
    return row("nuq.simulation.Workers", given, lambda: workers(**how))


def exchanged(given: str, value: float, *, losses: float = 0.0, every: bool = False, **how: Any) -> Row:
    """A step in which the last worker's weight (or every one's) has this value."""

    def make() -> None:
        of = workers(**how)
        gradients = {worker: torch.ones(of.num_coordinates) for worker in of.hosted}
        for worker in of.hosted if every else of.hosted[-1:]:
            gradients[worker][:200] = value
        of.exchange(gradients, dict.fromkeys(of.hosted, losses), 0)

    return row("nuq.simulation.Workers.exchange", given, make)


def loaded(given: str, change: Callable[[dict[str, Any]], Any], method: str = "topk") -> Row:
    """The state of workers with a change."""

    def make() -> None:
        of = workers(method, kind="error")
        of.exchange({worker: torch.ones(of.num_coordinates) for worker in of.hosted}, dict.fromkeys(of.hosted, 0.0), 0)
        of.load_state_dict(change(of.state_dict()))

    return row("nuq.simulation.Workers.load_state_dict", given, make)


def _without_weight(state: dict[str, Any]) -> dict[str, Any]:
    state["memories"][0]["workers"][1]["residuals"].clear()
    return state


def _negative(state: dict[str, Any]) -> dict[str, Any]:
    for statistics in state["statistics"]:
        statistics.fill_(-1)
    return state


def payload(given: str, change: Callable[[Tensor], Tensor], layout: FlatLayout = LAYOUT) -> Row:
    """A payload of six coordinates, changed, or for another layout."""

    def make() -> None:
        codec = PayloadCodec(compressor("qsgd"))
        codec.add(change(codec.encode(torch.ones(6), LAYOUT, KEY)), layout, torch.zeros(layout.num_coordinates))

    return row("a payload of another rank", given, make)


def _encoded(method: str) -> None:
    PayloadCodec(compressor(method)).encode(torch.full((6,), torch.nan), LAYOUT, KEY)


def _marked(worker: int) -> Callable[[Tensor], Tensor]:
    body = torch.tensor([worker], dtype=torch.int32).view(torch.uint8)
    return lambda data: Frame.of([Message(MARKER, 0, body)], data.device).sealed()


def _added(total: int) -> None:
    of = compressor("qsgd")
    of.add(of.encode(torch.ones(4), KEY), torch.zeros(total))


def _server_over_nccl() -> None:
    with alone() as group, mock.patch.object(parameter_server, "backend_of", lambda *_: "nccl"):
        parameter_server.ParameterServer(transport.Transport(group))


def _more_processes_than_workers() -> None:
    with mock.patch("nuq.simulation.Transport", lambda *_, **__: SimpleNamespace(world=4)):
        workers(num=3)


ROWS = [
    row("nuq.simulation.Workers", "3 workers on 4 processes", _more_processes_than_workers),
    built("collective=hierarchical", collective="hierarchical"),
    built("num_aggregate=4, of three", collective="server", num_aggregate=4),
    built("num_aggregate=2, with a memory", collective="server", num_aggregate=2, kind="error"),
    built("both=True, of powersgd", method="powersgd", collective="auto", kind="error", both=True),
    row("collective=server", "over NCCL", _server_over_nccl),
    exchanged("nan, by topk", torch.nan),
    exchanged("a loss that is nan", 1.0, losses=torch.nan),
    exchanged("a norm that overflows", 3e38, method="qsgd"),
    exchanged("a factor that overflows", 3e38, method="powersgd", collective="auto"),
    exchanged("nan, by alq", torch.nan, method="alq"),
    loaded("without a worker's memory", _without_weight),
    loaded("statistics below zero", _negative, "alq"),
    # payloads
    row("a payload's encoding", "nan, by qsgd", lambda: _encoded("qsgd")),
    row("a payload's encoding", "nan, by topk", lambda: _encoded("topk")),
    payload("a byte more", lambda data: torch.cat([data, data.new_zeros(8)])),
    payload("of fewer segments", lambda data: data, FlatLayout((Segment("weight", 0, 4),))),
    payload("of other sizes", lambda data: data, FlatLayout((Segment("weight", 0, 3), Segment("bias", 3, 2)))),
    payload("a marker of worker -1", _marked(-1)),
    payload("a marker of worker 1", _marked(1)),
    row("a payload of another rank", "of more bytes than there can be", lambda: checked(100, 50, 3)),
    row("nuq.METHODS: add of qsgd", "to a total of another size", lambda: _added(3)),
]

INTERNAL = {
    "nuq/exchange/collectives/powersgd.py:Power._round 2": "defence: sums that overflow have a mean that does not",
    "nuq/simulation.py:Workers._at_fault 2": "defence: sums that overflow have a mean that does not",
}
