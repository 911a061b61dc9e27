// A fake server with the HTTP API of `stoker web` and no queue behind it, for browser tests that need
// states which are hard to reach with a real queue.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { codeOf, compareOf, curvesOf, diffOf } from './curves_data.mjs';
import {
  busyGpu,
  canStart,
  gpu,
  iso,
  job,
  occupiedGpu,
  trace,
  trainingLog,
  whyOf,
} from './data.mjs';
import { annotate, knownTags, noteFields, noteSummary, writeNote } from './notes_data.mjs';
import { addTo, choicesOf, formOf, importance } from './sweep-data.mjs';
import { timeline } from './timeline_data.mjs';
import { filtered, sorted, tableAnswer } from './table-data.mjs';

import { filesOf, imageOf } from './files.mjs';
import { runOf, shortWhyOf, whatIfOf } from './run-data.mjs';

const STATIC = join(dirname(fileURLToPath(import.meta.url)), '../../src/stoker/web/static');
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain',
};
const CSP =
  "default-src 'self'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
const STARTED = ['starting', 'running', 'stopping'];
const ACTIVE = ['submitted', ...STARTED];
const WAITING = ['queued', 'held'];
const FINAL = ['done', 'failed', 'cancelled', 'lost'];
const isInQueue = (one) => WAITING.includes(one.state) || one.state === 'submitted';
const GROUPS = { active: ACTIVE, waiting: WAITING, final: FINAL };

class ApiError extends Error {
  constructor(status, code, message, hint = '', field = undefined) {
    super(message);
    Object.assign(this, { status, code, hint, field });
  }
}

export class Fake {
  token = 'test-token';
  readOnly = false;
  draining = false;
  jobs = new Map();
  logs = new Map();
  gpus = [];
  backends = [];
  defaultBackend = 'local';
  sweeps = new Map();
  streams = new Set();
  ring = [];
  requests = [];
  eventId = Date.now();
  session = 'session-1';

  constructor(count = 30) {
    const now = Date.now() / 1000;
    const running = Math.min(6, Math.ceil(count / 5));
    const queued = count <= 30 ? Math.ceil(count / 3) : Math.floor(count * 0.4);
    for (let id = 1; id <= count; id++) {
      const isNew = id > count - queued;
      const isRunning = !isNew && id > count - queued - running;
      const state = isNew
        ? id % 9 === 5
          ? 'held'
          : 'queued'
        : isRunning
          ? 'running'
          : ['done', 'done', 'failed', 'done', 'cancelled', 'done', 'done'][id % 7];
      const devices = isRunning ? [{ index: id - (count - queued - running) - 1, uuid: '' }] : [];
      this.jobs.set(id, job(id, state, now, { devices }));
      this.logs.set(id, Buffer.from(trainingLog(120, state === 'failed')));
    }
    const live = [...this.jobs.values()].filter((one) => one.state === 'running');
    this.gpus = [
      ...live.map((one, i) => busyGpu(i, one.id)),
      occupiedGpu(live.length),
      gpu(live.length + 1, count ? { state: 'drained' } : {}),
    ];
    if (count) this.addSweep('brave-otter', count >= 100 ? 400 : 24, now);
  }

