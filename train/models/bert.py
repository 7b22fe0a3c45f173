"""BERT with a head for sentences, by ``transformers``.

Devlin and others, "BERT: pre-training of deep bidirectional transformers" (2018).  The model starts from scratch with
the sizes that settings give, or from a local folder of pretrained weights: ``config.json``, which says the sizes, and
``model.safetensors`` or ``pytorch_model.bin``.  No code of a folder runs, and nothing is fetched.  Attention is
computed in steps ("eager"): its bits then depend on no kernel that a machine chooses, and its shares are tensors that a
format can hold.  Dropout draws from torch's global generator of the device, which the caller forks and seeds, as do new
weights.
"""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from train.data.torchvision_import import torchvision
from train.process.checkpoint import reason

FILES = ("model.safetensors", "pytorch_model.bin")
HEAD = ("classifier.", "bert.pooler.")  # parameters that pretrained weights may lack: they start anew
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
WIDER = 4  # the inner layer of a block against its width


class Bert(nn.Module):
    """A map from int64 (batch, 2, length), see ``train.data.sentences``, to logits or scores (batch, num_classes)."""

    def __init__(self, whole: Any) -> None:
        """Wrap ``whole``: transformers' BertForSequenceClassification, whose names of parameters stay."""
        super().__init__()
        self.bert, self.dropout, self.classifier = whole.bert, whole.dropout, whole.classifier

    def forward(self, x: Tensor) -> Tensor:
        tokens, whose = x.unbind(1)
        found = self.bert(input_ids=tokens, attention_mask=(whose > 0).long(), token_type_ids=(whose - 1).clamp_min(0))
        return self.classifier(self.dropout(found.pooler_output))


