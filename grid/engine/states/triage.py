"""The reasons of failures: every failed run gets one kind and a signature.

Thus two thousand failures of the same bug make one line.

Evidence, strongest first: what the run itself wrote of its end, the tracebacks and notices at the end of its log, the
scheduler's word.  The cause goes before its consequences: a peer that closed its connection because another rank ran
out of memory is out of memory, and so is a job that hung after it until its time limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grid.engine.slurm.scheduler_cache import NODE_FAILURES, Job
from grid.engine.states.blame import ALONE, Memory
from grid.engine.states.record_values import own_element
from grid.engine.states.run_files import RunFolder, tail
from grid.engine.states.state import State

KINDS = (
    "cuda_oom",
    "host_oom",
    "disk",
    "non_finite",
    "settings",
    "node_failure",
    "network_timeout",
    "code",
    "time_limit",
    "preempted",
    "checkpointed",
    "cancelled",
    "killed",
    "lost",
)
KILLED = 137  # the exit code of what SIGKILL ended
LINE_CHARACTERS = 200
MESSAGE_CHARACTERS = 80

# What exceptions and logs say, in the order in which a cause goes before what it leads to.
_SAID = {
    "cuda_oom": r"(CUDA|HIP) out of memory|CUDA error: out of "
    r"memory|torch\S*\.OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
    "host_oom": r"\boom[-_ ]?kill|(?<!CUDA )\bout[- ]of[- "
    r"]memory\b|\b_?(Array)?MemoryError\b|DefaultCPUAllocator|Cannot allocate memory"
    r"|std::bad_alloc|exceeded .*memory limit|Unable to allocate [\d.]+ \wiB",
    "disk": r"No space left on device|Disk quota exceeded|Input/output error|Stale (NFS )?file handle|Read-only file "
    r"system",
    "non_finite": r"\bNonFiniteError\b",
    "network_timeout": r"NCCL watchdog|Watchdog caught collective operation "
    r"timeout|\bnccl(System|Remote|Internal)Error|NCCL error"
    r"|Connection (closed|reset) by peer|Connection refused|Dist(Network|Store|Backend)Error|[Tt]imed out "
    r"(waiting|after)"
    r"|wait timeout after|Socket Timeout|Application timeout caused|Broken pipe|recvBytes|No route to host"
    r"|(rank \d+|one) of (the )?\d+ (ranks )?(is gone|did not answer in time)",  # our own, nuq/exchange/transport.py
}
_PATTERNS = {kind: re.compile(text) for kind, text in _SAID.items()}
# What SLURM and the kernel write between a program's lines; believed beside any exception.
_NOTICES = {
    "host_oom": re.compile(r"oom[-_ ]?kill|Exceeded (job|step) memory limit|exceeded memory limit", re.IGNORECASE),
    "node_failure": re.compile(r"DUE TO NODE FAILURE"),
    "preempted": re.compile(r"DUE TO PREEMPTION"),
    "time_limit": re.compile(r"DUE TO TIME LIMIT"),
}
_NOTICE = re.compile(
    r"^(slurmstepd|slurmd|srun|\[[^\]]*\] (Memory cgroup )?out of memory|Memory cgroup|.*\bDUE TO\b).*",
    re.IGNORECASE | re.MULTILINE,
)
_RANK = re.compile(r"^\[(rank|default)\d+\]:\s?", re.MULTILINE)
_FRAME = re.compile(r'^\s+File "(.+)", line (\d+), in (.+)$')
_LINE_NUMBER = re.compile(r":\d+(?= in )")
_LAST = re.compile(r"^((?:[A-Za-z_][\w]*\.)*[A-Z]\w*)(?:: (.*))?$")
# the first line of every attempt that got under way
_BEGUN = re.compile(r"^.+: \S+, \S+ on .+, \d+ workers$\n?", re.MULTILINE)
_WRAPPERS = {"ChildFailedError", "SystemExit", "KeyboardInterrupt", "SignalException", "Preempted"}
_SITE = re.compile(r"^(site profile \S.*?) on \S+: (.+)$", re.MULTILINE)  # see preamble.py: the script ends with it
_STARTED = re.compile(r"^[\d-]+ [\d:]+ start (.+?)(?: in slot \d+)?$", re.MULTILINE)
_MISSING = re.compile(  # messages of a shell that ends with 126 or 127
    r"command not found|: not found$|: No such file or directory$|Permission denied$|cannot execute|Exec format error"
    r"|error while loading shared libraries"
)
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python3|^<")


@dataclass(frozen=True)
class Failure:
    """The reason why one run failed.

    ``signature`` is the same for the same cause; ``example`` is the run, ``line`` its own words.
    """

    kind: str  # one of KINDS
    signature: str
    example: str
    line: str = ""


@dataclass(frozen=True)
class Group:
    """All failures of one signature."""

    kind: str
    signature: str
    count: int
    example: str
    line: str


@dataclass(frozen=True)
class _Raised:
    """An exception, from the run's own record or from a traceback in its log."""

    type: str
    message: str
    place: str  # "trainer.py:120 in step", empty where not known

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def words(self) -> str:
        """The text of the exception, and the place where it was raised."""
        where = f" ({self.place.partition(' ')[0]})" if self.place else ""
        return f"{self.text.strip()[: LINE_CHARACTERS - 40]}{where}"

    @property
    def signature(self) -> str:
        message = normal(self.message.partition("\n")[0])[:MESSAGE_CHARACTERS].rstrip()
        place = _LINE_NUMBER.sub("", self.place)  # the line number moves with every edit of the file
        return f"{self.type}{f' at {place}' if place else ''}{f': {message}' if message else ''}"

    @property
    def kind(self) -> str:
        return _kind_of(self.text) or "code"


