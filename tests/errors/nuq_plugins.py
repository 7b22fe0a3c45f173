"""Errors of plug-ins: packages that are named, imported, and add what is no legal entry."""

from __future__ import annotations

import sys
from pathlib import Path

from nuq.settings import plugins
from tests import own_package
from tests.errors.rows import Row, row

_ENTRY = "from nuq.registry import METHODS, Method\nfrom nuq.settings.quantizers import SGD\n"
_LEGAL = _ENTRY + "METHODS['m'] = Method('x', SGD, 'bad:x')\n"
_FROZEN = _ENTRY + "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Cold:\n    pass\n"


def _load(folder: Path, text: str, name: str = "bad") -> None:
    """Import ``bad``, a file of this text; afterwards nothing of it is left."""
    (folder / "bad.py").write_text(text)
    sys.path.insert(0, str(folder))
    try:
        with own_package.restored():
            plugins.load(name)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("bad", None)


def plugin(given: str, text: str, name: str = "bad") -> Row:
    return row("--import", given, lambda folder: _load(folder, text, name))


def entry(given: str, text: str) -> Row:
    return row("METHODS[...] = of a plug-in", given, lambda folder: _load(folder, _ENTRY + text))


def _of_entry_point(folder: Path) -> None:
    own_package.install(folder, "other-things", "3", "[nuq.plugins]\nother = other\n")
    sys.path.insert(0, str(folder))
    try:
        with own_package.restored():
            plugins.start(["list"])
    finally:
        sys.path.remove(str(folder))


ROWS = [
    row("--import", "left out", lambda: plugins.start(["list", "--import", "--all"])),
    row("--import=", "left out", lambda: plugins.start(["--import="])),
    row("--import", "'my package'", lambda: plugins.load("my package")),
    row("--import", "a package that is not here", lambda: plugins.load("nothing_here")),
    row("an installed plug-in", "a package that is not here", _of_entry_point),
    plugin("a package that adds nothing", "x = 1"),
    plugin("a package that imports what is not here", "\nimport nothing_here"),
    plugin("a package with a wrong line", "def ("),
    plugin("a package that ends the process", "raise SystemExit(3)"),
    plugin("another version", _LEGAL + "__version__ = '1'", "bad==2"),
    plugin("no version", _LEGAL, "bad==2"),
    plugin("a version that is no text", _LEGAL + "__version__ = [1]", "bad==2"),
    entry("a name that is taken", "METHODS['alq'] = Method('x', SGD, 'bad:x')"),
    entry("3", "METHODS['m'] = 3"),
    entry("under the name 'a b'", "METHODS['a b'] = Method('x', SGD, 'bad:x')"),
    entry("settings=dict", "METHODS['m'] = Method('x', dict, 'bad:x')"),
    row(
        "METHODS[...] = of a plug-in",
        "frozen settings",
        lambda folder: _load(folder, _FROZEN + "METHODS['m'] = Method('x', Cold, 'bad:x')"),
    ),
    entry("code='bad'", "METHODS['m'] = Method('x', SGD, 'bad')"),
    entry("code of nuq", "METHODS['m'] = Method('x', SGD, 'nuq.ddp:x')"),
    entry("code of no package", "METHODS['m'] = Method('x', SGD, 'nowhere:x')"),
    row("METHODS[...].load()", "a name that the module lacks", lambda: plugins.imported("nuq.description:nothing")),
]
