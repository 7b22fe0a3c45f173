"""The blocks of pages that result files give, each between two comments, and the numbers that stand outside of blocks.

A block begins with ``<!-- results: NAME -->`` or ``<!-- results: NAME PART -->``, ends with ``<!-- end -->``, and holds
what ``templates/NAME.md`` (``templates/NAME.PART.md``) and ``results/NAME.json`` give (``placeholders``).  A comment
with text behind it in the same line begins a block within a sentence.  A block whose file is not there waits for it: it
keeps the text that was written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results import placeholders, result_file
from benchmarks.results.placeholders import TEMPLATES
from benchmarks.results.result_file import ROOT

_MARKER = re.compile(r"(?<!`)<!-- (?:results: (?P<name>[\w/-]+)(?: (?P<part>[\w-]+))?|end) -->")


@dataclass(frozen=True)
class Block:
    """A block of a page: the file and the template that it is made of, and the text that stands there."""

    name: str
    part: str
    text: str

    @property
    def template(self) -> Path:
        """The file of its template."""
        return TEMPLATES / f"{self.name}{'.' * bool(self.part)}{self.part}.md"

    def words(self, values: dict[str, Any]) -> str:
        """The text that the file's values give.

        Raises ValueError, with the names of both files, where they do not.
        """
        own = {"measured": partial(result_file.measured, values), "file": values}
        try:
            filled = placeholders.filled(self.template.read_text(), values.get("figures", values), own)
        except FileNotFoundError as error:
            raise ValueError(f"block {self}: {shown(self.template)} is not there") from error
        except ValueError as error:
            raise ValueError(f"{shown(self.template)}, of results/{self.name}.json: {error}") from error
        return f"\n\n{filled}\n\n" if self.text.startswith("\n") else filled

    def waits(self, root: Path = ROOT) -> bool:
        """Whether its file has not been measured yet."""
        return not result_file.path_of(self.name, root).exists()

    def __str__(self) -> str:
        return f"{self.name} {self.part}".rstrip()


def shown(path: Path) -> str:
    """A path of the checkout as users write it."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def of_page(text: str) -> list[Block]:
    """The blocks of a page, in their order.

    Raises ValueError for a comment that begins a block without an end, or ends none.
    """
    return [block for _, block, _ in _pieces(text) if block]


def written(text: str, root: Path = ROOT) -> tuple[str, list[str]]:
    """The page with the text of every block as its file gives it, and what is wrong with those that stay as they are.

    Raises ValueError for a comment that begins a block without an end, or ends none.
    """
    parts, wrong = [], []
    for before, block, end in _pieces(text):
        words = block.text if block else ""
        if block and not block.waits(root):
            try:
                words = block.words(result_file.read(block.name, root))
            except ValueError as error:
                wrong.append(str(error))
        parts += [before, words, end]
    return "".join(parts), wrong


def _pieces(text: str) -> Iterator[tuple[str, Block | None, str]]:
    """The text before each block, comment included, the block, and the comment that ends it; then what is left."""
    begin, last = None, 0
    for found in _MARKER.finditer(text):
        if bool(found["name"]) == bool(begin):
            wrong = (begin or found)[0]
            raise ValueError(f"{wrong}: every <!-- results: NAME --> has an <!-- end -->, before the next one begins")
        if begin:
            block = Block(begin["name"], begin["part"] or "", text[begin.end() : found.start()])
            yield text[last : begin.end()], block, found[0]
            last = found.end()
        begin = None if begin else found
    if begin:
        raise ValueError(f"{begin[0]}: there is no <!-- end -->")
    yield text[last:], None, ""


# --- numbers outside of blocks ------------------------------------------------------------------------------------

_UNITS = r"%|[numµ]?s|ms|min|minutes?|seconds?|hours?|times|x|[kMGT]B|[MGT]B/s|images/s"
# A number with its unit, and nothing that would make it a shape (32x32), a word (5 samples) or a setting (100 Mbit/s);
# or a fraction that begins with the point, as the house writes what it has measured.
_MEASURED = re.compile(rf"(?<![\w.^])-?(?:\d[\d,]*(?:\.\d+)?(?: ?(?:{_UNITS})(?![\w/])|x(?!\w))|\.\d+)")
_NO_MEASUREMENT = re.compile(r"\b95 % intervals?\b|(?<=\d) x (?=\d)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[-+*]*(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?![\w^])")
_OF_OTHERS = re.compile(r"published|paper", re.IGNORECASE)


def bare_numbers(text: str) -> list[str]:
    """The measured numbers of a page outside of its blocks: with a unit, fractions below one, numbers of tables.

    Code, links and comments are no text; the first column of a table names its rows, and a column whose head says
    ``published`` or ``paper`` is of others.
    """
    outside = "\n".join(before for before, _, _ in _pieces(text))
    plain = _NO_MEASUREMENT.sub(" ", _CODE.sub(" ", outside))
    return list(_of_lines(plain.splitlines()))


def _of_lines(lines: list[str]) -> Iterator[str]:
    head: list[str] = []  # of the table that a line is of
    for line in lines:
        if not line.lstrip().startswith("|"):
            head = []
            yield from (found[0] for found in _MEASURED.finditer(line))
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        for title, cell in zip(head[1:], cells[1:], strict=False):
            if not _OF_OTHERS.search(title) and (found := _MEASURED.search(cell) or _NUMBER.match(cell)):
                yield found[0]
        head = head or cells
