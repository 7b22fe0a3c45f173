"""Picture folders, augmentation against brute force and against torchvision, stand-ins, and CIFAR-10 itself."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import ks_2samp

from settings import resolving
from settings.data import DATA
from train import data
from train.data import augment, cifar, pictures
from train.data.augment import Augmentation
from train.data.torchvision_import import torchvision

CLASSES = [f"class{number}" for number in range(10)]


def load(name: str, data_dir: Path | str = "nowhere", /, **chosen: object) -> data.DataSet:
    return data.load(resolving.resolve({"data": name, "data_dir": str(data_dir), **chosen}), "cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def write_tree(
    root: Path, splits: dict[str, int], size: tuple[int, int] = (32, 32), classes: list[str] = CLASSES
) -> None:
    """One colour per picture, which JPEG keeps to about a unit: red tells the class, green the number,
    blue the split.
    """
    for blue, (split, num) in enumerate(splits.items()):
        for red, name in enumerate(classes):
            (root / split / name).mkdir(parents=True)
            for green in range(num):
                Image.new("RGB", size, (red * 20, green * 40, blue * 200)).save(
                    root / split / name / f"{green:04}.jpg", quality=95
                )


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a small CIFAR-10 as pictures; the user's own cache folder is never touched."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    write_tree(tmp_path / "data" / "cifar10", {"train": 3, "test": 2})
    return tmp_path / "data"


# --- CIFAR-10 as pictures ------------------------------------------------------------------------------------------


def check_colours(dataset: data.DataSet) -> None:
    assert (dataset.num_train, dataset.num_test, dataset.input_shape, dataset.num_classes) == (30, 20, (3, 32, 32), 10)
    for blue, (split, num) in enumerate((("train", 3), ("test", 2))):
        x = torch.cat([x for x, _ in dataset.batches(split, 7)]).double()  # type: ignore[arg-type]
        y = torch.cat([y for _, y in dataset.batches(split, 7)])  # type: ignore[arg-type]
        assert y.tolist() == [label for label in range(10) for _ in range(num)]
        mean, std = (
            torch.tensor(values).view(1, 3, 1, 1)
            for values in (cifar.Cifar10.normalization.mean, cifar.Cifar10.normalization.std)
        )
        pixels = (x * std + mean) * 255
        expected = torch.stack([y * 20, torch.arange(num).repeat(10) * 40, torch.full_like(y, blue * 200)], 1)
        assert (pixels - expected[:, :, None, None]).abs().max() < 3


def test_cifar10_reads_pictures_and_keeps_them_decoded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "cifar10" / "train" / "class0" / ".hidden.jpg").write_bytes(b"not a picture")
    (tree / "cifar10" / "train" / "class0" / "notes.txt").write_bytes(b"not a picture")
    check_colours(load("cifar10", tree))
    kept = sorted((tree / ".cache").iterdir())
    assert [path.name[:-18] for path in kept] == ["cifar10-test-", "cifar10-train-"]  # and no half-written file
    with monkeypatch.context() as patch:
        patch.setattr(pictures, "decode_all", lambda *_: pytest.fail("decoded again"))
        check_colours(load("cifar10", tree))
    kept[0].write_bytes(kept[0].read_bytes()[:-5])  # a damaged cache is decoded again and replaced
    check_colours(load("cifar10", tree))
    assert np.load(kept[0]).shape == (20, 3, 32, 32)


def test_a_replaced_picture_is_seen(tree: Path) -> None:
    before = load("cifar10", tree)
    Image.new("RGB", (32, 32), (255, 255, 255)).save(tree / "cifar10" / "test" / "class9" / "0001.jpg")
    x = torch.cat([x for x, _ in load("cifar10", tree).batches("test", 20)])
    old = torch.cat([x for x, _ in before.batches("test", 20)])
    assert torch.equal(x[:19], old[:19]) and x[19].min() > 2


def test_a_read_only_data_folder_uses_the_users_cache_or_none(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / ".cache").write_text("a file in the way: also root cannot write below it")
    check_colours(load("cifar10", tree))
    assert len(list((tree.parent / "user-cache" / "nuq-data").iterdir())) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(tree / ".cache"))
    with pytest.warns(UserWarning, match="cannot be kept") as warned:
        check_colours(load("cifar10", tree))
    assert len(warned) == 2  # one for each split
    assert (tree / ".cache").is_file()


def test_cifar10_names_a_damaged_picture(tree: Path) -> None:
    path = tree / "cifar10" / "train" / "class4" / "0002.jpg"
    good = path.read_bytes()
    for content in (good[: len(good) // 2], b"", b"\x89PNG\r\n\x1a\n" + bytes(30)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"class4/0002\.jpg: damaged.*expected a whole JPEG or PNG picture"):
            load("cifar10", tree)
    Image.new("RGB", (32, 31)).save(path)
    with pytest.raises(ValueError, match=r"class4/0002\.jpg: .*expected 32x32 pixels, found 32x31"):
        load("cifar10", tree)
    assert not (tree / ".cache").exists()


# --- augmentation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("padding", "flip"), [(0, True), (1, False), (4, True)])
def test_every_crop_is_one_of_the_possible_ones_and_all_are_equally_likely(padding: int, flip: bool) -> None:
    image = np.random.default_rng(0).integers(1, 256, (2, 8, 8), dtype=np.uint8)
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    places = [(top, left) for top in range(2 * padding + 1) for left in range(2 * padding + 1)]
    views = [padded[:, top : top + 8, left : left + 8] for top, left in places]
    views += [view[:, :, ::-1] for view in views] if flip else []
    names = {view.tobytes(): number for number, view in enumerate(views)}
    assert len(names) == len(views)
    num = 200 * len(views)
    drawn = Augmentation(padding, flip)(torch.from_numpy(image).expand(num, -1, -1, -1), generator())
    counts = np.bincount([names[view.tobytes()] for view in drawn.numpy()], minlength=len(views))
    chi2 = ((counts - 200) ** 2 / 200).sum()
    freedom = len(views) - 1
    assert chi2 < freedom + 5 * np.sqrt(2 * freedom) + 10


def test_a_batch_depends_on_the_generator_alone(tree: Path) -> None:
    dataset = load("cifar10", tree)
    indices = torch.tensor([29, 0, 0, 7] * 8)
    state = torch.get_rng_state()
    first, labels = dataset.train_batch(indices, generator(5))
    torch.manual_seed(0)
    again, _ = dataset.train_batch(indices, generator(5))
    assert torch.equal(first, again)
    assert labels.tolist() == [9, 0, 0, 2] * 8
    assert not torch.equal(first, dataset.train_batch(indices, generator(6))[0])
    torch.set_rng_state(state)
    dataset.train_batch(indices, generator(5))
    assert torch.equal(torch.get_rng_state(), state)
    plain = load("cifar10", tree, **{"data.augment": False})
    in_order = next(plain.batches("train", 30))[0]
    assert torch.equal(plain.train_batch(indices, generator())[0], in_order[indices])
    assert first.dtype == torch.float32 and labels.dtype == torch.int64


# --- ImageNet ------------------------------------------------------------------------------------------------------


def write_imagenet(root: Path) -> None:
    rng = np.random.default_rng(0)
    for split, num in (("train", 3), ("val", 2)):
        for name in ("n01440764", "n01443537"):
            (root / split / name).mkdir(parents=True)
            for number in range(num):
                small = Image.fromarray(rng.integers(0, 256, (12, 15, 3), dtype=np.uint8))
                picture = small.resize((300 + 40 * number, 260), Image.Resampling.BICUBIC)
                mode = ("RGB", "L", "CMYK")[number]  # ImageNet holds all three
                picture.convert(mode).save(root / split / name / f"{name}_{number}.JPEG")


def test_imagenet_is_evaluated_as_torchvision_does(tmp_path: Path) -> None:
    write_imagenet(tmp_path / "imagenet")
    dataset = load("imagenet", tmp_path)
    assert (dataset.num_train, dataset.num_test, dataset.input_shape, dataset.num_classes) == (6, 4, (3, 224, 224), 2)
    transforms = torchvision().transforms
    theirs = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    for split, folder in (("train", "train"), ("test", "val")):
        paths = sorted((tmp_path / "imagenet" / folder).rglob("*.JPEG"))
        x = torch.cat([x for x, _ in dataset.batches(split, 4)])  # type: ignore[arg-type]
        labels = torch.cat([y for _, y in dataset.batches(split, 4)])  # type: ignore[arg-type]
        assert labels.tolist() == [int("1443537" in path.name) for path in paths]
        torch.testing.assert_close(x, torch.stack([theirs(Image.open(path).convert("RGB")) for path in paths]))


def test_imagenet_batches_do_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_imagenet(tmp_path / "imagenet")
    indices = torch.tensor([5, 0, 3, 0])
    first, labels = load("imagenet", tmp_path).train_batch(indices, generator(3))
    monkeypatch.setattr(pictures, "pool", lambda: pictures.ThreadPoolExecutor(1))
    again, _ = load("imagenet", tmp_path).train_batch(indices, generator(3))
    assert torch.equal(first, again) and labels.tolist() == [1, 0, 1, 0]
    assert not torch.equal(first[1], first[3])  # one picture twice in a batch, two views
    plain = load("imagenet", tmp_path, **{"data.augment": False})
    assert torch.equal(plain.train_batch(indices, generator())[0], next(plain.batches("train", 6))[0][indices])


def test_a_random_view_is_torchvisions_resized_crop(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8))
    picture.save(path)
    for numbers in augment.draw_crops(20, generator()):
        (left, upper, right, lower), mirrored = augment.random_resized_box(120, 90, numbers)
        functional = torchvision().transforms.functional
        theirs = functional.resized_crop(picture, upper, left, lower - upper, right - left, [224, 224])
        theirs = functional.hflip(theirs) if mirrored else theirs
        assert pictures.decode(str(path), pictures.random(224, numbers), fast=True).tobytes() == theirs.tobytes()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 700), st.integers(1, 700), st.integers(0, 2**31))
def test_a_random_box_lies_in_the_picture(width: int, height: int, seed: int) -> None:
    (left, upper, right, lower), _ = augment.random_resized_box(
        width, height, augment.draw_crops(1, generator(seed))[0]
    )
    assert 0 <= left < right <= width and 0 <= upper < lower <= height


@pytest.mark.parametrize(("width", "height"), [(400, 400), (500, 300)])
def test_random_boxes_follow_torchvisions_distribution(width: int, height: int) -> None:
    num = 3000
    boxes = [augment.random_resized_box(width, height, numbers) for numbers in augment.draw_crops(num, generator())]
    assert abs(np.mean([mirrored for _, mirrored in boxes]) - 0.5) < 0.03
    ours = np.array([(upper, left, lower - upper, right - left) for (left, upper, right, lower), _ in boxes])
    picture, transform = Image.new("L", (width, height)), torchvision().transforms.RandomResizedCrop
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = np.array([transform.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(num)])
    for figure in (*range(4), "area", "ratio"):
        mine, other = (
            {"area": boxes[:, 2] * boxes[:, 3], "ratio": boxes[:, 2] / boxes[:, 3]}[figure]
            if isinstance(figure, str)
            else boxes[:, figure]
            for boxes in (ours, theirs)
        )
        assert ks_2samp(mine, other)[1] > 1e-4, figure  # type: ignore[operator]


# --- stand-ins and downloads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in DATA if name not in ("glue", "imdb")])  # those: test_sentences
def test_stand_ins_are_marked_and_shaped(name: str) -> None:
    dataset = load(name, stand_in=True)
    assert dataset.is_stand_in and dataset.name == name
    shapes = {"folder": (3, 32, 32), "text": (64,)}
    assert dataset.input_shape == (DATA[name].input_shape or shapes.get(name, (100,)))
    assert dataset.num_classes == DATA[name].num_classes
    x, y = dataset.train_batch(torch.arange(dataset.num_train), generator())
    assert x.shape == (dataset.num_train, *dataset.input_shape) and x.dtype == (
        torch.int64 if name == "text" else torch.float32
    )
    assert name == "text" or (abs(x.mean()) < 0.5 and 0.7 < x.std() < 1.3)
    assert y.min() >= 0 and y.max() < dataset.num_classes
    assert torch.equal(x, load(name, stand_in=True).train_batch(torch.arange(dataset.num_train), generator())[0])


# --- the real CIFAR-10 ---------------------------------------------------------------------------------------------

DATA_DIR = Path(os.environ.get("NUQ_DATA", "data"))


@pytest.mark.skipif(
    not (DATA_DIR / "cifar10" / "train").is_dir(), reason="no cifar10/train pictures in NUQ_DATA or data"
)
def test_real_cifar10() -> None:
    dataset = load("cifar10", DATA_DIR)
    assert (dataset.num_train, dataset.num_test) == (50000, 10000)
    means, labels = [], []
    for x, y in dataset.batches("train", 5000):
        means.append(x.mean(dim=(0, 2, 3)))
        labels.append(y)
    assert torch.bincount(torch.cat(labels)).tolist() == [5000] * 10
    std = torch.tensor(cifar.Cifar10.normalization.std)
    assert (torch.stack(means).mean(0) * std).abs().max() < 0.003  # the documented means are those of the data
    folder = DATA_DIR / "cifar10" / "test" / "frog"
    name = sorted(os.listdir(folder))[123]
    x = next(dataset.batches("test", 10000))[0][6123]
    with Image.open(folder / name) as picture:
        expected = (
            np.asarray(picture).transpose(2, 0, 1) / 255 - np.reshape((0.4914, 0.4822, 0.4465), (3, 1, 1))
        ) / np.reshape((0.2023, 0.1994, 0.2010), (3, 1, 1))
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)