  addSweep(name, total, now = Date.now() / 1000, done = 0.7) {
    const rows = [];
    for (let trial = 1; trial <= total; trial++) {
      const lr = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2][trial % 5];
      const opt = trial % 3 ? 'adam' : 'sgd';
      const state = trial > total * done ? 'queued' : trial % 13 === 0 ? 'failed' : 'done';
      const loss =
        state === 'done'
          ? 0.2 +
            Math.abs(Math.log10(lr / 1e-3)) * 0.3 +
            (opt === 'sgd' ? 0.2 : 0) +
            ((trial * 7) % 10) / 60
          : null;
      rows.push({
        trial,
        lr,
        opt,
        wd: trial % 2 ? 0 : 1e-4,
        val_loss: loss,
        acc: loss === null ? null : 1 - loss / 3,
        state,
        seconds: state === 'queued' ? null : 200 + trial,
        job: trial,
      });
    }
    this.sweeps.set(name, {
      name,
      method: 'random',
      command: 'python train.py --lr {lr} --opt {opt} --wd {wd}',
      metric: { name: 'val_loss', goal: 'min' },
      stopped: null,
      rows,
      created: now,
    });
    for (const row of rows) {
      const one = this.jobs.get(row.job);
      if (one && row.trial < 8) Object.assign(one, { sweep: name, trial: row.trial });
    }
  }

  // -- lifecycle ---------------------------------------------------------------------------------

  async listen(port = 0) {
    this.server = createServer((request, response) => void this.answer(request, response));
    await new Promise((done) => this.server.listen(port, '127.0.0.1', done));
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}`;
    return this;
  }

  get link() {
    return `${this.url}/#token=${this.token}`;
  }

  async close() {
    for (const stream of this.streams) stream.destroy();
    this.streams.clear();
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  // -- changes, as the daemon would make them ----------------------------------------------------

  change(id, fields) {
    Object.assign(this.jobs.get(id), fields);
    this.publish([id]);
  }

  add(fields) {
    const id = Math.max(0, ...this.jobs.keys()) + 1;
    this.jobs.set(id, job(id, 'queued', Date.now() / 1000, fields));
    this.logs.set(id, Buffer.from(''));
    this.publish([id]);
    return id;
  }

  write(id, text) {
    this.logs.set(id, Buffer.concat([this.logs.get(id) ?? Buffer.alloc(0), Buffer.from(text)]));
  }

  publish(ids, more = {}) {
    const change = {
      event_id: ++this.eventId,
      now: iso(Date.now() / 1000),
      counts: this.counts(),
      gpus: this.gpus,
      daemon: this.daemon(),
      jobs: ids.map((id) => this.withWait(this.jobs.get(id))).filter(Boolean),
      removed: ids.filter((id) => !this.jobs.has(id)),
      sweeps: [...this.sweeps.values()].map((one) => this.summary(one)),
      removed_sweeps: [],
      waits: {},
      queue: this.queue().map((one) => one.id),
      ...more,
    };
    const text = `id: ${this.eventId}\nevent: change\ndata: ${JSON.stringify(change)}\n\n`;
    this.ring.push({ id: this.eventId, text });
    for (const stream of this.streams) stream.write(text);
  }

  // -- reading -----------------------------------------------------------------------------------

  counts() {
    const counts = {};
    for (const one of this.jobs.values()) counts[one.state] = (counts[one.state] ?? 0) + 1;
    return counts;
  }

  daemon() {
    return { pid: 4711, draining: this.draining };
  }

  /** As in client/live/live_state.py: jobs that can start by priority, then jobs that wait for something else. */
  queue() {
    const rank = (one) =>
      one.state === 'submitted'
        ? 4
        : canStart(one)
          ? 0
          : one.eligible_at
            ? 1
            : one.state === 'held'
              ? 3
              : 2;
    return [...this.jobs.values()]
      .filter(isInQueue)
      .sort((a, b) => rank(a) - rank(b) || (rank(a) ? 0 : b.priority - a.priority) || a.id - b.id)
      .slice(0, 200);
  }

  /** A job with the fields that waiting jobs have in addition. */
  withWait(one) {
    if (one && STARTED.includes(one.state)) return { ...one, run: runOf(one) };
    if (!one || !isInQueue(one)) return one;
    const place = this.queue().indexOf(one);
    const isReady = canStart(one);
    return {
      starts_in: isReady && one.id % 4 !== 2 ? 60 + ((one.id * 37) % 4000) : null,
      ...one,
      why: one.why ?? whyOf(one, isReady ? place : 0),
      why_short: one.why_short ?? one.why ?? shortWhyOf(one, isReady ? place : 0),
      ready: isReady,
    };
  }

  summary(sweep) {
    const trials = {};
    for (const row of sweep.rows) trials[row.state] = (trials[row.state] ?? 0) + 1;
    const best = sweep.rows
      .filter((row) => row.val_loss !== null)
      .sort((a, b) => a.val_loss - b.val_loss)[0];
    const { name, method, command, metric, stopped } = sweep;
    return {
      name,
      method,
      command,
      metric,
      stopped,
      trials,
      total: sweep.rows.length,
      state: stopped ? 'stopped' : trials.queued || trials.running ? 'active' : 'finished',
      best: best
        ? {
            trial: best.trial,
            value: best.val_loss,
            params: { lr: best.lr, opt: best.opt, wd: best.wd },
          }
        : null,
      ...noteSummary(sweep),
    };
  }

  overview() {
    const all = [...this.jobs.values()];
    return {
      now: iso(Date.now() / 1000),
      event_id: this.eventId,
      read_only: this.readOnly,
      user: 'ada',
      host: 'babbage',
      daemon: this.daemon(),
      gpu_error: null,
      gpus: this.gpus,
      backends: this.backends,
      resources: {
        cores: 16,
        cores_reserved: 5,
        memory_bytes: 64 * 2 ** 30,
        memory_reserved_bytes: 0,
        counters: {},
        words: '5 of 16 cores reserved',
      },
      default_backend: this.defaultBackend,
      running: all.filter((one) => STARTED.includes(one.state)).map((one) => this.withWait(one)),
      queue: this.queue().map((one) => this.withWait(one)),
      recent: all
        .filter((one) => FINAL.includes(one.state))
        .sort((a, b) => b.ended_at.localeCompare(a.ended_at))
        .slice(0, 20),
      counts: this.counts(),
      sweeps: [...this.sweeps.values()].map((one) => this.summary(one)),
    };
  }

  get(path, query) {
    let found;
    const table = tableAnswer(this, path, query, quickFilter(query), refusedFilter);
    if (table) return table;
    if (path === '/api/overview') return this.overview();
    if (path === '/api/jobs') return this.list(query);
    if ((found = filesOf(this, path, query))) return found;
    if ((found = /^\/api\/jobs\/(\d+)(?:\/(\w+))?$/.exec(path))) {
      const one = this.jobs.get(Number(found[1]));
      if (!one)
        throw new ApiError(
          404,
          'not_found',
          `there is no job ${found[1]}`,
          '`stoker ls` shows them',
        );
      return this.ofJob(one, found[2], query);
    }
    if (path === '/api/curves') return curvesOf(this, query);
    if (path === '/api/compare') return compareOf(this, query);
    if (path === '/api/folders') return { folders: ['/home/ada/vision', '/home/ada/llm'] };
    if (path === '/api/gpus/history') return this.gpuHistory();
    if (path === '/api/tags') return knownTags(this);
    if (path === '/api/timeline') return timeline(this, query);
    if (path.startsWith('/api/gpus/'))
      return {
        series: gpuOnly(
          trace(Date.now() / 1000, Number(query.get('hours') ?? 6), 200, path.length),
        ),
      };
    if (path === '/api/sweeps')
      return { sweeps: [...this.sweeps.values()].reverse().map((one) => this.summary(one)) };
    if ((found = /^\/api\/sweeps\/([^/]+)(?:\/(\w+))?$/.exec(path))) {
      const sweep = this.sweeps.get(decodeURIComponent(found[1]));
      if (!sweep) throw new ApiError(404, 'not_found', 'there is no such sweep');
      return this.ofSweep(sweep, found[2], query);
    }
    throw new ApiError(404, 'not_found', 'not found');
  }

  list(query) {
    const limit = Number(query.get('limit') ?? 100);
    const before = Number(query.get('before') ?? Infinity);
    const fits = quickFilter(query);
    const matches = (one) => one.id < before && fits(one);
    const found = [...this.jobs.values()].sort((a, b) => b.id - a.id).filter(matches);
    return { jobs: found.slice(0, limit), next: found.length > limit ? found[limit - 1].id : null };
  }

  gpuHistory() {
    const shares = {
      busy: '81%',
      other_users: '0%',
      no_work: '10%',
      jobs_waited: '9%',
      not_running: '0%',
    };
    return {
      since: new Date(Date.now() - 86_400_000).toISOString(),
      seconds: 86_400,
      gpus: this.gpus.map(({ index, uuid }) => ({
        index,
        uuid,
        jobs: 12,
        shares,
        reasons: [{ reason: `reserved for job ${25 + index}`, seconds: 7800 }],
      })),
    };
  }

  ofJob(one, part, query) {
    const log = this.logs.get(one.id) ?? Buffer.alloc(0);
    const isOver = FINAL.includes(one.state);
    if (part === undefined) {
      const status = one.signal ?? (one.exit_code ?? 0) << 8;
      const history = Array.from({ length: one.attempts }, (_, i) => ({
        number: i + 1,
        devices: one.devices.map((d) => d.index),
        node: one.node,
        node_gpus: one.node_gpus,
        started_at: one.started_at,
        ended_at: one.ended_at,
        status: one.ended_at ? status : null,
        cause: null,
        detail: null,
        machine: null,
        result: one.ended_at ? `exit ${one.exit_code ?? 0}` : '',
      }));
      const metrics = one.attempts
        ? {
            val_loss: { last: 0.2134, min: 0.2101, max: 2.31, n: 60, step: 590 },
            acc: { last: 0.91, min: 0.1, max: 0.915, n: 60, step: 590 },
          }
        : {};
      const { starts_in: _, why_short: __, ...waiting } = this.withWait(one);
      return {
        job: {
          ready: false,
          run: null,
          ...waiting,
          ...noteFields(one),
          code: codeOf(this, one.id),
          what_if: canStart(one) ? whatIfOf(one) : [],
          history,
          events: one.events ?? [],
          params: one.params ?? (one.sweep ? { lr: 0.001, opt: 'adam', wd: 0 } : {}),
          metrics,
          output_dir: `/home/ada/.local/state/stoker/jobs/0/${one.id}`,
          checkpoint_dir: `/home/ada/.local/state/stoker/jobs/0/${one.id}/checkpoints`,
          why: waiting.ready ? waiting.why.split('; ') : [waiting.why ?? `it is ${one.state}`],
        },
      };
    }
    if (part === 'log')
      return { ...renderedLog(log, query), attempt: one.attempts, is_over: isOver };
    if (part === 'find') {
      const from = Number(query.get('from') ?? 0);
      const needle = query.has('error')
        ? /traceback|error:/gi
        : new RegExp(
            Buffer.from(query.get('q')).toString('latin1').replace(/[^\w]/g, '\\$&'),
            'gi',
          );
      const places = shownMatches(log.toString('latin1'), needle);
      const at = places.find((place) => place >= from) ?? null;
      return {
        at,
        searched_to: log.length,
        size: log.length,
        nth: at === null ? null : places.indexOf(at) + 1,
        total: places.length,
      };
    }
    if (part === 'curve')
      return {
        points: Array.from({ length: 60 }, (_, i) => [
          i * 10,
          2 / (1 + i / 8) + Math.sin(i) * 0.02 + 0.2,
        ]),
      };
    if (part === 'diff') return diffOf(this, one.id);
    if (part === 'trace')
      return { series: one.attempts ? trace(Date.now() / 1000, 1, 120, one.id) : {} };
    throw new ApiError(404, 'not_found', 'not found');
  }

  ofSweep(sweep, part, query) {
    if (part === undefined) {
      return {
        ...this.summary(sweep),
        ...noteFields(sweep),
        spec: {},
        requested: sweep.method === 'grid' ? null : sweep.rows.length,
        actions: choicesOf(sweep),
        other_code: [],
        missing: sweep.rows.filter((row) => ['cancelled', 'lost'].includes(row.state)).length,
        params: [
          { name: 'lr', kind: 'log' },
          { name: 'opt', kind: 'choices', values: ['sgd', 'adam'] },
          { name: 'wd', kind: 'choices', values: [0, 1e-4] },
        ],
      };
    }
    if (part === 'results') {
      const matching = filtered(sweep.rows, query.get('where'), refusedFilter);
      const rows = sorted(matching, query.get('sort'));
      const offset = Number(query.get('offset') ?? 0);
      return {
        columns: ['trial', 'lr', 'opt', 'wd', 'val_loss', 'acc', 'state', 'seconds', 'job'],
        rows: rows.slice(offset, offset + Number(query.get('limit') ?? 500)),
        total: rows.length,
        metric: sweep.metric,
      };
    }
    if (part === 'importance') return importance;
    if (part === 'form') return formOf(sweep);
    const done = sweep.rows
      .filter((row) => row.val_loss !== null)
      .slice(0, Number(query.get('limit') ?? 50));
    return {
      metric: 'val_loss',
      curves: done.map((row) => ({
        trial: row.trial,
        job: row.job,
        params: { lr: row.lr },
        result: row.val_loss,
        points: Array.from({ length: 40 }, (_, i) => [
          i,
          row.val_loss + 2 / (1 + i / 3) + Math.sin(i * row.trial) * 0.02,
        ]),
      })),
    };
  }

  // -- actions -----------------------------------------------------------------------------------

  post(path, body) {
    let found;
    if (this.readOnly) throw new ApiError(403, 'read_only', 'the web UI is read-only');
    if (path === '/api/jobs') {
      this.posted = body;
      return this.submit([body.command ?? body.argv.join(' ')], body);
    }
    if (path === '/api/annotate') return annotate(this, body);
    if (path === '/api/batch') {
      const isPeasy = body.text.includes(';;');
      const lines = isPeasy
        ? body.text.split(';;;').map((part) => part.split(';;')[2]?.trim())
        : body.text.split('\n').filter((line) => line.trim() && !line.startsWith('#'));
      if (lines.some((line) => !line))
        throw new ApiError(400, 'usage', `Malformed job: ${body.text.slice(0, 40)}`);
      return this.submit(lines, body);
    }
    if (path === '/api/jobs/act') return this.act(body);
    if ((found = /^\/api\/jobs\/(\d+)$/.exec(path))) {
      this.patched = { id: Number(found[1]), fields: body };
      Object.assign(this.jobs.get(this.patched.id), body);
      this.publish([this.patched.id]);
      return { changed: 1 };
    }
    if (path === '/api/sweeps') return this.startSweep(body);
    if ((found = /^\/api\/sweeps\/([^/]+)\/act$/.exec(path))) {
      const sweep = this.sweeps.get(decodeURIComponent(found[1]));
      this.posted = body;
      if (body.action === 'rm') this.sweeps.delete(sweep.name);
      const done = body.action === 'add' ? addTo(sweep, body) : {};
      return { ...this.actOnSweep(sweep, body.action), ...done };
    }
    if ((found = /^\/api\/gpus\/([^/]+)\/act$/.exec(path))) {
      const gpu = this.gpus.find((one) => one.uuid === decodeURIComponent(found[1]));
      if (body.action === 'slots' && !(body.slots >= 1 && body.slots <= 64))
        throw new ApiError(
          400,
          'usage',
          '`slots`: input should be less than or equal to 64',
          '/docs says what is known',
          'slots',
        );
      if (body.action === 'slots') gpu.slots = body.slots;
      else gpu.state = body.action === 'drain' ? 'drained' : gpu.jobs.length ? 'busy' : 'free';
      this.publish([]);
      return { changed: 1 };
    }
    if (path === '/api/daemon/act') {
      this.draining = body.action === 'drain';
      this.publish([]);
      return {};
    }
    throw new ApiError(404, 'not_found', 'not found');
  }

  /** `stop` cancels waiting trials, `resume` queues cancelled ones, `rerun_failed` queues failed ones. */
  actOnSweep(sweep, action) {
    const transition =
      {
        stop: ['queued', 'cancelled'],
        resume: ['cancelled', 'queued'],
        rerun_failed: ['failed', 'queued'],
      }[action] ?? [];
    const rows = sweep.rows.filter((row) => row.state === transition[0]);
    for (const row of rows) row.state = transition[1];
    sweep.stopped =
      action === 'stop' ? 'stopped by hand' : action === 'resume' ? null : sweep.stopped;
    this.publish([]);
    return { changed: rows.length };
  }

  submit(commands, body) {
    if (body.gpus > 8)
      throw new ApiError(
        422,
        'impossible',
        `the job requests ${body.gpus} GPUs, but this host has 8 GPUs`,
        'use gpus=8 or fewer',
        'gpus',
      );
    if (body.on && body.on !== 'local' && !this.backends.some((one) => one.name === body.on))
      throw new ApiError(404, 'not_found', `there is no backend \`${body.on}\``, '', 'on');
    if (body.time_limit === 'never')
      throw new ApiError(
        400,
        'usage',
        '`never` is not a duration',
        'write 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS',
        'time_limit',
      );
    const {
      gpus = 1,
      priority = 0,
      tags = [],
      retries = 0,
      hold = false,
      after = [],
      name = null,
      cwd = '/home/ada',
    } = body;
    if (body.dry_run)
      return {
        dry_run: commands.map((command) => ({
          argv: body.argv ?? [command],
          command,
          shell: !body.argv,
          cwd,
          gpus,
          needs: `${gpus} GPU${gpus === 1 ? '' : 's'}`,
          name,
          priority,
          time_limit: null,
          stdout: null,
          tags,
          hold,
          retries,
          begin_at: null,
          after,
        })),
        total: commands.length,
      };
    return {
      jobs: commands.map((command) =>
        this.add({
          command,
          name: body.name ?? null,
          gpus: body.gpus ?? 1,
          priority: body.priority ?? 0,
          tags: body.tags ?? [],
        }),
      ),
      warning: null,
    };
  }

  startSweep(body) {
    this.posted = body;
    let points = [{}];
    for (const [name, text] of Object.entries(body.parameters)) {
      const range = /^range\((\d+)\)$/.exec(text);
      const values = range
        ? Array.from({ length: Number(range[1]) }, (_, i) => String(i))
        : String(text).split(',');
      points = points.flatMap((point) => values.map((value) => ({ ...point, [name]: value })));
    }
    const commands = points.map((point) =>
      body.command.replace(/\{(\w+)\}/g, (whole, name) => point[name] ?? whole),
    );
    if (commands.some((command) => /\{\w+\}/.test(command)))
      throw new ApiError(400, 'usage', 'a place has no values', 'give lr=1,2');
    if (body.dry_run)
      return { commands: commands.slice(0, 100), total: commands.length, known: null };
    const name = body.name ?? 'calm-heron';
    this.addSweep(name, commands.length, undefined, 0.5);
    this.publish([]);
    return { sweep: name, new: true, added: commands.length, jobs: [] };
  }

  act({ action, ids, priority }) {
    const made = [];
    const now = iso(Date.now() / 1000);
    for (const id of ids) {
      const one = this.jobs.get(id);
      if (!one) throw new ApiError(404, 'not_found', `there is no job ${id}`);
      if (action === 'cancel')
        Object.assign(
          one,
          ACTIVE.includes(one.state)
            ? { state: 'stopping' }
            : { state: 'cancelled', cause: 'user', ended_at: now },
        );
      if (action === 'rerun' && !FINAL.includes(one.state))
        throw new ApiError(
          409,
          'conflict',
          `job ${id} is ${one.state}; only an ended job can be rerun`,
        );
      if (action === 'hold') one.state = 'held';
      if (action === 'release') one.state = 'queued';
      if (action === 'priority') one.priority = priority;
      if (action === 'move_first')
        one.priority = Math.max(
          0,
          ...this.queue()
            .filter(canStart)
            .map((other) => other.priority + 1),
        );
      if (action === 'rm') this.jobs.delete(id);
      if (action === 'rerun')
        made.push(this.add({ command: one.command, name: one.name, rerun_of: id }));
    }
    this.publish(ids);
    for (const id of ids)
      if (this.jobs.get(id)?.state === 'stopping')
        setTimeout(
          () =>
            this.jobs.has(id) &&
            this.change(id, {
              state: 'cancelled',
              cause: 'user',
              ended_at: iso(Date.now() / 1000),
              devices: [],
            }),
          300,
        );
    return { changed: ids.length, ...(made.length ? { jobs: made } : {}) };
  }

  // -- HTTP --------------------------------------------------------------------------------------

  /** Changes with another method than POST. */
  put(path, body) {
    const [, , kind, id, part] = path.split('/');
    const owner =
      kind === 'jobs' ? this.jobs.get(Number(id)) : this.sweeps.get(decodeURIComponent(id));
    if (!owner || part !== 'note') throw new ApiError(404, 'not_found', 'not found');
    const answer = writeNote(owner, body);
    this.publish(kind === 'jobs' ? [owner.id] : []);
    return answer;
  }

  async answer(request, response) {
    const url = new URL(request.url, this.url);
    const path = url.pathname;
    this.requests.push(`${request.method} ${path}`);
    const headers = {
      'Content-Security-Policy': CSP,
      'X-Content-Type-Options': 'nosniff',
      'Cache-Control': 'no-store',
    };
    const send = (status, body, more = {}) => {
      response.writeHead(status, { ...headers, 'Content-Type': 'application/json', ...more });
      response.end(status === 204 ? undefined : JSON.stringify({ schema: 2, ...body }));
    };
    try {
      if (!path.startsWith('/api/')) return this.file(path, response, headers);
      const chunks = [];
      for await (const chunk of request) chunks.push(chunk);
      const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : {};
      if (path === '/api/login') {
        if (body.token !== this.token)
          throw new ApiError(401, 'wrong_token', 'this is not the token');
        return send(
          204,
          {},
          {
            'Set-Cookie': `stoker_${this.port}=${this.session}; HttpOnly; SameSite=Strict; Path=/`,
          },
        );
      }
      if (!(request.headers.cookie ?? '').includes(`stoker_${this.port}=${this.session}`))
        throw new ApiError(401, 'no_token', 'a token is needed');
      if (path === '/api/events') return this.stream(request, response, headers);
      if (request.method === 'GET' && path.endsWith('/log/download')) {
        response.writeHead(200, {
          ...headers,
          'Content-Type': 'text/plain',
          'Content-Disposition': 'attachment',
        });
        return response.end(this.logs.get(Number(path.split('/')[3])));
      }
      const image = imageOf(path, url.searchParams);
      if (image) {
        response.writeHead(200, { ...headers, 'Content-Type': 'image/png' });
        return response.end(image);
      }
      if (request.method === 'GET' && path.endsWith('/report')) {
        response.writeHead(200, {
          ...headers,
          'Content-Type': 'text/html',
          'Content-Disposition': 'attachment; filename="brave-otter-report.html"',
        });
        return response.end('<!doctype html><title>Sweep brave-otter</title>');
      }
      if (request.method === 'GET') return send(200, this.get(path, url.searchParams));
      if (
        request.headers['x-stoker'] !== '1' ||
        request.headers['content-type'] !== 'application/json'
      )
        throw new ApiError(403, 'no_header', 'the header X-Stoker is missing');
      if (request.method === 'PUT') return send(200, this.put(path, body));
      return send(body.dry_run ? 200 : 201, this.post(path, body));
    } catch (error) {
      if (!(error instanceof ApiError)) console.error(error);
      send(error.status ?? 500, {
        error: {
          code: error.code ?? 'internal',
          message: error.message,
          hint: error.hint ?? null,
          field: error.field,
          at: error.at,
        },
      });
    }
  }

  file(path, response, headers) {
    const name = normalize(path === '/' ? '/index.html' : path);
    try {
      const data = readFileSync(join(STATIC, name));
      response.writeHead(200, {
        ...headers,
        'Content-Type': TYPES[extname(name)] ?? 'application/octet-stream',
      });
      response.end(data);
    } catch {
      response.writeHead(404, headers);
      response.end('not found');
    }
  }

  stream(request, response, headers) {
    response.writeHead(200, { ...headers, 'Content-Type': 'text/event-stream' });
    const last = Number(request.headers['last-event-id'] ?? this.eventId);
    const isKnown =
      last === this.eventId ||
      this.ring.some((one) => one.id === last) ||
      this.ring[0]?.id === last + 1;
    response.write(': hello\n\n');
    if (!isKnown)
      response.write(`id: ${this.eventId}\nevent: reset\ndata: {"event_id":${this.eventId}}\n\n`);
    else for (const one of this.ring) if (one.id > last) response.write(one.text);
    this.streams.add(response);
    response.on('close', () => this.streams.delete(response));
  }
}

