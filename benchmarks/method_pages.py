"""The pages of ``docs/methods/``, one for each method of METHODS.

Run it as ``python -m benchmarks.method_pages`` to write them, with ``--check`` to hear which are not as they should be.

What a method is, its formula and its differences from the paper are the docstrings of its code; its claims are those
of ``nuq.registry``, which the tests hold; its settings are those of ``nuq.settings``; error, bits and speed are the
rows of ``results/methods.json``.  So nothing of a page is written by hand, and
a new method has one unasked.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nuq.description import claims, legal, shown
from nuq.exchange.hook.settings import HookSettings
from nuq.registry import METHODS, Method, legal_formats
from nuq.settings import declared
from nuq.settings.quantizers import Uncompressed

ROOT = Path(__file__).parent.parent
PAGES, MEASURED = ROOT / "docs" / "methods", ROOT / "results" / "methods.json"
LENGTHS = ("bits", "ratio", "svd_rank", "rank", "threshold")  # the setting that a message's length follows first
OPTIONS = {  # settings of docs/methods.md that go with a method or not, in words
    "norm": "norms",
    "rotation": "rotation",
    "dither": "dither",
    "coding": "entropy coding",
    "rounding": "correlated rounding",
    "objective": "levels for the mean",
}


def pages(measured: Mapping[str, Any] | None) -> dict[str, str]:
    """The text of every page by its file's name; measured: what ``results/methods.json`` holds, if it is there."""
    return {f"{name}.md": page(name, measured) for name in METHODS}


def recorded() -> dict[str, Any] | None:
    """The measured rows with their command, commit, date and hardware; None where nobody has measured."""
    return json.loads(MEASURED.read_text()) if MEASURED.exists() else None


def page(name: str, measured: Mapping[str, Any] | None = None) -> str:
    """The page of one method."""
    entry = METHODS[name]
    summary, details = _told(name)
    length = _length(entry)
    words = "".join(f", {word}" for word in length)
    hook = f'state = nuq.CompressionState(model, method="{name}"{words})'
    if entry.feedback == "momentum":
        hook = f'state = nuq.CompressionState(model, method="{name}", momentum=0.9{words})  # and none in the optimizer'
    parts = [
        f"# {entry.title}",
        summary,
        f"```bash\npython main.py method={name}{''.join(f' method.{word}' for word in length)}\n```",
        f"```python\n{hook}\n```",
        "## Claims\n\nWith default settings:\n\n" + "\n".join(f"- {claim}" for claim in claims(name)),
        f"## Error, bits, speed\n\n{_figures(name, measured)}",
        f"## Settings\n\n{_settings(name)}",
        f"## What goes with it\n\n{_company(name)}",
    ]
    if details:
        parts.append(f"## How it works\n\n{details}")
    code = entry.code.partition(":")[0]
    parts.append(f"`python -m benchmarks.method_pages` writes this page. Code: `{code}`. [All methods](../methods.md).")
    return "\n\n".join(parts) + "\n"


def _length(entry: Method) -> list[str]:
    """The setting that the length of a message follows first, with its default."""
    fields = declared(entry.settings)
    return [f"{word}={fields[word].default}" for word in LENGTHS if word in fields][:1]


# --- company -------------------------------------------------------------------------------------------


