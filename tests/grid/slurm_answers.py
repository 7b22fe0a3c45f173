"""The answers of a real SLURM 22.05, and stand-ins on PATH that print them and note how they were asked."""

from __future__ import annotations

from pathlib import Path

# Printed by squeue -h -a -t all -o '%i|%T|%V|%S|%e|%N|%r' (and name and script after \x1f) with times as seconds.
QUEUE = """\
47_[6,9%2]|PENDING|1795278260|N/A|N/A||JobArrayTaskLimit
47_0|RUNNING|1795278260|1795278269|1826814269|n1|None
47_3|COMPLETING|1795278260|1795278269|1795278271|n1|None
22_0|FAILED|1795278190|1795278191|1795278191|n1|NonZeroExitCode
79|PENDING|N/A|1826814269|N/A||Nodes required for job are DOWN, DRAINED or reserved | see admin
55|CANCELLED|1795278190|1795278320|1795278320||JobHeldUser
"""
# Printed by sacct -X -P -n -o JobID,State,ExitCode,Start,End,NodeList,JobName.
ACCOUNTS = """\
16_8|CANCELLED by 1000|0:0|1795278231|1795278239|n2|exp
16_9|TIMEOUT|0:0|1795278231|1795278239|n2|exp
22_0|FAILED|3:0|1795278191|1795278191|n1|exp
27|FAILED|0:9|1795278195|1795278195|n1|exp
45_[0-2]|CANCELLED by 0|0:0|None|1795278239|None assigned|exp
46_1|OUT_OF_ME+|0:125|2026-11-21T16:25:02|2026-11-21T16:25:09|n1|exp
46_0|RUNNING|0:0|1795278269|Unknown|n1|exp
"""
CONFIG = """\
Configuration data as of 2026-11-21T16:24:30
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = throwaway
MaxArraySize            = 2001
MaxJobCount             = 10000
MinJobAge               = 300 sec
SLURM_VERSION           = 22.05.8
TaskPluginParam         = (null type)
"""


class Commands:
    """Stand-ins for SLURM's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, name: str, text: str, code: int = 0, error: str = "") -> None:
        """Let the command print this from now on."""
        (self.folder / f"{name}.out").write_text(text)
        (self.folder / f"{name}.err").write_text(error)
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\nd="{self.folder}"\nprintf "%s " {name} "$@" >>"$d/calls"\necho >>"$d/calls"\nenv >"$d/env"\n'
            f'cat "$d/{name}.out"\ncat "$d/{name}.err" >&2\nexit {code}\n'
        )
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return [line.strip() for line in path.read_text().splitlines()] if path.exists() else []