/** The fields of the history besides the filter in the language of `--where`. */
function quickFilter(query) {
  const states = (query.get('state') ?? '')
    .split(',')
    .filter(Boolean)
    .flatMap((one) => GROUPS[one] ?? [one]);
  const text = (query.get('q') ?? '').toLowerCase();
  return (one) =>
    (!states.length || states.includes(one.state)) &&
    (!query.get('on') || one.on === query.get('on')) &&
    (!query.get('starred') || one.starred) &&
    (!query.get('tag') || one.tags.includes(query.get('tag'))) &&
    (!query.get('name') || one.name === query.get('name')) &&
    (!query.get('sweep') || one.sweep === query.get('sweep')) &&
    `${one.name} ${one.command}`.toLowerCase().includes(text);
}

const refusedFilter = (message, at) =>
  Object.assign(new ApiError(400, 'usage', message, 'columns: state, name'), { at });

/**
 * A part of a log as client/live/log_view.py returns it. This fake knows no more than what the scenarios need:
 * carriage returns, and the sixteen colors within a line. `real_log.mjs` uses the real renderer.
 */
function renderedLog(log, query) {
  const number = (name, missing) => (query.has(name) ? Number(query.get(name)) : missing);
  const lineStart = (byte) => (byte ? log.lastIndexOf(10, byte - 1) + 1 : 0);
  const match = number('match', null);
  const end = number('to', match === null ? log.length : match + (1 << 18));
  const to = Math.min(log.length, end);
  const from = lineStart(number('from', Math.max(0, (match ?? to) - number('tail', 65_536))));
  const lines = [];
  for (let at = from; at < to;) {
    const next = (log.indexOf(10, at) + 1 || log.length + 1) - 1;
    lines.push({ at, spans: spansOf(log.subarray(at, Math.min(next, to)), query.has('raw')) });
    at = next + 1;
  }
  return {
    size: log.length,
    start: from,
    from,
    to: Math.max(from, to),
    lines,
    match: match === null ? null : lineStart(match),
  };
}

