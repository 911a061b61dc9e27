"""The cause of a failure, from the end of the job's log.

Exit codes rarely help: a job that runs out of GPU memory exits with 1, like most failed jobs. So
the log is searched, in this order:

1. Exit codes 126 and 127 of the shell.
2. The last traceback, if at most `_MAX_LINES_AFTER_TRACEBACK` lines come after its exception: first
   the exception, then the text after it. If the exception has no known cause, the tracebacks that
   it is chained to; if it only reports that another process failed, the tracebacks before it. A
   traceback of an unknown error ends the search: the program survived everything above it.
3. Without such a traceback, the last `_LAST_LINES` lines, latest first.

Text further up never counts, and neither do lines about an error that the program survived
("retrying", "halved", warnings).

When in doubt, no cause is reported: a wrong one would decide whether and where the job is retried.
"""

from __future__ import annotations

import re

from stoker.record import Record

_TAIL_BYTES = 64 * 1024
_SEARCHED_LINES = 300
_MAX_LINES_AFTER_TRACEBACK = (
    80  # exit messages of trackers and launchers, and errors of TensorFlow, are shorter
)
_LAST_LINES = 25
_EVIDENCE_CHARS = 200

Finding = tuple[str, str]

# -- patterns: a line matches if it has all parts, in lower case; the first match counts ----------

_CLEAR_PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("host_oom", ("oom when allocating", "device:cpu")),
    ("gpu_oom", ("cuda out of memory",)),
    ("gpu_oom", ("torch.outofmemoryerror",)),
    ("gpu_oom", ("torch.cuda.outofmemoryerror",)),
    ("gpu_oom", ("cuda error: out of memory",)),
    ("gpu_oom", ("cuda driver error: out of memory",)),
    ("gpu_oom", ("cuda failure", "out of memory")),
    ("gpu_oom", ("cudaerrormemoryallocation",)),
    ("gpu_oom", ("cuda_error_out_of_memory",)),
    ("gpu_oom", ("cudamalloc failed: out of memory",)),
    ("gpu_oom", ("cumemalloc failed: out of memory",)),
    ("gpu_oom", ("out_of_memory: cuda error",)),
    ("gpu_oom", ("cupy.cuda.memory.outofmemoryerror",)),
    ("gpu_oom", ("hip out of memory",)),
    ("gpu_oom", ("hip error: out of memory",)),
    ("gpu_oom", ("hiperroroutofmemory",)),
    ("gpu_oom", ("oom when allocating",)),
    # Web services report exceeded quotas as "resource exhausted" too.
    ("gpu_oom", ("resource_exhausted", "out of memory")),
    ("gpu_oom", ("resource_exhausted", "failed to allocate")),
    ("gpu_oom", ("resourceexhaustederror", "out of memory")),
    ("gpu_oom", ("resourceexhaustederror", "failed to allocate")),
    ("gpu_oom", ("free memory on device", "less than desired gpu memory utilization")),
    ("host_oom", ("cannot allocate memory",)),
    ("host_oom", ("defaultcpuallocator: can't allocate memory",)),
    ("host_oom", ("defaultcpuallocator: not enough memory",)),
    ("host_oom", ("std::bad_alloc",)),
    ("host_oom", ("out of memory: killed process",)),
    ("host_oom", ("oom_kill event",)),
    ("host_oom", ("java.lang.outofmemoryerror",)),
    ("host_oom", ("ray.exceptions.outofmemoryerror",)),
    ("host_oom", ("dataloader worker", "killed by signal: killed")),
    ("host_oom", ("workers are out of shared memory",)),
    ("disk_full", ("no space left on device",)),
    ("disk_full", ("disk quota exceeded",)),
    ("disk_full", ("database or disk is full",)),
    # Texts and names of the errors 805 to 810 of CUDA.
    ("mps_failed", ("cuda_error_mps_",)),
    ("mps_failed", ("cudaerrormps",)),
    ("mps_failed", ("mps client failed to connect to the mps",)),
    ("mps_failed", ("remote procedural call between the mps server and the mps client",)),
    ("mps_failed", ("mps server is not ready to accept",)),
    ("mps_failed", ("mps client has been terminated by the server",)),
    ("gpu_error", ("illegal memory access",)),
    ("gpu_error", ("cuda_error_illegal_address",)),
    ("gpu_error", ("uncorrectable ecc",)),
    ("gpu_error", ("cuda_error_ecc_uncorrectable",)),
    # Not "device-side assert" alone: every CUDA error of PyTorch ends with advice on assertions.
    ("gpu_error", ("device-side assert triggered",)),
    ("gpu_error", ("gpu is lost",)),
    ("gpu_error", ("fallen off the bus",)),
    ("gpu_error", ("unspecified launch failure",)),
    ("gpu_error", ("cuda_error_launch_failed",)),
    ("gpu_error", ("cuda error: misaligned address",)),
    ("gpu_error", ("cuda error: unknown error",)),
    ("gpu_error", ("devices are busy or unavailable",)),
    ("gpu_error", ("device(s) is/are busy or unavailable",)),
    ("gpu_error", ("memory access fault by gpu",)),
    ("gpu_error", ("nvrm: xid",)),
)

