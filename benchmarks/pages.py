"""Write the numbers of README and docs from the files of ``results/``: ``python -m benchmarks.pages [--check]``.

Every block of a page, between ``<!-- results: NAME -->`` and ``<!-- end -->``, becomes the text of its template in
``benchmarks/results/templates/`` with the numbers of ``results/NAME.json``.  ``--check`` writes nothing, says what
differs, and exits with 1 where something does.  A block whose file is not there yet keeps its text, and so does one
that cannot be made, of which the command says why.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import blocks
from benchmarks.results.blocks import Block
from benchmarks.results.result_file import ROOT, digest, read
from files.atomic import write_text


def pages(root: Path = ROOT) -> list[Path]:
    """README and the pages of docs/."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Page:
    """A page with its blocks, its text as the files give it, and what is wrong with it, in sentences."""

    path: Path
    text: str
    given: str
    blocks: Sequence[Block]
    wrong: Sequence[str]


def read_page(path: Path, root: Path = ROOT) -> Page:
    """A page; one with a comment too many or too few has no blocks."""
    text, name = path.read_text(), path.relative_to(root).as_posix()
    try:
        given, wrong = blocks.written(text, root)
        return Page(path, text, given, blocks.of_page(text), [f"{name}: {sentence}" for sentence in wrong])
    except ValueError as error:
        return Page(path, text, text, [], [f"{name}: {error}"])


def changed_pictures(name: str, root: Path = ROOT) -> Iterator[str]:
    """The pictures that are not those which the measurement of a name has drawn, in sentences."""
    for picture, known in read(name, root).get("pictures", {}).items():
        if not (root / picture).is_file() or digest(root / picture) != known:
            yield f"{picture} is not the one that results/{name}.json names: python -m benchmarks.record {name}"


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command; its exit code is 1 where ``--check`` finds a difference, 2 where a block cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say what differs")
    check = parser.parse_args(words).check
    found = [read_page(path, root) for path in pages(root)]
    wrong = [sentence for page in found for sentence in page.wrong]
    differing = [page for page in found if page.given != page.text]
    for page in differing:
        name = page.path.relative_to(root).as_posix()
        if check:
            lines = page.text.splitlines(), page.given.splitlines()
            print(*difflib.unified_diff(*lines, name, "results/", "", "", 0, ""), sep="\n")
        else:
            write_text(page.path, page.given)
            print(f"wrote {name}")
    waits = {block.name: block.waits(root) for page in found for block in page.blocks}
    pictures: list[str] = []
    for name in sorted(name for name, waiting in waits.items() if not waiting):
        with suppress(ValueError):  # said above, for its blocks
            pictures += changed_pictures(name, root)
    print(*pictures, sep="\n", end="\n" * bool(pictures))
    if waiting := sorted(name for name, waiting in waits.items() if waiting):
        print(f"not measured yet, so that their blocks were left as they are: {', '.join(waiting)}")
    for sentence in wrong:
        print(f"error: {sentence}", file=sys.stderr)
    return 2 if wrong else int(bool(pictures or (check and differing)))


if __name__ == "__main__":
    sys.exit(main())
