"""The kinds of values in the records of plans and submissions, for ``files.records``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from files.records import must
from settings.resources import Resources


def _is_below(folder: str, path: str) -> bool:
    first, *parts = path.split("/")
    return first == folder and not {"", "."}.issuperset(parts) and ".." not in parts and "\0" not in path


# a name of a submission, array or folder: a part of file names
Name = Annotated[str, must("letters, digits, '_', '-' and '.'", re.compile(r"\w[\w.-]*").fullmatch)]
Positive = Annotated[int, must("at least 1", lambda value: value >= 1)]
Index = Annotated[int, must("at least 0", lambda value: value >= 0)]
Moment = Annotated[float, must("seconds since 1970", lambda value: 0 <= value < 1e12)]
RunPath = Annotated[str, must("a path below runs/", lambda value: _is_below("runs", value))]
JobsPath = Annotated[str, must("a path below jobs/, or empty", lambda value: not value or _is_below("jobs", value))]
# resources of an experiment, or some of them
Asked = Annotated[Mapping[str, Any], lambda name, value: Resources().merged(value)]