# A library could not create its context, for lack of memory or because of a missing driver or an
# index out of range. These count only if the GPU was full or the log reports lack of GPU memory.
_PATTERNS_IF_GPU_FULL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gpu_oom", ("cublas_status_alloc_failed",)),
    ("gpu_oom", ("cublas_status_not_initialized",)),
    ("gpu_oom", ("cudnn_status_alloc_failed",)),
    ("gpu_oom", ("cudnn_status_not_initialized",)),
    ("gpu_oom", ("cudnn_status_internal_error",)),
    ("gpu_oom", ("cusolver_status_not_initialized",)),
    ("gpu_oom", ("could not create cudnn handle",)),
    ("gpu_oom", ("unable to initialize backend 'cuda'",)),
)

# Ranks that lost another rank print these; the log of the lost rank may have the cause.
_VAGUE_PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gpu_error", ("nccl error",)),
    ("gpu_error", ("watchdog caught collective operation timeout",)),
)

_MISSING_MODULE = frozenset({"ModuleNotFoundError", "ImportError"})
_MEMORY_ERROR = frozenset({"MemoryError", "_ArrayMemoryError"})

# Exceptions that report the failure of another process.
_AFTER_EFFECT = (
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "RayTaskError",
    "RayActorError",
    "ActorDiedError",
    "WorkerCrashedError",
    "BrokenProcessPool",
    "TerminatedWorkerError",
    "SignalException",
    "DistNetworkError",
    "ConnectionResetError",
    "BrokenPipeError",
    "EOFError",
    "DataLoader worker (pid",
    "Connection closed by peer",
    "Connection reset by peer",
)

# In the line before a traceback that did not end the program, mostly from the exit of Python.
_HARMLESS = (
    "Exception ignored in",
    "--- Logging error ---",
    "Error in atexit",
    "Error in sys.excepthook",
)
_HEADER = "Traceback (most recent call last)"
_CHAINED = "above exception"

# Advice such as "try reducing the batch size" does not mean that the program survived.
_SURVIVED = re.compile(
    r"\b(?:retrying|trying again|halved|halving|reduced|lowered|decreased|skipped|skipping"
    r"|recovered|recovering|falling back|fell back|caught|handled|continuing|not a failure"
    r"|(?<!try )(?<!consider )(?<!by )reducing)\b"
)

# -- lines --------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b\n]*\x07?|[ -/]*[0-~]?)")

# Line prefixes of launchers (torchrun, ray, mpirun, srun) and the margin of exception groups. At
# most one space after them is removed, because indentation tells frames from exceptions.
_PREFIX = re.compile(
    r"\[[A-Za-z]{1,12}\d{1,6}\]: ?|\(\S{1,60} pid=\d{1,10}[^)]{0,60}\) "
    r"|\[\d{1,6},\d{1,6}\]<std\w{3}>: ?|\d{1,4}: | {1,40}\| "
)
_FRAME = frozenset(" \t│╭╰")  # first characters of a stack frame; rich draws boxes


class _Traceback(Record):
    start: int
    error: int
    harmless: bool
    chained: bool  # to the traceback before it


