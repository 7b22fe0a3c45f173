"""The steps of ``benchmarks.gpu.steps`` within a time: ``benchmarks/gpu/run [STEP ...] [--rehearse] [--minutes 27]``.

It uses only the standard library: packages that a machine lacks are installed by pip, from a folder and without a
network, into a temporary folder that the steps find on PYTHONPATH; torch, Triton and NumPy are never among them. A
command that fails, hangs or is killed costs its own result.

Each step leaves ``STEP.log`` (as it goes) and ``STEP.json`` (after each of its commands) with the device, the versions,
the commit, the seconds, the exit code, whether it ran into its limit, and of every command its last line that is a JSON
object, and its last lines where it failed. ``all.json`` has them all, and under ``earlier`` the records that an earlier
call left in the folder. The exit code is 0, 1 where a step failed, none was begun or a rehearsal took too long, 2 where
nothing could begin, 130 where it was interrupted (SIGINT, SIGTERM, SIGHUP).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.gpu import data, prepare, processes, wheels
from benchmarks.gpu.machine import BUILD_S, CannotBegin, Machine, build_kernels, machine
from benchmarks.gpu.one_step import Record, carry_out, sentence
from benchmarks.gpu.steps import REHEARSAL_MINUTES, STEPS, TOTAL_MINUTES, Step, chosen
from files import atomic

ROOT = Path(__file__).parents[2]
LEAST_SHARE = 1 / 3  # share of its limit: with less time left, a step is not begun
INTERRUPTED = 130


# --- words and files ---


def say(text: str, stream: Any = None) -> None:
    """Print a line at once; nobody gets it where the terminal or the pipe has gone meanwhile."""
    try:
        print(text, file=stream or sys.stdout, flush=True)
    except OSError:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  for the rest of this process


def write(place: Path, content: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    atomic.write_text(place, json.dumps(content, indent=1, allow_nan=False) + "\n")


def earlier(out: Path, names: Sequence[str]) -> dict[str, Any]:
    """The records of an earlier call, except those of steps that are asked for now, whose files are removed."""
    before: dict[str, Any] = {}
    with suppress(OSError, ValueError, AttributeError):
        content = json.loads((out / "all.json").read_text())
        before = {**content.get("earlier", {}), **content["steps"]}
    for name in names:
        for suffix in (".json", ".log", ".part"):
            (out / f"{name}{suffix}").unlink(missing_ok=True)
    return {name: record for name, record in before.items() if name not in names and "skipped" not in record}


def pack(out: Path, names: Sequence[str]) -> None:
    """Leave all.json and logs.tar.gz, which keeps the logs of steps that an earlier call ran."""
    logs, part = out / "logs.tar.gz", out / "logs.part"
    with tarfile.open(part, "w:gz") as archive:
        with suppress(OSError, tarfile.TarError), tarfile.open(logs) as before:
            for member in before:
                if member.name.removesuffix(".log") not in names:
                    archive.addfile(member, before.extractfile(member))
        for name in names:
            with suppress(FileNotFoundError):
                archive.add(out / f"{name}.log", f"{name}.log")
    part.replace(logs)
    for name in names:
        for suffix in (".log", ".json"):
            (out / f"{name}{suffix}").unlink(missing_ok=True)


# --- all steps ---


def go(
    steps: Sequence[Step], found: Machine, out: Path, *, rehearse: bool, until: float, environment: Mapping[str, str]
) -> int:
    """Take every step, write its record after each command, and return the exit code.

    until: by ``time.monotonic``.
    """
    before = earlier(out, [step.name for step in steps])
    records: dict[str, Record] = {}
    interrupted = broken = False

    def save(record: Record) -> None:
        records[record["step"]] = found | record | {"rehearsal": rehearse}
        write(out / f"{record['step']}.json", records[record["step"]])
        write(out / "all.json", {"machine": found, "steps": records, "earlier": before})

    for step in steps:
        commands = step.rehearsal if rehearse else step.commands
        limit_s = sum(command.limit_s for command in commands)
        left = until - time.monotonic()
        if interrupted or left < (0 if rehearse else LEAST_SHARE * limit_s):
            why = "interrupted" if interrupted else f"{max(left, 0):.0f} s are left, its limit is {limit_s:.0f} s"
            records[step.name] = {"step": step.name, "skipped": why}
            say(f"{step.name}: skipped, {why}")
            continue
        try:
            record = carry_out(step.name, commands, out / f"{step.name}.log", min(limit_s, left), environment, save)
            interrupted = record["interrupted"]
            say(sentence(record))
        except KeyboardInterrupt:  # between two commands
            interrupted = True
            say(f"{step.name}: interrupted")
        except OSError as error:  # no place is left, or the folder has gone
            broken = True
            say(f"{step.name}: FAILED, its record could not be written ({error})")
    with suppress(OSError):
        write(out / "all.json", {"machine": found, "steps": records, "earlier": before})
    if interrupted:
        return INTERRUPTED
    begun = [record for record in records.values() if "skipped" not in record]
    if not begun:
        say("benchmarks/gpu/run: no step had the time to begin, so nothing was measured", sys.stderr)
    return int(broken or not begun or any(record["failed"] or record["unfinished"] for record in begun))


# --- the command line ---


def _minutes(options: argparse.Namespace) -> float:
    text = options.minutes or str(REHEARSAL_MINUTES if options.rehearse else TOTAL_MINUTES)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise CannotBegin(f"--minutes {text}: must be a number of minutes above 0")
    return number


def _place(text: str) -> Path:
    """A path as its user means it: the shell script has changed the folder."""
    return Path(os.environ.get(prepare.FROM) or Path.cwd()) / text


def _folder(options: argparse.Namespace) -> Path:
    """An absolute path that files can be written to."""
    named = options.out or os.environ.get("OUT")
    out = _place(named) if named else ROOT / "results" / ("rehearsal" if options.rehearse else "gpu")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise CannotBegin(f"--out {named or out}: no files can be written there ({error.strerror})") from error
    return out


def _environment(site: str, out: Path, *, rehearse: bool) -> dict[str, str]:
    """The environment of the steps: what was installed for them first, then this checkout, then the machine's own."""
    paths = [site, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "OUT": str(out)}
    if not os.access(os.path.expanduser("~"), os.W_OK):  # Triton keeps its compiled kernels there
        environment.setdefault("TRITON_CACHE_DIR", f"{site}/triton")
    if rehearse:  # beside others on few cores, threads that wait for each other take ten times as long
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return environment


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop at the first interrupt and ignore later ones, so that the last words can be written."""
    del number, frame
    for each in INTERRUPTS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command_line(steps: Sequence[Step] = STEPS) -> argparse.ArgumentParser:
    """The options of ``benchmarks/gpu/run``."""
    listed = "\n".join(f"  {step.name:10} {step.told} ({step.limit_s / 60:.1f} minutes at most)" for step in steps)
    parser = argparse.ArgumentParser(
        prog="benchmarks/gpu/run",
        description=f"{(__doc__ or '').splitlines()[0]}\n\nsteps, most valuable first:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="all, unless some are named")
    parser.add_argument(
        "--out", help="folder of the results (default: $OUT, else results/gpu, of a rehearsal results/rehearsal)"
    )
    parser.add_argument("--rehearse", action="store_true", help="every step in small, without a GPU")
    parser.add_argument(
        "--minutes",
        help=f"for everything ({TOTAL_MINUTES:g}; {REHEARSAL_MINUTES:g} for a rehearsal, which fails beyond them)",
    )
    parser.add_argument("--wheels", help="folder of what benchmarks/gpu/prepare collected (wheels in the checkout)")
    parser.add_argument("--pack", action="store_true", help="leave two files only: all.json and logs.tar.gz")
    return parser


def _describe(found: Machine, out: Path, needed: Mapping[str, Path], refused: Sequence[str]) -> None:
    """Print what the steps run on."""
    versions = ", ".join(
        f"{name} {found.get(name)}" for name in ("torch", "triton", "numpy", "scipy", "torchvision", "python")
    )
    say(f"{found['device']}; {versions}; results in {out}")
    bounds = wheels.bounds_of()
    for name in wheels.KEPT:
        if why := wheels.refused_version(name, bounds):
            say(f"{name} {why}, the project's bound; it is used as it is")
    installed = [name for name in needed if name not in refused]
    lacking = wheels.lacking((*prepare.PURE, *prepare.COMPILED, "torchvision"), installed)
    for what, names in (
        ("installed for these steps", installed),
        ("could not be installed", refused),
        ("neither here nor among the wheels, so that steps may fail (train needs torchvision)", lacking),
    ):
        if names:
            say(f"{what}: {', '.join(names)}")


def measure(options: argparse.Namespace, steps: tuple[Step, ...], look: Callable[..., Machine], began: float) -> int:
    """Take the measurements that were asked for; returns the exit code."""
    minutes = _minutes(options)
    until = began + 60 * minutes
    try:
        wanted = chosen(options.steps, steps)
    except ValueError as error:
        raise CannotBegin(str(error)) from None
    out = _folder(options)
    with tempfile.TemporaryDirectory(prefix="nuq-gpu-") as site:
        environment = _environment(site, out, rehearse=options.rehearse)
        folder = _place(options.wheels) if options.wheels else ROOT / "wheels"
        needed = wheels.missing(folder)
        refused = wheels.install(needed, Path(site))
        found = look(environment)
        if not (found["gpu"] or options.rehearse):
            raise CannotBegin(
                "this machine has no GPU that torch can use: --rehearse runs every step in small without one"
            )
        _describe(found, out, needed, refused)
        if options.wheels and not folder.is_dir():
            say(f"--wheels {options.wheels}: no such folder, so nothing is taken from it")
        if any(step.pictures for step in wanted):
            place, said = data.environment_of(folder, Path(site), os.environ, _place(""))
            environment |= place
            say(said or "CIFAR-10 as this machine has it")
        if said := build_kernels(environment, min(BUILD_S, (until - time.monotonic()) / 3)) if look is machine else "":
            say(said)
        code = go(wanted, found, out, rehearse=options.rehearse, until=until, environment=environment)
    if options.rehearse and code != INTERRUPTED and time.monotonic() > until:
        say(f"benchmarks/gpu/run: the rehearsal did not end within {minutes:g} minutes, so it failed", sys.stderr)
        code = 1
    if options.pack:
        pack(out, [step.name for step in wanted])
    return code


def main(
    arguments: Sequence[str] | None = None, steps: tuple[Step, ...] = STEPS, look: Callable[..., Machine] = machine
) -> int:
    """Run the steps that were asked for; returns the exit code.

    steps, look: others for tests.
    """
    options = command_line(steps).parse_args(arguments)
    for number in INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
            signal.signal(number, _interrupt)
    processes.adopt_orphans()
    try:
        return measure(options, steps, look, time.monotonic())
    except CannotBegin as error:
        say(f"benchmarks/gpu/run: {error}", sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("benchmarks/gpu/run: interrupted", sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
