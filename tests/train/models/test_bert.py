"""BERT: what it computes, from which weights it starts, and how it trains."""

from __future__ import annotations

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from settings import resolving
from tests.train.glue_files import needs_extra, write_task, write_vocabulary
from tests.train.models.test_models import build, size
from train import dry_run, models
from train.data.torchvision_import import torchvision
from train.launch import launch
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
STEPS = 20
SENTENCES = {"data.length": 24, "data.vocabulary": 200}
TINY = {"model": "bert", "model.layers": 1, "model.width": 16}
RUN = {
    "workers": 2,
    "batch_size": 4,
    "steps": STEPS,
    "eval_every": 10,
    "checkpoint_every": 7,
    "log_every": 1,
    "device": "cpu",
}
RUN |= {
    "optim": "adamw",
    "optim.lr": 0.001,
    "schedule": "piecewise_linear",
    "schedule.at": [0, STEPS],
    "schedule.factors": [1.0, 0.0],
}


def config(**chosen: object) -> dict[str, Any]:
    return resolving.resolve(
        {"data": "glue", **SENTENCES, **TINY, **RUN, **{key.replace("__", "."): value for key, value in chosen.items()}}
    )


def examples(count: int, length: int = 24, tokens: int = 200) -> torch.Tensor:
    """Pairs of random tokens, of lengths from 6 on."""
    draws = torch.Generator().manual_seed(0)
    x = torch.zeros(count, 2, length, dtype=torch.int64)
    for number in range(count):
        end = 6 + number % (length - 5)
        x[number, 0, :end] = torch.randint(5, tokens, (end,), generator=draws)
        x[number, 1, :end] = torch.tensor([1] * 3 + [2] * (end - 3))
    return x


def bert(num_classes: int = 2, length: int = 24, **chosen: object) -> torch.nn.Module:
    return build("bert", (2, length), num_classes, data="imdb", **{**SENTENCES, **TINY, **chosen})


# --- the model -----------------------------------------------------------------------------------------------------


@needs_extra
def test_the_size_of_bert_base() -> None:
    chosen = {"model.layers": 12, "model.heads": 12, "model.width": 768, "data.length": 512, "data.vocabulary": 30522}
    with torch.device("meta"):
        model = models.build(resolving.resolve({"data": "imdb", "model": "bert", **chosen}), (2, 512), 2)
    assert size(model) == 109_482_240 + 2 * 768 + 2  # the published network, and a head of two classes


@needs_extra
def test_padding_changes_nothing_and_the_second_sentence_is_told_from_the_first() -> None:
    model, x = bert().eval(), examples(6)
    found = model(x)
    padded = x.clone()
    padded[:, 0][x[:, 1] == 0] = 7
    assert torch.equal(model(padded), found)
    alone = torch.cat([model(x[number : number + 1, :, : 6 + number]) for number in range(6)])
    torch.testing.assert_close(alone, found, rtol=1e-4, atol=1e-5)
    other = x.clone()
    other[:, 1] = (x[:, 1] > 0).long()
    assert not torch.allclose(model(other), found)


@needs_extra
def test_it_is_transformers_own() -> None:
    torchvision()  # which transformers imports, and which not every build of torch lets in
    from transformers import BertConfig, BertForSequenceClassification

    model, x = bert(3, **{"model.layers": 2}).eval(), examples(4)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 64,
        "max_position_embeddings": 24,
        "vocab_size": 200,
        "num_labels": 3,
    }
    theirs = BertForSequenceClassification(BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=2)).eval()
    theirs.load_state_dict(model.state_dict())
    expected = theirs(
        input_ids=x[:, 0], attention_mask=(x[:, 1] > 0).long(), token_type_ids=(x[:, 1] == 2).long()
    ).logits
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


