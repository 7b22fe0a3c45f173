"""rANS on a GPU has the bytes of the reference: in Triton's interpreter and, where there is one, on a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.coding import entropy, entropy_device, entropy_reference
from nuq.coding.entropy_tables import quantised
from nuq.compressors import body
from nuq.compressors.casts import bf16
from nuq.compressors.message import parse
from nuq.errors import MessageError
from nuq.kernels.cuda import rans_operators
from nuq.kernels.cuda.launch import device_code
from nuq.kernels.spec import Key
from nuq.settings.baselines import BF16
from tests.nuq.skewed_codes import skewed_codes
from tests.nuq.without_gpu import check_machine_code, interpreted, recorded
from tests.tiers import few


class Case(NamedTuple):
    """Codes, and how they are cut: chunks of ``chunk`` codes, the last one shorter, and as many states."""

    n: int
    num_symbols: int
    decay: float
    lanes: int
    chunk: int
    table_bits: int = 12
    num_contexts: int = 1

    def codes(self) -> NDArray[Any]:
        return skewed_codes(self.n, self.num_symbols, self.decay)

    def contexts(self) -> NDArray[np.uint8] | None:
        if self.num_contexts == 1:
            return None
        return (self.codes() // 2 % self.num_contexts).astype(np.uint8)  # one code alone in a context, among others


CASES = [
    Case(330, 8, 0.5, 32, 160),
    Case(321, 3, 3.0, 32, 320, num_contexts=2),
    Case(300, 300, 0.03, 32, 320, table_bits=14, num_contexts=3),
    Case(93, 256, 0.05, 8, 32, table_bits=14),
    Case(700, 256, 0.5, 32, 352),  # as the exponents of bfloat16
    Case(37, 5, 1.0, 2, 32),
    Case(29, 2, 2.0, 1, 32),
]


def tensor_of(numbers: NDArray[Any], device: str) -> Tensor:
    return torch.from_numpy(numbers.view(np.int16) if numbers.dtype == np.uint16 else numbers).to(device)


def difference(case: Case, device: str) -> str:
    """The first thing that differs from the reference, or nothing."""
    functions, codes, contexts = device_code(), case.codes(), case.contexts()
    assert functions is not None
    counts = entropy_reference.count(codes, case.num_symbols, contexts, case.num_contexts, 1)
    frequencies = np.stack([quantised(row, case.table_bits) for row in counts])
    cut = (case.table_bits, case.lanes, case.chunk)
    sizes, expected = entropy_reference.rans_encode(codes, frequencies, *cut, contexts, 1)
    given, beside = tensor_of(codes, device), None if contexts is None else tensor_of(contexts, device)
    how = (torch.from_numpy(frequencies), *cut, beside)
    own, coded = rans_operators.rans_encode(functions, given, *how)
    if own != sizes.tolist() or coded.cpu().numpy().tobytes() != expected.tobytes():
        return "other bytes"
    odd = torch.cat([coded[:1], coded])[1:]  # begins at an odd address
    back = rans_operators.rans_decode(functions, odd, own, case.n, *how)
    if back is None or back.dtype != given.dtype or not torch.equal(back, given):
        return "other codes"
    for place in (0, 4 * case.lanes - 1, coded.numel() - 1):  # a state; one beyond 2^31; the last word
        damaged = coded.clone()
        damaged[place] ^= 0x80
        if rans_operators.rans_decode(functions, damaged, own, case.n, *how) is not None:
            return f"byte {place} is damaged, and nothing is said"
    return ""


@pytest.mark.slow
def test_interpreter_equals_the_reference() -> None:
    assert interpreted(__file__) == {}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_machine_code(architecture: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorders = recorded(monkeypatch, tmp_path)
    functions = device_code()
    assert functions is not None
    monkeypatch.setattr(torch, "empty", torch.zeros)  # sizes that nobody writes
    how = (torch.full((2, 4), 1 << 10), 12, 32, 2048)
    for contexts in (None, torch.zeros(5000, dtype=torch.uint8)):
        rans_operators.rans_encode(functions, torch.zeros(5000, dtype=torch.uint8), *how, contexts)
        data = torch.zeros(3000, dtype=torch.uint8)
        rans_operators.rans_decode(functions, data, [1000] * 3, 5000, *how, contexts)
    assert sum(len(recorder.launches) for recorder in recorders) == 4
    check_machine_code(recorders, architecture)


# --- the dispatch -------------------------------------------------------------------------------------------------


@pytest.fixture
def by_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatch as on a GPU, with the reference in place of the kernels."""

    def encode(device: object, codes: Tensor, frequencies: Tensor, *how: Any) -> tuple[Any, Tensor]:
        bits, lanes, chunk, contexts = how
        given = codes.numpy(), frequencies.numpy(), bits, lanes, chunk, _array(contexts)
        sizes, coded = entropy_reference.rans_encode(*given, threads=1)
        return sizes.tolist(), torch.from_numpy(coded)

    def decode(device: object, data: Tensor, sizes: list[int], n: int, frequencies: Tensor, *how: Any) -> Tensor | None:
        bits, lanes, chunk, contexts = how
        given = data.numpy(), np.array(sizes), n, frequencies.numpy(), bits, lanes, chunk, _array(contexts)
        codes = entropy_reference.rans_decode(*given, threads=1)
        return None if codes is None else tensor_of(codes, "cpu")

    monkeypatch.setattr(rans_operators, "rans_encode", encode)
    monkeypatch.setattr(rans_operators, "rans_decode", decode)
    monkeypatch.setattr(body, "_coding_device", lambda data, coder, _: object() if coder == "rans" else None)


