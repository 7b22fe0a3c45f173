"""Reading of the folders that SmaQ's own code leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.logs import foreign

HPARAMS = """\
accelerator: ddp
batch_size: 128
compress: true
compress_forward: true
compression: &id001 !!python/object:smart_compress.compress.smart.SmartFP
  hparams: !!python/object:argparse.Namespace
    again: *id001
    callback: !!python/object/apply:os.system [touch {touched}]
compression_cls: !!python/name:smart_compress.compress.smart.SmartFP ''
compression_hook_method: !!python/object/apply:smart_compress.util.train.CompressionHookMethod
- 1
dataset_cls: !!python/name:smart_compress.data.cifar10.CIFAR10DataModule ''
gpus: 2
num_nodes: 1
learning_rate: 0.1
make_optimizer_fn: !!python/name:smart_compress.models.base.make_sgd_optimizer ''
max_epochs: 384
max_steps: null
measure_compression_ratio: true
model_cls: !!python/name:smart_compress.models.resnet.ResNetModule ''
momentum: 0.9
name: smart-[6-8]
num_bits_main: 6
num_bits_outlier: 8
resnet_model: !!python/object/apply:smart_compress.models.resnet.ResNetModelType
- 1
scheduler_gamma: 0.1
scheduler_milestones: !!python/tuple [100, 150, 200]
scheduler_type: multi_step
weight_decay: 5.0e-05
"""
SMAQ = {
    "system": "smaq",
    "method.name": "smaq",
    "method.num_bits_main": 6,
    "method.num_bits_outlier": 8,
    "batch_size": 128,
    "workers": 2,
    "data.name": "cifar10",
    "model.name": "resnet34",
    "optim.name": "sgd",
    "optim.lr": 0.1,
    "optim.momentum": 0.9,
    "optim.weight_decay": 5e-5,
    "schedule.name": "step",
    "schedule.factor": 0.1,
}


def version(folder: Path, hparams: str) -> dict[str, Any] | None:
    folder.mkdir(parents=True)
    (folder / "hparams.yaml").write_text(hparams)
    return foreign.settings(folder)


def test_smaq_is_read_and_nothing_in_it_is_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    text = HPARAMS.replace("{touched}", str(touched))
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(text)
    assert version(tmp_path / "lightning_logs" / "default" / "version_0", text) == SMAQ
    assert not touched.exists()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("compression_cls: !!python/name:smart_compress.compress.s2fp8.S2FP8 ''", "s2fp8"),
        ("compression_cls: !!python/name:smart_compress.compress.bf16.BF16 ''", "bf16"),
        ("compress: false\ncompression_cls: !!python/name:smart_compress.compress.smart.SmartFP ''", "fp32"),
        ("compress: !!python/object/apply:smart_compress.util.train.CompressionType [2]", "smaq"),
        ("compress: !!python/object/apply:smart_compress.util.train.CompressionType [0]", "fp32"),
        ("compression_cls: null", None),
    ],
)
def test_smaqs_methods(tmp_path: Path, line: str, expected: str | None) -> None:
    found = version(tmp_path / "version_1", f"{line}\nbatch_size: 10\n")
    assert found is not None
    assert (found.get("method.name"), found["batch_size"]) == (expected, 10)
    assert "method.num_bits_main" not in found


def test_smaqs_older_logger(tmp_path: Path) -> None:
    """A table of texts, with the event files in a folder below."""
    rows = [
        "key,value",
        "compression_cls,<class 'smart_compress.compress.smart.SmartFP'>",
        "batch_size,10",
        "num_bits_main,6",
    ]
    rows += [
        "dataset_cls,<class 'smart_compress.data.glue.GLUEDataModule'>",
        "task_name,stsb",
        "learning_rate,2e-05",
        "compress,True",
    ]
    rows += ["model_cls,<class 'smart_compress.models.bert.BertModule'>", '"tags","6,8"', "gpus,-1"]
    (tmp_path / "tf").mkdir()
    (tmp_path / "meta_tags.csv").write_text("\n".join(rows))
    for folder in (tmp_path, tmp_path / "tf"):
        assert foreign.settings(folder) == {
            "system": "smaq",
            "method.name": "smaq",
            "method.num_bits_main": 6,
            "batch_size": 10,
            "optim.lr": 2e-5,
            "data.name": "glue",
            "data.task": "stsb",
            "model.name": "bert",
        }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1, 2]",
        "a: [",
        "batch_size: 3",
        "? [1]\n: 2",
        "&a [*a]",
        "compress: !!python/object/apply:x {a: &b {c: *b}}",
        "compress: [[1]]",
    ],
)
def test_other_and_damaged_files_of_settings(tmp_path: Path, content: str) -> None:
    found = version(tmp_path / "version_0", content)
    assert found in (None, {"system": "smaq"})
