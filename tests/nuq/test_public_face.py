"""The public names of nuq: all there, listed, and no torch before one of them needs it."""

from __future__ import annotations

import importlib.metadata
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import nuq


def test_every_name_is_there() -> None:
    assert sorted(nuq.__all__) == sorted(nuq._LAZY) == dir(nuq)
    assert all(getattr(nuq, name) is not None for name in nuq.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'Compressor'; its names: METHODS, "):
        nuq.Compressor  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_the_version_is_the_packages() -> None:
    assert nuq.__version__ == importlib.metadata.version("nuq")
    assert (Path(nuq.__file__).with_name("py.typed")).is_file()


def test_a_method_is_described_with_its_claims_and_settings() -> None:
    words = nuq.describe("topk")
    assert words.startswith("TopK (method='topk')\n\n- Biased: ")
    assert "\nratio=0.01 (1e-09 to 1.0)\n    share of the coordinates that travel" in words
    assert "\nselection=exact (exact, sampled; read with bucket_size=0)\n" in words
    assert max(map(len, words.splitlines())) <= 120
    for name in nuq.METHODS:
        assert nuq.describe(name).count("\n") > 3
    with pytest.raises(ValueError, match="unknown method 'topq'; did you mean 'topk'"):
        nuq.describe("topq")


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
