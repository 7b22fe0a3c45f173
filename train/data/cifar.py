"""Reader of CIFAR: pickles in a folder or in the .tar.gz (torchvision's form), binary files, or pictures by class."""

from __future__ import annotations

import functools
import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from . import cache, pictures
from .augment import Augmentation
from .data_files import Origin, damaged, download_remedy, first_existing, missing, verify
from .dataset import Arrays, Normalization
from .pickles import load_arrays
from .source import Fetched, Splits

SIZE, WIDTH = 32, 3 * 32 * 32


class Cifar(Fetched):
    """One of the two CIFARs, with the names of its files and the keys of their labels."""

    title: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    label_key: str
    binary_labels: int  # bytes before the pixels of a picture in the binary files; the last is the label
    augmentation = Augmentation(padding=4, flip=True)

    def find(self) -> Callable[[], Splits]:
        """The reader of the form that is there: pictures, extracted pickles, binary files, or the archive."""
        own, *forms = (self.data_dir / place for place in self.record.places)
        if (own / "train").is_dir() or (own / "test").is_dir():
            return functools.partial(self._read_pictures, own)
        for form, read in zip(forms, (self._read_pickles, self._read_binary, self._read_archive), strict=True):
            place = first_existing((own / form.name, form))
            if place:
                return functools.partial(read, place)
        pickles, binary, archive = forms
        expected = f"{own}/{{train,test}}/<class>/<n>.jpg, {pickles}, {binary} or {archive}"
        raise missing(self.title, expected, download_remedy(self.name, self.data_dir))

    def _splits(self, read: Callable[[Path], Arrays], home: Path, suffix: str = "") -> Splits:
        """Both splits from the files of ``home``."""

        def joined(names: tuple[str, ...]) -> Arrays:
            paths = [home / f"{name}{suffix}" for name in names]
            parts = [read(path) for path in paths]
            counts = [len(part.labels) for part in parts]
            if len(set(counts)) > 1:
                fewest = paths[int(np.argmin(counts))]
                raise damaged(fewest, f"as many images as the other batches ({max(counts)})", min(counts))
            inputs, labels = ([part.inputs for part in parts], [part.labels for part in parts])
            return Arrays(np.concatenate(inputs), np.concatenate(labels))

        return joined(self.train_files), joined(self.test_files)

    def _bytes_of(self, path: Path) -> bytes:
        if not path.exists():
            names = ", ".join(name + path.suffix for name in (*self.train_files, *self.test_files))
            raise missing(str(path), f"all of {names} in {path.parent}", download_remedy(self.name, self.data_dir))
        return path.read_bytes()

    def _read_pickles(self, folder: Path) -> Splits:
        return self._splits(lambda path: self._read_batch(self._bytes_of(path), path), folder)

    def _read_archive(self, archive: Path) -> Splits:
        verify(archive, self.origin, self.settings)
        try:
            with tarfile.open(archive, "r:gz") as tar:
                members = {Path(member.name).name: tar.extractfile(member) for member in tar if member.isfile()}
                contents = {name: file.read() for name, file in members.items() if file}
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise damaged(archive, "a whole .tar.gz, as torchvision downloads it", error) from error

        def read(path: Path) -> Arrays:
            if path.name not in contents:
                found = f"only {', '.join(sorted(contents)) or 'nothing'}"
                raise damaged(archive, f"a member {self.record.places[1]}/{path.name}", found)
            return self._read_batch(contents[path.name], path)

        return self._splits(read, archive)

    def _read_binary(self, folder: Path) -> Splits:
        """Both splits from the binary files: a picture is its label or labels, a byte each, and its pixels."""
        record = self.binary_labels + WIDTH

        def read(path: Path) -> Arrays:
            data = self._bytes_of(path)
            if len(data) % record or not data:
                raise damaged(path, f"pictures of {record} bytes", f"{len(data)} bytes")
            table = np.frombuffer(data, np.uint8).reshape(-1, record)
            labels = table[:, self.binary_labels - 1].astype(np.int64)
            if labels.max() >= self.num_classes:
                raise damaged(path, f"labels 0 to {self.num_classes - 1}", f"the label {labels.max()}")
            return Arrays(np.ascontiguousarray(table[:, self.binary_labels :]).reshape(-1, 3, SIZE, SIZE), labels)

        return self._splits(read, folder, ".bin")

    def _read_batch(self, data: bytes, path: Path) -> Arrays:
        try:
            content = load_arrays(data)
        except ValueError as error:
            raise damaged(path, "a pickle with data and labels, as torchvision downloads it", error) from error
        content = content if isinstance(content, dict) else {}
        images, labels = content.get("data"), content.get(self.label_key)
        is_array = isinstance(images, np.ndarray)
        if not (is_array and images.dtype == np.uint8 and images.shape[1:] == (WIDTH,) and len(images)):
            found = f"{images.dtype} {list(images.shape)}" if is_array else type(images).__name__
            raise damaged(path, f"data of type uint8 and shape [n, {WIDTH}]", found)
        if not isinstance(labels, list) or len(labels) != len(images):
            found = f"{len(labels)} of them" if isinstance(labels, list) else type(labels).__name__
            raise damaged(path, f"a list of {len(images)} labels", found)
        strange = [label for label in labels if not isinstance(label, int) or not 0 <= label < self.num_classes]
        if strange:
            raise damaged(path, f"labels 0 to {self.num_classes - 1}", f"the label {strange[0]!r}")
        return Arrays(np.ascontiguousarray(images).reshape(-1, 3, SIZE, SIZE), np.array(labels, dtype=np.int64))

    def _read_pictures(self, home: Path) -> Splits:
        """Both splits from 32x32 pictures; classes in alphabetical order, also the order of the original labels."""
        remedy = f"unpack the whole data set again, or {download_remedy(self.name, self.data_dir)}"
        train, test = (pictures.list_tree(home / split, remedy) for split in ("train", "test"))
        for tree in (train, test):
            if len(tree.classes) != self.num_classes:
                found = f"{len(tree.classes)}: {', '.join(tree.classes)}"
                raise ValueError(f"{tree.root}: expected {self.num_classes} class folders, found {found}")
            if len(set(tree.counts)) > 1:
                fewest = int(np.argmin(tree.counts))
                found = f"{tree.counts[fewest]} pictures where another class has {max(tree.counts)}"
                rule = f"{self.title} has equally many in each: {remedy}"
                raise ValueError(f"{tree.root / tree.classes[fewest]}: {found}; {rule}")
        pictures.same_classes(train, test)
        return self._decoded(train), self._decoded(test)

    def _decoded(self, tree: pictures.Tree) -> Arrays:
        return cache.decoded(self.data_dir, f"{self.name}-{tree.root.name}", tree, SIZE)


class Cifar10(Cifar):
    """CIFAR-10: images in 10 classes."""

    title = "CIFAR-10"
    origin = Origin("cifar10", "CIFAR10", size_mb=170)
    # the original's: std within one image
    normalization = Normalization(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
    train_files = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_files = ("test_batch",)
    label_key = "labels"
    binary_labels = 1


class Cifar100(Cifar):
    """CIFAR-100: images in 100 (fine) classes."""

    title = "CIFAR-100"
    origin = Origin("cifar100", "CIFAR100", size_mb=169)
    normalization = Normalization(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))  # of all training pixels
    train_files = ("train",)
    test_files = ("test",)
    label_key = "fine_labels"
    binary_labels = 2  # the coarse label, then the fine one
