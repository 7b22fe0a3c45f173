"""Checksums of the originals, and downloads, for which a class stands in."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from settings.data import DATA
from tests.train.archive_files import UNVERIFIED, write_cifar100, write_svhn
from tests.train.data.test_data import load, write_mnist
from train.data import cifar, data_files, idx, svhn
from train.data.torchvision_import import torchvision


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def write_archive(folder: Path) -> Path:
    write_cifar100(folder / "source")
    with tarfile.open(folder / "cifar-100-python.tar.gz", "w:gz") as tar:
        tar.add(folder / "source", "cifar-100-python")
    return folder / "cifar-100-python.tar.gz"


def test_originals_are_held_against_torchvisions_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = torchvision().datasets
    archive = write_archive(tmp_path)
    write_svhn(tmp_path)
    write_mnist(tmp_path / "FashionMNIST" / "raw", ".gz")
    write_mnist(tmp_path / "mnist", ".gz")
    for path in (tmp_path / "mnist").iterdir():  # the names that another source gives them
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    for name, path in (("cifar100", archive), ("svhn", tmp_path / "train_32x32.mat")):
        with pytest.raises(
            ValueError, match=rf"{path.name}: damaged.*original's MD5 [0-9a-f]{{32}}, found {md5(path)}; .*verify=false"
        ):
            load(name, tmp_path)
    for name in ("mnist", "fashion_mnist"):
        with pytest.raises(ValueError, match=r"train-images.idx3-ubyte\.gz: damaged.*original's MD5"):
            load(name, tmp_path)

    monkeypatch.setattr(datasets.CIFAR100, "tgz_md5", md5(archive))
    split_list = {
        split: ["", f"{split}_32x32.mat", md5(tmp_path / f"{split}_32x32.mat")] for split in ("train", "test")
    }
    monkeypatch.setattr(datasets.SVHN, "split_list", split_list)
    for theirs, folder in (("MNIST", "mnist"), ("FashionMNIST", "FashionMNIST/raw")):
        files = [(path.name.replace(".idx", "-idx"), md5(path)) for path in (tmp_path / folder).iterdir()]
        monkeypatch.setattr(getattr(datasets, theirs), "resources", files)
    for name in ("cifar100", "svhn", "mnist", "fashion_mnist"):
        assert load(name, tmp_path).num_train == 12


def test_the_tables_of_torchvision_are_what_is_read() -> None:
    for origin in (
        idx.Mnist.origin,
        idx.FashionMnist.origin,
        cifar.Cifar10.origin,
        cifar.Cifar100.origin,
        svhn.Svhn.origin,
    ):
        found = data_files.checksums(origin)
        assert found and all(len(digest) == 32 and set(digest) <= set("0123456789abcdef") for digest in found.values())
        assert all(address.startswith("http") for address in data_files.addresses(origin))
    assert set(data_files.checksums(svhn.Svhn.origin)) >= {"train_32x32.mat", "test_32x32.mat"}
    assert set(data_files.checksums(cifar.Cifar10.origin)) == {DATA["cifar10"].places[-1]}
    assert {
        f"{stem}-{what}.gz" for stem in ("train", "t10k") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    } == set(data_files.checksums(idx.Mnist.origin))


NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "svhn": "SVHN",
}
Fetch = Callable[[Path, str], None]


def replace(monkeypatch: pytest.MonkeyPatch, name: str, fetch: Fetch) -> None:
    """torchvision's class with a fetch of its own; its addresses and checksums stay."""

    def init(self: Any, root: str, split: str = "train", download: bool = False) -> None:
        del self
        assert download
        fetch(Path(root), split)

    theirs = getattr(torchvision().datasets, NAMES[name])
    monkeypatch.setattr(torchvision().datasets, NAMES[name], type(NAMES[name], (theirs,), {"__init__": init}))


@pytest.mark.parametrize("name", list(NAMES))
def test_without_a_network_one_sentence_says_so_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def fetch(root: Path, split: str) -> None:
        del split
        (root / "half").mkdir()
        (root / "half" / "file").write_bytes(b"half")
        raise RuntimeError("Error downloading:\nTried it, got:\nName or service not known")

    replace(monkeypatch, name, fetch)
    with pytest.raises(FileNotFoundError, match="not found"):
        load(name, tmp_path)
    assert "downloading" not in capsys.readouterr().out  # never without being asked
    with pytest.raises(
        FileNotFoundError, match=f"could not fetch {name} to .*: Error downloading: Tried it, got: Name or ser"
    ) as error:
        load(name, tmp_path, **{"data.download": True})
    assert "\n" not in str(error.value)
    (said,) = capsys.readouterr().out.splitlines()
    assert (
        said.startswith(f"downloading {name} (about ") and " MB) from http" in said and said.endswith(f" to {tmp_path}")
    )
    assert list(tmp_path.iterdir()) == []


def test_a_download_is_moved_into_place_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetch(root: Path, split: str) -> None:
        assert root.parent == tmp_path and root.name.startswith(".download-svhn-")
        assert not list(tmp_path.glob("*.mat"))
        calls.append(split)
        write_svhn(root)

    replace(monkeypatch, "svhn", fetch)
    for _ in range(2):
        assert load("svhn", tmp_path / "", **{"data.download": True}, **UNVERIFIED).num_train == 12
    assert calls == ["train", "test"]  # once
    assert sorted(path.name for path in tmp_path.iterdir()) == [".cache", "test_32x32.mat", "train_32x32.mat"]


def test_a_download_completes_a_half_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "FashionMNIST" / "raw", num=3)
    (tmp_path / "FashionMNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()
    replace(monkeypatch, "fashion_mnist", lambda root, _: write_mnist(root / "FashionMNIST" / "raw") and None)
    assert load("fashion_mnist", tmp_path, **{"data.download": True}).num_train == 12  # all from one source
    assert [path.name for path in tmp_path.iterdir()] == ["FashionMNIST"]


DOWNLOADER = """
import sys
from pathlib import Path
from train.data import data_files
data_files.addresses = lambda origin: ["afar"]
data_files._table = lambda origin: fetch
target = Path(sys.argv[1])
def fetch(root, download):
    import time
    with (target / "calls").open("a") as calls:
        calls.write("x")
    time.sleep(0.3)
    (Path(root) / "file").write_text("whole")
data_files.download(data_files.Origin("mnist", "MNIST", 1), target, lambda: (target / "file").exists())
assert (target / "file").read_text() == "whole"
"""


@pytest.mark.slow
def test_processes_that_ask_at_once_fetch_once(tmp_path: Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", DOWNLOADER, str(tmp_path)]) for _ in range(2)]
    assert [one.wait() for one in started] == [0, 0]
    assert (tmp_path / "calls").read_text() == "x"


def test_a_gzip_with_another_header_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum is of the file, not of what it holds: packed again, it is no longer the original."""
    write_mnist(tmp_path / "mnist", ".gz")
    files = [(path.name, md5(path)) for path in (tmp_path / "mnist").iterdir()]
    monkeypatch.setattr(torchvision().datasets.MNIST, "resources", files)
    load("mnist", tmp_path)
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    buffer = io.BytesIO()
    with gzip.GzipFile("other", "wb", fileobj=buffer) as file:
        file.write(gzip.decompress(path.read_bytes()))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte\.gz: damaged"):
        load("mnist", tmp_path)
    load("mnist", tmp_path, **UNVERIFIED)
