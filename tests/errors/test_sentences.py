"""Every error says what the file says, and no raise of product code is without a row or an entry of a list."""

from __future__ import annotations

import difflib
import re
from collections import Counter

import pytest

from nuq import native
from tests.errors import tables
from tests.errors.sites import ROOMS, ROOT


@pytest.fixture(scope="module", params=ROOMS)
def room(request: pytest.FixtureRequest) -> str:
    """A room whose errors have been made."""
    if request.param == "nuq" and native.library() is None:
        pytest.skip("some errors are those of the C++ kernels")
    tables.errors(request.param)
    return request.param


def test_errors_say_what_was_reviewed(room):
    """A change of words is reviewed as the diff of one file; two rows have one key only by mistake."""
    twice = [key for key, count in Counter(key for key, _ in tables.errors(room)).items() if count > 1]
    assert not twice
    diff = difflib.unified_diff(tables.written().get(room, []), tables.lines(room), "written", "made", n=0, lineterm="")
    changed = "\n".join(diff)
    assert not changed, f"{changed}\n`python -m tests.errors` writes the file again"


def test_every_raise_has_a_row_or_is_listed(room):
    """A new ``raise`` needs a row; an entry of a list goes when a row reaches what it names."""
    assert not tables.unlisted(room), "make these errors in a row of tests/errors, or list them there"
    assert not tables.stale(room)
    for site, test in tables.listed(room, "HELD").items():
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{site}: no {test}"
