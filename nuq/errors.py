"""The errors that users of ``nuq`` may want to catch."""

from __future__ import annotations


class NonFiniteError(ArithmeticError):
    """The error for a loss, gradient or bucket norm that is infinite or not a number."""


class MessageError(ValueError):
    """The error for bytes that are not a whole, undamaged message."""


class RankLost(RuntimeError):
    """The error for another rank that died or fell silent.

    The group of the exchange is closed with that, lest others wait for this rank: who goes on without the lost one
    makes a new group.
    """


class RankFailed(RankLost):
    """The error for another rank whose exchange ended in an error of its own, which it names.

    That rank lives, and raised the error itself.  The group is closed as after any RankLost.
    """
