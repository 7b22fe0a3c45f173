"""The files of a submission: the run folders, the job scripts, and the sbatch file of each array."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from files.atomic import write_text
from grid.engine.scripts import snapshot
from grid.engine.scripts.script import from_script, job_script
from grid.engine.slurm import sbatch_script
from grid.engine.slurm.site import Site
from grid.engine.states.ledger import Chunk, Submission
from settings.resources import Resources


def pinned(item: Submission, root: Path, plugins: Sequence[str]) -> Submission:
    """The submission with a snapshot of the code and these plug-ins as they are, made now, for its jobs to run."""
    code, path = snapshot.snapshot(root, plugins)
    return dataclasses.replace(item, code={**dataclasses.asdict(code), "path": path})


def sbatch_text(item: Submission, chunk: Chunk, root: Path, site: Site) -> str:
    """The sbatch file of a chunk with its present dependencies; those that are not submitted yet are named instead."""
    ids = [(how, item.chunk(name).job_id or f"<{name}>") for how, name in chunk.after]
    base = item.base(root, chunk).relative_to(root)
    return sbatch_script.sbatch_text(
        base.name if chunk.scripts else item.job_name(chunk),
        root,
        base,
        chunk.indices,
        Resources(**chunk.resources),
        site,
        code=item.code["path"],
        parallel=item.parallel,
        cap=chunk.cap,
        dependency=",".join(f"{how}:{job}" for how, job in ids) or None,
        is_original=bool(chunk.scripts),
    )


def write_scripts(item: Submission, chunk: Chunk, root: Path) -> None:
    """Write the job script of each element of an array."""
    base = item.base(root, chunk)
    (base.parent / "logs").mkdir(parents=True, exist_ok=True)
    checkout = from_script(len(base.relative_to(root).parents) - 1)
    for index, runs in chunk.indexed():
        text = job_script(item.title, runs, checkout, Resources(**chunk.resources), parallel=item.parallel)
        write_text(item.script(root, chunk, index), text, executable=True)


def write_sbatch(item: Submission, chunk: Chunk, root: Path, site: Site) -> Path:
    """Write the sbatch file of an array; returns its path."""
    path = item.sbatch(root, chunk)
    write_text(path, sbatch_text(item, chunk, root, site))
    return path


def write_chunk(item: Submission, chunk: Chunk, root: Path, site: Site) -> Path:
    """Write an array's job scripts and its sbatch file; returns the path of the sbatch file."""
    write_scripts(item, chunk, root)
    return write_sbatch(item, chunk, root, site)