class _Patterns(Record):
    """The patterns that occur in the log at all: few, so that a line is checked quickly."""

    clear: tuple[tuple[str, tuple[str, ...]], ...]
    vague: tuple[tuple[str, tuple[str, ...]], ...]


def diagnose(
    tail: bytes,
    exit_code: int | None,
    *,
    gpu_was_full: bool,
    in_container: bool = False,
) -> Finding | None:
    """Return the cause of a failure and the line that shows it; None if no cause was found.

    `gpu_was_full`: hardly any memory was free on the job's GPU when it started or ended.
    """
    if exit_code == 0:
        return None
    lines = _lines(tail)
    failed = _failed_start(lines, exit_code, in_container=in_container)
    if failed is not None:
        return failed
    script = _missing_script(lines, exit_code)
    if exit_code in (126, 127):
        program = _shell_error(lines) or f"exit code {exit_code} of the shell"
        return ("missing_script", script) if script else ("missing_program", program)
    found = _explain(lines, _patterns(lines, gpu_was_full))
    if found is None and script is not None:
        found = "missing_script", script
    return found or _python_error(lines)


def _lines(tail: bytes) -> list[str]:
    text = tail[-_TAIL_BYTES:].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    lines: list[str] = []
    for line in text.rsplit("\n", _SEARCHED_LINES)[-_SEARCHED_LINES:]:
        # A progress bar is one line, with a piece for each time that it was drawn.
        for piece in line.rsplit("\r", 3)[-3:] if "\r" in line else (line,):
            prefix = _PREFIX.match(piece)
            if prefix:
                piece = piece[prefix.end() :]
            if piece and not piece.isspace():
                lines.append(piece)
    return lines


def _patterns(lines: list[str], gpu_was_full: bool) -> _Patterns:
    everything = "\n".join(lines).lower()
    clear = tuple(row for row in _CLEAR_PATTERNS if all(part in everything for part in row[1]))
    if gpu_was_full or any(cause == "gpu_oom" for cause, _ in clear):
        clear += _PATTERNS_IF_GPU_FULL
    return _Patterns(clear, tuple(row for row in _VAGUE_PATTERNS if row[1][0] in everything))


# -- the search ---------------------------------------------------------------------------------


def _explain(lines: list[str], patterns: _Patterns) -> Finding | None:
    vague: Finding | None = None
    end = len(lines)
    in_chain = False
    for traceback in reversed(_tracebacks(lines)):
        error = traceback.error
        if end - error > _MAX_LINES_AFTER_TRACEBACK:
            break
        if not traceback.harmless:
            if any(_SURVIVED.search(line.lower()) for line in lines[error + 1 : error + 4]):
                return _last(lines[error + 1 : end], patterns) or vague
            found = _of_exception(lines[error], patterns) or _first(
                lines[error + 1 : end], patterns
            )
            if found is not None:
                # Programs often catch a failed import, and this cause rules out retries.
                return vague if in_chain and found[0] == "missing_module" else found
            unclear = _match(lines[error], patterns.vague)
            vague = vague or unclear
            in_chain = traceback.chained
            is_after_effect = any(name in lines[error] for name in _AFTER_EFFECT)
            if not (in_chain or unclear or is_after_effect):
                return vague
        end = traceback.start
    return _last(lines[:end], patterns) or vague


def _tracebacks(lines: list[str]) -> list[_Traceback]:
    found: list[_Traceback] = []
    start: int | None = None
    for index, line in enumerate(lines):
        if _HEADER in line:
            start = index
        elif start is not None and line[0] not in _FRAME:
            before = lines[start - 1] if start else ""
            harmless = any(mark in before for mark in _HARMLESS)
            found.append(_Traceback(start, index, harmless, _CHAINED in before))
            start = None
    return found


def _of_exception(line: str, patterns: _Patterns) -> Finding | None:
    found = _match(line, patterns.clear) or _memory_error(line)
    if _class_of(line) in _MISSING_MODULE and (found is None or "static TLS" in line):
        return "missing_module", _evidence(line)
    return found


def _first(lines: list[str], patterns: _Patterns) -> Finding | None:
    for line in lines:
        found = _of_line(line, patterns.clear)
        if found is not None:
            return found
    return None


