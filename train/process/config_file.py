"""config.yaml: the settings of a run, read in its folder.  Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from files.plain import Unreadable, read_text
from settings import resolving
from settings.sections import as_set


def read_config(run_dir: Path, name: str = "run") -> dict[str, Any]:
    """The full configuration of a run; today's defaults fill an older one.

    ValueError, with the ``name`` of the setting that names the folder, where it cannot be had.
    """
    path, legal = run_dir / "config.yaml", "legal is the folder of a run, as in runs/main/NAME"
    if not run_dir.is_dir():
        raise ValueError(f"{name}={str(run_dir)!r}: there is no such folder; {legal}")
    try:
        return resolving.resolve(as_set(yaml.safe_load(read_text(path))))
    except FileNotFoundError:
        raise ValueError(f"{name}={str(run_dir)!r}: there is no config.yaml in it; {legal}") from None
    except Unreadable as error:
        raise ValueError(f"{path} {error}") from error
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__})") from error
