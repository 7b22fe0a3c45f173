"""Loading and building the C++ kernels where that fails: one warning that says why, the same results, and clear errors.

``cpu.library.__wrapped__`` is the function behind the cache, so that no other test sees what is loaded here.  How often
nuq warns is seen in a process of its own: this file as a program, beside a copy of nuq without the library.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy.random.bit_generator
import pytest

from nuq import native
from nuq.native import __main__ as command
from nuq.native import build

load = native.library.__wrapped__


def messages() -> dict[str, str]:
    """Digests of what some methods send and what becomes of it."""
    import torch

    from nuq.compressors.message import parse
    from nuq.kernels.spec import Key
    from nuq.registry import METHODS

    x = torch.randn(3000, generator=torch.Generator().manual_seed(1))
    found = {}
    for name in ("alq", "qsgdinf", "trn"):
        method = METHODS[name]
        compressor = method.load()(method.settings())
        data = compressor.encode(x, Key(1, 2, 3, "model")).to_bytes()
        parts = (data, compressor.decode(parse(data)))
        found[name] = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
    return found


@pytest.mark.slow
def test_without_library_one_warning_and_the_same_messages(tmp_path: Path) -> None:
    shutil.copytree(
        Path(native.__file__).parents[1], tmp_path / "nuq", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUQ_CPU"} | {
        "PYTHONPATH": str(tmp_path)
    }
    done = subprocess.run([sys.executable, __file__], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["package"] == str(tmp_path / "nuq" / "native")
    assert len(found["warnings"]) == 1
    assert "they are not built" in found["warnings"][0] and "`python -m nuq.native` builds them" in found["warnings"][0]
    assert found["messages"] == messages()


def _missing(path: Path) -> None:
    assert not path.exists()


def _garbage(path: Path) -> None:
    path.write_bytes(b"no library at all")


def _foreign(path: Path) -> None:
    path.symlink_to(numpy.random.bit_generator.__file__)


@pytest.mark.parametrize(
    ("put", "reason"),
    [(_missing, "not built"), (_garbage, "libnuq.so does not load"), (_foreign, "it has no nuq_digest")],
)
def test_unusable_library_is_refused_with_its_reason(
    put: Callable[[Path], None], reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path / "libnuq.so")
    monkeypatch.delenv("NUQ_CPU", raising=False)
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "libnuq.so")
    with pytest.warns(RuntimeWarning, match=reason) as caught:
        assert load() is None
    assert len(caught) == 1


def test_stale_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is None:
        pytest.skip("the C++ kernels are not built")
    monkeypatch.delenv("NUQ_CPU", raising=False)
    assert load() is not None
    monkeypatch.setattr(build, "digest", lambda: "0" * 16)
    with pytest.warns(RuntimeWarning, match="built from other sources") as caught:
        assert load() is None
    assert len(caught) == 1


def test_off_needs_no_library_and_no_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUQ_CPU", "off")
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "libnuq.so")
    assert load() is None  # a warning would be an error


# --- building --------------------------------------------------------------------------------------------------------


def _script(folder: Path, text: str) -> str:
    """A compiler of our own."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_missing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.CompilerError, match="no-such-compiler"):
        build.build(tmp_path / "libnuq.so")
    assert command.main() == 1
    assert "were not built" in capsys.readouterr().err


def test_failed_build_shows_what_the_compiler_said_and_keeps_the_old_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "built" / "libnuq.so"
    target.parent.mkdir()
    target.write_bytes(b"old")
    probe_or_fail = 'case "$*" in *" -c "*) echo "an error of its own" >&2; exit 3;; esac; cat > /dev/null'
    monkeypatch.setenv("CXX", _script(tmp_path, probe_or_fail))
    with pytest.raises(build.CompilerError, match="an error of its own"):
        build.build(target)
    assert target.read_bytes() == b"old"
    assert list(target.parent.iterdir()) == [target]


if __name__ == "__main__":
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sent = messages()
        messages()  # warns no more
        assert native.library() is None and not native.instruction_sets()
    ours = [str(warning.message) for warning in caught if str(warning.message).startswith("nuq ")]
    print(json.dumps({"package": str(Path(native.__file__).parent), "warnings": ours, "messages": sent}))
