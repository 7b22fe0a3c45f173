"""README and docs say what the files of ``results/`` say: every block is its file's, and other numbers are named.

A page is converted by writing its template, the comments around its block, and, with ``make results``, its file.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from jinja2 import meta

from benchmarks import pages
from benchmarks.results import blocks, placeholders, result_file
from benchmarks.results.measurements import ENDED, MEASUREMENTS

ROOT = Path(__file__).parents[2]
PAGES = [pages.read_page(path) for path in pages.pages()]
TEXTS = {page.path.relative_to(ROOT).as_posix(): page.text for page in PAGES}
# README quotes in its first part alone; its other numbers are of commands and settings
QUOTING = {"README.md": TEXTS["README.md"].split("\n## Start\n")[0]} | {
    name: text
    for name, text in TEXTS.items()
    if name.startswith("docs/results/") or name in ("docs/mean_levels.md", "docs/methods.md")
}
WITH_BLOCKS = {name: found for name, text in TEXTS.items() if (found := blocks.of_page(text))}


def test_every_block_is_what_its_file_gives() -> None:
    assert not [sentence for page in PAGES for sentence in page.wrong]
    wrong = [page.path.relative_to(ROOT).as_posix() for page in PAGES if page.given != page.text]
    assert not wrong, "python -m benchmarks.pages writes them from results/ and benchmarks/results/templates/"


@pytest.mark.parametrize("name", sorted(QUOTING))
def test_numbers_stand_in_blocks(name: str) -> None:
    bare = blocks.bare_numbers(QUOTING[name])
    assert not bare, f"{name}: these numbers are in no block, so that no file holds them"


def test_no_block_waits_for_its_file() -> None:
    assert not {name: found for name, found in WITH_BLOCKS.items() if any(block.waits() for block in found)}


def test_every_block_has_its_template_and_its_measurement() -> None:
    every = {str(block): block for found in WITH_BLOCKS.values() for block in found}
    assert not [title for title, block in every.items() if not block.template.is_file()]
    assert not [title for title, block in every.items() if block.name not in {*MEASUREMENTS, *ENDED, "gpu/all"}]
    assert {block.template for block in every.values()} == set(placeholders.TEMPLATES.rglob("*.md"))


def _says(name: str) -> set[str]:
    """The files of which a page says commit and hardware."""
    return {block.name for block in WITH_BLOCKS.get(name, []) if _asks(block.template)}


def _asks(template: Path) -> bool:
    """Whether a template, or one that it includes, has the sentence of commit and hardware."""
    text = template.read_text()
    called = meta.find_referenced_templates(placeholders.LANGUAGE.parse(text))
    return "{{ measured() }}" in text or any(_asks(placeholders.TEMPLATES / name) for name in called if name)


@pytest.mark.parametrize("name", sorted(WITH_BLOCKS))
def test_a_page_says_which_commit_and_hardware_its_numbers_are_of(name: str) -> None:
    """Or, as README, one that it links to."""
    links = {((ROOT / name).parent / path).resolve() for path in re.findall(r"\]\(([^)#\s]+\.md)", TEXTS[name])}
    linked = [path.relative_to(ROOT.resolve()).as_posix() for path in links]
    said = _says(name).union(*map(_says, linked)) if name == "README.md" else _says(name)
    assert {block.name for block in WITH_BLOCKS[name]} <= said


def test_templates_have_no_numbers_of_their_own() -> None:
    templates = sorted(path for path in placeholders.TEMPLATES.rglob("*") if path.is_file())
    assert {path.suffix for path in templates} == {".md", ".jinja"}
    assert not {path.name: found for path in templates if (found := blocks.bare_numbers(literal(path)))}


def literal(template: Path) -> str:
    return placeholders.literal(template.read_text())


def test_pictures_are_those_that_the_measurement_drew() -> None:
    there = {block.name for found in WITH_BLOCKS.values() for block in found}
    assert not [sentence for name in there for sentence in pages.changed_pictures(name)]
    for name, found in WITH_BLOCKS.items():
        drawn = {picture for block in found for picture in result_file.read(block.name).get("pictures", {})}
        shown = re.findall(r"\]\(([^)\s]+\.png)\)", TEXTS[name])
        paths = {((ROOT / name).parent / path).resolve().relative_to(ROOT.resolve()).as_posix() for path in shown}
        assert paths <= drawn, f"{name} shows pictures that no file of its blocks names"


def test_files_of_measurements_say_what_they_are_of() -> None:
    there = [name for name in [*MEASUREMENTS, *ENDED] if result_file.path_of(name).is_file()]
    assert there
    for name in there:
        values = result_file.read(name)
        assert set(result_file.NEEDED) <= values.keys(), name
        assert values["commit"] in result_file.measured(values)


def test_an_odd_digit_in_a_block_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _copy(tmp_path)
    assert pages.main(["--check"], root) == 0
    page = root / "docs" / "results" / "grid.md"
    text = page.read_text()
    (number,) = re.findall(r"`help`|`--help` \| (\.\d+) s", text)
    page.write_text(text.replace(f"| {number} s", f"| {number[:-1]}{(int(number[-1]) + 1) % 10} s"))
    assert pages.main(["--check"], root) == 1
    assert f"+| `--help` | {number} s" in capsys.readouterr().out
    assert pages.main([], root) == 0
    assert page.read_text() == text


@pytest.mark.slow
def test_a_file_that_changes_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _copy(tmp_path)
    values = result_file.read("grid", root)
    result_file.write("grid", values | {"date": "2001-01-01"}, root)
    assert pages.main(["--check"], root) == 1
    assert "+Measured at commit" in capsys.readouterr().out
    del values["figures"]["figures"]["help"]
    result_file.write("grid", values, root)
    assert pages.main([], root) == 2
    told = capsys.readouterr().err
    where = "docs/results/grid.md: benchmarks/results/templates/grid.md, of results/grid.json: line 4: "
    assert f"{where}UndefinedError: 'dict object' has no attribute 'help'" in told


def test_what_is_wrong_with_one_block_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _copy(tmp_path)
    for name in ("analysis", "grid"):
        result_file.write(name, result_file.read(name, root) | {"date": "2001-01-01"}, root)
    result_file.path_of("exchange", root).write_text("{")
    gpu = result_file.read("gpu/all", root)
    result_file.write("gpu/all", gpu | {"machine": {}}, root)
    (root / "docs" / "house.md").write_text(house := "<!-- results: grid -->")
    grid = root / "docs" / "results" / "grid.md"
    grid.write_text(grid.read_text() + "\n<!-- results: grid halp --><!-- end -->\n")
    assert pages.main([], root) == 2
    told = capsys.readouterr()
    assert set(told.out.splitlines()[:2]) == {"wrote docs/results/analysis.md", "wrote docs/results/grid.md"}
    assert all("2001-01-01" in (root / f"docs/results/{name}.md").read_text() for name in ("analysis", "grid"))
    assert (root / "docs" / "house.md").read_text() == house
    errors = told.err.splitlines()
    assert len(errors) == len({*errors}) >= 4
    last = len((placeholders.TEMPLATES / "gpu/all.md").read_text().splitlines())  # ``measured()``
    for words in (
        "docs/house.md: <!-- results: grid -->: there is no <!-- end -->",
        "docs/results/grid.md: block grid halp: benchmarks/results/templates/grid.halp.md is not there",
        "results/exchange.json ",
        f"of results/gpu/all.json: line {last}: KeyError: 'gpu'",
    ):
        assert any(words in error for error in errors), words


def test_a_block_whose_file_is_not_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _copy(tmp_path)
    result_file.path_of("grid", root).unlink()
    page = root / "docs" / "results" / "grid.md"
    page.write_text(text := page.read_text().replace("| `list` |", "| by hand |"))
    assert pages.main([], root) == 0
    assert page.read_text() == text
    told = capsys.readouterr().out
    assert "not measured yet" in told
    assert "grid" in told


def _copy(folder: Path) -> Path:
    """A checkout of pages and result files alone."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copyfile(ROOT / "README.md", folder / "README.md")
    for name in {block.name for found in WITH_BLOCKS.values() for block in found}:
        path = result_file.path_of(name, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(result_file.path_of(name), path)
    return folder


# --- comments and numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<!-- results: grid -->\n",
        "a\n<!-- end -->\n",
        "<!-- results: grid --><!-- results: grid --><!-- end -->",
        "<!-- results: grid --><!-- end --><!-- end -->",
    ],
)
def test_comments_without_their_end_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="<!-- end -->"):
        blocks.of_page(text)


