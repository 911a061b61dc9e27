"""The process of a function job: `python -P -m stoker.functions.call LABEL FOLDER SHA256 SLICES`.

Loads the call, executes it, and writes the result beside it. LABEL is the name of the function, or
its call (`train(0.1, seed=3)`), for display, and gives each function its own command profile.
SLICES are the parts of the file that make up this call: `0+512,8192+90` is 512 bytes from the start
and 90 bytes from offset 8192.

Exit codes: 0 for a value, 1 for an exception (its traceback is in the log), 75 for
`stoker.requeue()`, or the argument of `sys.exit`.
"""

from __future__ import annotations

import os
import sys
from types import CoroutineType, TracebackType

from stoker.errors import Error
from stoker.functions import payload, payload_files
from stoker.functions.current_job import can_name, current, handle_warning_signal, log, logged
from stoker.text.commands.shell_words import CALL_MODULE

MODULE = CALL_MODULE
_PID = os.getpid()


def words(
    python: str, label: str, folder: str, sha256: str, slices: list[payload_files.Slice]
) -> tuple[str, ...]:
    """The command of a function job. -P keeps a user's json.py from hiding the standard module;
    payload.unpack extends sys.path later."""
    parts = ",".join(f"{offset}+{length}" for offset, length in slices)
    return (python, "-P", "-m", MODULE, label, folder, sha256, parts)


def folder_of(argv: tuple[str, ...]) -> str | None:
    """The folder of the call and its result; None if this is not a function job."""
    return argv[5] if len(argv) == 8 and argv[1:4] == ("-P", "-m", MODULE) else None


def main(argv: list[str]) -> int:
    text, folder, sha256, parts = argv
    label = text.partition("(")[0]
    job, attempt = _number("STOKER_JOB_ID"), _number("STOKER_ATTEMPT")
    sys.argv = [label]
    handle_warning_signal()
    try:
        data = payload_files.read_call(folder, sha256, _slices(parts))
    except Error as error:
        _print_error(error)
        return error.exit_code
    code = 0
    try:
        body = payload.encode_value(attempt, _execute(data), label)
    except KeyboardInterrupt:
        raise  # Python then dies from SIGINT itself
    except SystemExit as ended:
        if not ended.code:
            _save(folder, job, payload.encode_value(attempt, None, label))
        raise
    except BaseException as error:
        text = _formatted(error)
        print(text, end="", file=sys.stderr, flush=True)
        body = payload.encode_error(attempt, error, text)
        code = 1
    return code if _save(folder, job, body) else 1


def _slices(text: str) -> list[payload_files.Slice]:
    pairs = (part.partition("+") for part in text.split(","))
    return [(int(offset), int(length)) for offset, _, length in pairs]


def _execute(data: bytes) -> object:
    function, args, kwargs = payload.unpack(data)
    run = current()
    if run.trial is not None:  # in a sweep, the parameters are keyword arguments
        kwargs = {**kwargs, **run.params}
    value = function(*args, **kwargs)
    if isinstance(value, CoroutineType):
        import asyncio

        value = asyncio.run(value)
    if run.trial is not None:
        _report(value)
    return value


def _report(value: object) -> None:
    """Report the return value of a trial: a number as the sweep's metric, or a dict of metrics.

    Metrics that the function has logged itself are not overwritten.
    """
    named: dict[str, object]
    if isinstance(value, dict):
        plain = {str(k): v for k, v in value.items() if isinstance(v, (bool, int, float, str))}
        named = {name: part for name, part in plain.items() if can_name(name) or name == "step"}
    elif isinstance(value, (int, float)) or hasattr(value, "item"):
        named = {os.environ.get("STOKER_METRIC") or "result": value}
    else:
        return
    named = {name: part for name, part in named.items() if name not in logged}
    if set(named) - {"step"}:
        try:
            log(**named)  # type: ignore[arg-type]  # `step` may be among them
        except TypeError:
            pass  # an array is the result of the job, but not a metric


def _save(folder: str, job: int, body: bytes) -> bool:
    """Write the result file; return False if that failed."""
    if os.getpid() != _PID:
        return True  # a child that the function forked returned to here
    try:
        payload_files.write_result(folder, job, body)
    except Error as error:
        _print_error(error)
        return False
    return True


def _formatted(error: BaseException) -> str:
    """The traceback as Python prints it, starting at the first frame of user code."""
    import traceback

    ours = {__file__, payload.__file__}
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _print_error(error: Error) -> None:
    hint = f"\nhint: {error.hint}" if error.hint else ""
    print(f"error: {error.message}{hint}", file=sys.stderr, flush=True)


def _number(key: str) -> int:
    text = os.environ.get(key, "")
    return int(text) if text.isdigit() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
