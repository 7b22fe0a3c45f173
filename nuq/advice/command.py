"""The command line of ``python -m nuq advise``."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nuq.prediction.units import duration, plain_break_even, quantity, shown_bandwidth, shown_gains
from nuq.registry import method
from nuq.settings import plugins, unknown

if TYPE_CHECKING:
    from nuq.advice.answer import Advice
    from nuq.advice.script import Observed

MOST_GRADIENTS = 8
MOST_SPREAD = 1.5  # of the timed steps: 1.04 to 1.46 where a core is free for every thread, 1.9 to 2.5 where none is
LEAST_SHARE = 0.8  # of a processor for a thread: 0.99 with a core for each, 0.5 where each core has other work
_COMMA = re.compile(r",(?![^\[]*\])")  # outside of brackets


def parser() -> argparse.ArgumentParser:
    """The options; what it does not know belongs to the script."""
    made = argparse.ArgumentParser(
        prog="python -m nuq advise",
        usage="python -m nuq advise [options] train.py [the script's own arguments]",
        description="Does gradient compression pay for this training script on this link? It runs some steps of an "
        "unchanged DDP script as the only rank, measures its computation, every method's encoding, decoding, bytes and "
        "error on its gradients, predicts the step on the link, and says what to add.",
        epilog="The script's own arguments come after its name. One that both have goes to advise; after -- all go to "
        "the script.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("script", type=Path, help="a script that trains with DistributedDataParallel")
    add("--link", default="1G", help="bit/s of a machine's link to the others, such as 400M or 10G (default: 1G)")
    add("--ranks", type=int, default=8, help="ranks of the training, each on a machine of its own (default: 8)")
    add(
        "--method",
        action="append",
        metavar="NAME[:SETTING=VALUE,..]",
        help="such as alq:bits=4; may be repeated (default: one method of every kind that may pay)",
    )
    add(plugins.OPTION, metavar="PACKAGE", help="a package of your own that adds methods; may be repeated")
    add("--json", action="store_true", help="print every figure as JSON; all else goes to stderr")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 with a sentence where there is no answer."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours = given.index("--") if "--" in given else len(given)
    try:
        options, of_script = read(plugins.start(given[:ours]))
        _answer(options, [*of_script, *given[ours + 1 :]])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def read(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the words that belong to the script; ValueError for an unknown option before its name."""
    made = parser()
    options, others = made.parse_known_args(words)
    for word in itertools.takewhile(lambda word: Path(word) != options.script, words):
        if word.startswith("-") and word in others:
            legal = [option for action in made._actions for option in action.option_strings]
            error = unknown("option before the script's name", word.partition("=")[0], legal)
            raise ValueError(f"{error}; the script's own options come after its name")
    return options, others


def _answer(options: argparse.Namespace, of_script: Sequence[str]) -> None:
    link = quantity(options.link, "--link")
    if options.ranks < 2:
        raise ValueError(f"--ranks {options.ranks}: must be at least 2, one rank exchanges nothing")
    asked = [_method(text) for text in options.method or ()]
    if twice := [text for text in options.method or () if options.method.count(text) > 1]:
        raise ValueError(f"--method {twice[0]}: is given twice")

    import torch

    from nuq.advice import network_rates
    from nuq.advice.answer import CANDIDATES, advice
    from nuq.advice.script import observed
    from nuq.prediction.steps import Network

    methods = asked or [(name, {}) for name in CANDIDATES]
    for name, settings in methods:
        _check(name, settings)  # before anything runs
    if not options.script.is_file():
        raise ValueError(f"{str(options.script)!r}: no such file; the script comes before its own arguments")

    def tell(line: str) -> None:
        print(f"advise: {line}", file=sys.stderr, flush=True)

    tell(f"running {options.script.name} as the only rank until enough steps were seen; it may write its files")
    with _alone() if options.json else contextlib.nullcontext(print) as write:
        with _told(options.script):
            seen = observed(options.script, of_script, min(options.ranks, MOST_GRADIENTS))
        tell("measuring the network's code on the loopback")
        network = network_rates.measured(torch.get_num_threads())
        found = advice(seen, network, methods, Network(options.ranks, link), tell)
        write(document(seen, found, link, options.ranks) if options.json else text(seen, found, link, options.ranks))


