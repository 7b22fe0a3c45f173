"""Settings of the workers' memory: error feedback and momentum correction."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting

KINDS = ("auto", "none", "error", "momentum")
KIND = (
    "error: it is added to the next gradient; momentum: the optimizer's momentum acts in the workers, before the compression, and what "
    "was not sent of it is kept (DGC's momentum correction); auto: as in the method's paper"
)
BOTH = "true: who encodes means remembers too (1-bit SGD's two-sided feedback); for collectives that encode means"
MASKING = "what was sent leaves the momentum too (DGC's factor masking)"
CLIP_NORM = "gradients are first clipped to this norm over sqrt(workers), vector by vector (0: not)"
CLIP_VALUE = "gradients are first clipped to this size, coordinate by coordinate (0: not)"
_MOMENTUM = ("kind", ("momentum", "auto"))


@dataclass
class Feedback:
    """What workers remember of what their messages left out."""

    kind: str = setting("auto", KIND, choices=KINDS, identity="unless default")
    both: bool = setting(False, BOTH, identity="unless default")
    masking: bool = setting(True, MASKING, identity="unless default", read_if=_MOMENTUM)
    clip_norm: float = setting(0.0, CLIP_NORM, low=0, identity="unless default", read_if=_MOMENTUM)
    clip_value: float = setting(0.0, CLIP_VALUE, low=0, identity="unless default", read_if=_MOMENTUM)


_READ = ("feedback", ("momentum", "auto"))


@dataclass
class HookFeedback:
    """The same for the DDP hook, which does not see the optimizer."""

    feedback: str = setting("auto", KIND, choices=KINDS)
    momentum: float = setting(
        0.9,
        "that of feedback='momentum'; the optimizer itself then has none",
        low=0,
        high=1 - 1e-9,
        read_if=_READ,
    )
    nesterov: bool = setting(False, "Nesterov's form of it", read_if=_READ)
    both: bool = setting(False, BOTH)
    masking: bool = setting(True, MASKING, read_if=_READ)
    clip_norm: float = setting(0.0, CLIP_NORM, low=0, read_if=_READ)
    clip_value: float = setting(0.0, CLIP_VALUE, low=0, read_if=_READ)

    def settings(self) -> Feedback:
        """What the encoders are told."""
        return Feedback(self.feedback, self.both, self.masking, self.clip_norm, self.clip_value)
