"""Write the numbers of README and docs from the files of ``results/``: ``python -m benchmarks.pages [--check]``.

Every block of a page, between ``<!-- results: NAME -->`` and ``<!-- end -->``, becomes the text of its template in
``benchmarks/results/templates/`` with the numbers of ``results/NAME.json``.  ``--check`` writes nothing, says what
differs, and exits with 1 where something does.  A block whose file is not there yet keeps its text.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.results import blocks
from benchmarks.results.result_file import ROOT, digest, read
from files.atomic import write_text


def pages(root: Path = ROOT) -> list[Path]:
    """README and the pages of docs/."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def differing(root: Path = ROOT) -> Iterator[tuple[Path, str, str]]:
    """The pages that are not what the files give, each with its text and the text that they give.

    Raises ValueError, with the name of the page, where they give none.
    """
    for page in pages(root):
        text = page.read_text()
        try:
            given = blocks.written(text, root)
        except ValueError as error:
            raise ValueError(f"{page.relative_to(root)}: {error}") from error
        if given != text:
            yield page, text, given


def all_blocks(root: Path = ROOT) -> Iterator[blocks.Block]:
    """The blocks of all pages."""
    for page in pages(root):
        yield from blocks.of_page(page.read_text())


def changed_pictures(root: Path = ROOT) -> Iterator[str]:
    """The pictures that are not those which the measurements of the pages' blocks have drawn, in sentences."""
    for name in sorted({block.name for block in all_blocks(root) if not block.waits(root)}):
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
    try:
        found, pictures = list(differing(root)), list(changed_pictures(root))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for page, text, given in found:
        name = page.relative_to(root).as_posix()
        if check:
            print(
                *difflib.unified_diff(text.splitlines(), given.splitlines(), name, "results/", "", "", 0, ""), sep="\n"
            )
        else:
            write_text(page, given)
            print(f"wrote {name}")
    for sentence in pictures:
        print(sentence)
    if waiting := sorted({block.name for block in all_blocks(root) if block.waits(root)}):
        print(f"not measured yet, so that their blocks were left as they are: {', '.join(waiting)}")
    return int(bool(pictures or (check and found)))


if __name__ == "__main__":
    sys.exit(main())
