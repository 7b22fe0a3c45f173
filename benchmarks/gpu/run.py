"""The steps of ``benchmarks.gpu.steps`` within a time: ``benchmarks/gpu/run [STEP ...] [--rehearse] [--minutes 25]``.

Only the standard library: what a machine lacks is installed by pip, from a folder and without a network, into a
temporary folder that the steps find on PYTHONPATH; torch, Triton and NumPy are never among it. A step that fails,
hangs or is killed costs its own result.

Each step leaves ``STEP.log`` (as it goes) and ``STEP.json`` (as soon as it ends) with the device, the versions, the
seconds, the exit code, whether it ran into its limit, and of every command its last line where that is a JSON object,
else its last lines. ``all.json`` has them all. Exit code: 0, 1 where a step failed, 2 where nothing could begin, 130
where it was interrupted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.gpu import processes
from benchmarks.gpu.steps import STEPS, TOTAL_MINUTES, Step, chosen

ROOT = Path(__file__).parents[2]
KEPT = ("torch", "triton", "numpy")  # of the machine, and never replaced
LEAST_SHARE = 1 / 3  # of its limit: with less time left, a step is not begun
LAST_LINES, TAIL_BYTES = 12, 4 << 20
START_S, BUILD_S = 120.0, 300.0  # limits of looking at the machine and of compiling the C++ kernels
PROBE = """
import json, platform, torch
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
found = {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
print(json.dumps(found | {name: version(name) for name in ("triton", "numpy")}))
"""
BUILT = "import sys; from nuq import native; sys.exit(native.library() is None)"

Machine = dict[str, Any]  # device (a name), gpu (None without), torch, cuda, triton, numpy, python


class CannotBegin(Exception):
    """What a user has to change before anything can be measured: one sentence."""


# --- the machine ---


def machine(environment: Mapping[str, str]) -> Machine:
    """What this Python's torch sees.  CannotBegin where there is no torch."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], env=dict(environment), capture_output=True, text=True, timeout=START_S
        )
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        why = (done.stderr.strip().splitlines() or ["no word"])[-1]
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        found, why = None, str(error)
    if found is None:
        raise CannotBegin(f"{sys.executable} cannot use torch ({why}): name another one with PYTHON=/path/to/python")
    return {"device": found["gpu"] or _cpu(), **found}


def _cpu() -> str:
    """The processor's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine


def missing(wheels: Path) -> dict[str, Path]:
    """The wheels of a folder whose package this Python has not, by package; of several versions the last by name."""
    if not wheels.is_dir():
        return {}
    found = {}
    for wheel in sorted(wheels.glob("*.whl")):
        name = wheel.name.partition("-")[0].replace("_", "-").lower()
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name not in KEPT:
                found[name] = wheel
    return found


def install(wheels: Mapping[str, Path], target: Path) -> list[str]:
    """Into a folder, from the wheels alone; the names of those that pip refused."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--target",
    ]

    def installed(*paths: Path) -> bool:
        return (
            subprocess.run(
                [*pip, str(target), *map(str, paths)], stdin=subprocess.DEVNULL, capture_output=True
            ).returncode
            == 0
        )

    if not wheels or installed(*wheels.values()):
        return []
    return [name for name, wheel in wheels.items() if not installed(wheel)]


def build_kernels(environment: Mapping[str, str]) -> str:
    """Compile the C++ kernels where they are not there; what to tell if that fails, else nothing."""
    try:
        if subprocess.run(
            [sys.executable, "-c", BUILT], env=dict(environment), cwd=ROOT, capture_output=True, timeout=START_S
        ).returncode:
            command = [sys.executable, "-m", "nuq.native"]
            done = subprocess.run(
                command, env=dict(environment), cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S
            )
            if done.returncode:
                return f"the C++ kernels were not built: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"
    except subprocess.TimeoutExpired as error:
        return f"the C++ kernels were not built: {error.timeout:.0f} s were not enough"
    return ""


# --- one step ---


def told(log: Path, start: int) -> Any:
    """What a command said from ``start`` on: its last line where that is a JSON object, else its last lines."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - TAIL_BYTES))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    with suppress(ValueError, IndexError, RecursionError):
        found = json.loads(lines[-1], parse_constant=str)  # NaN and Infinity are no JSON: as texts
        if isinstance(found, dict):
            return found
    return [line[:500] for line in lines[-LAST_LINES:]]


def carry_out(
    step: Step, commands: Sequence[Sequence[str]], out: Path, limit_s: float, environment: Mapping[str, str]
) -> dict[str, Any]:
    """A step's record; everything it says is in its log."""
    log, ends, began = out / f"{step.name}.log", [], time.monotonic()
    record: dict[str, Any] = {
        "step": step.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "limit_s": round(limit_s, 1),
    }
    with log.open("wb", buffering=0) as file:
        for command in commands:
            left = limit_s - (time.monotonic() - began)
            if left <= 0:
                ends.append(
                    {"command": " ".join(command), "exit_code": None, "timed_out": True, "result": "no time was left"}
                )
                continue
            file.write(f"$ python {' '.join(command)}\n".encode())
            start = file.tell()
            one: dict[str, Any] = {"command": " ".join(command)}
            try:
                ended = processes.run(
                    [sys.executable, *command], file, limit_s=left, folder=ROOT, environment=environment
                )
            except KeyboardInterrupt:
                ends.append(
                    {**one, "exit_code": None, "timed_out": False, "interrupted": True, "result": told(log, start)}
                )
                break
            one |= {"seconds": round(ended.seconds, 2), "exit_code": ended.exit_code, "timed_out": ended.timed_out}
            ends.append({**one, "result": told(log, start)})
            file.seek(0, os.SEEK_END)
    failed = [one for one in ends if one["exit_code"] != 0]
    return {
        **record,
        "seconds": round(time.monotonic() - began, 2),
        "exit_code": failed[0]["exit_code"] if failed else 0,
        "timed_out": any(one["timed_out"] for one in ends),
        "failed": bool(failed),
        "interrupted": any("interrupted" in one for one in ends),
        "commands": ends,
    }