@contextlib.contextmanager
def _alone() -> Iterator[Callable[[str], object]]:
    """What writes to the output, while all else that is printed, also by other processes, goes to the errors."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield lambda text: os.write(kept, f"{text}\n".encode())
    finally:
        os.close(kept)  # what is printed at exit goes to the errors, too


def _check(name: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for a method, settings or a collective that no row can be of."""
    from nuq.advice.measured import COLLECTIVES
    from nuq.exchange.hook.settings import HookSettings

    if method(name).single_worker or name in ("supersgd", "bf16"):
        raise ValueError(
            f"--method {name}: all-reduces of fp32 and bf16 are in the table by themselves, and one worker's gradient "
            "alone is no mean; leave it out"
        )
    of = HookSettings.of(name, (), settings)
    if of.hook.gate:
        raise ValueError(f"--method {name}:gate=true: the gate measures by itself in the training; leave it out")
    collective = of.exchange.collective
    if collective not in COLLECTIVES:
        raise ValueError(f"--method {name}:collective={collective}: must be one of {', '.join(COLLECTIVES)} here")


def document(seen: Observed, found: Advice, link: float, ranks: int) -> str:
    """The answer for programs: JSON."""
    rows = [
        {"name": row.name, **vars(row), "break_even_bit_s": plain_break_even(row.break_even_bit_s)}
        for row in found.rows
    ]
    head = {"link_bit_s": link, "ranks": ranks, "compute_s": seen.compute_s, "parameters": seen.num_parameters}
    head |= {"modules": seen.num_modules, "plain": seen.plain, "gradients": len(seen.gradients), "spread": seen.spread}
    head["processor_share"] = seen.processor_share
    return json.dumps(
        {**head, "noise": found.noise, "recommended": found.recommended.name, "rows": rows}, allow_nan=False
    )


@contextlib.contextmanager
def _told(script: Path) -> Iterator[None]:
    """A script's own error with its traceback, and one sentence."""
    try:
        yield
    except Exception as error:
        from nuq.advice.script import CannotMeasure

        if isinstance(error, CannotMeasure):
            raise
        traceback.print_exc()
        raise ValueError(f"{script.name} ended with {type(error).__name__}: {error}") from error


