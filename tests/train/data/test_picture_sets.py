"""Batches of pictures against one picture at a time: the bits of augmented batches, folders, the fast decoding, batches
decoded ahead.
"""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from settings import resolving, run_identity
from tests.tiers import few
from tests.train.data.test_data import load
from train import data
from train.data import augment, picture_set, pictures
from train.data.augment import Augmentation, Cutout
from train.data.dataset import Arrays, InMemory, Normalization, ReadsAhead
from train.steps.gradients import Gradients
from train.steps.order import Order
from train.steps.order import generator as keyed

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- the bits of a batch -------------------------------------------------------------------------------------------


def one_by_one(
    images: np.ndarray, padding: int, flip: bool, normalization: Normalization, drawing: torch.Generator
) -> np.ndarray:
    """The batch as it must be, in plain loops: the draws, the crop, the mirror, then pixel * scale + shift, each
    rounded to float32.
    """
    shifts = 2 * padding + 1
    drawn = torch.randint(shifts * shifts * (2 if flip else 1), (len(images),), generator=drawing).tolist()
    mean, std = (np.array(values) for values in (normalization.mean, normalization.std))
    scale, shift = (1 / (normalization.top * std)).astype(np.float32), (-mean / std).astype(np.float32)
    batch = []
    for image, number in zip(images, drawn, strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        top, left = number // shifts % shifts, number % shifts
        view = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        view = view[:, :, ::-1] if number >= shifts * shifts else view
        batch.append(
            [pixels.astype(np.float32) * scale[channel] + shift[channel] for channel, pixels in enumerate(view)]
        )
    return np.array(batch, dtype=np.float32)


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 28, 28), (3, 9, 5), (2, 4, 7)])
@pytest.mark.parametrize(("padding", "flip"), [(4, True), (2, False), (0, True)])
def test_a_batch_has_the_bits_of_one_picture_at_a_time(
    channels: int, height: int, width: int, padding: int, flip: bool
) -> None:
    rng = np.random.default_rng(0)
    arrays = Arrays(rng.integers(0, 256, (40, channels, height, width), dtype=np.uint8), np.arange(40) % 10)
    normalization = Normalization((0.4914, 0.31, 0.4465)[:channels], (0.2023, 0.1994, 0.2010)[:channels])
    chosen = {"normalization": normalization, "augmentation": Augmentation(padding, flip)}
    dataset, cut = (InMemory("any", arrays, arrays, 10, CPU, cutout=cutout, **chosen) for cutout in (None, Cutout(3)))
    for batch in (1, 17):
        indices = torch.from_numpy(rng.integers(0, 40, batch))
        expected = one_by_one(arrays.inputs[indices.numpy()], padding, flip, normalization, drawing := generator(batch))
        before = generator(batch)
        x, y = dataset.train_batch(indices, before)
        assert np.array_equal(x.numpy(), expected) and y.tolist() == arrays.labels[indices.numpy()].tolist()
        assert torch.equal(before.get_state(), drawing.get_state())  # as many random numbers as before, no more
        with_cut = Cutout(3)(torch.from_numpy(expected), drawing)
        assert torch.equal(cut.train_batch(indices, generator(batch))[0], with_cut)
        # The order in memory chooses the convolution, and with it the last bits of a run.
        assert (
            x.stride()
            == (x.contiguous() if channels == 1 else x.contiguous(memory_format=torch.channels_last)).stride()
        )


# --- folders -------------------------------------------------------------------------------------------------------


def write_folder(root: Path, test: str = "test", kind: str = "png") -> dict[str, list[Image.Image]]:
    """Smooth random pictures of several shapes, sizes and modes, four to train and two to test in each of three
    classes.
    """
    rng = np.random.default_rng(3)
    written: dict[str, list[Image.Image]] = {}
    for split, num in (("train", 4), (test, 2)):
        for name in ("ant", "bee", "cat"):
            (root / split / name).mkdir(parents=True)
            for number in range(num):
                noise = Image.fromarray(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8))
                picture = noise.resize((100 + 60 * number, 130), Image.Resampling.BICUBIC).convert(
                    ("RGB", "L", "RGB", "RGB")[number]
                )
                picture.save(root / split / name / f"{number}.{kind}")
                written.setdefault(split, []).append(picture.convert("RGB"))
    return written


