"""No request causes a 500, and responses match their OpenAPI description."""

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
from tests.web import hostile_files
from tests.web.conftest import free_port
from tests.web.site import JSON, Site

schemathesis = pytest.importorskip("schemathesis")

# An endless stream, a route that starts processes, and one that delays wrong tokens.
_EXCLUDED = ("/api/events", "/api/daemon/act", "/api/login")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with jobs and a sweep, so that read requests find something."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    lab = Lab(folder, 2)
    lab.submit("echo 'stoker: loss=1 step=1'")
    lab.wait()
    lab.submit("--hold", "true")
    lab.ok("sweep", "--hold", "--name", "s", "echo {a}", "a=1,2")
    output = lab.state_dir / "jobs/0/1"
    output.mkdir()
    (output / "x.png").write_bytes(hostile_files.gray(2, 2, 100))
    yield Site(lab, "--port", free_port())
    lab.close()


def operations(site: Site) -> list[Any]:
    schema = schemathesis.openapi.from_dict(site.ask("GET", "/openapi.json", token=None).json)
    found = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path not in _EXCLUDED:
            found.append(operation)
    # Read requests first: later ones remove what they would return.
    return sorted(found, key=lambda op: (op.method.upper() != "GET", op.method.upper()))


@pytest.mark.filterwarnings("ignore")
def test_server_survives_generated_requests_that_match_its_schema(site: Site) -> None:
    answered: dict[str, set[int]] = defaultdict(set)
    for operation in operations(site):

        @given(case=operation.as_strategy(), uses_existing_names=st.booleans())
        @settings(
            max_examples=25, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case: Any, uses_existing_names: bool) -> None:
            if uses_existing_names:
                _use_existing_names(case)
            case.headers = {
                **{k: v for k, v in (case.headers or {}).items() if k.lower() != "host"},
                "Authorization": f"Bearer {site.token}",
            }
            if isinstance(case.body, dict):
                _hold_jobs(case.body)
            response = case.call(base_url=f"http://127.0.0.1:{site.place.port}")
            answered[case.operation.label].add(response.status_code)
            assert response.status_code < 500 or response.status_code == 503, (case, response.text)
            if 400 <= response.status_code < 500 and response.headers["content-type"] == [JSON]:
                fields = set(json.loads(response.text)["error"])
                assert fields - {"field", "at"} == {"code", "message", "hint"}
            case.operation.validate_response(response)

        ask()
    assert len(answered) > 15
    refused = [
        label for label, codes in answered.items() if label.startswith("GET") and min(codes) >= 400
    ]
    assert not refused  # otherwise only the first check was tested
    assert "Traceback" not in (site.lab.state_dir / "web.log").read_text()


def _use_existing_names(case: Any) -> None:
    """Replace generated names, which never exist, by names that do."""
    existing = {"id": 1, "name": "s", "uuid": "SIM-0"}
    case.path_parameters = {key: existing[key] for key in case.path_parameters or ()}
    if "id" in case.path_parameters and case.method == "PATCH":
        case.path_parameters = {"id": 2}
    if case.method == "GET":
        if "metric" in (case.query or {}):
            case.query["metric"] = "loss"
        if "runs" in (case.query or {}):
            case.query["runs"] = ["1", "s"]
        if "file" in (case.query or {}):
            case.query["file"] = "x.png"
        return
    case.headers = {**(case.headers or {}), "Content-Type": JSON}
    if not isinstance(case.body, dict):
        return
    case.body.pop("cwd", None)
    if "parameters" in case.body and case.operation.path == "/api/sweeps":
        values = list(case.body["parameters"].values())[:1] or ["1,2"]
        case.body |= {"command": "echo {a}", "parameters": {"a": values[0]}}
        case.body.pop("argv", None)
        case.body.pop("name", None)
    elif "text" not in case.body and case.operation.path == "/api/jobs":
        case.body["command"] = "true"
        case.body.pop("argv", None)


def _hold_jobs(body: dict[str, Any]) -> None:
    """Hold generated jobs, so that generated commands never run."""
    if "command" in body or "argv" in body or "text" in body:
        if "parameters" in body:
            body.setdefault("options", {})
            if isinstance(body["options"], dict):
                body["options"]["hold"] = True
        else:
            body["hold"] = True
    if body.get("action") in ("release", "rerun", "resume", "rerun_failed", "extend"):
        body["action"] = "hold"
    if body.get("action") == "add":
        body["dry_run"] = True


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


_PATHS = [
    "/api/jobs", "/api/batch", "/api/sweeps", "/api/jobs/act", "/api/jobs/2", "/api/jobs/2/note",
    "/api/annotate",
]  # fmt: skip
_KEYS = (
    "command argv text parameters ids action env cwd gpus gpu_mem after begin time_limit tags name"
    " base continued jobs sweeps star add_tags remove_tags"
)


@given(
    path=st.sampled_from(_PATHS),
    body=_JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(_KEYS.split(), _JSON)),
)
@settings(
    max_examples=300, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_server_survives_arbitrary_json(site: Site, path: str, body: Any) -> None:
    if isinstance(body, dict):
        _hold_jobs(body)
    methods = {"/api/jobs/2": "PATCH", "/api/jobs/2/note": "PUT"}
    method = methods.get(path, "POST")
    reply = site.ask(method, path, json.dumps(body).encode(), {"Content-Type": JSON})
    assert reply.status < 500, (path, body, reply)


@given(target=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60))
@settings(
    max_examples=200, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_server_survives_arbitrary_paths(site: Site, target: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", site.place.port)) as connection:
        connection.putrequest("GET", f"/{target}", skip_host=True)
        connection.putheader("Host", site.host)
        connection.putheader("Authorization", f"Bearer {site.token}")
        connection.endheaders()
        if not target.startswith("api/events"):
            assert connection.getresponse().status < 500