@needs_extra
def test_dropout_is_a_function_of_the_seed() -> None:
    model, x = bert(), examples(4)
    with torch.random.fork_rng(devices=[]):
        assert not torch.equal(model(x), model(x))
    assert torch.equal(model.eval()(x), model(x))
    off = bert(2, 24, **{"model.dropout": 0.0})
    assert torch.equal(off(x), off.eval()(x))
    chosen = config(stand_in=True, method="supersgd")
    one, other = (Trainer(chosen, device=CPU) for _ in range(2))
    found = [one.gradient(1, 3, one.order, "train")]
    with torch.random.fork_rng(devices=[]):
        torch.rand(5)  # what anybody else draws
        found.append(other.gradient(1, 3, other.order, "train"))
    assert torch.equal(found[0][1], found[1][1])
    assert torch.equal(found[0][0], found[1][0])


def test_what_bert_goes_with() -> None:
    with pytest.raises(
        ValueError,
        match=r"model=bert needs sentences \(data=glue, data=imdb\), but data=text has the shape 64 \(legal: gpt\)",
    ):
        models.build(resolving.resolve({"data": "text", "model": "bert"}), (64,), 97)
    with pytest.raises(
        ValueError, match=r"model=gpt needs a text \(data=text\), but data=imdb has the shape 2x128 \(legal: bert\)"
    ):
        models.build(resolving.resolve({"data": "imdb", "model": "gpt"}), (2, 128), 2)
    with pytest.raises(ValueError, match=r"model\.width=127: must be a multiple of model\.heads=2"):
        resolving.resolve({"model": "bert", "model.width": 127})
    with pytest.raises(
        ValueError, match=r"label_smoothing=0\.1: data\.task=stsb has scores, not classes; legal here: 0"
    ):
        resolving.resolve({"data": "glue", "label_smoothing": 0.1})
    resolving.resolve({"data": "glue", "data.task": "rte", "label_smoothing": 0.1})


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError("No module named 'transformers'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ValueError, match=r"model=bert needs the package transformers .*pip install '\.\[nlp\]'"):
        bert()


# --- weights from a folder -----------------------------------------------------------------------------------------

CONFIG = {
    "model_type": "bert",
    "hidden_size": 16,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "vocab_size": 9,
}
CONFIG |= {
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "architectures": ["BertForMaskedLM"],
    "auto_map": {"AutoModel": "evil.Model"},
}


def pretrained(folder: Path, form: str) -> dict[str, torch.Tensor]:
    """``folder`` as it is customary for weights, with another inner width than ours; the network's entries under our
    names.
    """
    torchvision()
    from safetensors.torch import save_file
    from transformers import BertConfig, BertForSequenceClassification

    write_vocabulary(folder, "the", "cat", ".")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        sizes: dict[str, Any] = {key: value for key, value in CONFIG.items() if isinstance(value, int)} | {
            "num_labels": 5
        }
        whole = BertForSequenceClassification(BertConfig(**sizes)).state_dict()
    if form == "old":
        kept = {
            key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): whole[key]
            for key in whole
        }
        torch.save({**kept, "cls.predictions.bias": torch.zeros(9)}, folder / "pytorch_model.bin")
    else:
        save_file(
            {key.removeprefix("bert."): whole[key] for key in whole if key.startswith("bert.")},
            str(folder / "model.safetensors"),
        )
    return {key: value for key, value in whole.items() if key.startswith("bert.")}


def from_folder(folder: Path, /, **chosen: object) -> torch.nn.Module:
    settings = {
        "model": "bert",
        "model.weights": str(folder),
        "data": "imdb",
        "data.tokenizer": str(folder),
        "data.length": 24,
        **chosen,
    }
    return models.build(resolving.resolve(settings), (2, settings["data.length"]), 2)


@needs_extra
@pytest.mark.parametrize("form", ["old", "new"])
def test_weights_of_a_folder(form: str, tmp_path: Path) -> None:
    expected = pretrained(tmp_path, form)
    model = from_folder(tmp_path)
    found = model.state_dict()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    assert found["classifier.weight"].shape == (2, 16)  # of our classes, new
    assert model(examples(3, tokens=9)).shape == (3, 2)