def classify(
    folder: RunFolder, state: State, job: Job | None = None, logs: Sequence[Path] = (), memory: Memory = ALONE
) -> Failure:
    """The kind and signature of a run's failure.

    logs: of its job, where SLURM's notices are; never raises for what they hold.  memory: the run's, and who of its
    job's ran out of it.
    """
    example = "/".join(folder.path.parts[-3:])
    record = folder.record()
    values = record if isinstance(record, Mapping) else {}
    text = _RANK.sub("", _attempt(folder.tail()))
    parts = [tail(log) for log in logs]
    notices = _notices(text, *parts)
    raised = [
        item for item in [*_tracebacks(text), *_recorded(values)] if item.type.rpartition(".")[2] not in _WRAPPERS
    ]
    word = job.word if job else ""
    is_innocent = bool(memory.culprits) and folder.path.name not in memory.culprits  # of what its job says of memory
    is_killed = state.reason == f"exit code {KILLED}"

    def found(kind: str, signature: str, line: str) -> Failure:
        return Failure(kind, signature, example, line.strip()[:LINE_CHARACTERS])

    if state.word in ("cancelled", "preempted", "checkpointed"):
        return found(state.word, word or state.word, state.reason)
    if state.word == "diverged":
        return found("non_finite", f"diverged: {normal(state.reason)[:MESSAGE_CHARACTERS]}", state.reason)
    if refused := _by_site(parts, example) or _by_shell([text, *parts], _exit_code(state, job), bool(raised)):
        return found("settings", *refused)
    for kind in ("cuda_oom", "host_oom", "disk", "non_finite"):
        for item in reversed(raised):
            if item.kind == kind:
                return found(kind, item.signature, item.words)
        if line := _line(_notices(text) if is_innocent and kind == "host_oom" else notices, _NOTICES.get(kind)):
            return found(kind, normal(line)[:MESSAGE_CHARACTERS], memory.beside(line) if kind == "host_oom" else line)
    if word == "OUT_OF_MEMORY" and not is_innocent:
        return found("host_oom", word, memory.beside(state.reason))
    if is_killed and memory.is_full:
        return found("host_oom", f"{state.reason} with its memory full", memory.beside(state.reason))
    if values.get("exit_code") == 2 or (not raised and state.reason == "exit code 2"):
        own = _recorded(values)
        return found("settings", own[0].signature if own else "bad settings", own[0].words if own else _last_line(text))
    if word in NODE_FAILURES or _line(notices, _NOTICES["node_failure"]):
        return found("node_failure", word or "NODE_FAIL", state.reason)
    if own := [item for item in raised if item.kind == "code"]:
        return found("code", own[-1].signature, own[-1].words)
    # what the end of a job does to those who still talk
    closed = all(re.search("closed|reset|pipe|is gone", item.text) for item in raised)
    ending = _ending(word, notices)
    said = None if raised else _by_log(text)
    if is_innocent and closed and not ending and (said is None or said[0] == "network_timeout"):
        begun = own_element(values) == state.element
        turn = "killed" if begun else "its turn had not come"
        who = ", ".join(sorted(memory.culprits))
        return found("killed", f"{turn} when another run of its script ran out of memory", f"out of memory: {who}")
    if raised and not (closed and ending):
        return found("network_timeout", raised[-1].signature, raised[-1].words)
    if said and not ending:
        return found(said[0], normal(said[1])[:MESSAGE_CHARACTERS], said[1])
    if ending:
        return found(ending, word or ending, _line(notices, _NOTICES.get(ending)) or state.reason)
    reason = state.reason or state.word
    if is_killed:
        return found("killed", reason, memory.beside(_last_line(text) or reason))
    return found("lost", normal(reason)[:MESSAGE_CHARACTERS], _last_line(text) or reason)


def says_out_of_memory(log: Path) -> bool:
    """Whether a job's log has SLURM's notice that a process of it was killed for want of memory."""
    return bool(_line(_notices(tail(log)), _NOTICES["host_oom"]))


def groups(failures: Iterable[Failure]) -> list[Group]:
    """The groups of failures, one per kind and signature, the largest first; the example is the first of each."""
    rows: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        rows.setdefault((failure.kind, failure.signature), []).append(failure)
    made = [
        Group(kind, signature, len(found), found[0].example, found[0].line) for (kind, signature), found in rows.items()
    ]
    return sorted(made, key=lambda row: (-row.count, KINDS.index(row.kind), row.signature))


