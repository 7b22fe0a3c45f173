"""The small GPT and its text: what they are, what they learn, and that everything made for pictures takes them."""

from __future__ import annotations

import math
import sysconfig
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nuq.registry import METHODS
from settings import resolving
from tests.tiers import few
from tests.train.models.test_models import build, size
from train import data, dry_run
from train.data import objective, text
from train.launch import launch
from train.models import gpt
from train.process.checkpoint import CheckpointError
from train.steps.trainer import Trainer

CPU = torch.device("cpu")
TEXT = {"data": "text", "data.length": 16, "data.num_train": 64, "data.num_test": 8}
GPT = {"model": "gpt", "model.layers": 1, "model.heads": 2, "model.width": 16}
RUN = {
    "method": "supersgd",
    "workers": 2,
    "batch_size": 4,
    "steps": 4,
    "eval_every": 2,
    "eval_batch_size": 5,
    "checkpoint_every": 1,
}


def config(**chosen: object) -> dict[str, Any]:
    return resolving.resolve({**TEXT, **GPT, **RUN, **{key.replace("__", "."): value for key, value in chosen.items()}})


def decode(codes: np.ndarray) -> str:
    """The text of codes, with a question mark for what is in no vocabulary."""
    return np.frombuffer(text.VOCABULARY + b"?", dtype=np.uint8)[codes].tobytes().decode("ascii")


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(97, shape, generator=torch.Generator().manual_seed(0))


# --- the text ------------------------------------------------------------------------------------------------------


def test_windows_follow_one_another_and_labels_are_the_next_characters() -> None:
    dataset = data.load(config(), CPU)
    assert (dataset.num_train, dataset.num_test, dataset.input_shape, dataset.num_classes) == (64, 8, (16,), 97)
    x, y = dataset.train_batch(torch.tensor([3, 0, 1]), torch.Generator())
    assert x.dtype == y.dtype == torch.int64 and x.shape == y.shape == (3, 16)
    files = text.source_files(Path(sysconfig.get_path("stdlib")))
    content = (Path(sysconfig.get_path("stdlib")) / files["train"][0]).read_bytes()
    for row, start in enumerate((48, 0, 16)):
        assert decode(x[row].numpy()) == content[start : start + 16].decode("ascii")
        assert decode(y[row].numpy()) == content[start + 1 : start + 17].decode("ascii")
    batches = list(dataset.batches("test", 5))
    assert [tuple(x.shape) for x, _ in batches] == [(5, 16), (3, 16)]
    whole = torch.cat([x.flatten() for x, _ in batches])
    assert torch.equal(whole[1:], torch.cat([y.flatten() for _, y in batches])[:-1])


def test_every_byte_has_a_code() -> None:
    codes = text.encode(bytes(range(256)))
    assert codes.dtype == np.uint8 and codes.max() == 96 and (codes == 96).sum() == 256 - 96
    assert decode(text.encode(b"def f(x):\n\treturn 'z~'\n")) == "def f(x):\n?return 'z~'\n"


def test_more_windows_leave_the_first_ones_and_splits_share_no_file() -> None:
    few, many = data.load(config(), CPU), data.load(config(data__num_train=500), CPU)
    first = torch.arange(64)
    assert torch.equal(few.train_batch(first, torch.Generator())[0], many.train_batch(first, torch.Generator())[0])
    assert few.fingerprint != many.fingerprint  # type: ignore[attr-defined]
    files = text.source_files(Path(sysconfig.get_path("stdlib")))
    assert not set(files["train"]) & set(files["test"])
    share = len(files["test"]) / len(files["train"] + files["test"])
    assert 0.06 < share < 0.2
    assert not [name for name in files["train"] + files["test"] if "site-packages" in name or "/test/" in f"/{name}"]


