"""The public names of nuq: all there, listed, and no torch before one of them needs it."""

from __future__ import annotations

import pydoc
import subprocess
import sys

import pytest

import nuq


def test_every_name_is_there() -> None:
    assert sorted(nuq.__all__) == sorted(nuq._LAZY) == dir(nuq)
    assert all(getattr(nuq, name) is not None for name in nuq.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'Compressor'; its names: METHODS, "):
        nuq.Compressor  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_help_reads_like_a_page() -> None:
    page = pydoc.plain(pydoc.render_doc(nuq))
    first, _, rest = page.partition("PACKAGE CONTENTS")
    assert "compressor.decode(nuq.parse(data))" in first and "register_comm_hook(state, nuq.compress_hook)" in first
    assert all(f"{name}(" in rest for name in ("CompressionState", "all_reduce", "compress_fsdp", "Key"))


@pytest.mark.slow
def test_the_table_of_methods_needs_no_torch() -> None:
    program = "import sys, nuq; assert 'alq' in nuq.METHODS and 'torch' not in sys.modules; nuq.Key"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