def _company(name: str) -> str:
    """The memory, layers, options, collectives and the other trainings that go with a method."""
    entry = METHODS[name]
    if entry.single_worker:
        return "Nothing does: neither `layers`, nor a memory, nor FSDP2."
    own = {"none": "none", "error": "error feedback", "momentum": "momentum correction"}[entry.feedback]
    memory = f"its paper's is {own}, which `auto` takes; `none`, `error`, `momentum` and `ef21` are legal"
    if issubclass(entry.settings, Uncompressed):
        memory = "none, as nothing is left out"
    fields = declared(entry.settings)
    has = [f"{words} (`{option}`)" for option, words in OPTIONS.items() if option in fields]
    lacks = [words for option, words in OPTIONS.items() if option not in fields]
    options = f"{', '.join(has)}; not {', '.join(lacks)}" if has and lacks else ", ".join(has) or "none of them"
    encoder = f"`{entry.mean_compressor}`" if entry.mean_compressor else "the method itself"
    means = f"collectives that encode means have them encoded by {encoder}"
    if entry.collective:
        means = f"its factors have a way to the mean of their own with `gather` and `two_stage`; else {means}"
    lines = [
        f"[Memory](../methods.md#scope-layers-memory): {memory}.",
        f"[Options](../methods.md#what-composes): {options}.",
        "[Layers](../methods.md#scope-layers-memory): some layers may have it, and the others another method.",
        f"[Collectives](../library.md#methods-and-settings): {means}.",
        "[FSDP2](../library.md#fsdp2): yes, without a memory.",
    ]
    formats = "yes" if name in legal_formats() else "no, as its bytes do not depend on a tensor alone"
    lines.append(f"[Tensors of quantized training](../quantized_training.md) in this format: {formats}.")
    return "\n".join(f"- {line}" for line in lines)


# --- measured figures ---------------------------------------------------------------------------------------------


def _figures(name: str, measured: Mapping[str, Any] | None) -> str:
    row = measured["figures"]["methods"].get(name) if measured else None
    if measured is None or row is None:
        return "Not measured yet: `python -m benchmarks.methods` does."
    figures, baseline = measured["figures"], "none"
    if row["ratio"] is not None:
        baseline = f"{row['ratio']:.3g} ({row['ratio_low']:.3g} to {row['ratio_high']:.3g})"
    error = f"{row['error']:.3g} ({row['error_low']:.3g} to {row['error_high']:.3g})"
    rates = f"{row['encode_gb_per_s']:.3g} | {row['decode_gb_per_s']:.3g}"
    stand_in = " They are a stand-in's, so that they say little." if figures["stand_in"] else ""
    return (
        "| error | bits per coordinate | encode, GB/s | decode, GB/s | encode / eager |\n|---|---|---|---|---|\n"
        f"| {error} | {row['bits_per_coordinate']:.4g} | {rates} | {baseline} |\n\n"
        f"Gradients: {figures['gradient']}, {figures['num_coordinates']:,} coordinates.{stand_in} [What the columns "
        f"mean, and all methods](../results/methods.md). `{measured['command']}` on {measured['date']}, commit "
        f"`{measured['commit']}`: {measured['hardware']}."
    )


# --- settings -----------------------------------------------------------------------------------------------------


def _settings(name: str) -> str:
    """The table of settings; on a command line they are ``method.NAME``."""
    fields = declared(METHODS[name].settings)
    rows = [
        f"| `{word}` | `{shown(of.default)}` | {legal(of, '`{}`'.format)} | {_cell(_escaped(of.rule['reason']))} |"
        for word, of in fields.items()
    ]
    if not rows:
        return "It has none."
    table = ["| setting | default | legal | what it does, and why this default |", "|---|---|---|---|", *rows]
    of_hook = vars(HookSettings.of(name, (), {}).of_method)
    others = [f"`{word}={value}`" for word, value in of_hook.items() if value != fields[word].default]
    if others:
        table += ["", f"In `nuq.CompressionState` the default is {' and '.join(others)}."]
    return "\n".join(table)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# --- docstrings ---------------------------------------------------------------------------------------------------


def _told(name: str) -> tuple[str, str]:
    """What a method is in a sentence or two, and all else that the docstrings of its code say, as Markdown."""
    entry = METHODS[name]
    code = entry.load()
    module = inspect.getmodule(code)
    whole = _paragraphs(module)
    of_module = [other for other in METHODS.values() if other.code.partition(":")[0] == entry.code.partition(":")[0]]
    if len(of_module) == 1 and whole:
        first, rest = whole[0], whole[1:]
    else:  # a family: its docstring stands below that of the method
        (first, *own), rest = _paragraphs(code) or [entry.title], whole
        rest = [*own, *rest]
        if sum(other.code == entry.code for other in of_module) > 1:  # the settings tell them apart
            first = " ".join([first, *_paragraphs(entry.settings)[:1]])
    if entry.adaptive:
        rest = [*rest, *_paragraphs(inspect.signature(code, eval_str=True).return_annotation)]
    return markdown(first), markdown("\n\n".join(rest))