def _array(contexts: Tensor | None) -> NDArray[np.uint8] | None:
    return None if contexts is None else contexts.numpy()


def test_few_codes_are_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = object()
    monkeypatch.setattr(body, "device_code", lambda: chosen)
    data: Any = SimpleNamespace(is_cuda=True)
    assert body._coding_device(data, "rans", 1 << 22) is chosen
    assert body._coding_device(data, "rans", (1 << 22) - 1) is None
    assert body._coding_device(data, "huffman", 1 << 22) is None


@pytest.mark.usefixtures("by_the_reference")
@few(2, "num_symbols", [1, 2, 3, 8, 256, 300])
@pytest.mark.parametrize(("n", "decay"), [(0, 1.0), (1, 1.0), (43, 0.0), (6000, 50.0), (6000, 0.2), (70_001, 1.0)])
def test_every_form_has_the_bytes_of_the_cpu(n: int, decay: float, num_symbols: int) -> None:
    codes = skewed_codes(n, num_symbols, decay)
    raw = torch.from_numpy(codes.view(np.uint8))
    contexts = (codes // 2 % 3).astype(np.uint8)
    for given, count in ((None, 1), (torch.from_numpy(contexts), 3)):
        expected = entropy.encode(codes, num_symbols, "rans", _array(given), count)
        coded = body.entropy_coded(raw, num_symbols, "rans", given, count)
        assert coded.numpy().tobytes() == expected.tobytes()
        assert torch.equal(body.entropy_decoded(coded, n, num_symbols, "rans", given, count), raw)


def test_planes_of_bfloat16_have_the_bytes_of_the_cpu(request: pytest.FixtureRequest) -> None:
    """Also where signs and mantissas are coded."""
    method, key = bf16(BF16(coding="rans")), Key(0, 0, 0, "x")
    dense = torch.randn(70_001, generator=torch.Generator().manual_seed(0))
    vectors = (dense, dense * (dense > 1))
    expected = [method.encode(x, key).to_bytes() for x in vectors]
    request.getfixturevalue("by_the_reference")
    for x, data in zip(vectors, expected, strict=True):
        assert torch.equal(method.encode(x, key).to_bytes(), data)
        assert torch.equal(method.decode(parse(data)), x.bfloat16().float())


@pytest.mark.usefixtures("by_the_reference")
def test_damage_is_told_in_the_words_of_the_cpu() -> None:
    codes = skewed_codes(400, 9, 0.4)
    data, rng = entropy.encode(codes, 9, "rans"), np.random.default_rng(3)
    tried = [data[:size] for size in (0, 1, 2, 3, 4, 9, 40, data.size - 2)]
    tried.append(np.concatenate([data[:4], np.array([0x80, 0, 0, 0, 0], dtype=np.uint8)]))  # nine frequencies of zero
    for trial in range(100):
        damaged = data.copy()
        damaged[rng.integers(0, 24 if trial % 2 else data.size)] ^= np.uint8(1 << rng.integers(0, 8))
        tried.append(damaged)
    for one in tried:
        said = []
        for decoded in (
            lambda one=one: entropy.decode(one, 400, 9, "rans"),
            lambda one=one: body.entropy_decoded(torch.from_numpy(one), 400, 9, "rans"),
        ):
            with pytest.raises(MessageError) as error:
                decoded()
            said.append(str(error.value))
        assert said[0] == said[1]


def test_a_code_beyond_the_symbols_is_refused() -> None:
    with pytest.raises(ValueError, match="num_symbols=9"):
        entropy_device.encode(None, torch.arange(10, dtype=torch.uint8), 9)  # pyright: ignore[reportArgumentType]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: the kernels were interpreted, not run")
def test_gpu_equals_the_reference() -> None:
    assert {str(case): said for case in CASES if (said := difference(case, "cuda"))} == {}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({str(case): said for case in CASES[:: int(sys.argv[1])] if (said := difference(case, "cpu"))}))
