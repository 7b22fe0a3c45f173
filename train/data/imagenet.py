"""ImageNet as pictures in one folder per class, decoded batch by batch."""

from __future__ import annotations

import torch

from . import pictures
from .data_files import first_existing, missing
from .dataset import DataSet, Normalization
from .picture_set import PictureSet
from .source import Source

# torchvision's, and the original's
NORMALIZATION = Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
SIZE = 224
SHORT_SIDE = 256
ARCHIVES = {"train": "ILSVRC2012_img_train.tar", "val": "ILSVRC2012_img_val.tar"}


class ImageNet(Source):
    """The pictures in the folders ``train`` and ``val`` of ``data_dir/imagenet``.

    The folder is ``data_dir`` itself where torchvision's ``meta.bin`` lies there.
    """

    normalization = NORMALIZATION

    def load(self, device: torch.device) -> DataSet:
        data_dir = self.data_dir
        home = data_dir if (data_dir / "meta.bin").exists() else data_dir / "imagenet"
        remedy = (
            f"ImageNet cannot be downloaded without an account: put its folders there, or set data_dir (now "
            f"{data_dir}) to the folder that holds imagenet/"
        )
        for split, name in ARCHIVES.items():
            archive = first_existing((home / name, data_dir / name))
            if archive and not (home / split).is_dir():
                theirs = f"torchvision.datasets.ImageNet({str(archive.parent)!r}, split={split!r})"
                unpacking = f"unpack {archive} once: {theirs} does it"
                raise missing("ImageNet's pictures", f"{home}/{split}/<class>/<picture>.JPEG", unpacking)
        if not home.is_dir():
            raise missing("ImageNet", f"{home}/{{train,val}}/<class>/<picture>.JPEG", remedy)
        train, test = (pictures.list_tree(home / split, remedy) for split in ("train", "val"))
        pictures.same_classes(train, test)
        self.tell_other_sizes((sum(train.counts), sum(test.counts)), self.record.sizes)
        return PictureSet(
            train, test, device, self.settings, size=SIZE, short_side=SHORT_SIDE, normalization=NORMALIZATION
        )
