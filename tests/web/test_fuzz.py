"""Whatever is sent, the server has words for it: never a 500, and answers are as described."""

from __future__ import annotations

import http.client
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lab import Lab
from tests.web.conftest import free_port
from tests.web.site import JSON, Site

schemathesis = pytest.importorskip("schemathesis")

# One has no end, one starts processes, and made-up tokens are answered slowly.
_LEFT_OUT = ("/api/events", "/api/daemon/act", "/api/login")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With jobs and a sweep in every state, so that questions find something."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    lab = Lab(folder, 2)
    lab.submit("echo 'stoker: loss=1 step=1'")
    lab.wait()
    lab.submit("--hold", "true")
    lab.ok("sweep", "--hold", "--name", "s", "echo {a}", "a=1,2")
    yield Site(lab, "--port", free_port())
    lab.close()


def operations(site: Site) -> list[Any]:
    schema = schemathesis.openapi.from_dict(site.ask("GET", "/openapi.json", token=None).json)
    found = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path not in _LEFT_OUT:
            found.append(operation)
    # Questions first: some of the others make their answers short.
    return sorted(found, key=lambda one: (one.method.upper() != "GET", one.method.upper()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_request_of_the_described_shape_breaks_the_server(site: Site) -> None:
    answered: dict[str, set[int]] = defaultdict(set)
    for operation in operations(site):

        @given(case=operation.as_strategy(), is_near=st.booleans())
        @settings(
            max_examples=25, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case: Any, is_near: bool) -> None:
            if is_near:
                _come_near(case)
            case.headers = {
                **{k: v for k, v in (case.headers or {}).items() if k.lower() != "host"},
                "Authorization": f"Bearer {site.token}",
            }
            if isinstance(case.body, dict):
                _tame(case.body)
            answer = case.call(base_url=f"http://127.0.0.1:{site.place.port}", timeout=60)
            answered[case.operation.label].add(answer.status_code)
            assert answer.status_code < 500 or answer.status_code == 503, (case, answer.text)
            if 400 <= answer.status_code < 500 and answer.headers["content-type"] == [JSON]:
                said = set(json.loads(answer.text)["error"])
                assert said - {"field"} == {"code", "message", "hint"}
            case.operation.validate_response(answer)

        ask()
    assert len(answered) > 15
    refused = [
        label for label, codes in answered.items() if label.startswith("GET") and min(codes) >= 400
    ]
    assert not refused  # or nothing was tried behind the first check
    assert "Traceback" not in (site.lab.state_dir / "web.log").read_text()


def _come_near(case: Any) -> None:
    """Made-up names are never those of anything: ask for what is there."""
    there = {"id": 1, "name": "s", "uuid": "SIM-0"}
    case.path_parameters = {key: there[key] for key in case.path_parameters or ()}
    if "id" in case.path_parameters and case.method == "PATCH":
        case.path_parameters = {"id": 2}
    if case.method == "GET":
        if "metric" in (case.query or {}):
            case.query["metric"] = "loss"
        return
    case.headers = {**(case.headers or {}), "Content-Type": JSON}
    if not isinstance(case.body, dict):
        return
    case.body.pop("cwd", None)
    if "parameters" in case.body:
        values = list(case.body["parameters"].values())[:1] or ["1,2"]
        case.body |= {"command": "echo {a}", "parameters": {"a": values[0]}}
        case.body.pop("argv", None)
        case.body.pop("name", None)
    elif "text" not in case.body and case.operation.path == "/api/jobs":
        case.body["command"] = "true"
        case.body.pop("argv", None)


def _tame(body: dict[str, Any]) -> None:
    """Nothing that was made up is run, whatever it says."""
    if "command" in body or "argv" in body or "text" in body:
        if "parameters" in body:
            body.setdefault("options", {})
            if isinstance(body["options"], dict):
                body["options"]["hold"] = True
        else:
            body["hold"] = True
    if body.get("action") in ("release", "rerun", "resume", "rerun_failed", "extend"):
        body["action"] = "hold"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


_PATHS = ["/api/jobs", "/api/batch", "/api/sweeps", "/api/jobs/act", "/api/jobs/2"]
_KEYS = (
    "command argv text parameters ids action env cwd gpus gpu_mem after begin time_limit tags name"
)


@pytest.mark.slow
@given(
    path=st.sampled_from(_PATHS),
    body=_JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(_KEYS.split(), _JSON)),
)
@settings(
    max_examples=300, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_no_json_at_all_breaks_the_server(site: Site, path: str, body: Any) -> None:
    if isinstance(body, dict):
        _tame(body)
    method = "PATCH" if path == "/api/jobs/2" else "POST"
    reply = site.ask(method, path, json.dumps(body).encode(), {"Content-Type": JSON})
    assert reply.status < 500, (path, body, reply)


@pytest.mark.slow
@given(target=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60))
@settings(
    max_examples=200, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_no_path_breaks_the_server(site: Site, target: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", site.place.port, timeout=60)) as line:
        line.putrequest("GET", f"/{target}", skip_host=True)
        line.putheader("Host", site.host)
        line.putheader("Authorization", f"Bearer {site.token}")
        line.endheaders()
        if not target.startswith("api/events"):
            assert line.getresponse().status < 500
