"""Routes that change something. The single writer thread handles all of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request
from fastapi.responses import Response

from stoker.client.queue import Queue
from stoker.errors import Error
from stoker.features.sweeps import web as sweep_web
from stoker.web import actions, job_form, models
from stoker.web.context import guard_request_of, web_of
from stoker.web.models import ErrorAnswer
from stoker.web.responses import error_response, json_response, refusal_response
from stoker.web.routes_read import ERRORS, JobId
from stoker.web.sessions import SESSION_SECONDS

CHANGE_ERRORS: dict[int | str, dict[str, object]] = {
    409: {"model": ErrorAnswer, "description": "the state does not allow this"},
    413: {"model": ErrorAnswer, "description": "the body is too large"},
    415: {"model": ErrorAnswer, "description": "the body is not JSON"},
    429: {"model": ErrorAnswer, "description": "too many wrong tokens"},
}
_Content = dict[str, object]


async def _submit_token(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=200,
            description="a text of your choice: a request that is repeated with the same key and"
            " the same body within a week adds nothing twice, and gets the first answer",
        ),
    ] = None,
) -> str | None:
    """The token for `submit_tokens.py`. An edited form with the same key is another request."""
    if not idempotency_key:
        return None
    said = f"{request.url.path}\0{idempotency_key}\0".encode() + await request.body()
    return hashlib.sha256(said).hexdigest()


SubmitToken = Annotated[str | None, Depends(_submit_token)]
router = APIRouter(prefix="/api", responses={**ERRORS, **CHANGE_ERRORS}, tags=["act"])


@router.post("/login", status_code=204, response_class=Response)
async def login(request: Request, form: models.Login) -> Response:
    """Exchange the token for a session cookie."""
    guard = web_of(request).guard
    source = request.client.host if request.client else ""
    now = time.time()
    if not guard.keys.is_token(form.token) and not guard.keys.use_ticket(form.token, now):
        return refusal_response(*guard.wrong_token(source))
    session = guard.keys.session(now, guard.client_of(guard_request_of(request)))
    cookie = (
        f"{guard.cookie}={session}; Path=/; Max-Age={SESSION_SECONDS}; HttpOnly; SameSite=Strict"
    )
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@router.post("/logout", status_code=204, response_class=Response)
async def logout(request: Request) -> Response:
    """Revoke the session of the cookie."""
    guard = web_of(request).guard
    for session in guard.sessions_of(guard_request_of(request)):
        guard.keys.revoke(session)
    expired = f"{guard.cookie}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
    return Response(status_code=204, headers={"Set-Cookie": expired})


@router.post("/jobs", status_code=201, response_model=models.SubmitAnswer)
async def submit(request: Request, form: models.NewJob, token: SubmitToken) -> Response:
    """Queue a command; with dry_run, return what would be queued (200)."""

    def work(queue: Queue) -> dict[str, object]:
        spec = job_form.job_of(queue, form)
        if form.dry_run:
            return {"dry_run": job_form.shown([spec])}
        return job_form.submit(queue, [spec], time.time(), token)

    return await _submit_form(request, form, work)


@router.post("/batch", status_code=201, response_model=models.SubmitAnswer)
async def submit_batch(request: Request, form: models.NewBatch, token: SubmitToken) -> Response:
    """Queue many jobs from a text, all of them or none."""

    def work(queue: Queue) -> dict[str, object]:
        specs = job_form.jobs_of(queue, form)
        if form.dry_run:
            return {"dry_run": job_form.shown(specs[:1000]), "total": len(specs)}
        return job_form.submit(queue, specs, time.time(), token)

    return await _submit_form(request, form, work)


@router.post("/sweeps", status_code=201, response_model=models.SweepStarted)
async def start_sweep(request: Request, form: models.NewSweep, token: SubmitToken) -> Response:
    """Start a sweep or continue it; with dry_run, return its first commands (200)."""
    web = web_of(request)

    def work(queue: Queue) -> dict[str, object]:
        if form.dry_run:
            return sweep_web.preview(queue, form)
        return sweep_web.start(queue, form, token)

    try:
        found = await web.threads.write(work)
    except Error as error:
        return error_response(error, error.field)
    return await done(request, found, 200 if form.dry_run else 201)


@router.post("/jobs/act", response_model=models.Changed)
async def act_on_jobs(request: Request, form: models.JobsAct, token: SubmitToken) -> Response:
    """Cancel, hold, release, rerun, remove or reorder jobs."""
    web = web_of(request)
    found = await web.threads.write(lambda queue: actions.act_on_jobs(queue, form, token))
    return await done(request, found)


@router.patch("/jobs/{id}", response_model=models.Changed)
async def edit_job(request: Request, id: JobId, form: models.JobPatch) -> Response:
    """Change a job that has not started."""
    web = web_of(request)
    return await done(request, await web.threads.write(lambda queue: actions.edit(queue, id, form)))


@router.post("/sweeps/{name}/act", response_model=models.Changed)
async def act_on_sweep(
    request: Request,
    name: Annotated[str, Path(max_length=200)],
    form: models.SweepAct,
    token: SubmitToken,
) -> Response:
    """Stop, resume, rerun, extend or remove a sweep, or add values or a point to it."""
    try:
        found = await web_of(request).threads.write(
            lambda queue: sweep_web.act(queue, name, form, token)
        )
    except Error as error:
        return error_response(error, error.field)
    return await done(request, found)


@router.post("/gpus/{uuid:path}/act", response_model=models.Changed)
async def act_on_gpu(
    request: Request, uuid: Annotated[str, Path(max_length=200)], form: models.GpuAct
) -> Response:
    """Drain or restore a GPU, or change its number of slots."""
    web = web_of(request)

    def act(queue: Queue) -> dict[str, object]:
        changed = actions.act_on_gpu(queue, uuid, form)
        web.hub.gpus_changed()
        return changed

    return await done(request, await web.threads.write(act))


@router.post("/daemon/act", response_model=models.Changed)
async def act_on_daemon(request: Request, form: models.DaemonAct) -> Response:
    """Start the daemon, stop it from starting jobs, or resume."""
    web = web_of(request)
    found = await web.threads.write(lambda queue: actions.act_on_daemon(queue, form))
    return await done(request, found)


async def _submit_form(
    request: Request, form: models.NewJob | models.NewBatch, work: Callable[[Queue], _Content]
) -> Response:
    """Run `work` in the writer thread; an error response names the field at fault."""
    try:
        found = await web_of(request).threads.write(work)
    except Error as error:
        return error_response(error, error.field)
    return await done(request, found, 200 if form.dry_run else 201)


async def done(request: Request, content: dict[str, object], status: int = 200) -> Response:
    """Respond, and let open browser tabs see the change at once."""
    web_of(request).hub.wake()
    return json_response(request, content, status)