def _last(lines: list[str], patterns: _Patterns) -> Finding | None:
    ending = lines[: -_LAST_LINES - 1 : -1]
    for rows in (patterns.clear, patterns.vague):
        for line in ending:
            found = _of_line(line, rows)
            if found is not None:
                return found
    return None


def _of_line(line: str, rows: tuple[tuple[str, tuple[str, ...]], ...]) -> Finding | None:
    found = _match(line, rows) or _memory_error(line)
    if found is None:
        return None
    lowered = line.lower()
    return None if "warn" in lowered or _SURVIVED.search(lowered) else found


def _match(line: str, rows: tuple[tuple[str, tuple[str, ...]], ...]) -> Finding | None:
    if not rows:
        return None
    lowered = line.lower()
    for cause, parts in rows:
        if all(part in lowered for part in parts):
            return cause, _evidence(line, lowered.find(parts[0]))
    return None


def _memory_error(line: str) -> Finding | None:
    return ("host_oom", _evidence(line)) if _class_of(line) in _MEMORY_ERROR else None


def _class_of(line: str) -> str:
    """Return the class name of an exception line: `package.Name: message` or `Name`."""
    return line.partition(":")[0].rpartition(".")[2].strip()


# -- errors of shells and interpreters ------------------------------------------------------------


def _shell_error(lines: list[str]) -> str | None:
    for line in reversed(lines[-5:]):
        lowered = line.lower()
        for text in (
            "not found",
            "no such file",
            "permission denied",
            "is a directory",
            "cannot execute",
            "exec format error",
            "error while loading shared libraries",
        ):
            if text in lowered:
                return _evidence(line, lowered.find(text))
    return None


def _failed_start(lines: list[str], exit_code: int | None, *, in_container: bool) -> Finding | None:
    """Why the environment or the container of a job could not be started; None if it was."""
    last = lines[-_LAST_LINES:]
    if exit_code == 126:  # of features/environments/activate.py and uv_start.py
        for line in reversed(last):
            if line.startswith("stoker: cannot activate"):
                return "environment_failed", _evidence(line.removeprefix("stoker: "))
    if not in_container:
        return None
    shown = [line for line in last if line.startswith(("docker: ", "Error: "))]
    is_unknown = exit_code == 126 and shown and _shell_error(lines) is None
    if exit_code == 125 or is_unknown:  # docker and podman
        text = _evidence(shown[-1]) if shown else "exit code 125 of the container engine"
        return "container_failed", text
    if exit_code == 255:  # apptainer
        for line in last:
            if line.startswith("FATAL: "):
                return "container_failed", _evidence(line)
    return None


def _missing_script(lines: list[str], exit_code: int | None) -> str | None:
    """Return the error line of an interpreter whose script does not exist, or None."""
    for line in reversed(lines[-3:]):
        program, _, rest = line.partition(": ")
        name = program.rpartition("/")[2]
        if name.startswith(("python", "pypy")):
            is_it = exit_code == 2 and rest.startswith("can't open file")
        elif name in ("bash", "ksh"):
            # Without a slash, a missing program would be "command not found"; with one, a missing
            # script and a missing program look alike.
            path, _, end = rest.rpartition(": ")
            could_be = "/" not in path or path.endswith(".sh")
            is_it = exit_code == 127 and end == "No such file or directory" and could_be
        elif name in ("sh", "dash"):
            is_it = exit_code in (2, 127) and rest.startswith("0: cannot open ")
        else:
            is_it = name == "zsh" and exit_code == 127 and rest.startswith("can't open input file")
        if is_it:
            return _evidence(line)
    return None


def _python_error(lines: list[str]) -> Finding | None:
    """`python -m MODULE` prints no traceback if the module is missing."""
    for line in reversed(lines[-3:]):
        program, _, rest = line.partition(": ")
        if not program.rpartition("/")[2].startswith("python"):
            continue
        if rest.startswith(("No module named", "Error while finding module specification")):
            return "missing_module", _evidence(line)
    return None


def _evidence(line: str, at: int = 0) -> str:
    """Return a short printable part of the line that includes the position `at`."""
    start = max(0, at - _EVIDENCE_CHARS // 2)
    text = " ".join(line[start : start + _EVIDENCE_CHARS].split())
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
