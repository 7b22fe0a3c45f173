"""Adding a method takes one file and one line of METHODS: a toy one is then in the help, the sweeps, the contract,
training and figures.

Every check is a fresh process, as a user's would be: tables are built when modules are imported.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FILE = '''
"""Equally spaced levels between plus and minus the largest magnitude, rounded at random."""

import struct
from dataclasses import dataclass

import torch

from nuq.compressors.compressor import Compressor
from nuq.compressors.message import HEADER_BYTES, Message
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import bit_packing, reference
from nuq.settings import setting

HEAD = struct.Struct("<Bf")


@dataclass
class Toy:
    """What the toy reads."""

    bits: int = setting(4, "bits of one toy code", low=1, high=8)


class ToyCompressor(Compressor):
    def __init__(self, settings):
        super().__init__(settings)
        self.bits = settings.bits

    def encode(self, tensor, key):
        x = tensor.reshape(-1).to(torch.float64)
        scale = float(x.abs().max()) if x.numel() else 0.0
        if not scale < float("inf"):
            raise NonFiniteError("the gradient is not finite")
        top = 2**self.bits - 1
        places = (x / (scale or 1.0) + 1) / 2 * top
        codes = (places + reference.uniforms(x.numel(), key)).floor().clamp(0, top).to(torch.int32)
        head = torch.frombuffer(bytearray(HEAD.pack(self.bits, scale)), dtype=torch.uint8)
        return Message(b"TOYS", x.numel(), torch.cat([head, bit_packing.pack_codes(codes, self.bits)]))

    def _decoded(self, message):
        n, body = message.num_coordinates, message.body
        if message.tag != b"TOYS" or body.numel() < HEAD.size:
            raise MessageError("not a toy")
        bits, scale = HEAD.unpack(bytes(body[: HEAD.size].numpy()))
        size = HEAD.size + bit_packing.packed_bytes(n, bits) if 1 <= bits <= 8 else -1
        if not 0 <= scale < float("inf") or body.numel() != size:
            raise MessageError("a damaged toy")
        codes = bit_packing.unpack_codes(body[HEAD.size :], n, 2**bits, bits)
        return ((codes.double() / (2**bits - 1) * 2 - 1) * scale).float()

    def message_bytes(self, n):
        return HEADER_BYTES + HEAD.size + bit_packing.packed_bytes(n, self.bits)
'''
LINE = 'METHODS["toy"] = Method("Toy", Toy, "toy_method:ToyCompressor")'
BEFORE = (
    f"import sys; sys.path[:0] = [sys.argv.pop(1), '.']; from nuq.registry import METHODS, Method; from "
    f"toy_method import Toy; {LINE}\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the file and the runs."""
    made = tmp_path_factory.mktemp("toy")
    (made / "toy_method.py").write_text(FILE)
    return made


def with_toy(folder: Path, then: str, *arguments: str) -> str:
    """The output of a Python program in which METHODS has the toy's line."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + then, str(folder), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_help_lists_it(folder: Path) -> None:
    told = with_toy(folder, "import runpy; runpy.run_path('main.py', run_name='__main__')", "--help", "method=toy")
    assert "\n method=toy\n  method.bits=4  [>= 1, <= 8]\n      bits of one toy code\n" in told


@pytest.mark.slow
def test_it_has_a_page(folder: Path) -> None:
    page = with_toy(folder, "from benchmarks import method_pages; print(method_pages.page('toy'))")
    assert page.startswith("# Toy\n\nEqually spaced levels between plus and minus the largest magnitude, ")
    assert "python main.py method=toy method.bits=4\n" in page
    assert "| `bits` | `4` | 1 to 8 | bits of one toy code |" in page


@pytest.mark.slow
def test_the_contract_holds_it(folder: Path) -> None:
    """All tests of the contract run for it without a change there."""
    then = "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    told = with_toy(folder, then, "tests/test_contract.py", "-q", "-k", "toy", "-p", "no:cacheprovider")
    passed = int(told.splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed >= 20 and "skipped" not in told and "failed" not in told


@pytest.mark.slow
def test_a_sweep_picks_it_up_it_trains_and_the_analysis_draws_it(folder: Path) -> None:
    """The sweep of all methods has it unasked; one of its runs ends, and shows in the table under its title and in a
    colour.
    """
    then = """
import grid_run
from pathlib import Path
from analysis.__main__ import main as analysis
from analysis.seed_groups import SeedGroup
from analysis.plots import style
from grid.everything import cpu
from main import run
from settings.resolving import resolve
from settings.run_identity import run_name

assert grid_run.main(["show", "everything", "cpu"]) == 0
runs = cpu().experiments()
toy, other = [next(run for run in runs if run.settings["method"] == name) for name in ("toy", "supersgd")]
for chosen in (toy, other):
    quick = {"steps": 3, "eval_every": 3, "workers": 2, "batch_size": 8, "model": "logreg", "seed": 1}
    quick = {**chosen.settings, **quick}
    config = resolve({key: value for key, value in quick.items() if key != "run_dir"})
    config["run_dir"] = str(Path(sys.argv[1]) / "runs" / "toys" / run_name(config))
    assert run(config) == 0
assert analysis(["table", "toys", "--runs", sys.argv[1] + "/runs", "--out", sys.argv[1] + "/figures"]) == 0
looks = [style.look(SeedGroup(name, 0, name, (), {})) for name in METHODS]
looks = [(look.colour, look.marker, look.dash) for look in looks]
print(looks.count(looks[-1]), "looks so")
"""
    lines = with_toy(folder, then, str(folder)).splitlines()
    assert any(re.search(r" Toy (\d) bits .* method=toy method.bits=\1 ", line) for line in lines)
    assert any(line.startswith("Toy ") for line in lines if "method=toy" not in line)
    assert lines[-1] == "1 looks so"
