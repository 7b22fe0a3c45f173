"""Runs of Deep Gradient Compression: only a folder's name, ``[cifar.resnet20+dgc.wm5].np8``, tells the settings.

Their x axis counts inputs seen.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SYSTEM = "dgc"
_DATA = {"cifar": "cifar10", "imagenet": "imagenet"}
_NAME = re.compile(r"(?P<configs>.*\b(?P<data>cifar|imagenet)\..*)\.np(?P<workers>\d+)")


def read(folder: Path) -> dict[str, Any]:
    """The settings that a folder's name tells, as flat dotted names.

    The name joins configuration files by ``.`` and ``+``, in brackets where several share a folder; then come a suffix
    and the number of processes.
    """
    found = _NAME.fullmatch(folder.name)
    if not found:
        return {}
    words = re.findall(r"\w+", found["configs"])
    model = words[words.index(found["data"]) + 1 :][:1]
    compressed = "dgc" in words
    values: dict[str, Any] = {
        "system": SYSTEM,
        "method.name": "dgc" if compressed else "supersgd",
        "data.name": _DATA[found["data"]],
    }
    values |= {"model.name": model[0] if model else None, "workers": int(found["workers"])}
    if "cosine" in words:
        values["schedule.name"] = "cosine"
    if compressed:
        values["method.warmup"] = next((word for word in words if re.fullmatch(r"wm\d\w*", word)), None)
        values |= {f"method.{word}": word in words for word in ("fp16", "int32")}
    return values
