"""Damaged folders of BERT's weights: one sentence each, with the file, the value and the rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.train.glue_files import needs_extra
from tests.train.models.test_bert import CONFIG, from_folder, pretrained

WHOLE = "a whole number from 1 on"
NUMBER = "a positive number with a decimal point or exponent"


@needs_extra
@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("hidden_act", "foo", r"gelu, .*relu, .*tanh"),
        ("hidden_act", ["gelu"], r"gelu, .*relu"),
        ("vocab_size", "100", WHOLE),
        ("hidden_size", -4, WHOLE),
        ("hidden_size", None, WHOLE),
        ("num_hidden_layers", 1.5, WHOLE),
        ("num_hidden_layers", True, WHOLE),
        ("num_attention_heads", 0, WHOLE),
        ("num_attention_heads", 5, "a divisor of hidden_size 16"),
        ("type_vocab_size", 1, "a whole number from 2 on, as there are two sentences"),
        ("pad_token_id", 999, "null, or a token from 0 to 8"),
        ("pad_token_id", -1, "null, or a token from 0 to 8"),
        ("layer_norm_eps", "x", NUMBER),
        ("layer_norm_eps", float("inf"), NUMBER),
        ("initializer_range", -1, NUMBER),
        ("is_decoder", True, "false, or leave it out"),
        ("add_cross_attention", True, "false, or leave it out"),
        ("position_embedding_type", "relative_key", r'"absolute", or leave it out'),
    ],
)
def test_a_damaged_config(key: str, value: object, rule: str, tmp_path: Path) -> None:
    pretrained(tmp_path, "new")
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, key: value}))
    with pytest.raises(ValueError, match=rf"config\.json: {key} is .*; legal: {rule}") as caught:
        from_folder(tmp_path)
    assert repr(value) in str(caught.value) and "\n" not in str(caught.value)


@needs_extra
def test_a_config_with_all_that_is_usual(tmp_path: Path) -> None:
    pretrained(tmp_path, "new")
    usual = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "initializer_range": 0.02,
        "type_vocab_size": 2,
        "pad_token_id": 0,
    }
    usual |= {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "use_cache": True,
        "transformers_version": "4.6.0",
    }
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **usual}))
    from_folder(tmp_path)


def _another_layer(weights: dict[str, torch.Tensor]) -> None:
    weights |= {key.replace("layer.0", "layer.1"): value for key, value in weights.items()}


def _not_a_number(weights: dict[str, torch.Tensor]) -> None:
    weights["bert.encoder.layer.0.output.dense.weight"][3, 2] = torch.nan


@needs_extra
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_another_layer, r"config\.json beside it leaves no place for 16 of its entries \(bert\.encoder\.layer\.1\."),
        (_not_a_number, r"bert\.encoder\.layer\.0\.output\.dense\.weight has values that are not finite"),
    ],
)
def test_weights_that_are_too_many_or_not_finite(
    change: Callable[[dict[str, torch.Tensor]], None], words: str, tmp_path: Path
) -> None:
    weights = pretrained(tmp_path, "old")
    change(weights)
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=rf"pytorch_model\.bin: {words}"):
        from_folder(tmp_path)
