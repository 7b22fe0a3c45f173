"""Tests of GPU kernels without a GPU: in Triton's interpreter, and by the machine code that they compile to.

Interpreted kernels need ``TRITON_INTERPRET=1`` before Triton is first imported, so they run in a process of their own:
a test file as a program, which prints what differed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from nuq.kernels.cuda.launch import device_code

ROOT = Path(__file__).parents[2]
# Whatever rounds otherwise than the specification, or flushes small numbers to zero.
FORBIDDEN = ("fma.rn.f32", "fma.rn.f64", "div.full", "div.approx", "sqrt.approx", "rcp.approx", "ex2.approx", ".ftz")


# For `interpreted`: every 48th case, which `make test` runs; every case.
SOME_AND_ALL = [48, pytest.param(1, marks=pytest.mark.slow)]


def interpreted(file: str, every: int = 1) -> dict[str, str]:
    """A table from the name of every case that went wrong to what it did, as the file prints it when it is run with
    interpreted kernels on one case of ``every``.
    """
    pytest.importorskip("triton", reason="Triton is not installed: no interpreter")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", file, str(every)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


class Recorder:
    """Stands in for a kernel: keeps the arguments of its launches."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.launches = kernel, []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        assert all(isinstance(size, int) and size >= 1 for size in grid)
        return lambda *arguments, **settings: self.launches.append((arguments, settings))

    def compile(self, architecture: int) -> Iterator[Any]:
        """Every launch as it would be compiled on a GPU whose tensors begin at multiples of 16 bytes."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        for arguments, settings in self.launches:
            types = dict(zip(self.kernel.arg_names, map(_type, arguments), strict=False))
            constants = {name: settings[name] for name in self.kernel.arg_names if name in settings}
            options = {name: value for name, value in settings.items() if name not in constants}
            aligned = {
                (i,): [["tt.divisibility", 16]]
                for i, name in enumerate(self.kernel.arg_names)
                if types.get(name, "").startswith("*")
            }
            source = ASTSource(self.kernel, {**types, **dict.fromkeys(constants, "constexpr")}, constants, aligned)
            yield triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


def _type(argument: Any) -> str:
    if isinstance(argument, Tensor):
        name = str(argument.dtype).removeprefix("torch.")
        return "*" + name.replace("float", "fp").replace("bfp", "bf").replace("uint", "u").replace("int", "i")
    return "fp32" if isinstance(argument, float) else "i32"


def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Recorder]:
    """Only record the launches of all kernels, from here to the end of the test."""
    pytest.importorskip("triton", reason="Triton is not installed: no compiler")
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("TRITON_INTERPRET=1: interpreted kernels cannot be compiled")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    modules = device_code()
    assert modules is not None
    found = []
    for module in modules:
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            found.append(Recorder(getattr(module, name)))
            monkeypatch.setattr(module, name, found[-1])
    return found


def check_machine_code(recorders: list[Recorder], architecture: int) -> None:
    """Check that the launched code rounds as specified and keeps its numbers in registers."""
    compiled = [kernel for recorder in recorders for kernel in recorder.compile(architecture)]
    assert compiled
    for kernel in compiled:
        ptx = kernel.asm["ptx"]
        assert f".target sm_{architecture}" in ptx
        assert not [word for word in FORBIDDEN if word in ptx]
        spilled, machine_code = disassembled(kernel.asm["cubin"])
        assert spilled == 0
        if (
            "div.rn" not in ptx and "sqrt.rn" not in ptx
        ):  # those are sequences with fused steps, correctly rounded in the end
            assert not re.findall(r"\b[DF]FMA\b", machine_code)


def disassembled(cubin: bytes) -> tuple[int, str]:
    """Bytes of stack (spilled registers) of a thread, and the instructions, by the tools that come with Triton."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    file = Path(os.environ["TRITON_CACHE_DIR"]) / "kernel.cubin"
    file.write_bytes(cubin)
    usage, code = (
        subprocess.run([tools / tool, option, file], capture_output=True, text=True, check=True).stdout
        for tool, option in (("cuobjdump", "-res-usage"), ("nvdisasm", "-c"))
    )
    stack = re.search(r"STACK:(\d+)", usage)
    assert stack
    return int(stack[1]), code