def test_a_file_more_moves_no_other(tmp_path: Path) -> None:
    names = [f"module{number}.py" for number in range(40)]
    for name in names:
        (tmp_path / name).write_text("x = 1\n")
    before = text.source_files(tmp_path)
    (tmp_path / "added.py").write_text("y = 2\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "left_out.py").write_text("z = 3\n")
    after = text.source_files(tmp_path)
    for split in ("train", "test"):
        assert [name for name in after[split] if name != "added.py"] == before[split]
    assert sorted(after["train"] + after["test"]) == sorted([*names, "added.py"])


def test_a_python_without_sources_or_with_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(
        FileNotFoundError,
        match=r"data=text reads the standard library's sources, and Python 3.* has no \.py files below",
    ):
        data.load(config(), CPU)
    for number in range(40):
        (tmp_path / f"module{number}.py").write_text("x = 1\n")
    with pytest.raises(
        ValueError,
        match=r"data\.num_train=64 windows of data\.length=16 need 1025 characters, .* \(legal: .* at most 1\d\)",
    ):
        data.load(config(), CPU)


def test_stand_ins_and_sizes() -> None:
    dataset = data.load(config(stand_in=True), CPU)
    assert dataset.is_stand_in and dataset.name == "text" and dataset.input_shape == (16,)
    x, y = dataset.train_batch(torch.arange(dataset.num_train), torch.Generator())
    assert torch.equal(x[:, 1:], y[:, :-1]) and x.min() == 0 and x.max() == 96
    assert torch.equal(
        x, data.load(config(stand_in=True), CPU).train_batch(torch.arange(dataset.num_train), torch.Generator())[0]
    )
    real, full = data.load(config(), CPU), data.true_size(config())
    assert (full.num_train, full.num_test) == (real.num_train, real.num_test)
    assert full.num_bytes == sum(codes.nbytes for codes in real._splits.values())  # type: ignore[attr-defined]


# --- the model -----------------------------------------------------------------------------------------------------


def test_sizes_of_gpt() -> None:
    width, layers, length = 32, 3, 20
    block = 12 * width**2 + 13 * width  # four matrices with biases, two norms
    count = layers * block + 97 * width + length * width + 2 * width
    chosen = {"data": "text", "model.layers": layers, "model.width": width}
    assert size(build("gpt", (length,), 97, **chosen, **{"model.tied": True})) == count
    assert size(build("gpt", (length,), 97, **chosen)) == count + 97 * width
    with torch.device("meta"):
        model = gpt.GPT(50257, 1024, layers=12, heads=12, width=768, dropout=0.1, tied=True)
    assert size(model) == 124_439_808  # GPT-2's smallest


def test_weights_start_as_gpt2s() -> None:
    model = build("gpt", (64,), 97, data="text", **{"model.width": 128})
    assert float(model.get_parameter("blocks.0.up.weight").detach().std()) == pytest.approx(0.02, rel=0.02)
    assert float(model.get_parameter("tokens.weight").detach().std()) == pytest.approx(0.02, rel=0.05)
    for name in ("blocks.3.project.weight", "blocks.1.attention.project.weight"):
        assert float(model.get_parameter(name).detach().std()) == pytest.approx(0.02 / math.sqrt(8), rel=0.03)
    assert not any(bool(p.any()) for name, p in model.named_parameters() if name.endswith("bias"))
    logits = model(tokens(8, 64)).detach()
    assert F.cross_entropy(logits.flatten(0, 1), tokens(8, 64).flatten()) == pytest.approx(math.log(97), rel=0.02)


def test_attention_is_its_formula_and_sees_the_past_alone() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one, x = gpt.Attention(6, 2, 0.0), torch.randn(1, 4, 6)
    projected = x[0] @ one.inputs.weight.T + one.inputs.bias
    rows = []
    for place in range(4):
        heads = []
        for head in range(2):
            query, key, value = (projected[:, 6 * part + 3 * head : 6 * part + 3 * head + 3] for part in range(3))
            shares = torch.softmax(key[: place + 1] @ query[place] / math.sqrt(3), 0)
            heads.append(shares @ value[: place + 1])
        rows.append(torch.cat(heads) @ one.project.weight.T + one.project.bias)
    torch.testing.assert_close(one(x)[0], torch.stack(rows), rtol=1e-4, atol=1e-5)

    model, text_of_it = build("gpt", (12,), 97, data="text"), tokens(1, 12)
    changed = text_of_it.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 97
    same = (model(text_of_it) == model(changed)).all(dim=-1)[0]
    assert same.tolist() == [True] * 7 + [False] * 5
    assert model(text_of_it[:, :5]).shape == (1, 5, 97)  # a shorter text than its context


def test_dropout_and_tying() -> None:
    model, x = build("gpt", (12,), 97, data="text", **{"model.dropout": 0.2, "model.tied": True}), tokens(2, 12)
    assert model.get_parameter("tokens.weight") is cast(nn.Linear, model.get_submodule("output")).weight
    with torch.random.fork_rng(devices=[]):
        assert not torch.equal(model(x), model(x))
    assert torch.equal(model.eval()(x), model(x))


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValueError, match=r"model\.width=65: must be a multiple of model\.heads=4"):
        resolving.resolve({"model": "gpt", "model.width": 65})


