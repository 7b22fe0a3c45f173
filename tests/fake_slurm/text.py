"""SLURM's notations as values and back: times, memory, arrays of tasks, lists of hosts.  Pure functions."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Sequence

_UNITS_S = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


def parse_limit(text: str) -> float | None:
    """Seconds of a time limit, rounded up to whole minutes as SLURM does; None is no limit.

    ValueError for other text.
    """
    if text.upper() in {"UNLIMITED", "INFINITE", "-1", "0"}:
        return None
    found = re.fullmatch(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?)|(?:(\d+):(\d+):(\d+))|(?:(\d+)(?::(\d+))?)", text)
    if not found:
        raise ValueError(text)
    days, hours, minutes, seconds, h, m, s, mm, ss = (int(part or 0) for part in found.groups())
    total = days * 86400 + (hours + h) * 3600 + (minutes + m + mm) * 60 + seconds + s + ss
    return float(-(-total // 60) * 60)


def long_duration(seconds: float | None) -> str:
    """``[D-]HH:MM:SS``, as sacct and scontrol write it."""
    if seconds is None:
        return "UNLIMITED"
    days, rest = divmod(int(seconds), 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def short_duration(seconds: float | None) -> str:
    """``M:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``, as squeue writes it."""
    if seconds is None or seconds >= 86400:
        return long_duration(seconds)
    rest = int(seconds)
    return f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}" if rest >= 3600 else f"{rest // 60}:{rest % 60:02}"


def stamp(moment: float | None, missing: str = "Unknown") -> str:
    """Local time, ``2026-11-21T16:14:32``."""
    return missing if moment is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def parse_moment(text: str, now: float, second: float) -> float:
    """Unix time of ``now[+N[unit]]``, ``HH:MM[:SS]``, ``YYYY-MM-DD[THH:MM[:SS]]``; relative times scale with
    ``second``.
    """
    relative = re.fullmatch(r"now(?:([+-])(\d+)([a-z]*?)s?)?", text)
    if relative:
        sign, count, unit = relative.groups()
        return now + (-1 if sign == "-" else 1) * int(count or 0) * _UNITS_S[unit or ""] * second
    today = time.strftime("%Y-%m-%d", time.localtime(now))
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        for candidate in (text, f"{today}T{text}"):
            try:
                return time.mktime(time.strptime(candidate, form))
            except ValueError:
                continue
    raise ValueError(text)


def parse_megabytes(text: str) -> int:
    """``18GB``, ``500M``, ``2000`` (megabytes)."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text.upper())
    if not found:
        raise ValueError(text)
    return int(int(found[1]) * _MEGABYTES[found[2] or "M"])


def parse_array(text: str) -> tuple[tuple[int, ...], int]:
    """``0-37,40-50:2%8`` as the tasks in order and how many may run at once (0: all)."""
    spec, _, throttle = text.partition("%")
    tasks: set[int] = set()
    for part in spec.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if not found or (throttle and not throttle.isdecimal()):
            raise ValueError(text)
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first or step < 1:
            raise ValueError(text)
        tasks.update(range(first, last + 1, step))
    return tuple(sorted(tasks)), int(throttle or 0)


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def tasks_text(tasks: Sequence[int], throttle: int, length: int = 0) -> str:
    """``5-9%4``, or ``1-36:7%4`` where more than five tasks, over more than ten numbers, keep one distance.

    ``length`` (SLURM_BITSTR_LEN; 0: any) cuts after so many bytes, wherever that is: of ``0,10,21,33`` ten bytes are
    ``0,10,2...``, and there is no task 2.
    """
    tasks = sorted(tasks)
    steps = {after - before for before, after in itertools.pairwise(tasks)}
    if len(steps) == 1 and steps != {1} and len(tasks) > 5 and tasks[-1] - tasks[0] > 10:
        return f"{tasks[0]}-{tasks[-1]}:{steps.pop()}" + (f"%{throttle}" if throttle else "")
    text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in _ranges(tasks))
    if length and len(text) > length - 1:
        text = (text[: max(length - 4, 0)] + "...")[: length - 1]
    return text + (f"%{throttle}" if throttle else "")


def expand_hosts(text: str) -> list[str]:
    """``n[1-3,07],m`` as names, zeros kept."""
    placement: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        head, bracket, rest = part.partition("[")
        if not bracket:
            placement.append(part)
            continue
        inner, _, tail = rest.partition("]")
        for item in inner.split(","):
            first, dash, last = item.partition("-")
            numbers = range(int(first), int(last or first) + 1) if dash else [int(first)]
            placement += [f"{head}{number:0{len(first)}}{tail}" for number in numbers]
    return placement


def fold_hosts(placement: Iterable[str]) -> str:
    """The inverse: ``n[1-3]``; names without a number at the end stay as they are."""
    folded: dict[str, list[str]] = {}
    for host in placement:
        found = re.fullmatch(r"(.*?)(\d+)", host)
        head, number = (found[1], found[2]) if found else (host, "")
        folded.setdefault(head, []).append(number)
    parts = []
    for head, numbers in folded.items():
        if len(numbers) == 1 or any(number != str(int(number or "0")) for number in numbers):
            parts += [head + number for number in numbers]
        else:
            spans = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in _ranges(sorted(map(int, numbers))))
            parts.append(f"{head}[{spans}]")
    return ",".join(parts)


def file_name(pattern: str, fields: dict[str, str]) -> str:
    """An ``--output`` pattern with ``%A %a %j %J %N %n %s %t %u %x`` replaced, ``%4j`` padded with zeros, ``%%`` a per
    cent sign.
    """

    def replace(found: re.Match[str]) -> str:
        width, letter = found.groups()
        if letter == "%":
            return "%"
        value = fields.get(letter, found[0])
        return value.zfill(int(width)) if width and value.isdecimal() else value

    return re.sub(r"%(\d*)([A-Za-z%])", replace, pattern)