@needs_extra
def test_a_folder_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.weights=.*there is no config\.json"):
        from_folder(tmp_path)
    pretrained(tmp_path, "new")
    with pytest.raises(ValueError, match=r"these weights know 32 places, and data\.length is 33; legal: at most 32"):
        from_folder(tmp_path, **{"data.length": 33})
    write_vocabulary(tmp_path, "the", "cat", ".", "dog")
    with pytest.raises(
        ValueError, match=r"these weights know 9 tokens, and data\.tokenizer's vocab\.txt has 10; legal: at most 9"
    ):
        from_folder(tmp_path)
    write_vocabulary(tmp_path, "the", "cat", ".")
    for content, words in (
        (
            {**CONFIG, "hidden_size": 12},
            r"model\.safetensors: bert\.\S+ has shape \[.*16.*config\.json beside it needs \[.*12",
        ),
        (
            {**CONFIG, "num_hidden_layers": 2},
            r"not the weights of a BERT: 16 of \d+ entries are missing \(bert\.encoder\.layer\.1",
        ),
        ({**CONFIG, "model_type": "roberta"}, r"config\.json: not of a BERT: expected model_type 'bert'"),
        ("[", r"config\.json is damaged"),
    ):
        (tmp_path / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(ValueError, match=words):
            from_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(ValueError, match=r"model\.safetensors: cannot be read as named tensors"):
        from_folder(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"there is neither model\.safetensors nor pytorch_model\.bin"):
        from_folder(tmp_path)


class Attack:
    def __init__(self, victim: str) -> None:
        self.victim = victim

    def __reduce__(self):
        return os.mkdir, (self.victim,)


@needs_extra
def test_a_folder_runs_no_code(tmp_path: Path) -> None:
    pretrained(tmp_path, "old")
    torch.save({"bert.pooler.dense.bias": Attack(str(tmp_path / "victim"))}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: cannot be read as named tensors"):
        from_folder(tmp_path)
    assert not (tmp_path / "victim").exists()


def test_weights_need_their_own_vocabulary() -> None:
    with pytest.raises(ValueError, match=r"model\.weights='bert-base': .*own vocab\.txt.*set data\.tokenizer"):
        resolving.resolve({"data": "glue", "model": "bert", "model.weights": "bert-base"})
    with pytest.raises(ValueError, match=r"model\.layers=3: has no effect with model\.weights='bert-base'"):
        resolving.resolve({"model": "bert", "model.weights": "bert-base", "model.layers": 3})


# --- training ------------------------------------------------------------------------------------------------------


@needs_extra
@pytest.mark.parametrize(
    ("task", "scores"), [("stsb", ["pearson", "spearman"]), ("cola", ["matthews"]), ("qqp", ["f1"]), ("mnli", [])]
)
def test_an_evaluation_tells_what_the_task_asks_for(task: str, scores: list[str], tmp_path: Path) -> None:
    write_task(tmp_path, task)
    found = Trainer(config(data__task=task, data_dir=str(tmp_path)), device=CPU).evaluate("test")
    counts = [] if task == "stsb" else ["correct", "wrong", "acc", "error"]
    assert list(found) == [f"V{name}" for name in ("loss", *counts, *scores)]


@needs_extra
def test_it_learns_how_alike_two_sentences_are(tmp_path: Path) -> None:
    """The score is which of six subjects the first sentence has: a few steps find much of it."""
    write_task(tmp_path, "stsb", num_train=120, num_dev=30)
    own = {
        "method": "supersgd",
        "optim": "adamw",
        "optim.lr": 0.01,
        "model.dropout": 0.0,
        "workers": 1,
        "batch_size": 24,
    }
    trainer = Trainer(
        resolving.resolve({"data": "glue", "data_dir": str(tmp_path), **SENTENCES, **TINY, **own}), device=CPU
    )
    for _ in range(60):
        trainer.train_step()
    assert trainer.evaluate("test")["Vpearson"] > 0.5


@needs_extra
@pytest.mark.parametrize("name", ["glue", "imdb"])
def test_dry_run_without_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    estimate = dry_run.dry_run(config(data=name, data_dir=str(tmp_path), method="alq"))
    assert estimate["seconds"] > 0 and estimate["sent_gb"] > 0
    assert f"marked stand-in tensors in place of data={name}: " in capsys.readouterr().out


def test_a_run_without_files_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(config(data_dir=str(tmp_path), run_dir=str(tmp_path / "run"))) == 2
    assert "GLUE's stsb not found" in capsys.readouterr().err