def test_a_block_may_stand_in_a_sentence() -> None:
    inline = "It takes <!-- results: grid x -->old<!-- end -->, see `<!-- results: NAME -->`."
    (block,) = blocks.of_page(inline)
    assert (block.name, block.part, block.text) == ("grid", "x", "old")
    assert block.template.name == "grid.x.md"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes 5.3 MB, 1.2x, 20 s and 3 ms.", ["5.3 MB", "1.2x", "20 s", "3 ms"]),
        ("The error is .81, -3.5 % or 2.2 TB/s; 1,000 images/s.", [".81", "-3.5 %", "2.2 TB/s", "1,000 images/s"]),
        ("200 steps of 4 x 16 images on 2 cores, 3 bits, 2^28, seeds 1, 2; 100 Mbit/s; 32x32.", []),
        ("The 95 % interval of `.8 s` in ```\n3 s\n```.", ["3 s"]),
        ("```bash\nmake gpu # 25 minutes\n```\n", []),
        ("| bits | error | published | note |\n|---|---|---|---|\n| 3 | 1.70 (1.65-1.75) | 1.9 | none |", ["1.70"]),
        ("| 3 % of all |\n|---|\n| 3 s |", []),
        ("<!-- results: grid -->\n3 s\n<!-- end -->\n 4 s", ["4 s"]),
    ],
)
def test_measured_numbers(text: str, found: list[str]) -> None:
    assert blocks.bare_numbers(text) == found
