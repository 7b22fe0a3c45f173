"""Settings of the workers' memory: error feedback, momentum correction and compressed differences."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nuq.registry import METHODS
from nuq.settings import declared, setting
from nuq.settings.quantizers import Uncompressed

KINDS = ("auto", "none", "error", "momentum", "ef21")
KIND = (
    "error: it is added to the next gradient; momentum: the optimizer's momentum acts in the workers, before the "
    "compression, and what was not sent of it is kept (DGC's momentum correction); ef21: what is sent is the "
    "difference between the gradient and the worker's estimate of it, which grows by what was sent (EF21); auto: as in "
    "the method's paper"
)
BOTH = (
    "true: who encodes means remembers too, for collectives that encode means; 1-bit SGD's two-sided feedback, but "
    "that the means of onebit and sign travel in second_bits by qsgdinf, not in one bit"
)
DECAY = "what was left out is multiplied by this in every step: 1: all comes back; .95: SparseLoCo's; .999: DeMo's"
MASKING = "what was sent leaves the momentum too (DGC's factor masking)"
CLIP_NORM = "gradients are first clipped to this norm over sqrt(workers), vector by vector (0: not)"
CLIP_VALUE = "gradients are first clipped to this size, coordinate by coordinate (0: not)"
_ERROR = ("kind", ("error", "auto"))
_MOMENTUM = ("kind", ("momentum", "auto"))


@dataclass
class Feedback:
    """The memory that workers keep of what their messages left out."""

    kind: str = setting("auto", KIND, choices=KINDS, identity="unless default")
    both: bool = setting(False, BOTH, identity="unless default")
    decay: float = setting(1.0, DECAY, low=0, high=1, identity="unless default", read_if=_ERROR)
    masking: bool = setting(True, MASKING, identity="unless default", read_if=_MOMENTUM)
    clip_norm: float = setting(0.0, CLIP_NORM, low=0, identity="unless default", read_if=_MOMENTUM)
    clip_value: float = setting(0.0, CLIP_VALUE, low=0, identity="unless default", read_if=_MOMENTUM)


_IF_ERROR = ("feedback", ("error", "auto"))
_READ = ("feedback", ("momentum", "auto"))


@dataclass
class HookFeedback:
    """Settings of the memory in the DDP hook, which does not see the optimizer."""

    feedback: str = setting("auto", KIND, choices=KINDS)
    momentum: float = setting(
        0.9, "that of feedback='momentum'; the optimizer itself then has none", low=0, high=1 - 1e-9, read_if=_READ
    )
    nesterov: bool = setting(False, "Nesterov's form of it", read_if=_READ)
    both: bool = setting(False, BOTH)
    decay: float = setting(1.0, DECAY, low=0, high=1, read_if=_IF_ERROR)
    masking: bool = setting(True, MASKING, read_if=_READ)
    clip_norm: float = setting(0.0, CLIP_NORM, low=0, read_if=_READ)
    clip_value: float = setting(0.0, CLIP_VALUE, low=0, read_if=_READ)

    def check(self, methods: Sequence[str], collective: str, given: Collection[str] = ()) -> None:
        """Raise ValueError for a setting that nobody reads; given: those that were named, also by their defaults."""
        check_memory(self, methods, collective, {"momentum"} & {*given})
        check_nesterov(self.nesterov, self.momentum)
        check_masking(self.masking, self.momentum)

    def settings(self) -> Feedback:
        """The settings as the encoders take them."""
        return Feedback(self.feedback, self.both, self.decay, self.masking, self.clip_norm, self.clip_value)


# --- what goes with the rest --------------------------------------------------------------------------------------


def memory_kinds(kind: str, methods: Sequence[str]) -> list[str]:
    """The memory of every method, none, error, momentum or ef21: its own where ``kind`` is auto."""
    return [METHODS[name].feedback if kind == "auto" else kind for name in methods]


def check_memory(
    settings: Feedback | HookFeedback, methods: Sequence[str], collective: str, named: Collection[str] = ()
) -> None:
    """Raise ValueError for a setting, by its user's name, that the memory of no method of a run reads.

    methods: the method, and those of layers that have one of their own; collective: that of the exchange's settings.
    named: settings that count as set even where they are the default.
    """
    of_hook = isinstance(settings, HookFeedback)
    own, kind, where = ("", "feedback", "") if of_hook else ("feedback.", "feedback.kind", "exchange.")
    chosen = settings.feedback if of_hook else settings.kind
    kinds = memory_kinds(chosen, methods)
    memory = f"{kind}={chosen!r}"
    if chosen == "auto":
        of_each = dict(zip(methods, kinds, strict=True))
        memory += f", which is {', '.join(f'{one!r} for method={name}' for name, one in of_each.items())}"
    for name, (_, default, rule) in declared(type(settings)).items():
        value = getattr(settings, name)
        needed = rule["read_if"][1][0] if rule["read_if"] else None
        if needed and (value != default or name in named) and needed not in kinds:
            raise ValueError(f"{own}{name}={value!r}: has no effect with {memory}; it is read with {needed!r} only")
    if chosen in ("error", "ef21"):
        check_leaves_out(memory, methods)
    remembering = (name for name, one in zip(methods, kinds, strict=True) if one != "none")
    factors = [name for name in remembering if METHODS[name].collective == "power"]
    if chosen == "ef21" and factors and collective != "server":
        raise ValueError(
            f"{memory}: {factors[0]} averages the workers' factors, so that no worker's message is of its own "
            f"difference; legal with {where}collective=server"
        )
    if not settings.both:
        if chosen == "ef21" and collective not in ("gather", "dense"):
            raise ValueError(
                f"{memory}: the errors of means that {collective} may encode again would add up from step to step; "
                f"legal with {own}both=True, or with {where}collective=gather"
            )
        return
    both = f"{own}both={settings.both!r}"
    if set(kinds) == {"none"}:
        raise ValueError(f"{both}: has no effect with {memory}; it is read with 'error', 'momentum' or 'ef21' only")
    if collective in ("gather", "dense"):
        raise ValueError(
            f"{both}: {collective} encodes no means; legal with {where}collective=two_stage, server, hierarchical, auto"
        )
    if factors and collective != "server":
        raise ValueError(
            f"{both}: the means of {factors[0]}'s factors are exact, so that there is nothing to remember; legal with "
            f"{where}collective=server"
        )


def check_leaves_out(memory: str, methods: Sequence[str], legal: str = "auto, none") -> None:
    """Raise ValueError for a memory, as it is set, of what these methods' messages leave out where that is nothing."""
    if all(issubclass(METHODS[name].settings, Uncompressed) for name in methods):
        why = f"has no effect with method={', '.join(methods)}, whose messages leave nothing out"
        raise ValueError(f"{memory}: {why}; legal here: {legal}")


def check_nesterov(nesterov: bool, momentum: float, where: str = "") -> None:
    """Raise ValueError for Nesterov's form of no momentum."""
    if nesterov and momentum == 0:
        raise ValueError(
            f"{where}nesterov={nesterov!r}: has no effect with {where}momentum={momentum!r}; it is read with momentum "
            f"above 0 only"
        )


def check_masking(masking: bool, momentum: float, own: str = "", where: str = "") -> None:
    """Raise ValueError where masking is off, and there is no momentum to mask."""
    if not masking and momentum == 0:
        raise ValueError(
            f"{own}masking={masking!r}: has no effect with {where}momentum={momentum!r}, which has nothing to mask; "
            f"legal above 0"
        )
