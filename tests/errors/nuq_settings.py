"""Errors of the settings of methods, memory, layers, formats and the outer loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import nuq
from nuq.description import describe
from nuq.registry import METHODS, method
from nuq.settings import check, converted, named, read, setting
from nuq.settings.layers import matched, parsed, parsed_format
from nuq.settings.outer import Outer
from tests.errors.rows import Row, row


@dataclass
class Odd:
    """Settings with a rule of each kind that no setting of a method has."""

    weights: tuple[float, float] = setting((0.0, 1.0), "two")
    names: list[str] = setting(["a"], "at least one", items=1)  # noqa: RUF009 - one of each
    word: str = setting("a1", "a word", pattern=("[a-z]\\d", "a letter and a digit"))
    given: int = setting(3, "a size", parse=int)


@dataclass
class Bare:
    """A record whose field must be given."""

    size: int = field(metadata={"reason": "must be given"})


def settings(name: str, given: str, **values: Any) -> Row:
    """A bad value of a method's setting."""
    (key,) = (key for key in [*values][-1:])
    return row(f"nuq.METHODS[{name!r}].settings({key}=)", given, lambda: check(METHODS[name].settings, values))


def state(key: str, given: str, method: str = "alq", **values: Any) -> Row:
    """A bad setting of the hook, which refuses before it needs a model."""
    return row(f"nuq.CompressionState({key}=)", given, lambda: nuq.CompressionState(method=method, **values))


def layers(given: str, *lines: Any, beside: str = "") -> Row:
    return row("nuq.CompressionState(layers=)", given, lambda: parsed(lines, beside=beside))


def tensors(given: Any) -> Row:
    return row("nuq.CompressedTraining(weights=)", repr(given), lambda: parsed_format(given, "weights"))


def outer(key: str, given: str, method: str = "alq", **values: Any) -> Row:
    return row(f"nuq.OuterLoop({key}=)", given, lambda: Outer(**check(Outer, values)).memory(method))


