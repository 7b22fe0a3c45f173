"""Jobs whose scripts bash runs, each to its end in a moment of virtual time."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from tests.virtual_slurm import answers
from tests.virtual_slurm.processes import Life

real_time = time.time
SCONTROL = """#!/bin/sh
case "$1 $2" in
  "show job") cat {folder}/shown ;;
  "show hostnames") echo n1 ;;
  requeue*) echo "$2" >>{folder}/requeued ;;
esac
"""


class Real(Life):
    """One start of a batch script: bash runs it at once, and its end is told after the time that it took."""

    def begin(self) -> None:
        cluster, job = self.cluster, self.job
        self.signals: list[str] = []
        began = real_time()
        with tempfile.TemporaryDirectory(prefix="job-") as made:
            folder = Path(made)
            script, scontrol = folder / "slurm_script", folder / "scontrol"
            script.write_text(job.script)
            scontrol.write_text(SCONTROL.format(folder=shlex.quote(made)))
            scontrol.chmod(0o755)
            (folder / "shown").write_text(answers.shown(job))
            outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
            own = {
                "PATH": f"{made}:{outer['PATH']}",
                "SLURM_JOB_ID": str(job.number),
                "SLURM_JOB_NODELIST": job.nodes[0],
                "SLURMD_NODENAME": job.nodes[0],
                **({"SLURM_RESTART_COUNT": str(job.restarts)} if job.restarts else {}),
            }
            if job.index is not None:
                own |= {"SLURM_ARRAY_JOB_ID": str(job.array), "SLURM_ARRAY_TASK_ID": str(job.index)}
            with job.log.open("a") as log:
                code = subprocess.run(
                    ["bash", str(script)], cwd="/", env={**outer, **own}, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log, check=False,
                ).returncode  # fmt: skip
            asked = (folder / "requeued").exists()
        self.cluster.at(cluster.now + real_time() - began, lambda: self._over(code, asked=asked))

    def _over(self, code: int, *, asked: bool) -> None:
        if asked:
            assert not self.cluster.requeue(self.job)
        self.cluster.over(self.job, self, code)

    def signal(self, name: str, *, batch: bool = False) -> None:
        """It has ended already."""

    def kill(self) -> None:
        """It has ended already."""
