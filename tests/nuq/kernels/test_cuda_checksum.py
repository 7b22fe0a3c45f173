"""The checksum on a GPU is zlib's: in Triton's interpreter and, where there is one, on a GPU."""

from __future__ import annotations

import json
import zlib

import pytest
import torch

from nuq.compressors.checksum import crc32
from nuq.kernels.cuda import checksum, checksum_operators
from nuq.kernels.cuda.launch import device_code
from tests.nuq.without_gpu import interpreted

STARTS = (0, 1, 0xFFFFFFFF, 0x89ABCDEF)


def differences(device: str, programs: int) -> dict[str, str]:
    """A table from every case that went wrong to the two values."""
    a_round = 4 * programs * checksum_operators.SIZE
    lengths = [*range(4, 12), 1000, *(a_round + more for more in range(-1, 5)), 3 * a_round + 77]
    data = torch.randint(0, 256, (max(lengths) + 3,), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    found, device_functions = {}, device_code()
    assert device_functions is not None
    for number, length in enumerate(lengths):
        own, start = data[number % 4 :][:length], STARTS[number % len(STARTS)]  # bytes need not be aligned
        expected, value = (
            zlib.crc32(own.numpy().tobytes(), start),
            checksum_operators.crc32(device_functions, own.to(device), start, programs),
        )
        if value != expected:
            found[f"{length} bytes after {start}"] = f"{value} where zlib has {expected}"
    return found


@pytest.mark.slow
def test_interpreter_equals_zlib() -> None:
    assert interpreted(__file__) == {}


def test_constants_of_all_lanes() -> None:
    """One lane's factor is the next one's times x^32; the tables step over all lanes."""
    tables, powers = checksum.constants(torch.device("cpu"), checksum_operators.PROGRAMS * checksum_operators.SIZE)
    powers, tables = powers.long() & 0xFFFFFFFF, tables.long() & 0xFFFFFFFF
    assert zlib.crc32(bytes(4), 0xFFFFFFFF ^ (1 << 31)) ^ 0xFFFFFFFF == int(powers[-1])  # 1, stepped over four zeros
    assert torch.equal(checksum._times(powers[1:], powers[-1:]), powers[:-1])
    assert torch.equal(checksum._times(torch.arange(256) << 24, powers[:1]), tables[-256:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: the kernel was interpreted, not run")
def test_gpu_equals_zlib() -> None:
    assert differences("cuda", checksum_operators.PROGRAMS) == {}
    for length in (0, 3, 5):
        data = torch.arange(length, dtype=torch.uint8)
        assert crc32(data.cuda(), 7) == zlib.crc32(data.numpy().tobytes(), 7)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(differences("cpu", 2)))
