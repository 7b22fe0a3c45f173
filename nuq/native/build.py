"""The build of the C++ kernels into one shared library, with any C++17 compiler and only the standard library.

``setup.py`` calls it at install, ``python -m nuq.native`` and ``make setup`` in a checkout.  The files of ``src/`` are
compiled once; those of ``src/simd/`` once for every instruction set, in a namespace of that name (``src/isa.h``), and
the library chooses when it is loaded.  ``-ffp-contract=off`` and no fast-math: every operation rounds once, so that all
sets give the bits of the PyTorch reference.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).parent / "src"
LIBRARY = Path(__file__).parent / "libnuq.so"
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wall",
    "-Wextra",
]
_AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mlzcnt", "-mpopcnt", "-mpclmul"]
INSTRUCTION_SETS = {
    "baseline": [],
    "avx2": _AVX2,
    "avx512": [
        *_AVX2,
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx512cd",
        "-mprefer-vector-width=512",
    ],
}


class CompilerError(RuntimeError):
    """The error for a C++17 compiler that is missing or failed; the text says which and how."""


def digest() -> str:
    """A digest, in 16 hex digits, of everything that the library is built from: it tells a stale one."""
    content = hashlib.sha256(repr((FLAGS, INSTRUCTION_SETS)).encode())
    for path in sorted(SOURCE.rglob("*.*")):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:16]


def compiler() -> str:
    """The compiler: $CXX, else the first of c++, g++ and clang++ on the path."""
    named = os.environ.get("CXX")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        what = f"CXX={named} is not" if named else "no C++ compiler (c++, g++ or clang++)"
        raise CompilerError(f"{what} on the path")
    return found


def _accepts(cxx: str, flags: list[str]) -> bool:
    """Whether a program that includes <cstdint> (and <omp.h>, where asked for) compiles with these flags."""
    openmp = "#include <omp.h>\n" if "-fopenmp" in flags else ""
    program = f"#include <cstdint>\n{openmp}int main() {{ return 0; }}\n"
    with tempfile.TemporaryDirectory() as folder:
        command = [cxx, "-std=c++17", *flags, "-x", "c++", "-", "-o", str(Path(folder) / "probe")]
        return (
            subprocess.run(
                command, input=program, text=True, errors="replace", capture_output=True, check=False
            ).returncode
            == 0
        )


def build(target: Path = LIBRARY) -> Path:
    """Compile and link ``target`` (written aside and renamed); CompilerError where that fails."""
    cxx = compiler()
    if not _accepts(cxx, []):
        raise CompilerError(f"{cxx} does not compile C++17")
    flags = [*FLAGS, f'-DNUQ_DIGEST="{digest()}"']
    openmp = ["-fopenmp"] if _accepts(cxx, ["-fopenmp"]) else []  # without: one thread
    sets = {"baseline": []}
    if platform.machine().lower() in ("x86_64", "amd64"):
        sets = {name: extra for name, extra in INSTRUCTION_SETS.items() if _accepts(cxx, extra)}
        flags += [f"-DNUQ_HAS_{name.upper()}" for name in sets]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
        jobs: list[tuple[list[str], str]] = []
        for path in sorted(SOURCE.glob("*.cpp")):
            jobs.append(([cxx, *flags, *openmp, "-c", str(path)], f"{folder}/{path.stem}.o"))
        for path in sorted((SOURCE / "simd").glob("*.cpp")):
            for name, extra in sets.items():
                isa = [*extra, f"-DNUQ_ISA={name}", f"-DNUQ_ISA_{name.upper()}"]
                jobs.append(([cxx, *flags, *openmp, *isa, "-c", str(path)], f"{folder}/{path.stem}_{name}.o"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda job: _run([*job[0], "-o", job[1]]), jobs))
        linked = Path(folder) / target.name
        _run([cxx, "-shared", *openmp, *(output for _, output in jobs), "-o", str(linked)])
        linked.replace(target)
    return target


def _run(command: list[str]) -> None:
    done = subprocess.run(command, text=True, errors="replace", capture_output=True, check=False)
    if done.returncode:
        raise CompilerError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