def _method(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings of ``alq:bits=4,norm=linf``."""
    name, _, settings = text.partition(":")
    method(name)
    found = {}
    for word in _COMMA.split(settings) if settings else ():
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--method {text!r}: {word!r} must be SETTING=VALUE, as in alq:bits=4")
        if key in found:
            raise ValueError(f"--method {text!r}: {key} is given twice")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return name, found


def text(seen: Observed, found: Advice, link: float, ranks: int) -> str:
    """The answer for people: a table, quickest first, and the lines to add."""
    from nuq.advice.answer import MARKS

    width = max(28, *(len(row.name) for row in found.rows))
    lines = [
        f"{seen.num_parameters:,} parameters in {len(seen.buckets)} DDP buckets; a step computes for "
        f"{duration(seen.compute_s)} on this machine",
        f"Predicted on {ranks} ranks with links of {shown_bandwidth(link)}bit/s:",
        "",
        f"{'':{width}}{'step':>9}{'of bf16':>8}{'break-even':>16}{'MB sent':>9}{'error':>9}{'encode':>12}{'decode':>12}"
        "  collective",
    ]
    if seen.num_modules > 1:
        lines.insert(1, f"The script makes {seen.num_modules} DDP modules: this is of the first one alone.")
    base = next(row.step_s for row in found.rows if row.method == "bf16")
    for row in found.rows:
        even = "" if row.break_even_bit_s is None else shown_gains(row.pays_from_bit_s, row.break_even_bit_s)
        lines.append(
            f"{row.name:{width}}{duration(row.step_s):>9}{base / row.step_s:7.2f}x{even:>16}{row.bytes_sent / 1e6:9.3g}"
            f"{row.error:9.1g}{row.mark:1}{_shown(row.encode_s):>11}{_shown(row.decode_s):>12}  {row.collective}"
        )
    lines += [
        "",
        "of bf16: times as quick as a bfloat16 all-reduce. break-even: the bandwidths at which it is quicker.",
        f"error: of the mean of {len(seen.gradients)} gradients in one step, |error|^2 / |mean|^2; their own noise is "
        f"{found.noise:.1g}. Estimates from so few are good to a digit.",
    ]
    marks = {row.mark for row in found.rows}
    lines += [f"{mark}: {meaning}" for mark, meaning in MARKS.items() if mark in marks]
    if seen.spread > MOST_SPREAD:
        lines.append(
            f"The times are doubtful: a quarter of the timed steps took {seen.spread:.1f} times as long as the quickest"
            " or longer, since the machine has other work or the steps differ; run again on a quiet machine."
        )
    if seen.processor_share < LEAST_SHARE:
        lines.append(
            f"The times are doubtful: before the script ran, a thread that only computed got "
            f"{seen.processor_share:.0%} of a processor, since the machine has other work or fewer processors than "
            "threads; run again on a quiet machine, or with fewer threads (OMP_NUM_THREADS)."
        )
    return "\n".join([*lines, "", *_to_add(found)])


def _to_add(found: Advice) -> list[str]:
    from nuq.advice.answer import GAIN, NEVER
    from nuq.settings.feedback import HookFeedback, memory_kinds

    best, quickest = found.recommended, found.quickest
    fit = "whose error is below the gradients' own noise"
    if never := [mark for mark in NEVER if any(row.mark == mark for row in found.rows)]:
        fit += f" (not marked {' or '.join(never)})"
    lines = [f"Take {best.name}: of those {fit}, the quickest."]
    if best.method == found.plain:
        gain = f"{100 * (GAIN - 1):.0f} %"
        lines = [f"Leave the script as it is: nothing {fit} is {gain} quicker."]
    else:
        asked = dict(best.asked)
        moves_momentum = memory_kinds(asked.get("feedback", "auto"), [best.method]) == ["momentum"]
        if moves_momentum:
            asked.setdefault("momentum", HookFeedback().momentum)
        package = plugins.package_of(method(best.method))
        given = "".join(f", {key}={value!r}" for key, value in asked.items())
        how = f'method="{best.method}"{given}' if best.method != "bf16" else 'collective="dense"'
        lines += [
            "",
            *(f"    import {name}" for name in dict.fromkeys(["nuq", package])),
            f"    state = nuq.CompressionState(ddp, {how})",
            "    ddp.register_comm_hook(state, nuq.compress_hook)",
        ]
        if moves_momentum:
            lines += [
                "",
                "Take momentum out of your optimizer (SGD with momentum=0) and give yours to the state, 0 if you have",
                "none: it acts before the compression. In both at once it counts twice, and the training diverges.",
                'It is SGD\'s: with Adam and its like say feedback="error", and no momentum.',
            ]
    if quickest.step_s < best.step_s and quickest.mark == "!":
        lines += ["", f"{quickest.name} is quicker still, but its errors add up: ask for it with feedback=error."]
    elif quickest.step_s < best.step_s and quickest.error > found.noise:
        lines += ["", f"{quickest.name} is quicker still; see what its larger error does to your loss."]
    return lines


def _shown(seconds: float) -> str:
    return duration(seconds) if seconds >= 1e-6 else "0"
