"""The client of the search process: requests points and sends results, with a time limit."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType

from stoker.errors import Unavailable
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.spec.values import Point, Value
from stoker.record import Record

TIMEOUT = 120.0
_INVALID_ANSWER = "the search process sent an invalid answer"
_ARGUMENTS = ("-P", "-m", "stoker.features.sweeps.search.search_process")
_COMMAND = (sys.executable, *_ARGUMENTS)


def command_of(python: str | None) -> tuple[str, ...]:
    """Run the search with the Python that submitted the sweep, which has the packages that it
    needs; with that of this process if it is not known or was removed."""
    return (python, *_ARGUMENTS) if python and os.access(python, os.X_OK) else _COMMAND


class KnownTrial(Record):
    """A trial from the database; `state` is done, failed, running or stopped."""

    number: int
    params: dict[str, object]
    state: str
    value: float | None = None
    curve: tuple[tuple[int, float], ...] = ()


class ProposedTrial(Record):
    number: int
    point: Point


class SearchDied(Unavailable):
    """The search process ended, hung or sent an invalid answer; a new process may work."""


class SearchClient:
    """One search process for one sweep. After any error the process is closed.

    The methods raise SearchDied if the process failed, and Unavailable if the search cannot work:
    a package is missing, or the method does not support the space.
    """

    def __init__(
        self,
        sweep: SweepSpec,
        history: list[KnownTrial] | None = None,
        timeout: float = TIMEOUT,
        command: tuple[str, ...] = _COMMAND,
    ) -> None:
        self._timeout = timeout
        self._rest = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C must reach only this process
            )
        except OSError as error:
            self._errors.close()
            raise SearchDied(f"cannot start the search process: {error.strerror}") from None
        past = [entry._asdict() for entry in history or []]
        self._call({"do": "begin", "spec": sweep.to_json(), "history": past})

    def ask(self, count: int = 1) -> list[ProposedTrial]:
        """Return up to `count` new points, numbered after those of the history."""
        answer = self._call({"do": "ask", "count": count})
        try:
            return [
                ProposedTrial(
                    one["number"], {n: Value(d, t) for n, (d, t) in one["params"].items()}
                )
                for one in answer  # type: ignore[attr-defined]
            ]
        except (TypeError, KeyError, ValueError, AttributeError):
            raise self._failure(_INVALID_ANSWER) from None

    def tell(
        self,
        number: int,
        state: str,
        value: float | None = None,
        curve: Sequence[tuple[int, float]] = (),
    ) -> None:
        """Record how a trial ended: done, failed or stopped.

        `curve` holds the values that were not sent with `report`.
        """
        self._call(
            {
                "do": "tell",
                "number": number,
                "state": state,
                "value": value,
                "curve": list(curve),
            }
        )

    def report(self, number: int, step: int, value: float) -> bool:
        """Send an intermediate value; return whether the trial should stop early."""
        return bool(self._call({"do": "report", "number": number, "step": step, "value": value}))

    def close(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._errors):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # unsent requests cannot be flushed to a dead process

    def __enter__(self) -> SearchClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, request: dict[str, object]) -> object:
        if self._child.stdin is None or self._child.stdin.closed:
            raise SearchDied("the search process was closed")
        deadline = time.monotonic() + self._timeout
        self._send(json.dumps(request).encode() + b"\n", deadline)
        line = self._receive(deadline)
        try:
            answer = json.loads(line)
        except ValueError:
            raise self._failure(_INVALID_ANSWER) from None
        if not isinstance(answer, dict) or not ({"ok", "error"} & set(answer)):
            raise self._failure(_INVALID_ANSWER)
        if "error" in answer:
            package = answer.get("missing")
            self.close()
            if package == "optuna":
                raise Unavailable(
                    "this search method needs the package optuna",
                    "pip install 'stoker[search]'",
                )
            hint = f"pip install {package}" if package else None
            raise Unavailable(f"the search failed: {answer['error']}", hint)
        return answer["ok"]

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._child.stdin is not None
        pipe = self._child.stdin.fileno()
        os.set_blocking(pipe, False)
        while data:
            _, ready, _ = select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failure("the search process does not read its requests")
            try:
                data = data[os.write(pipe, data) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._failure("the search process died") from None

    def _receive(self, deadline: float) -> bytes:
        assert self._child.stdout is not None
        pipe = self._child.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failure(f"the search process did not answer in {self._timeout:g} s")
            data = os.read(pipe, 1 << 16)
            if not data:
                raise self._failure("the search process died")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _failure(self, message: str) -> SearchDied:
        """Kill the process and return an error with the last line of its stderr."""
        self._child.kill()
        self._child.wait()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 2000))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        self.close()
        return SearchDied(f"{message}: {lines[-1]}" if lines else message)
