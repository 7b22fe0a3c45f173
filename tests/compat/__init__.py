"""Bytes that earlier code wrote, and that every later version reads.

A folder holds what the code of one commit wrote, and is called as that commit.  Nothing in it ever changes; a later
format is another folder beside it.  ``write.py`` says how the bytes were made, and ``trainings.py`` has the trainings
behind them, which the tests go on with.
"""

from __future__ import annotations

from pathlib import Path

WRITTEN = Path(__file__).parent / "3902daa2"
