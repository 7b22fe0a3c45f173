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


def test_paths_exist() -> None:
    named = [(document, name) for document in DOCUMENTS for name in _named(document)]
    assert {"README.md", "CONTRIBUTING.md", "docs/library.md", "docs/wire.md"} <= {document for document, _ in named}
    assert not [(document, name) for document, name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_somewhere(document: str) -> None:
    """Those of the site are followed by its strict build, `make docs`."""
    text = re.sub(r"^```.*?^```|`[^`]*`", "", DOCUMENTS[document], flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<(?:img|a)\b[^>]*(?:src|href)="([^"]*)"', text)
    ours = [link.partition("#") for link in links if not re.match(r"https?://", link)]
    assert not [path for path, _, _ in ours if not (ROOT / path).is_file()]
    pages = {
        path: re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE) for path, _, anchor in ours if anchor
    }
    anchors = {
        path: {re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in pages[path]} for path in pages
    }
    assert not [(path, anchor) for path, _, anchor in ours if anchor and anchor not in anchors[path]]


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


def test_lists_and_tables_stand_apart() -> None:
    """The site needs an empty line before them, where GitHub does not."""
    for document, text in DOCUMENTS.items():
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        assert not re.findall(r"^(?![-|#\s]).+\n(?:- |\|).*", text, re.MULTILINE), document
