"""The HTML of a report, in which every word of a run is escaped and nothing is loaded from elsewhere.

A Content-Security-Policy lets the page run its own three scripts, known by their hashes, and nothing else: even if a
word of a run got through as markup, no script of it could run and nothing could be sent or fetched.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import axes
from analysis.report.interactive import Curves
from analysis.report.pictures import Picture, Pictures
from analysis.report.plots import plots
from files.escaped import escaped

_HERE = Path(__file__).parent
_PIXELS_PER_POINT = {"column": 4 / 3 * 1.08, "page": 2.2}  # three of one column, or one of the page, beside each other
_PAGE_POINTS = 400
_OPEN_SECTIONS = 4  # sections of figures: the rest is folded
_AXES = ("group", "quantity", "axis")


def escape(text: str) -> str:
    """Text, perhaps from a file, as HTML; control characters are shown."""
    return html.escape(escaped(text))


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, its heading, its HTML, and whether it is open at first."""

    name: str
    title: str
    content: str
    is_open: bool = True


def page(
    title: str, lead: str, sections: Sequence[Section], *, footer: str, with_curves: bool, every_s: float | None = None
) -> str:
    """The HTML of the whole page.

    ``lead`` and ``footer`` are text; ``every_s``: it reloads itself so often.
    """
    style = (_HERE / "page.css").read_text()
    scripts = [
        *([_bokeh()] if with_curves else []),
        (_HERE / "page.js").read_text(),
        *([(_HERE / "curves.js").read_text()] * with_curves),
    ]
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action 'none'"
    )
    reload = f' data-every="{every_s:g}"' if every_s else ""
    links = "".join(f'<a href="#{part.name}">{escape(part.title)}</a>' for part in sections)
    body = "\n".join(_section(part) for part in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}: '
        f"report</title>\n"
        f'<link rel="icon" href="data:,">\n<style>\n{style}</style>\n</head>\n<body{reload}>\n'
        f'<header><h1>{escape(title)}</h1><p class="soft">{escape(lead)}</p></header>\n<nav '
        f'aria-label="Sections">{links}</nav>\n'
        f'<main>\n{body}\n</main>\n<footer class="soft small"><p>{escape(footer)}</p></footer>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def _section(part: Section) -> str:
    is_open = " open" * part.is_open
    title = f"<summary><h2>{escape(part.title)}</h2></summary>"
    return f'<details id="{part.name}"{is_open}>{title}\n{part.content}\n</details>'


def _bokeh() -> str:
    """Bokeh's own script, without the parts for widgets, tables and WebGL.

    A script element ends at the first ``</script``.
    """
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw).replace("</script", "<\\/script")


def packed(value: object) -> str:
    """A value as JSON, gzip and base64, which ``unpacked`` of page.js reads."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


# --- pieces -------------------------------------------------------------------------------------------------------


def paragraph(text: str, kind: str = "") -> str:
    """The HTML of one paragraph of text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def items(texts: Iterable[str]) -> str:
    """The HTML of a list of sentences."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def facts(values: Mapping[str, str], kind: str = "") -> str:
    """The HTML of names and values, one below the other."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd{_class(kind)}>{escape(value)}</dd>" for name, value in values.items())
    return f'<dl class="facts">{rows}</dl>'


def cards(values: Mapping[str, tuple[str, str]]) -> str:
    """The HTML of the few numbers that matter: name -> (value, explanation)."""
    made = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<span>{escape(more)}</span></dd></div>"
        for name, (value, more) in values.items()
    )
    return f'<dl class="cards">{made}</dl>'


