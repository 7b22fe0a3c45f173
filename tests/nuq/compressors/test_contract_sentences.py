"""A method that breaks a promise is told so in one sentence: its name, the promise, what was found and the limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nuq.compressors.message import Message
from nuq.errors import NonFiniteError
from nuq.testing import cases, test_contract


class Off:
    """A method whose every part is another's, but for what is wrong with it."""

    def __init__(self, inner: str, **wrong: Any) -> None:
        self._inner, self._wrong = cases.build(inner), wrong

    def __getattr__(self, name: str) -> Any:
        return self._wrong[name] if name in self._wrong else getattr(self._inner, name)


def longer(inner: Any) -> Callable[..., Message]:
    def encode(x: torch.Tensor, key: Any) -> Message:
        message = inner.encode(x, key)
        return Message(message.tag, message.num_coordinates, torch.cat([message.body, message.body[:1]]))

    return encode


def drawn(x: torch.Tensor, key: Any) -> Message:
    del key
    return Message(b"ELSE", x.numel(), torch.randint(0, 256, (4,), dtype=torch.uint8))


def not_finite(x: torch.Tensor, key: Any) -> Message:
    raise (ZeroDivisionError if bool(x.isfinite().all()) else NonFiniteError)(key)


QSGD, X = cases.build("qsgd"), cases.gradient(300)
BROKEN: list[tuple[str, Callable[[], Any], dict[str, Any], str]] = [
    (
        "test_unbiased",
        lambda: cases.build("topk"),
        {"x": X},
        r"claims unbiased; its mean of 250 is off by [\d.e]+ \(limi",
    ),
    (
        "test_contractive",
        lambda: cases.build("qsgd bits=1"),
        {"x": X},
        r"claims contractive; .* [\d.]+ .* length [\d.]+ \(limit",
    ),
    (
        "test_the_key_alone_decides_the_rounding",
        lambda: QSGD,
        {},
        "claims deterministic=True and gives other bytes .*differ",
    ),
    ("test_the_key_alone_decides_the_rounding", lambda: Off("qsgd", encode=drawn), {}, "for the same vector and key: "),
    (
        "test_a_fresh_instance_decodes_the_bytes",
        lambda: Off("qsgd", encode=longer(QSGD)),
        {"x": X},
        r"claims at most so many bytes: message_bytes\(300\) = \d+ and the message has \d+ bytes",
    ),
    (
        "test_a_fresh_instance_decodes_the_bytes",
        lambda: Off("qsgd", decode=lambda message: torch.full((300,), torch.nan)),
        {"x": X},
        "to 300 numbers that are not finite",
    ),
    (
        "test_a_fresh_instance_decodes_the_bytes",
        lambda: Off("qsgd", decode=lambda message: torch.zeros(7)),
        {"x": X},
        r"decodes \[300\] coordinates to float32\[7\]",
    ),
    (
        "test_a_gradient_that_is_not_finite_is_an_error",
        lambda: Off("qsgd", encode=drawn),
        {"bad": float("inf")},
        "takes a vector with inf and gives Message; it must raise NonFiniteError",
    ),
    (
        "test_damaged_bodies_are_errors",
        lambda: Off("qsgd", decode=lambda message: torch.zeros(100)),
        {},
        "takes a message cut by a byte and gives Tensor; it must raise MessageError",
    ),
    (
        "test_damaged_bodies_are_errors",
        lambda: Off("qsgd", decode=lambda message: {}[message]),
        {},
        "raises (TypeError|KeyError) for a message cut by a byte; it must be a MessageError",
    ),
    (
        "test_the_global_generators_stay_untouched",
        lambda: Off("qsgd", encode=drawn, decode=lambda message: None),
        {},
        "torch's own gen",
    ),
]


@pytest.mark.parametrize(("test", "broken", "more", "words"), BROKEN)
def test_a_broken_promise_is_a_sentence(
    test: str, broken: Callable[[], Any], more: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_contract, "build", lambda name: broken())
    monkeypatch.setattr(test_contract, "claims", lambda name: SimpleNamespace(deterministic=True))
    with pytest.raises(pytest.fail.Exception) as failed:
        getattr(test_contract, test)("absmax8", **more)
    assert not failed.value.pytrace and "tensor(" not in str(failed.value) and "\n" not in str(failed.value)
    assert re.match(rf"absmax8 .*{words}", str(failed.value)), str(failed.value)
