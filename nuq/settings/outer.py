"""Settings of local steps with an outer optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.registry import method as entry_of
from nuq.settings import FROM_ONE, setting
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback, check_leaves_out

OUTER_LR = "learning rate of the outer optimizer; DiLoCo's"
OUTER_MOMENTUM = "momentum of the outer optimizer; DiLoCo's"
NESTEROV = "Nesterov's form of it, as DiLoCo has it"
FRAGMENTS = "parts of the model that travel one after another within a round; Streaming DiLoCo's"
MIXING = "share of a worker's own parameters that stays when a part arrives; Streaming DiLoCo's"
_MEMORY = (
    "error: what messages leave out of a round is added to the next one; auto: as in the method's paper, and error "
    "where it corrects momentum, which here is the outer optimizer's"
)


@dataclass
class OuterExchange(Exchange):
    """Settings of the exchange of an outer loop, which may choose its collective by itself."""

    collective: str = setting(
        "auto",
        "auto: the fewest bytes whose mean errs at most 1.5 times as much as gather's with rounding=stochastic; "
        "gather, two_stage, server: as in main.py",
        choices=("auto", "gather", "two_stage", "server"),
    )


@dataclass
class Outer:
    """Settings of the outer loop beside its method and its collective."""

    every: int = setting(64, "local steps of a round", low=1)
    outer_lr: float = setting(0.7, OUTER_LR, low=0)
    outer_momentum: float = setting(0.9, OUTER_MOMENTUM, low=0, high=1 - 1e-9)
    nesterov: bool = setting(True, NESTEROV)
    fragments: int = setting(1, FRAGMENTS, low=1)
    overlap: int = setting(0, "local steps that go on while a part travels, fewer than every", low=0)
    mixing: float = setting(0.5, MIXING, low=0, high=1, read_if=("overlap", FROM_ONE))
    feedback: str = setting("auto", _MEMORY, choices=("auto", "none", "error"))
    decay: float = setting(1.0, "share of it that is added; SparseLoCo's .95", low=0, high=1)
    min_size: int = setting(
        1024,
        "tensors of fewer coordinates travel in full precision (bf16 and fp16 cast them, too, unless a memory is "
        "around them)",
        low=0,
    )
    seed: int = setting(0, "seed of the roundings", low=0, high=2**63 - 1)
    timeout_s: float | None = setting(
        None,
        "seconds to wait for a rank before it counts as lost; None: the process group's own timeout",
        low=0.1,
        high=1e9,
    )

    def memory(self, method: str) -> Feedback:
        """The memory of a loop by this method; ValueError for settings that do not go with it, or with each other."""
        check_fragments(self.every, self.fragments, self.overlap)
        if entry_of(method).single_worker:
            raise ValueError(f"method={method!r}: sends one rank's move alone, not all ranks'; legal here: all others")
        kind = entry_of(method).feedback if self.feedback == "auto" else self.feedback
        if self.feedback == "error":
            check_leaves_out("feedback='error'", [method])
        if self.decay != 1 and kind == "none":
            what = f"nothing is remembered with method={method!r} and feedback={self.feedback!r}"
            raise ValueError(f"decay={self.decay}: {what}")
        return Feedback(kind="error" if kind == "momentum" else kind, decay=self.decay)


def check_fragments(every: int, fragments: int, overlap: int, name: str = "every", section: str = "") -> None:
    """Raise ValueError for more fragments or more overlap than a round has room for; name: of its number of steps."""
    where = f"{section}{name}={every}"
    if overlap >= every:
        raise ValueError(f"{section}overlap={overlap}: must be fewer local steps than {where}")
    if fragments > every:
        raise ValueError(f"{section}fragments={fragments}: must be at most {where}, one in a local step")