_VARYING: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "*"),
    (re.compile(r"(?<![\w./])(?:(?:~|\.{1,2})?(?:/[\w.+=,@-]+)+|[\w.+=,@-]+(?:/[\w.+=,@-]+){2,})/?"), "PATH"),
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "*"),
    (re.compile(r"(?<![\w.])\d+_\d+(?!\w)"), "N_N"),  # an element of an array
    (  # numbers by themselves, or with a unit; float16, 32x32, conv1.weight and CIFAR-10 are names
        re.compile(
            r"\b(exit code \d+)\b|(?<![\w.])(?<![A-Z]-)"
            r"-?\d+(?:\.\d+)*(?:e[-+]?\d+)?(?=(?:[kKMGT]?i?B|[num]?s|min|h)?(?!\w))"
        ),
        lambda found: found[1] or "N",
    ),
)


def normal(text: str) -> str:
    """The text without what differs from run to run.

    These are paths, addresses, hashes, and free-standing numbers other than exit codes.
    """
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return " ".join(text.split())


# --- evidence -----------------------------------------------------------------------------------------------------


def _attempt(text: str) -> str:
    """The part of a log that the last attempt wrote, because attempts share one log."""
    begun = [found.end() for found in _BEGUN.finditer(text)]
    return text[begun[-1] :] if begun else text


def _by_site(logs: Sequence[str], run: str) -> tuple[str, str] | None:
    """The signature and line of a failure of the site's profile before the run began.

    It counts where it is the last thing that the log of its job tells.
    """
    for log in logs:
        said, begun = list(_SITE.finditer(log)), list(_STARTED.finditer(log))
        if (
            not said
            or any(start[1].endswith(run) for start in begun)
            or (begun and begun[-1].start() > said[-1].start())
        ):
            continue
        sentence = " ".join(said[-1][2].split())
        if sentence.startswith(("stage:", "the scratch folder")):  # these sentences have paths of this job
            sentence = normal(sentence)
        return f"{said[-1][1]}: {sentence[: 2 * MESSAGE_CHARACTERS]}", said[-1][0]
    return None


def _by_shell(texts: Iterable[str], code: int | None, has_raised: bool) -> tuple[str, str] | None:
    """The signature and line where a shell did not find or could not start a program, as the exit code says."""
    if code not in (126, 127):
        return None
    lines = (line for text in texts for line in reversed([line for line in text.splitlines() if line.strip()][-3:]))
    line = next((line for line in lines if _MISSING.search(line)), "")
    if not line and has_raised:
        return None
    return f"exit code {code}{f': {normal(line)[:MESSAGE_CHARACTERS]}' if line else ''}", line


def _exit_code(state: State, job: Job | None) -> int | None:
    """The exit code of the run, by its script's word, else that of its job."""
    if said := re.fullmatch(r"exit code (\d+)", state.reason):
        return int(said[1])
    return job.exit_code if job else None


def _recorded(values: Mapping[str, object]) -> list[_Raised]:
    """The failure that status.json tells of."""
    failure = values.get("failure")
    if values.get("state") not in ("failed", "diverged") or not isinstance(failure, Mapping):
        return []
    name, _, place = str(failure.get("signature", "")).partition(" at ")
    return [_Raised(name or "failure", str(failure.get("message", "")), place)]


def _tracebacks(text: str) -> Iterator[_Raised]:
    """Every exception whose traceback the text holds, in order."""
    for block in text.split("Traceback (most recent call last):\n")[1:]:
        own, last = "", ""
        for line in block.splitlines():
            if frame := _FRAME.match(line):
                last = f"{Path(frame[1]).name}:{frame[2]} in {frame[3]}"
                own = own if _FOREIGN.search(frame[1]) else last
            elif (end := _LAST.match(line)) and last:
                yield _Raised(end[1].rpartition(".")[2], end[2] or "", own or last)
                break


def _kind_of(text: str) -> str:
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), "")


def _by_log(text: str) -> tuple[str, str] | None:
    """The kind and line of the strongest thing that a log without a traceback says."""
    for kind, pattern in _PATTERNS.items():
        if line := _line(text, pattern):
            return kind, line
    return None


def _line(text: str, pattern: re.Pattern[str] | None) -> str:
    """The last line that the pattern is found in."""
    found = list(pattern.finditer(text)) if pattern else []
    return text[text.rfind("\n", 0, found[-1].start()) + 1 :].partition("\n")[0] if found else ""


def _notices(*texts: str) -> str:
    """SLURM's notices in these texts, one a line."""
    return "\n".join(found[0] for text in texts for found in _NOTICE.finditer(text))


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _ending(word: str, notices: str) -> str:
    """The kind time_limit, preempted or cancelled, where the job was ended from outside."""
    words: Mapping[str, Collection[str]] = {
        "time_limit": ("TIMEOUT", "DEADLINE"),
        "preempted": ("PREEMPTED",),
        "cancelled": ("CANCELLED",),
    }
    by_word = next((kind for kind, names in words.items() if word in names), "")
    return by_word or next((kind for kind in ("time_limit", "preempted") if _line(notices, _NOTICES[kind])), "")