def sentence(record: Mapping[str, Any]) -> str:
    """How a step ended, in one line."""
    name, seconds = record["step"], record["seconds"]
    if record["interrupted"]:
        return f"{name}: interrupted after {seconds:.0f} s"
    if not record["failed"]:
        return f"{name}: done in {seconds:.0f} s"
    bad = next(one for one in record["commands"] if one["exit_code"] != 0)
    if bad["timed_out"]:
        how = f"killed at its limit of {record['limit_s']:.0f} s"
    elif bad["exit_code"] < 0:
        with suppress(ValueError):
            return (
                f"{name}: FAILED, killed by {signal.Signals(-bad['exit_code']).name} after {seconds:.0f} s; see "
                f"{name}.log"
            )
        how = f"killed by signal {-bad['exit_code']}"
    else:
        how = f"exit code {bad['exit_code']}"
    return f"{name}: FAILED, {how} after {seconds:.0f} s (python {bad['command'][:80]}); see {name}.log"


# --- all steps ---


def write(place: Path, content: Any) -> None:
    """JSON, whole or not at all."""
    part = place.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(place)


def go(
    steps: Sequence[Step], found: Machine, out: Path, *, rehearse: bool, until: float, environment: Mapping[str, str]
) -> int:
    """Every step, its record written at once; the exit code.  until: by ``time.monotonic``."""
    records: dict[str, Any] = {}
    code = 0
    for step in steps:
        left = until - time.monotonic()
        if code == 130 or left < LEAST_SHARE * step.limit_s:
            why = "interrupted" if code == 130 else f"{max(left, 0):.0f} s are left, its limit is {step.limit_s:.0f} s"
            records[step.name] = {"step": step.name, "skipped": why}
            print(f"{step.name}: skipped, {why}", flush=True)
        else:
            commands = step.rehearsal if rehearse else step.commands
            record = (
                found | carry_out(step, commands, out, min(step.limit_s, left), environment) | {"rehearsal": rehearse}
            )
            records[step.name] = record
            write(out / f"{step.name}.json", record)
            print(sentence(record), flush=True)
            code = 130 if record["interrupted"] else code or int(record["failed"])
        write(out / "all.json", {"machine": found, "steps": records})
    return code


def pack(out: Path, names: Sequence[str]) -> None:
    """Leave all.json and logs.tar.gz."""
    with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
        for name in names:
            with suppress(FileNotFoundError):
                archive.add(out / f"{name}.log", f"{name}.log")
    for name in names:
        for suffix in (".log", ".json"):
            (out / f"{name}{suffix}").unlink(missing_ok=True)


def _minutes(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise CannotBegin(f"--minutes {text}: must be a number of minutes above 0")
    return number


def _folder(text: str) -> Path:
    """An absolute path that files can be written to."""
    out = Path(text).absolute()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise CannotBegin(f"--out {text}: no files can be written there ({error.strerror})") from error
    return out


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def command_line(steps: Sequence[Step] = STEPS) -> argparse.ArgumentParser:
    """What ``benchmarks/gpu/run`` takes."""
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
    parser.add_argument("--minutes", default=str(TOTAL_MINUTES), help=f"for everything ({TOTAL_MINUTES:g})")
    parser.add_argument("--wheels", default="wheels", help="folder of what benchmarks/gpu/prepare collected (wheels)")
    parser.add_argument("--pack", action="store_true", help="leave two files only: all.json and logs.tar.gz")
    return parser


def main(
    arguments: Sequence[str] | None = None, steps: tuple[Step, ...] = STEPS, look: Callable[..., Machine] = machine
) -> int:
    """Run what was asked for; the exit code.  steps, look: others for tests."""
    options = command_line(steps).parse_args(arguments)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    processes.adopt_orphans()
    try:
        until = began + 60 * _minutes(options.minutes)
        try:
            wanted = chosen(options.steps, steps)
        except ValueError as error:
            raise CannotBegin(str(error)) from None
        out = _folder(
            options.out or os.environ.get("OUT") or ("results/rehearsal" if options.rehearse else "results/gpu")
        )
        with tempfile.TemporaryDirectory(prefix="nuq-gpu-") as site:
            environment = {
                **os.environ,
                "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
                "PYTHONUNBUFFERED": "1",
                "OUT": str(out),
            }
            if options.rehearse:  # beside others on few cores, threads that wait for each other take ten times as long
                environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            wheels = missing(Path(options.wheels))
            refused = install(wheels, Path(site))
            found = look(environment)
            if not (found["gpu"] or options.rehearse):
                raise CannotBegin(
                    "this machine has no GPU that torch can use: --rehearse runs every step in small without one"
                )
            print(
                f"{found['device']}; torch {found['torch']}, Triton {found['triton']}, Python {found['python']}; "
                f"results in {out}"
            )
            for what, names in (
                ("installed for these steps", [name for name in wheels if name not in refused]),
                ("pip refused", refused),
            ):
                if names:
                    print(f"{what}: {', '.join(names)}", flush=True)
            if said := build_kernels(environment) if look is machine else "":
                print(said, flush=True)
            code = go(wanted, found, out, rehearse=options.rehearse, until=until, environment=environment)
        if options.pack:
            pack(out, [step.name for step in wanted])
    except CannotBegin as error:
        print(f"benchmarks/gpu/run: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks/gpu/run: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