function spansOf(bytes, isRaw) {
  const text = bytes.toString();
  const shown = (part) =>
    part
      .replace(/[\x00-\x08\x0b-\x1f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
      .replace(/\u202e/g, '\\u202e');
  if (isRaw) return [{ text: shown(text) }];
  const parts = text
    .replace(/^[^]*\r(?=[^])/, '')
    .replace(/\r|\x1b\][^\x07]*\x07?/g, '')
    .split(/\x1b\[([\d;]*)m/);
  const spans = [];
  let color = null;
  parts.forEach((part, i) => {
    if (i % 2) color = /3([0-7])$/.exec(part)?.[1] ?? null;
    else if (part) spans.push({ text: shown(part), ...(color && { classes: `f${color}` }) });
  });
  return spans;
}

/** The byte offsets of matches in the rendered log, as in client/live/log_search.py. */
function shownMatches(text, needle) {
  const hidden = /^[^\n]*\r(?=[^\r\n])|\x1b\[[0-?]*[ -/]*[@-~]/gm;
  const gaps = [...text.matchAll(hidden)];
  const shown = text.replace(hidden, '');
  return [...shown.matchAll(needle)].map((match) =>
    gaps.reduce((at, gap) => (gap.index <= at ? at + gap[0].length : at), match.index),
  );
}

function gpuOnly({ gpu_use, gpu_memory, power, temperature }) {
  return { gpu_use, gpu_memory, power, temperature };
}
