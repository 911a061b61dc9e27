"""The fake server of the browser tests returns the same fields as the real one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from stoker.features.artifacts import web as artifact_models
from stoker.features.history import web as timeline_models
from stoker.features.results import web as curve_models
from stoker.web import models, routes_tables

_ASK = """
import { Fake } from './fake.mjs';
import { someFiles } from './files.mjs';
const fake = new Fake(30);
fake.files = new Map([[15, someFiles()]]);
const none = new URLSearchParams();
const ask = (path, query = none) => [path, { schema: 2, ...fake.get(path, query) }];
console.log(JSON.stringify(Object.fromEntries([
  ask('/api/overview'), ask('/api/jobs'), ask('/api/jobs/15'), ask('/api/jobs/23'),
  ask('/api/jobs/15/log'), ask('/api/jobs/15/find', new URLSearchParams({ q: 'step 7' })),
  ask('/api/sweeps'), ask('/api/sweeps/brave-otter'), ask('/api/sweeps/brave-otter/results'),
  ask('/api/sweeps/brave-otter/importance'), ask('/api/jobs/15/trace'),
  ask('/api/sweeps/brave-otter/form'),
  ask('/api/gpus/history'), ask('/api/history'), ask('/api/history/failures'),
  ask('/api/history/columns'), ask('/api/sweeps/brave-otter/failures'),
  ask('/api/history/complete', new URLSearchParams({ text: 'sta', at: 3 })),
  ask('/api/curves', new URLSearchParams({ runs: 'brave-otter', group: 'lr', smooth: '0.5' })),
  ask('/api/compare', new URLSearchParams([['runs', '2'], ['runs', 'brave-otter/3']])),
  ask('/api/jobs/15/files'),
  ask('/api/jobs/15/files/preview', new URLSearchParams({ file: 'results.csv' })),
  ask('/api/folders'),
  ask('/api/timeline'),
])));
"""
_MODELS: dict[str, type[BaseModel]] = {
    "/api/overview": models.Overview,
    "/api/jobs": models.JobsAnswer,
    "/api/jobs/15": models.JobAnswer,
    "/api/jobs/23": models.JobAnswer,
    "/api/jobs/15/log": models.LogAnswer,
    "/api/jobs/15/find": models.FoundAnswer,
    "/api/sweeps": models.SweepsAnswer,
    "/api/sweeps/brave-otter": models.SweepAnswer,
    "/api/sweeps/brave-otter/results": models.ResultsAnswer,
    "/api/sweeps/brave-otter/importance": models.ImportanceAnswer,
    "/api/sweeps/brave-otter/form": models.SweepFormAnswer,
    "/api/jobs/15/trace": models.TraceAnswer,
    "/api/gpus/history": models.GpuHistoryAnswer,
    "/api/history": routes_tables.HistoryAnswer,
    "/api/history/failures": routes_tables.FailuresAnswer,
    "/api/history/columns": routes_tables.ColumnsAnswer,
    "/api/history/complete": routes_tables.CompletionAnswer,
    "/api/sweeps/brave-otter/failures": routes_tables.FailuresAnswer,
    "/api/curves": curve_models.ChartsAnswer,
    "/api/compare": curve_models.CompareAnswer,
    "/api/jobs/15/files": artifact_models.FilesAnswer,
    "/api/jobs/15/files/preview": artifact_models.PreviewAnswer,
    "/api/folders": models.FoldersAnswer,
    "/api/timeline": timeline_models.TimelineAnswer,
}


def test_fake_server_returns_the_fields_of_the_real_one(node: str, packages: Path) -> None:
    done = subprocess.run(
        [node, "--input-type=module", "-e", _ASK],
        cwd=Path(__file__).parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    responses: dict[str, Any] = json.loads(done.stdout)
    for path, model in _MODELS.items():
        model.model_validate(responses[path])