def centre(picture: Image.Image, size: int, short_side: int) -> np.ndarray:
    short = min(picture.size)
    scaled = picture.resize(
        (picture.width * short_side // short, picture.height * short_side // short), Image.Resampling.BILINEAR
    )
    left, upper = round((scaled.width - size) / 2), round((scaled.height - size) / 2)
    return np.asarray(scaled.crop((left, upper, left + size, upper + size))).transpose(2, 0, 1)


def pixels(x: torch.Tensor) -> np.ndarray:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return np.rint(((x * std + mean) * 255).numpy())


@few(1, "test", ["test", "val"])
@pytest.mark.parametrize(("path", "size"), [("insects", 24), ("", 64), ("/", 70)])
def test_a_folder_is_read_at_its_size(tmp_path: Path, test: str, path: str, size: int) -> None:
    home = tmp_path / "insects" if path else tmp_path
    written = write_folder(home, test)
    path = str(home) if path == "/" else path
    chosen = {"data.path": path, "data.size": size, "data.augment": False}
    dataset = load("folder", tmp_path, **chosen)
    assert (dataset.num_train, dataset.num_test, dataset.input_shape, dataset.num_classes) == (
        12,
        6,
        (3, size, size),
        3,
    )
    assert isinstance(dataset, ReadsAhead) == (size > 64)
    for split, num, folder in (("train", 4, "train"), ("test", 2, test)):
        x, y = (torch.cat(parts) for parts in zip(*dataset.batches(split, 5), strict=True))  # type: ignore[arg-type]
        short_side = size * 8 // 7 if size > 64 else size
        np.testing.assert_array_equal(
            pixels(x), np.stack([centre(picture, size, short_side) for picture in written[folder]])
        )
        assert y.tolist() == [label for label in range(3) for _ in range(num)]
    size_of = data.true_size(resolving.resolve({"data": "folder", "data_dir": str(tmp_path), **chosen}))
    assert (size_of.num_train, size_of.num_test) == (12, 6)
    assert size_of.num_bytes == (18 * (3 * size * size + 8) if size <= 64 else 0)


@pytest.mark.parametrize("size", [32, 96])
def test_a_folder_is_augmented_and_cut(tmp_path: Path, size: int) -> None:
    write_folder(tmp_path)
    indices = torch.arange(12)
    batches = [
        load("folder", tmp_path, **{"data.size": size, "data.cutout": cut}).train_batch(indices, generator(2))[0]
        for cut in (0, 0, 9)
    ]
    assert torch.equal(batches[0], batches[1]) and batches[0].shape == (12, 3, size, size)
    assert not torch.equal(
        batches[0], load("folder", tmp_path, **{"data.size": size}).train_batch(indices, generator(3))[0]
    )
    blank = (batches[2] == 0).all(dim=1, keepdim=True)
    assert blank.any() and torch.equal(batches[2], torch.where(blank, 0, batches[0]))
    with pytest.raises(ValueError, match=rf"data\.cutout={size + 1}: must be at most {size}"):
        load("folder", tmp_path, **{"data.size": size, "data.cutout": size + 1})


@pytest.mark.parametrize("size", [32, 96])
def test_a_folder_names_what_is_wrong(tmp_path: Path, size: int) -> None:
    chosen = {"data.path": "insects", "data.size": size}
    home = tmp_path / "insects"
    missing = (
        rf"not found: expected {home}/\{{train,test\}}/<class>/.*set data\.path \(now 'insects'\).*data_dir "
        rf"\(now {tmp_path}\)"
    )
    with pytest.raises(FileNotFoundError, match=missing):
        load("folder", tmp_path, **chosen)
    with pytest.raises(FileNotFoundError, match=missing):
        data.true_size(resolving.resolve({"data": "folder", "data_dir": str(tmp_path), **chosen}))
    write_folder(home)
    (home / "train" / "bee").rename(home / "train" / "wasp")
    with pytest.raises(ValueError, match=r"has no counterpart .*both splits need the same class folders \(3 in"):
        load("folder", tmp_path, **chosen)
    (home / "train" / "wasp").rename(home / "train" / "bee")
    path = home / "train" / "bee" / "2.png"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"train/bee/2\.png: damaged.*expected a whole JPEG or PNG picture"):
        load("folder", tmp_path, **chosen).train_batch(torch.arange(12), generator())