def build(settings: Mapping[str, Any], num_tokens: int, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The model of these settings, for so many tokens; ValueError where weights are damaged or not for such data."""
    _, length = input_shape
    folder = Path(settings["weights"]) if settings["weights"] else None
    if folder is not None:
        sizes = _sizes(folder, num_tokens, length)
    else:
        width = settings["width"]
        sizes = {"hidden_size": width, "intermediate_size": WIDER * width}
        sizes |= {"max_position_embeddings": length, "vocab_size": num_tokens}
        sizes |= {"num_hidden_layers": settings["layers"], "num_attention_heads": settings["heads"]}
    rates = dict.fromkeys(DROPOUTS, settings["dropout"])
    theirs = _transformers()
    chosen = theirs.BertConfig(**{**sizes, **rates, "num_labels": num_classes, "attn_implementation": "eager"})
    model = Bert(theirs.BertForSequenceClassification(chosen))
    if folder is not None:
        _load(model, folder)
    return model


def _transformers() -> Any:
    """The package ``transformers``; ValueError says how to install it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read as it is imported: nothing is fetched
    torchvision()  # transformers imports it, and not every build of torch lets it in
    try:
        import transformers
    except ImportError as error:
        raise ValueError(f"model=bert needs the package transformers ({error}): pip install '.[nlp]'") from error
    return transformers


SIZES = {
    *("hidden_size", "intermediate_size", "max_position_embeddings"),
    *("vocab_size", "num_hidden_layers", "num_attention_heads"),
}
REST = {"hidden_act", "layer_norm_eps", "type_vocab_size", "pad_token_id", "initializer_range"}
# the values of these keys in BERT; other networks have others
OTHERS = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def _sizes(folder: Path, num_tokens: int, length: int) -> dict[str, Any]:
    """The sizes of the network in ``config.json``, and nothing else of it."""
    path = folder / "config.json"
    if not path.is_file():
        expected = f"expected it with {' or '.join(FILES)}"
        raise FileNotFoundError(f"model.weights={folder}: there is no config.json; {expected}")
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    if not isinstance(content, dict) or content.get("model_type") != "bert" or not content.keys() >= SIZES:
        raise ValueError(f"{path}: not of a BERT: expected model_type 'bert' and {', '.join(sorted(SIZES))}")
    _check(path, content)
    for what, needed, key, setting in (
        ("tokens", num_tokens, "vocab_size", "data.tokenizer's vocab.txt has"),
        ("places", length, "max_position_embeddings", "data.length is"),
    ):
        if needed > content[key]:
            legal = f"legal: at most {content[key]}"
            known = f"these weights know {content[key]} {what}, and {setting} {needed}"
            raise ValueError(f"model.weights={folder}: {known}; {legal}")
    return {key: value for key, value in content.items() if key in SIZES | REST}


def _check(path: Path, content: Mapping[str, Any]) -> None:
    """Raise ValueError for a value that is of no network, or of another one than is built here."""

    def need(key: str, legal: bool, rule: str) -> None:
        if key in content and not legal:
            raise ValueError(f"{path}: {key} is {content[key]!r}; legal: {rule}")

    for key in sorted(SIZES):
        need(key, _is_whole(content[key]) and content[key] >= 1, "a whole number from 1 on")
    width, heads, tokens = (content[key] for key in ("hidden_size", "num_attention_heads", "vocab_size"))
    need("num_attention_heads", width % heads == 0, f"a divisor of hidden_size {width}")
    types, padding = content.get("type_vocab_size"), content.get("pad_token_id")
    need("type_vocab_size", _is_whole(types) and types >= 2, "a whole number from 2 on, as there are two sentences")
    is_token = padding is None or (_is_whole(padding) and 0 <= padding < tokens)
    need("pad_token_id", is_token, f"null, or a token from 0 to {tokens - 1}")
    for key in ("layer_norm_eps", "initializer_range"):
        value = content.get(key)
        is_positive = isinstance(value, float) and math.isfinite(value) and value > 0
        need(key, is_positive, "a positive number with a decimal point or exponent")
    _transformers()
    from transformers.activations import ACT2FN

    activation = content.get("hidden_act")
    need("hidden_act", isinstance(activation, str) and activation in ACT2FN, ", ".join(sorted(ACT2FN)))
    for key, only in OTHERS.items():
        need(key, content.get(key) == only, f"{json.dumps(only)}, or leave it out")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _load(model: nn.Module, folder: Path) -> None:
    """Copy the folder's weights into the model; a missing head, or one of other classes, stays as it is."""
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"model.weights={folder}: there is neither {' nor '.join(FILES)}")
    weights = {_name(key): value for key, value in _tensors(path).items()}
    own = model.state_dict()
    absent = sorted(key for key in own if key not in weights and not key.startswith(HEAD))
    if absent:
        missing = f"{len(absent)} of {len(own)} entries are missing ({', '.join(absent[:3])})"
        raise ValueError(f"{path}: not the weights of a BERT: {missing}")
    left = sorted(key for key in weights if key.startswith("bert.encoder.") and key not in own)
    if left:
        entries = f"{len(left)} of its entries ({', '.join(left[:3])})"
        raise ValueError(f"{path}: config.json beside it leaves no place for {entries}")
    for key, value in own.items():
        if key in weights and weights[key].shape != value.shape and not key.startswith(HEAD):
            needed = f"config.json beside it needs {list(value.shape)}"
            raise ValueError(f"{path}: {key} has shape {list(weights[key].shape)}, but {needed}")
    used = {key: weights[key] for key, value in own.items() if key in weights and weights[key].shape == value.shape}
    for key, value in used.items():
        if not bool(value.isfinite().all()):
            why = "so nothing could be learned from it; legal: finite weights"
            raise ValueError(f"{path}: {key} has values that are not finite, {why}")
    model.load_state_dict({**own, **used})


def _tensors(path: Path) -> dict[str, Tensor]:
    """The entries of a file, which is read as data and cannot run code."""
    try:
        if path.suffix == ".bin":
            content = torch.load(path, map_location="cpu", weights_only=True)
        else:
            from safetensors import SafetensorError
            from safetensors.torch import load

            try:
                content = load(path.read_bytes())
            except SafetensorError as error:
                raise ValueError(str(error)) from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: cannot be read as named tensors: {reason(error)}") from error
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path}: cannot be read as named tensors: it holds something else")
    return dict(content)


def _name(key: str) -> str:
    """Our name of a parameter in old files, and in files that hold a BERT without a head."""
    key = key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
    return f"bert.{key}" if key.startswith(("embeddings.", "encoder.", "pooler.")) else key