def _paragraphs(thing: Any) -> list[str]:
    """The paragraphs of a docstring, an indented block being part of the one before it; without those on arguments."""
    text = inspect.cleandoc(thing.__doc__ or "")
    if isinstance(thing, type) and text.startswith(f"{thing.__name__}("):  # a dataclass's own signature
        return []
    found: list[str] = []
    for paragraph in text.split("\n\n"):
        if found and paragraph.startswith(" ") and "::" in found[-1]:
            found[-1] += "\n\n" + paragraph
        elif not (callable(thing) and re.match(r"[a-z_]+(, [a-z_]+)*: ", paragraph)):
            found.append(paragraph)
    return [paragraph for paragraph in found if paragraph]


def markdown(docstring: str) -> str:
    """A docstring as Markdown: blocks after ``::`` are fenced, code has single quotes, arXiv numbers are links."""
    parts: list[str] = []
    block: list[str] = []
    for paragraph in docstring.split("\n\n"):
        if paragraph.startswith("  ") and parts and parts[-1].endswith("::"):
            block.append(paragraph)
            continue
        if block:
            parts[-1:] = _fenced(parts[-1], block)
            block = []
        parts.append(_prose(paragraph))
    if block:
        parts[-1:] = _fenced(parts[-1], block)
    return "\n\n".join(parts)


def _fenced(before: str, block: Sequence[str]) -> list[str]:
    told = textwrap.dedent("\n\n".join(block)).replace("``", "")
    return [*([before[:-1]] if before.strip(":") else []), f"```text\n{told}\n```"]


def _prose(paragraph: str) -> str:
    text = re.sub(r"\n(?!- )\s*", " ", paragraph)  # one line a paragraph, or an item of a list
    text = re.sub(r"(?<!\n)\n(?=- )", "\n", text)
    if not text.startswith("- "):
        text = text.replace("\n- ", "\n\n- ", 1)
    text = re.sub(r"(?<=[.:])  +", " ", text)
    return re.sub(r"\barXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", _escaped(text))


def _escaped(text: str) -> str:
    """Double quotes of code as single ones; elsewhere what Markdown would take for markup is escaped."""
    parts = re.split(r"``(.+?)``", text, flags=re.DOTALL)
    plain = [re.sub(r"(?<=[\w)])\*(?=[\w(])", r"\\*", part.replace("<", "&lt;")) for part in parts[::2]]
    coded = [f"`{part}`" for part in parts[1::2]]
    return "".join(piece for pair in zip(plain, [*coded, ""], strict=True) for piece in pair)


# --- the command line ---------------------------------------------------------------------------------------------


def differing(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """The names of the files in a folder that are missing, too many, or of another text."""
    there = {path.name: path.read_text() for path in folder.glob("*")} if folder.is_dir() else {}
    return sorted(name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages that are not as they should be, or name them; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.method_pages", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is not as it should be")
    chosen = parser.parse_args(arguments)
    wanted = pages(recorded())
    wrong = differing(PAGES, wanted)
    for name in wrong:
        print(f"{(PAGES / name).relative_to(ROOT)}: {'is not' if chosen.check else 'was not'} as the code has it")
        if not chosen.check:
            PAGES.mkdir(parents=True, exist_ok=True)
            if name in wanted:
                (PAGES / name).write_text(wanted[name])
            else:
                (PAGES / name).unlink()
    return int(bool(wrong) and chosen.check)


if __name__ == "__main__":
    sys.exit(main())
