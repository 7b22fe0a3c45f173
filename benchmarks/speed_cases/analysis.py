"""The time to load the logs of a sweep, against TensorBoard's own reader.

The sweep has 2,000 runs of 10 tags and 1,000 steps, one in twenty of them requeued, with settings and states: a few
event files are written by the library that training writes with, and copied with other values and times (and their
checksums).  Our reader loads all of it in a process of its own: with no cache of ours, with nothing changed, and after
20 runs have logged more; TensorBoard's EventAccumulator reads a sample of the same runs in turns with it (its time is
scaled up).  The page cache of the operating system is warm in all of these, and cold in one more.  The figures are
medians over the turns with the smallest and the largest; the values are compared with TensorBoard's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from analysis.logs.crc32c import crc32c, masked
from analysis.logs.framing import FOOTER, HEADER, records
from benchmarks.timing import print_rows, summary
from settings import resolving

SWEEP = "bench"
TAGS = ("loss", "Vloss", "Tloss", "Vacc", "est_var", "sgd_var", "nb_error", "comm/bytes", "levels/1", "levels/2")
REQUEUED = 20  # one run in so many
CHANGED = 20


# --- the sweep ----------------------------------------------------------------------------------------------------


class Template:
    """An event file that was really written, and the indices of its times and values."""

    def __init__(self, folder: Path, steps: Sequence[int]) -> None:
        from tensorboardX import SummaryWriter

        writer = SummaryWriter(str(folder))
        for step in steps:
            for tag in TAGS:
                writer.add_scalar(tag, 0.0, step)
        writer.close()
        (path,) = folder.glob("events.*")
        self.data = np.frombuffer(path.read_bytes(), np.uint8)
        found = records(self.data.tobytes())
        start, length = found.start[1:] + HEADER, found.length[1:]  # the first record is the file's version
        self.groups = [
            (int(size), start[length == size][:, None] + np.arange(size + FOOTER)) for size in np.unique(length)
        ]

    def copy(self, rng: np.random.Generator) -> np.ndarray:
        """A copy of the file with other values and times."""
        data, later = self.data.copy(), rng.uniform(0, 1e6)
        for size, indices in self.groups:
            rows = data[indices]
            times = np.ascontiguousarray(rows[:, 1:9]).view("<f8") + later
            values = rng.lognormal(0, 3, (len(rows), 1)).astype("<f4")
            rows[:, 1:9], rows[:, size - 4 : size] = times.view(np.uint8), values.view(np.uint8)
            rows[:, size:] = masked(crc32c(rows.T[:size])).astype("<u4")[:, None].view(np.uint8)
            data[indices] = rows
        return data


def make(sweep: Path, num_runs: int, steps: int, rng: np.random.Generator) -> Template:
    """Write the runs; returns the template of what some of them log later on."""
    with tempfile.TemporaryDirectory() as folder:
        spans = {
            "whole": (0, steps),
            "first": (0, steps * 6 // 10),
            "second": (steps // 2, steps),
            "more": (steps, steps + 10),
        }
        templates = {name: Template(Path(folder) / name, range(*span)) for name, span in spans.items()}
    methods, widths, sizes, rates = (
        ("alq", "alq_n", "amq", "qsgd", "nuqsgd"),
        range(2, 7),
        (512, 8192),
        (0.01, 0.02, 0.05, 0.1),
    )
    points = [(method, bits, size, rate) for method in methods for bits in widths for size in sizes for rate in rates]
    for number in range(num_runs):
        method, bits, size, rate = points[number // 10 % len(points)]
        seed = number % 10 + 1 + number // (10 * len(points)) * 10
        values = {
            "method": method,
            "method.bits": bits,
            "method.bucket_size": size,
            "optim.lr": rate,
            "seed": seed,
            "steps": steps,
        }
        folder = sweep / f"{method}-{bits}b-run{number:05d}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(
            yaml.dump(resolving.resolve(values), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
        )
        (folder / "status.json").write_text(
            json.dumps({"state": "done", "attempt": 1, "seconds": 50.0, "step": steps, "steps": steps})
        )
        names = ("first", "second") if number % REQUEUED == REQUEUED - 1 else ("whole",)
        for attempt, name in enumerate(names, 1):
            templates[name].copy(rng).tofile(folder / f"events.out.tfevents.{1700000000 + attempt}.bench.a{attempt}")
    return templates["more"]


def log_more(sweep: Path, more: Template, num: int, rng: np.random.Generator) -> None:
    """Let runs spread over the sweep log ten steps more."""
    folders = sorted(path for path in sweep.iterdir() if path.is_dir())
    version = int(records(more.data.tobytes()).start[1])
    for folder in folders[:: max(1, len(folders) // num)][:num]:
        path = max(folder.glob("events.*"))
        with path.open("ab") as file:
            file.write(more.copy(rng)[version:].tobytes())


def forget(sweep: Path) -> None:
    """Have the operating system drop the event files from its memory."""
    os.sync()
    for path in sweep.rglob("events.*"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# --- what is timed ------------------------------------------------------------------------------------------------


def load_once(runs: Path) -> dict[str, Any]:
    """The seconds of loading and of the first questions in a process of its own, and the number of rows."""
    from analysis.groups.seed_groups import groups
    from analysis.logs.load import load

    times = [time.perf_counter()]
    logs = load(runs, SWEEP)
    num_rows = len(logs.scalars)
    times.append(time.perf_counter())
    logs.of_tag(TAGS[3])
    times.append(time.perf_counter())
    groups(logs)
    times.append(time.perf_counter())
    names = ("load_s", "of_tag_s", "groups_s")
    return {**dict(zip(names, np.diff(times).tolist(), strict=True)), "rows": num_rows, "notes": len(logs.notes)}


def tree_bytes(pid: int) -> int:
    """The resident memory of a process and of those that it started; pages that they share count for each."""
    with contextlib.suppress(OSError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return pages * os.sysconf("SC_PAGE_SIZE") + sum(tree_bytes(int(child)) for child in children)
    return 0


def timed(runs: Path) -> dict[str, Any]:
    """The result of ``load_once`` in a fresh process, and the peak memory of it and its children in GB."""
    command = [sys.executable, "-m", "benchmarks.speed_cases.analysis", str(runs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            peak.append(tree_bytes(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    ended.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"loading ended with exit code {process.returncode}")
    return {**json.loads(out.splitlines()[-1]), "peak_gb": max(peak) / 1e9}


def tensorboard(folders: Sequence[Path]) -> tuple[float, list[dict[str, Any]]]:
    """The seconds of TensorBoard's reader for these runs, and the events of every tag of each."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    begin = time.perf_counter()
    read = []
    for folder in folders:
        accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        accumulator.Reload()
        read.append({tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]})
    return time.perf_counter() - begin, read


