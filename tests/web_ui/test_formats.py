"""Rules that the web UI applies in the browser agree with those in Python."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

from stoker import states
from stoker.client.submit.job_options import JOB_OPTIONS
from stoker.client.submit.parsed_options import read_options
from stoker.engine.model import Request
from stoker.features.results.export import short
from stoker.text.durations import format_duration, parse_duration
from stoker.text.logs.log_lines import visible
from stoker.text.sizes import format_size, parse_size

# Options without an input; the API accepts all but `env_file`.
_NOT_SHOWN = {"env_file", "grace", "signal", "keep_children", "no_bind", "no_snapshot", "stdout",
              "stderr"}  # fmt: skip
_JOB = {
    "id": 7, "command": "true", "argv": ["true"], "shell": True, "name": None, "cwd": "/tmp",
    "state": "done", "gpu_mem_auto": False, "gpu_mem_bytes": None, "gpu_ids": [], "prefer": [],
    "gpu_model": None, "min_gpu_mem_bytes": None, "on_oom": None, "warm": None, "share": None,
    "notify": [],
    "time_limit": None, "conda": None, "venv": None, "uv": False, "module": [], "container": None,
    "mount": [],
    "priority": 0, "retries": 0, "tags": [], "group": None, "after": [], "eligible_at": None,
    "attempts": 1, "restartable": False, "exclusive": False, "preemptible": False, "snapshot": None,
}  # fmt: skip

_RUN = """
import { build } from 'esbuild';
const code = `
  export * from './src/format';
  export { visible } from './src/words';
  export { LABELS } from './src/words';
  export { OPTION_NAMES, requestOptions } from './src/screens/option-fields';
  export { cloneOf, exactSize, exactTime } from './src/screens/submit-clone';
  export { WAITING, ACTIVE, FINAL, STATES } from './src/types';
`;
const { outputFiles } = await build({
  stdin: { contents: code, resolveDir: '.' }, bundle: true, format: 'esm', write: false,
});
const rules = await import(`data:text/javascript;base64,${btoa(
  Array.from(outputFiles[0].contents, (byte) => String.fromCharCode(byte)).join(''))}`);
let text = '';
for await (const chunk of process.stdin) text += chunk;
const wanted = JSON.parse(text);
const call = (rule, inputs) =>
  inputs.map((one) => (Array.isArray(one) ? rule(...one) : rule(one)));
console.log(JSON.stringify(Object.fromEntries(Object.entries(wanted).map(
  ([name, inputs]) => [name, inputs === null ? rules[name] : call(rules[name], inputs)]))));
"""


def _in_browser(node: str, packages: Path, **inputs: list[Any] | None) -> dict[str, list[Any]]:
    """The results of functions for each input, and the values of constants (None)."""
    done = subprocess.run(
        [node, "--input-type=module", "-e", _RUN],
        cwd=packages, input=json.dumps(inputs), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_sizes_durations_and_numbers_have_the_same_text(node: str, packages: Path) -> None:
    chosen = random.Random(1)
    sizes = [n * unit // 4 for unit in (4, 1 << 12, 1 << 22, 1 << 32, 1 << 42) for n in range(64)]
    sizes += [int(2 ** chosen.uniform(0, 60)) for _ in range(2000)]
    seconds = [n / 8 for n in range(100)] + [2 ** chosen.uniform(-5, 30) for _ in range(2000)]
    seconds += [59.99, 60, 3599.9, 3600, 86399, 86400]
    numbers = [0.1 + 0.2, 1e-5, 1.5e-4, 9.999999e-5, 123456.7, 1234567.8, 1e300, -2.5e-7, 0, 3, -7]
    numbers += [chosen.choice((-1, 1)) * 10 ** chosen.uniform(-12, 12) for _ in range(2000)]
    found = _in_browser(node, packages, bytes=sizes, duration=seconds, value=numbers)
    assert found["bytes"] == [format_size(n) for n in sizes]
    assert found["duration"] == [format_duration(n) for n in seconds]
    assert found["value"] == [short(n) for n in numbers]


def test_invisible_characters_are_escaped_alike(node: str, packages: Path) -> None:
    texts = ["plain é 日本 🙂", "a\u202egpj.exe", "zero\u200bwidth\ufeff", "\x07\x7f\x9b\x00",
             "a\tb", "\u2028\u2029", "no\u00a0break", "\ue0b0"]  # fmt: skip
    assert _in_browser(node, packages, visible=texts)["visible"] == [visible(one) for one in texts]


def test_form_of_a_clone_is_parsed_to_the_same_values(node: str, packages: Path) -> None:
    sizes = [1, 1000, 1024, 1536 << 20, 20 << 30, (20 << 30) + 1024, 3 << 40]
    seconds = [0.5, 1, 59, 60, 61, 3600, 5400, 86400, 90061]
    found = _in_browser(node, packages, exactSize=sizes, exactTime=seconds)
    assert [parse_size(text) for text in found["exactSize"]] == sizes
    assert [parse_duration(text) for text in found["exactTime"]] == seconds


def test_forms_show_every_option_of_a_job_with_a_label(node: str, packages: Path) -> None:
    found = _in_browser(node, packages, OPTION_NAMES=None, LABELS=None)
    shown = {*found["OPTION_NAMES"], "name"}
    assert shown == {option.key for option in JOB_OPTIONS} - _NOT_SHOWN
    assert shown <= set(found["LABELS"])


def test_clone_fills_every_field_and_sends_the_options_of_its_job(
    node: str, packages: Path
) -> None:
    request = Request(
        gpus=4, backend="lab", nodes=2, options=("qos=a,b", "exclusive="), cpus=8,
        host_memory=1536 << 20, needs=("a=1", "b=2"),
    )  # fmt: skip
    job = {**_JOB, "on": request.backend, "nodes": request.nodes, "gpus": request.gpus,
           "option": list(request.options), "cpus": request.cpus,
           "mem_bytes": request.host_memory, "need": {"a": 1, "b": 2}}  # fmt: skip
    (clone,) = _in_browser(node, packages, cloneOf=[job])["cloneOf"]
    names = _in_browser(node, packages, OPTION_NAMES=None)["OPTION_NAMES"]
    assert set(names) - {"env"} <= set(clone["values"])  # the server copies the environment
    sent = _in_browser(node, packages, requestOptions=[[clone["values"], names, "local"]])
    (options,) = sent["requestOptions"]
    assert read_options(options).request == request


def test_options_of_backends_are_sent_only_if_a_backend_is_chosen(
    node: str, packages: Path
) -> None:
    values = {"nodes": "2", "option": "a=1\nb=2,3"}
    names = ["on", "nodes", "option"]
    both = {"nodes": 2, "option": ["a=1", "b=2,3"]}
    cases = [(values, "local"), (values, "lab"), ({**values, "on": "lab"}, "local"),
             ({**values, "on": "local"}, "lab")]  # fmt: skip
    sent = _in_browser(
        node, packages, requestOptions=[[given, names, default] for given, default in cases]
    )
    assert sent["requestOptions"] == [{}, both, {"on": "lab", **both}, {"on": "local"}]


def test_states_have_the_same_groups(node: str, packages: Path) -> None:
    found = _in_browser(node, packages, WAITING=None, ACTIVE=None, FINAL=None, STATES=None)
    groups = tuple(tuple(found[name]) for name in ("WAITING", "ACTIVE", "FINAL"))
    assert groups == (states.WAITING, states.ACTIVE, states.FINAL)
    assert sorted(found["STATES"]) == sorted(states.STATES)