ROWS = [
    row("nuq", "nuq.compress, which is no name of it", lambda: nuq.compress),  # pyright: ignore[reportAttributeAccessIssue]
    row("nuq.registry.method(name)", "'alqq'", lambda: method("alqq")),
    row("nuq.describe(method)", "'alqq'", lambda: describe("alqq")),
    row("nuq.describe(entry)", "'hok'", lambda: describe("alq", "hok")),
    # values of every kind
    settings("alq", "'3'", bits="3"),
    settings("alq", "9", bits=9),
    settings("alq", "2**63", update_every=2**63),
    settings("topk", "nan", ratio=float("nan")),
    settings("topk", "1.5", ratio=1.5),
    settings("alq", "'l3'", norm="l3"),
    settings("alq", "100", update_at=100),
    settings("dgc", "empty", warmup_every=3, warmup_ratios=[]),
    settings("casq", "0.5, beside cells=64", cells=64, cells_ratio=0.5),
    row("nuq.settings.read(values)", "3", lambda: read(Odd, 3)),
    row("nuq.settings.read(values)", "a key that is a number", lambda: read(Odd, {3: 1})),
    row("nuq.settings.read(values)", "a key that is none", lambda: read(Odd, {"wieghts": [1, 2]}, "odd")),
    row("nuq.settings.named(values)", "a list", lambda: named([], "grid")),
    row("nuq.settings.check: a tuple of two", "three", lambda: check(Odd, {"weights": [1, 2, 3]})),
    row("nuq.settings.check: a tuple of two", "a text", lambda: check(Odd, {"weights": "ab"})),
    row("nuq.settings.check: a list of at least one", "empty", lambda: check(Odd, {"names": []})),
    row("nuq.settings.check: a text of a form", "a number", lambda: check(Odd, {"word": 3})),
    row("nuq.settings.check: a text of a form", "'x'", lambda: check(Odd, {"word": "x"})),
    row("nuq.settings.check: a setting that is parsed", "'x'", lambda: check(Odd, {"given": "x"})),
    row("nuq.settings.converted", "an int where a float is too small", lambda: converted(10**400, float, "lr")),
    row("nuq.settings.check: a field without default", "left out", lambda: check(Bare, {})),
    # the hook's
    state("method", "'alqq'", "alqq"),
    state("bits", "99", bits=99),
    state("bit", "a name that is none", bit=3),
    state("min_size", "-1", min_size=-1),
    state("bits", "3, of supersgd", "supersgd", bits=3),
    state("bits", "0", bits=0),
    state("collective", "'ring'", collective="ring"),
    state("timeout_s", "0.0", timeout_s=0.0),
    state("timeout_s", "'300'", timeout_s="300"),
    state("on_non_finite", "'ignore'", on_non_finite="ignore"),
    state("num_aggregate", "2, with gather", num_aggregate=2, collective="gather"),
    state("ratio", "'0.1'", "topk", ratio="0.1"),
    state("ratio", "None", "topk", ratio=None),
    state("ratio", "True", "topk", ratio=True),
    state("scaled", "'no'", "randomk", scaled="no"),
    state("bucket_size", "2.5", bucket_size=2.5),
    state("warmup_ratios", "0.1", "dgc", warmup_every=3, warmup_ratios=0.1),
    state("gate", "1", gate=1),
    state("layers", "None", layers=None),
    state("layers", "statistics=fresh in a line", layers=["0 = alq statistics=fresh"]),
    state("momentum", "0.5, with topk", "topk", momentum=0.5),
    state("nesterov", "True, with topk", "topk", nesterov=True),
    state("clip_norm", "1.0, with topk", "topk", clip_norm=1.0),
    state("masking", "False, of two methods", "topk", masking=False, layers=["fc = qsgd"]),
    state("both", "True, with dense", "topk", both=True, collective="dense"),
    state("both", "True, with feedback none", "topk", both=True, feedback="none", collective="two_stage"),
    state("both", "True, with PowerSGD and gather", "powersgd", both=True),
    state("statistics", "'fresh'", statistics="fresh"),
    state("momentum", "0.5, with feedback error", "topk", feedback="error", momentum=0.5),
    state("decay", "0.9, with no memory", decay=0.9),
    state("feedback", "'error', which nothing leaves out", "supersgd", feedback="error"),
    state("feedback", "'ef21', with PowerSGD's factors", "powersgd", feedback="ef21"),
    state("feedback", "'ef21', with means that are encoded", "topk", feedback="ef21", collective="two_stage"),
    state("both", "True, without memory", both=True),
    state("both", "True, with gather", "topk", both=True, collective="gather"),
    state("both", "True, with PowerSGD's factors", "powersgd", both=True, collective="two_stage"),
    state("nesterov", "True, without momentum", "dgc", nesterov=True, momentum=0.0),
    state("masking", "False, without momentum", "dgc", masking=False, momentum=0.0),
    # layers
    row("nuq.CompressionState(layers=)", "one text", lambda: parsed("fc = topk")),
    layers("not of the form", "fc topk"),
    layers("a method that is none", "fc = topq"),
    layers("empty", ""),
    layers("a pattern of two words", "a b = topk"),
    layers("a setting without a value", "a = topk ratio"),
    layers("without a pattern", "= topk"),
    layers("no text", None),
    layers("a setting of another method", "a = supersgd bits=3"),
    layers("a setting out of range", "a = topk ratio=2"),
    layers("a setting that is no number", "a = topk ratio=much"),
    layers("a setting that is no choice", "a = topk values=fp17"),
    layers("a setting that is not read", "a = dgc scope=model dense_1d=false"),
    layers("a method of one worker", "fc = sgd"),
    layers("beside a method of one worker", "fc = topk", beside="sgd"),
    layers("a setting that is none", "fc = topk rato=0.1"),
    layers("a setting twice", "fc = topk ratio=0.1 ratio=0.2"),
    layers("a setting of another type", "fc = alq bits=x"),
    layers("a setting that is no list", "fc = alq update_at=3"),
    layers("a setting that is neither true nor false", "fc = powersgd warm_start=maybe"),
    row("nuq.CompressionState(layers=)", "matches nothing", lambda: matched(parsed(["fc = topk"]), ["conv.weight"])),
    row(
        "nuq.CompressionState(layers=)",
        "matches what an earlier line took",
        lambda: matched(parsed(["* = topk", "fc = alq"]), ["fc.weight"]),
    ),
    row(
        "nuq.CompressionState(layers=)",
        "matches nothing of a large model",
        lambda: matched(parsed(["x = topk"]), [f"p{number}" for number in range(100)]),
    ),
    # formats
    tensors("smac"),
    tensors("smaq sample=3"),
    tensors("smaq samples=-3"),
    tensors("fp8 scale=none bucket_size=64"),
    tensors("alq"),
    tensors("smaq samples"),
    tensors("qsgd scope=model"),
    tensors("qsgd rounding=correlated"),
    # the outer loop's
    outer("every", "0", every=0),
    outer("overlap", "as many steps as a round", every=4, overlap=4),
    outer("fragments", "more than steps", every=4, fragments=5),
    outer("method", "'sgd'", "sgd"),
    outer("mixing", "0.3, without overlap", mixing=0.3),
    outer("outer_momentum", "1.0", outer_momentum=1.0),
    outer("feedback", "'error', which nothing leaves out", "supersgd", feedback="error"),
    outer("decay", "0.9, with no memory", decay=0.9),
]