def test_what_a_text_and_a_gpt_go_with() -> None:
    with pytest.raises(ValueError, match=r"model=gpt needs a text \(data=text\), but data=logreg2 has the shape 100"):
        Trainer(resolving.resolve({"data": "logreg2", "model": "gpt"}), device=CPU)
    with pytest.raises(
        ValueError, match=r"model=logreg needs any input but text, but data=text has the shape 64 \(legal: gpt\)"
    ):
        Trainer(resolving.resolve({"data": "text", "model": "logreg"}), device=CPU)


# --- training ------------------------------------------------------------------------------------------------------


def test_the_loss_is_a_mean_over_all_places_and_evaluation_counts_characters() -> None:
    trainer = Trainer(config(stand_in=True, workers=1), device=CPU)
    x, y = trainer.data.train_batch(torch.arange(3), torch.Generator())
    logits = trainer.model(x).detach()
    shares = torch.log_softmax(logits, dim=-1)
    by_hand = -sum(float(shares[row, place, y[row, place]]) for row in range(3) for place in range(16)) / 48
    assert float(objective.loss_of(logits, y)) == pytest.approx(by_hand, rel=1e-5)
    found = trainer.evaluate("test")
    assert found["Vcorrect"] + found["Vwrong"] == trainer.data.num_test * 16
    assert found["Vloss"] == pytest.approx(math.log(97), rel=0.05)


def test_a_gpt_learns_more_than_the_frequencies_of_characters() -> None:
    chosen = config(
        workers=1, batch_size=16, data__num_train=512, data__length=32, model__width=32, optim="adam", optim__lr=0.01
    )
    trainer = Trainer(chosen, device=CPU)
    for _ in range(60):
        loss = trainer.train_step().losses[0]
    codes = trainer.data._splits["train"]  # type: ignore[attr-defined]
    shares = torch.bincount(codes.long()).double() / len(codes)
    assert loss < float(-(shares[shares > 0] * shares[shares > 0].log()).sum()) - 0.3


@few(7, "name", list(METHODS))
def test_every_method_takes_its_tensors(name: str) -> None:
    trainer = Trainer(config(method=name, stand_in=True), device=CPU)
    before = {key: parameter.detach().clone() for key, parameter in trainer.parameters.items()}
    for _ in range(2):
        result = trainer.train_step()
    assert result.bytes_per_worker > 0 and bool(result.mean.isfinite().all())
    assert any(not torch.equal(parameter, before[key]) for key, parameter in trainer.parameters.items())


def test_factors_of_its_matrices_are_smaller() -> None:
    """Embeddings and matrices are compressed as what they are, not as one vector."""
    dense, low_rank = (
        Trainer(config(method=name, stand_in=True, model__width=64, **more), device=CPU).train_step().bytes_per_worker
        for name, more in (("supersgd", {}), ("powersgd", {"method.rank": 1}))
    )
    assert low_rank < dense / 8


def test_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    estimate = dry_run.dry_run(config(method="alq", steps=50))
    assert estimate["seconds"] > 0 and estimate["sent_gb"] > 0
    assert "stand-in" not in capsys.readouterr().out


# --- a run ---------------------------------------------------------------------------------------------------------


def test_a_run_says_its_text_and_goes_on_with_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = config(run_dir=str(tmp_path / "run"))
    half = Trainer(chosen, device=CPU)
    half.train_step()
    state = half.state_dict()
    assert launch(chosen) == 0
    said = capsys.readouterr().out
    fingerprint = data.load(chosen, CPU).fingerprint  # type: ignore[attr-defined]
    assert f"gpt on text (fingerprint {fingerprint})" in said

    again = Trainer(chosen, device=CPU)
    again.load_state_dict(state)
    real = text.encode
    monkeypatch.setattr(text, "encode", lambda content: real(content.replace(b"e", b"3")))
    other = Trainer(chosen, device=CPU)
    with pytest.raises(
        CheckpointError, match=rf"began on data with the fingerprint {fingerprint}, and text's here have [0-9a-f]{{14}}"
    ):
        other.load_state_dict(state)