def test_imagenets_archives_are_told_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "ILSVRC2012_img_train.tar").touch()
    with pytest.raises(
        FileNotFoundError,
        match=r"unpack .*ILSVRC2012_img_train\.tar once: torchvision\.datasets\.ImageNet\('.*imagenet'",
    ):
        load("imagenet", tmp_path)


def test_torchvisions_imagenet_root_is_found(tmp_path: Path) -> None:
    write_folder(tmp_path, "val", "JPEG")
    (tmp_path / "meta.bin").touch()
    assert load("imagenet", tmp_path).num_train == 12


# --- the fast decoding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_a_jpeg_is_decoded_no_smaller_than_it_is_wanted(factor: int) -> None:
    assert pictures.View((10, 20, 10 + 32 * factor, 20 + 32 * factor), (32, 32)).reduction() == factor
    assert pictures.View((10, 20, 10 + 32 * factor, 19 + 32 * factor), (32, 32)).reduction() == max(1, factor // 2)
    assert pictures.View((0, 0, 31, 31), (32, 32)).reduction() == 1


@few(1, "shape", [(801, 613), (1203, 499), (517, 1024)])
def test_fast_decoding_gives_nearly_the_same_picture_in_the_same_place(tmp_path: Path, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    picture = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize(shape, Image.Resampling.BICUBIC)
    path = str(tmp_path / "large.jpg")
    picture.save(path, quality=95)
    plans = [pictures.central(64, 73), *(pictures.random(48, row) for row in augment.draw_crops(12, generator(4)))]
    reduced = 0
    for plan in plans:
        full, fast = (pictures.decode(path, plan, fast=fast).astype(float) for fast in (False, True))
        moved = np.abs(full[:, 1:] - full[:, :-1]).mean()  # what a shift by one pixel would change
        assert np.abs(full - fast).mean() < max(1.0, 0.2 * moved)
        reduced += plan(*shape).reduction() > 1
    assert reduced >= 5
    Image.open(path).save(tmp_path / "large.png")
    for plan in plans:  # nothing but a JPEG is changed
        full, fast = (pictures.decode(str(tmp_path / "large.png"), plan, fast=fast) for fast in (False, True))
        np.testing.assert_array_equal(full, fast)


def test_full_decoding_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, kind="jpg")
    asked = []
    decode = pictures.decode
    monkeypatch.setattr(
        pictures, "decode", lambda path, plan, *, fast: asked.append(fast) or decode(path, plan, fast=fast)
    )
    for size in (16, 72):
        for kind in ("fast", "full"):
            load("folder", tmp_path, **{"data.size": size, "data.decode": kind}).train_batch(
                torch.arange(2), generator()
            )
            assert set(asked) == {kind == "fast"}
            asked.clear()
    fast, full = (resolving.resolve({"data": "imagenet", "data.decode": kind}) for kind in ("fast", "full"))
    assert run_identity.identity(fast) != run_identity.identity(full)


# --- ahead ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Any:
    write_folder(tmp_path)
    return load("folder", tmp_path, **{"data.size": 96})


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_decoded_ahead_is_the_same(
    tmp_path: Path, large: Any, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(pictures, "pool", lambda: pictures.ThreadPoolExecutor(threads))
    ahead: Any = load("folder", tmp_path, **{"data.size": 96, "data.cutout": 8})
    plain = load("folder", tmp_path, **{"data.size": 96, "data.cutout": 8})
    steps = [torch.randint(12, (5,), generator=generator(step)) for step in range(6)]
    for step, indices in enumerate(steps):
        for later in steps[step : step + 3]:
            ahead.expect(later, generator(int(later.sum())))
        drawing, theirs = generator(int(indices.sum())), generator(int(indices.sum()))
        x, y = ahead.train_batch(indices, drawing)
        expected = plain.train_batch(indices, theirs)
        assert torch.equal(x, expected[0]) and torch.equal(y, expected[1])
        assert torch.equal(drawing.get_state(), theirs.get_state())
    assert not ahead._ahead


def test_an_expected_batch_is_decoded_once_and_while_nobody_waits(large: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, names, begun = pictures.decode, [], threading.Event()

    def watched(path: str, *rest: Any, **more: Any) -> np.ndarray:
        names.append(threading.current_thread() is threading.main_thread())
        begun.set()
        return decode(path, *rest, **more)

    monkeypatch.setattr(pictures, "decode", watched)
    indices = torch.arange(4)
    large.expect(indices, generator(1))
    large.expect(indices, generator(1))
    assert begun.wait(20)
    large.train_batch(indices, generator(1))
    assert names == [False] * 4
    large.train_batch(indices, generator(1))  # asked for once more than expected
    assert len(names) == 8


def test_what_is_expected_has_a_bound_and_what_never_comes_is_forgotten(
    large: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_set, "MOST_AHEAD_BYTES", 10 * 3 * 96 * 96)
    for seed in range(5):
        large.expect(torch.arange(4), generator(seed))
    assert len(large._ahead) == 2
    expected = large.train_batch(torch.arange(4), generator(9))[0]  # nobody expected it: those that wait are stale
    assert not large._ahead
    large.expect(torch.arange(4), generator(9))
    assert torch.equal(large.train_batch(torch.arange(4), generator(9))[0], expected)


def test_a_damaged_picture_is_named_when_its_batch_is_asked_for(tmp_path: Path, large: Any) -> None:
    (tmp_path / "train" / "ant" / "1.png").write_bytes(b"")
    large.expect(torch.arange(4), generator())
    large.expect(torch.arange(8, 12), generator())
    with pytest.raises(ValueError, match=r"ant/1\.png: damaged"):
        large.train_batch(torch.arange(4), generator())
    assert large.train_batch(torch.arange(8, 12), generator())[0].shape == (4, 3, 96, 96)


def test_evaluation_that_is_left_early_stops_decoding(large: Any) -> None:
    first = next(large.batches("train", 5))[0]
    batches = large.batches("train", 5)
    assert torch.equal(next(batches)[0], first)
    batches.close()
    assert [len(x) for x, _ in large.batches("train", 5)] == [5, 5, 2]


def test_the_trainer_tells_what_comes_next(large: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch of training but the first step's is under way before it is asked for, whichever workers a process
    hosts.
    """
    config = resolving.resolve({"data": "folder", "data.size": 96, "model": "mlp", "batch_size": 2, "workers": 3})
    gradients, order = Gradients(config, large, CPU), Order(12, 2, 3, seed=1)
    plain = load("folder", large._splits["train"][0][0].rsplit("/", 3)[0], **{"data.size": 96})
    for step in range(3):
        if step:
            assert len(large._ahead) == 2
        gradients.of_workers([0, 2], step, order, "train")
    for worker in (0, 2):
        indices = order.indices(3, worker)
        assert torch.equal(
            large.train_batch(indices, keyed(1, 3, worker, "train"))[0],
            plain.train_batch(indices, keyed(1, 3, worker, "train"))[0],
        )
    assert not large._ahead
