"""The script of each page of docs/recipes/ trains in two processes, where the library that it is for is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECIPES = ROOT / "docs" / "recipes"
MOST_LINES = 50
PACKAGES = {"fabric": "lightning_fabric", "accelerate": "accelerate", "torchtitan": "torchtitan"}
NUM_PARAMETERS, NUM_STEPS = 100 * 200 + 200 + 200 * 10 + 10, 40  # of the scripts with DDP

# torchtitan's own training on a CPU: stand-ins for what it wants of a GPU, of a newer torch and of files
TORCHTITAN_ON_A_CPU = '''
from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch._utils

torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.current_device = lambda: 0
torch.cpu.get_device_name = lambda device=None: "CPU"
torch.cpu.get_device_properties = lambda device=None: SimpleNamespace(total_memory=2**30)
torch.cpu.memory_stats = lambda device=None: {}
torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda: None
if not hasattr(torch.distributed, "set_timeout"):
    torch.distributed.set_timeout = lambda timeout, group: None

import torchtitan.train
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.models.common.attention import FlexAttention
from torchtitan.models.llama3 import config_registry

import nuq

FlexAttention._compiled_flex_attn = staticmethod(
    lambda q, k, v, **_: (torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), None)
)


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **_):
        super().__init__()

    encode = decode = get_vocab_size = None


class Counted(BaseDataLoader):
    """Sentences that count on from a random number."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config, *, dp_rank, seq_len, local_batch_size, **_):
        self.generator, self.shape = torch.Generator().manual_seed(dp_rank), (local_batch_size, seq_len)

    def __iter__(self):
        while True:
            first = torch.randint(64, (self.shape[0], 1), generator=self.generator)
            tokens = (first + torch.arange(self.shape[1] + 1)) % 64
            yield {"input": tokens[:, :-1], "positions": torch.arange(self.shape[1]).expand(self.shape)}, tokens[:, 1:]

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def small(original=config_registry.llama3_debugmodel):
    config = original()
    config.model_spec.model.layers = config.model_spec.model.layers[:1]
    config.tokenizer, config.dataloader = NoTokenizer.Config(), Counted.Config()
    config.training.seq_len, config.training.local_batch_size, config.training.steps = 32, 4, 8
    config.validator.enable, config.activation_checkpoint = False, None
    config.parallelism.spmd_backend = "partial_dtensor"
    return config


config_registry.llama3_debugmodel = small
installed = []
nuq.compress_fsdp = lambda *words, real=nuq.compress_fsdp, **settings: installed.extend(real(*words, **settings))


def end(real=torch.distributed.destroy_process_group):
    sent = sum(sum(each.transport.bytes_sent.values()) for each in installed if each.transport)
    print(f"rank {torch.distributed.get_rank()}: {sent} bytes sent", flush=True)
    real()


torch.distributed.destroy_process_group = end
torchtitan.train.main()
'''


def script(name: str) -> str:
    """The one block of Python of a page."""
    (source,) = re.findall(r"^```python\n(.*?)^```", (RECIPES / f"{name}.md").read_text(), re.MULTILINE | re.DOTALL)
    return source


def on_two_ranks(folder: Path, *words: str) -> str:
    """What two processes print that torchrun starts in a folder."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{folder}", "CUDA_VISIBLE_DEVICES": ""}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def needs(name: str) -> None:
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed; it is no dependency of this project")


def test_the_recipes_are_short_and_each_has_its_test() -> None:
    assert sorted(path.stem for path in RECIPES.iterdir()) == sorted(PACKAGES)
    assert all(len(script(name).splitlines()) <= MOST_LINES for name in PACKAGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fabric", "accelerate"])
def test_ddp(name: str, tmp_path: Path) -> None:
    """The loss falls, few bytes travel, the parameters of both ranks are the same, and each rank keeps its state."""
    needs(name)
    source = script(name)
    (file,) = re.findall(r"^# (\w+\.py); torchrun --nproc-per-node=2 \1$", source, re.MULTILINE)
    (tmp_path / file).write_text(source)
    said = on_two_ranks(tmp_path, file)
    losses = [float(loss) for loss in re.findall(r"(?:loss|->) (\d\.\d\d)", said)]
    assert len(losses) == 4 and max(losses) > 2.2 and min(losses) < 2.0, said
    ends = re.findall(r"rank \d: (\d+) bytes sent, (parameters sum to -?[\d.]+)", said)
    assert len(ends) == 2 and len(set(ends)) == 1, said
    assert 3 / 32 < int(ends[0][0]) / (4 * NUM_PARAMETERS * NUM_STEPS) < 5 / 32
    assert {path.name for path in tmp_path.glob("*.pt")} == {"compression-0.pt", "compression-1.pt"}


@pytest.mark.slow
def test_torchtitan(tmp_path: Path) -> None:
    """Its own training compresses the reduce-scatter, and its loss falls, on both ranks alike."""
    needs("torchtitan")
    source = script("torchtitan")
    (module, config) = re.findall(r"^# (\w+)\.py; torchrun .* --module \1 --config (\w+)$", source, re.MULTILINE)[0]
    (tmp_path / f"{module}.py").write_text(source)
    (tmp_path / "on_a_cpu.py").write_text(TORCHTITAN_ON_A_CPU)
    said = on_two_ranks(tmp_path, "on_a_cpu.py", "--module", module, "--config", config)
    said = re.sub(r"\x1b\[[\d;]*m", "", said)
    losses = [float(loss) for loss in re.findall(r"loss: +(\d\.\d+)", said)]
    assert len(losses) == 16 and losses[0] == losses[1] and max(losses[-2:]) < losses[0] - 1, said
    sent = re.findall(r"rank \d: (\d+) bytes sent", said)
    (size,) = set(re.findall(r"size: ([\d,]+) total parameters", said))
    each = [int(bytes_sent) / (4 * int(size.replace(",", "")) / 2 * 8) for bytes_sent in sent]  # a half leaves a rank
    assert len(each) == 2 and all(4 / 32 < ratio < 5 / 32 for ratio in each), said
