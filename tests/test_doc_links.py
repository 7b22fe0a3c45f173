"""README, CONTRIBUTING and the pages of docs/: their links, anchors, pictures and paths lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import nuq

ROOT = Path(__file__).parent.parent
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}


def _prose(document: str) -> str:
    """Without tables, which also name others' files, and blocks of code."""
    text = re.sub(r"^\|.*$", "", DOCUMENTS[document], flags=re.MULTILINE)
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def _named(document: str) -> list[str]:
    named = re.findall(r"`((?:nuq|grid|train|analysis|tests|pjobs|docs|results)/[\w/.]*)`", _prose(document))
    return named + re.findall(r"`(\.ci/run|[\w.]+\.(?:py|yml|txt|toml))`", _prose(document))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    assert not [name for name in _named(document) if not (ROOT / name).exists()]


def test_paths_are_found() -> None:
    assert all(_named(document) for document in ("README.md", "CONTRIBUTING.md", "docs/library.md", "docs/wire.md"))


def _anchors(text: str) -> set[str]:
    """Of its headings, where GitHub and the site agree on the name."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title).strip().lower() for title in titles]
    assert len(plain) == len(set(plain)), "two headings of one name have no anchor that both spell alike"
    return {title.replace(" ", "-") for title in plain if not re.search(r"[ -]{2}", title)}


def _wrong_links(document: str, text: str) -> list[str]:
    """The relative links and pictures of a document that lead nowhere, or out of the site."""
    text = re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<(?:img|a)\b[^>]*(?:src|href)="([^"]*)"', text)
    wrong = []
    for link in (link for link in links if not re.match(r"https?://", link)):
        path, _, anchor = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        inside = (ROOT / "docs").resolve() in target.resolve().parents
        is_there = target.is_file() and (inside or not document.startswith("docs/"))
        if not is_there or (anchor and anchor not in _anchors(target.read_text())):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    assert not _wrong_links(document, DOCUMENTS[document])


@pytest.mark.parametrize(
    "link",
    [
        "[a page](nowhere.md)",
        "![a picture](nowhere.png)",
        "[an anchor](methods.md#nowhere)",
        "[out of the site](../README.md)",
        '<img src="nowhere.png">',
    ],
)
def test_links_that_lead_nowhere_are_caught(link: str) -> None:
    assert not _wrong_links("docs/new.md", "[a page](methods.md#add-a-method), ![](report.png), `[code](nowhere.md)`")
    assert len(_wrong_links("docs/new.md", link)) == 1


def test_every_page_and_picture_is_reached() -> None:
    """From README or the front page of the site, by links."""
    reached, following = set(), ["README.md", "docs/index.md"]
    while following:
        document = following.pop()
        if document in reached:
            continue
        reached.add(document)
        if document in DOCUMENTS:
            links = re.findall(r'\]\(([^)#\s]+)|src="([^"]*)"', DOCUMENTS[document])
            relative = [link or source for link, source in links if not re.match(r"https?://", link)]
            targets = [((ROOT / document).parent / link).resolve() for link in relative]
            following += [target.relative_to(ROOT.resolve()).as_posix() for target in targets]
    pictures = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.png")}
    assert not ((DOCUMENTS.keys() - {"CONTRIBUTING.md"}) | pictures) - reached


def _pages(entry: str | list[Any] | dict[str, Any]) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [page for below in (entry.values() if isinstance(entry, dict) else entry) for page in _pages(below)]


def test_the_site_has_every_page_once() -> None:
    """Those of single methods are reached from the table of the methods instead of the navigation."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = [f"docs/{page}" for entry in nav for page in _pages(entry)]
    listed += re.findall(r"docs/methods/\w+\.md", " ".join(DOCUMENTS))
    assert sorted(listed) == sorted(name for name in DOCUMENTS if name.startswith("docs/"))


def test_the_reference_has_every_public_name_once() -> None:
    assert sorted(re.findall(r"^::: nuq\.(\w+)$", DOCUMENTS["docs/api.md"], re.MULTILINE)) == sorted(nuq.__all__)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_lists_and_tables_stand_apart(document: str) -> None:
    """The site needs an empty line before them, where GitHub does not."""
    text = re.sub(r"^```.*?^```", "", DOCUMENTS[document], flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"^(?![-|#\s]).+\n(?:- |\|).*", text, re.MULTILINE)