def differing(runs: Path, folders: Sequence[Path], read: Sequence[dict[str, Any]]) -> int:
    """The number of TensorBoard's scalars that our reader reads otherwise, or not at all."""
    from analysis.logs.load import load

    rows = load(runs, SWEEP).keep([folder.name for folder in folders]).scalars
    wrong = 0
    for folder, theirs in zip(folders, read, strict=True):
        ours = rows.loc[rows["run"] == folder.name]
        for tag, events in theirs.items():
            of_tag = (ours["tag"] == tag).to_numpy()
            own = np.stack([ours[name].to_numpy(float)[of_tag] for name in ("step", "wall_time", "value")], axis=1)
            their = np.array([(event.step, event.wall_time, event.value) for event in events])
            wrong += int((own != their).any(axis=1).sum()) if own.shape == their.shape else len(their)
    return wrong


def measure(runs: Path, num_runs: int, steps: int, turns: int, sample: int) -> dict[str, Any]:
    """Measure all figures of the table; ``runs`` is an empty folder."""
    rng, sweep = np.random.default_rng(0), runs / SWEEP
    more = make(sweep, num_runs, steps, rng)
    whole = [sweep / name for name in sorted(os.listdir(sweep)) if len(list((sweep / name).glob("events.*"))) == 1]
    num_bytes = sum(path.stat().st_size for path in sweep.rglob("events.*"))
    print(f"{num_runs} runs, {num_bytes / 1e9:.2f} GB of event files; median (smallest - largest) of {turns} turns")
    time.sleep(1.1)  # files that changed within a second of being read are read again
    tensorboard(whole[:1])  # imports
    found: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": [], "incremental": []}
    theirs: list[float] = []
    wrong = 0
    for turn in range(turns):
        chosen = [whole[index] for index in rng.choice(len(whole), min(sample, len(whole)), replace=False)]
        shutil.rmtree(runs / ".cache", ignore_errors=True)
        found["cold"].append(timed(runs))
        seconds, read = tensorboard(chosen)
        theirs.append(seconds * num_runs / len(chosen))
        found["warm"].append(timed(runs))
        if turn == 0:
            wrong = differing(runs, chosen, read)
        if turn < turns - 1:
            log_more(sweep, more, CHANGED, rng)
            found["incremental"].append(timed(runs))
            time.sleep(1.1)
    shutil.rmtree(runs / ".cache", ignore_errors=True)
    forget(sweep)
    from_disk = timed(runs)["load_s"]
    figures: dict[str, Any] = {
        f"{kind}_s": summary([one["load_s"] for one in some]) for kind, some in found.items() if some
    }
    figures["tensorboard_s"] = summary(theirs)
    figures["speedup"] = summary([their / one["load_s"] for their, one in zip(theirs, found["cold"], strict=True)])
    figures["of_tag_s"] = summary([one["of_tag_s"] for some in found.values() for one in some])
    figures["groups_s"] = summary([one["groups_s"] for some in found.values() for one in some])
    figures |= {f"peak_{kind}_gb": summary([one["peak_gb"] for one in some]) for kind, some in found.items() if some}
    return {
        **figures,
        "from_disk_s": round(from_disk, 3),
        "rows": found["cold"][0]["rows"],
        "values_that_differ": wrong,
    }


def figures(runs: int, steps: int, turns: int, sample: int, folder: Path | None) -> dict[str, Any]:
    """The seconds of our reader and of TensorBoard's, and the peaks of memory."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        found = measure(Path(place), runs, steps, turns, sample)
    print_rows("", {name: {"": value} for name, value in found.items()})
    last = {f"load_{runs}_{kind}_s": found[f"{kind}_s"]["median"] for kind in ("cold", "warm")}
    last["speedup_vs_tensorboard"] = found["speedup"]["median"]
    last["peak_gb"] = max(value["high"] for name, value in found.items() if name.startswith("peak_"))
    return {**last, "figures": found}


if __name__ == "__main__":
    print(json.dumps(load_once(Path(sys.argv[1]))))
