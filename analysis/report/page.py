"""The page of a report, from the templates beside this file; it escapes every word of a run, and loads nothing.

A Content-Security-Policy lets the page run its own three scripts, known by their hashes, and nothing else: even if a
word of a run got through as markup, no script of it could run and nothing could be sent or fetched.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from files.escaped import escaped

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, its heading and its HTML."""

    name: str
    title: str
    content: Markup


@functools.cache
def _templates() -> Environment:
    """The templates: whatever they print is escaped, and control characters are shown (``files.escaped``)."""
    return Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        finalize=lambda value: escaped(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def part(name: str, *values: Any) -> Markup:
    """The HTML of a section or a piece of one: a macro of ``sections.html`` with its values."""
    return getattr(_templates().get_template("sections.html").module, name)(*values)


def page(
    title: str, lead: str, sections: Sequence[Section], *, footer: str, with_curves: bool, every_s: float | None = None
) -> str:
    """The HTML of the page; ``lead`` and ``footer`` are text; ``every_s``: it reloads itself so often."""
    names = ["page.js", "curves.js"] if with_curves else ["page.js"]
    scripts = [*([_bokeh()] if with_curves else []), *((_HERE / name).read_text() for name in names)]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return _templates().get_template("page.html").render(
        title=title, lead=lead, sections=sections, footer=footer, every_s=every_s,
        scripts=scripts, digests=digests, style=(_HERE / "page.css").read_text(),
    )  # fmt: skip


def _bokeh() -> str:
    """Bokeh's script without widgets, tables and WebGL; a script element ends at the first ``</script``."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw).replace("</script", "<\\/script")


def packed(text: str) -> str:
    """A text as gzip and base64, which ``unpacked`` of page.js reads."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def packed_json(value: object) -> str:
    """A value as JSON, packed."""
    return packed(json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False))
