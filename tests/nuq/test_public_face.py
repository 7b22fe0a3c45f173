"""The public names of nuq: all there, listed, and no torch before one of them needs it."""

from __future__ import annotations

import importlib.metadata
import json
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nuq
from nuq.fsdp import CompressedReduceScatter
from nuq.fsdp_gather import CompressedGather


def test_every_name_is_there() -> None:
    assert sorted(nuq.__all__) == sorted(nuq._LAZY) == dir(nuq)
    assert all(getattr(nuq, name) is not None for name in nuq.__all__)


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


def told(method: str, entry: str) -> dict[str, str]:
    """The settings of a description, by name."""
    lines = nuq.describe(method, entry).partition("Settings, ")[2].splitlines()[1:]
    return dict(line.partition(" ")[0].split("=", 1) for line in lines if not line.startswith(" "))


@pytest.mark.parametrize("method", ["alq", "dgc"])
def test_a_description_has_the_defaults_of_the_entry_point_that_is_asked_about(method: str) -> None:
    """They are those that the entry points themselves take where nothing is said."""
    weights, gradients = CompressedGather(method, "x"), CompressedReduceScatter(method, "x")
    of_fsdp = [vars(each._compressors.settings) | vars(each._chosen) for each in (gradients, weights)]
    made = {"hook": nuq.CompressionState(method=method).settings.plain}
    made |= dict(zip(("compress_fsdp", "compress_fsdp_weights"), of_fsdp, strict=True))
    for entry, values in made.items():
        found = told(method, entry)
        shown = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
        assert found == {name: value.split(" ")[0] for name, value in shown.items()}, entry
    assert told(method, "all_reduce")["collective"] == told(method, "OuterLoop")["collective"] == "auto"
    assert told(method, "main.py")["exchange.collective"] == "gather"
    if method == "alq":
        assert [told(method, entry)["scope"] for entry in ("main.py", "hook", "OuterLoop")] == [
            "model",
            *2 * ["tensor"],
        ]
        assert told(method, "hook")["update_at"].startswith("[0") and told(method, "OuterLoop")["every"] == "64"


def test_momentum_that_nothing_reads_is_refused() -> None:
    """Also the default's value, which somebody then means; a state from a file names all settings."""
    refused: dict[str, dict[str, Any]] = {"topk": {}, "qsgd": {"feedback": "error"}, "dgc": {"feedback": "error"}}
    for method, given in refused.items():
        with pytest.raises(ValueError, match=rf"momentum=0\.9.*{given.get('feedback', 'auto')}"):
            nuq.CompressionState(method=method, momentum=0.9, **given)
    read: dict[str, dict[str, Any]] = {"topk": {"feedback": "momentum"}, "dgc": {}}
    for method, given in read.items():
        made = nuq.CompressionState(method=method, momentum=0.9, **given)
        assert pickle.loads(pickle.dumps(made)).settings == made.settings
    plain = nuq.CompressionState(method="topk")
    assert pickle.loads(pickle.dumps(plain)).settings == plain.settings


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