def states_bar(counts: Mapping[str, int]) -> str:
    """The HTML of how many runs are in each state, as a bar and in words."""
    bar = "".join(f'<i class="{escape(word)}" style="flex:{count}"></i>' for word, count in counts.items())
    words = "".join(
        f'<li><span class="state {escape(word)}">{escape(word)}</span> {count}</li>' for word, count in counts.items()
    )
    return f'<div class="bar" aria-hidden="true">{bar}</div><ul class="states">{words}</ul>'


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[bool], wrapped: Sequence[int] = ()
) -> str:
    """The HTML of a plain table; the first cell of a row is its heading; ``wrapped``: columns of long text."""
    head = "".join(
        f'<th scope="col"{_class("number" * is_number)}>{escape(text)}</th>'
        for text, is_number in zip(headings, numbers, strict=True)
    )

    def seed_group(index: int, text: str) -> str:
        kind = "number" if numbers[index] else "wrap" if index in wrapped else ""
        return f'<th scope="row">{escape(text)}</th>' if index == 0 else f"<td{_class(kind)}>{escape(text)}</td>"

    body = "\n".join(f"<tr>{''.join(seed_group(index, text) for index, text in enumerate(row))}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def pictures(found: Pictures, advice: str) -> str:
    """The HTML of all figures, section by section.

    Figures that could not be drawn stand there with the reason, and the number of those left out is told.

    Curves against other axes than the step are folded away: they are the same quantities.
    """
    sections: dict[str, list[Picture]] = {section: [] for section in found.left_out}
    for picture in found.drawn:
        sections.setdefault(picture.section, []).append(picture)
    parts = []
    for number, (section, of_section) in enumerate(sections.items()):
        drawn = [picture for picture in of_section if picture.packed]
        missing = [f"{picture.name}: {picture.sentence}" for picture in of_section if picture.sentence]
        by_axis = {
            axis: [picture for picture in drawn if axes.TITLES[axis] in picture.title]
            for axis in axes.AXES
            if axis != "step"
        }
        apart = {picture.name for of_axis in by_axis.values() for picture in of_axis}
        content = _gallery([picture for picture in drawn if picture.name not in apart])
        for axis, of_axis in by_axis.items():
            if of_axis:
                title = f"The same {axes.TITLES[axis]} ({len(of_axis)})"
                content += folded(f"figures-{number}-{axis}", title, _gallery(of_axis))
        if kinds := found.left_out.get(section):
            more = f"{len(kinds)} more figure{'s' * (len(kinds) != 1)} of this section"
            content += paragraph(f"{more} left out here ({_quantities(kinds)}); {advice}", "small soft")
        if missing:
            content += folded(f"figures-{number}-missing", f"{len(missing)} not drawn", items(missing))
        parts.append(
            folded(f"figures-{number}", section[0].upper() + section[1:], content, is_open=number < _OPEN_SECTIONS)
        )
    return "<noscript><p>The figures are packed: they need JavaScript.</p></noscript>" + "\n".join(parts)


def _quantities(kinds: Iterable[str]) -> str:
    """The kinds of figures as text, such as ``accuracy, est_var-bytes``.

    A quantity against all axes is named once: ``est_var against step, time, epoch, bytes``.
    """
    of_quantity: dict[str, list[str]] = {}
    for kind in kinds:
        name, _, axis = kind.rpartition("-")
        name, axis = (name, axis) if axis in axes.AXES else (kind, "step")
        of_quantity.setdefault(name, []).append(axis)
    by_axes: dict[tuple[str, ...], list[str]] = {}
    for name, of_axes in of_quantity.items():
        by_axes.setdefault(tuple(of_axes), []).append(name)
    return "; ".join(
        ", ".join(names) + f" against {', '.join(of)}" * (of != ("step",)) for of, names in by_axes.items()
    )


def folded(name: str, title: str, content: str, *, is_open: bool = False) -> str:
    """The HTML of content behind a heading that opens and closes it."""
    return f'<details id="{name}"{" open" * is_open}><summary>{escape(title)}</summary>{content}</details>'


def _gallery(drawn: Iterable[Picture]) -> str:
    return '<div class="figures">\n' + "\n".join(map(_picture, drawn)) + "\n</div>"


def _picture(picture: Picture) -> str:
    is_wide = picture.width > _PAGE_POINTS
    scale = _PIXELS_PER_POINT["page" if is_wide else "column"]
    width, height = round(picture.width * scale), round(picture.height * scale)
    image = f'<img data-packed="{picture.packed}" width="{width}" height="{height}" alt="{escape(picture.title)}">'
    below = f"<figcaption>{escape(picture.title)} <code>{escape(picture.name)}</code></figcaption>"
    return f'<figure{_class("wide" * is_wide)} style="width:{width + 18}px">{image}{below}</figure>'


def curves(found: Curves) -> str:
    """The HTML of the interactive plots: three choices, two plots of which one is shown, and the data."""
    data = packed({"data": found.data, "plots": plots(found.slots)})
    titles = {"group": "runs", "quantity": "quantity", "axis": "against"}
    picks = "".join(f'<label>{titles[name]} <select id="curves-{name}"></select></label>' for name in _AXES)
    notes = "".join(paragraph(note[0].upper() + note[1:] + ".", "small soft") for note in found.notes)
    return (
        "<noscript><p>The curves need JavaScript; the figures below show the same.</p></noscript>"
        f'<div class="tools">{picks}</div><div class="plot" id="curves-linear"></div><div class="plot" '
        f'id="curves-log" hidden></div>'
        + paragraph("Mean over seeds with its 95 % interval; dashed lines: drops of the learning rate. Click a name "
        "to hide its curve, hover over a point for its values, drag to zoom.", "small soft")
        + f'{notes}<script type="application/octet-stream" id="curves-packed">{data}</script>'
    )  # fmt: skip
