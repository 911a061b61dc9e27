// Generated jobs, GPUs and sweeps in the format of the HTTP API.
const GIB = 2 ** 30;
export const iso = (at) => (at === null ? null : new Date(at * 1000).toISOString());

const COMMANDS = [
  ['resnet50-base', 'python train.py --model resnet50 --lr 0.1 --epochs 90'],
  [null, 'python train.py --model vit-small --lr 3e-4 --warmup 2000 --data /data/imagenet --amp'],
  [
    'eval nightly',
    'bash -lc "source env.sh && python eval.py --ckpt runs/latest.pt | tee eval.txt"',
  ],
  [null, './prepare.sh --shards 64 --out /scratch/tokens'],
  ['llm-sft', 'torchrun --nproc-per-node 4 sft.py --config configs/sft-8b.yaml'],
];
// Wait reasons as in engine/policy/explain.py and client/views/why.py, joined as in client/views/job_waits.py.
const GPU_REASONS =
  'GPU 0 runs job 15 for at most 4m10s more; GPU 1 runs job 16, likely for 1h02m more; GPU 2 runs job 17; GPU 3 runs job 18; GPU 4 runs job 19; GPU 5 runs job 20; GPU 6 is used by others: grace (pid 41213), 88 GiB; GPU 7 is drained';
const LATER = 86_400;

/** Why a job waits; `ahead` is the number of jobs before it in the queue. */
export function whyOf(one, ahead) {
  if (one.state === 'held') return `it is held; to let it start: stoker release ${one.id}`;
  const first = one.after.find((other) => !other.met);
  if (first) return `job ${first.job} must succeed first; it is running`;
  if (one.eligible_at)
    return `it may not start before ${one.eligible_at.slice(0, 19).replace('T', ' ')}`;
  if (!one.gpus)
    return `${ahead ? `${ahead} jobs in front of it; ` : ''}all 2 CPU slots are taken by jobs 17, 19`;
  const needs = one.gpu_mem_bytes
    ? `${one.gpus} gpu with 20 GiB free`
    : `${one.gpus} gpu${one.gpus === 1 ? '' : 's'}`;
  if (ahead && one.id % 4 === 1)
    return `${ahead} jobs in front of it; GPU 5 is kept for job 22, which comes first, likely in 12m04s; a --time-limit below that would let this job start now`;
  return `${ahead ? `${ahead} ${ahead === 1 ? 'job' : 'jobs'} in front of it; ` : ''}it needs ${needs}; ${GPU_REASONS}`;
}

export const canStart = (one) =>
  one.state === 'queued' && one.after.every((other) => other.met) && !one.eligible_at;

/** Why a job failed or was cancelled, as in client/views/job.py. */
function resultOf({ state, cause, detail, exit_code }) {
  if (!['failed', 'cancelled', 'lost'].includes(state)) return '';
  if (cause === 'start_failed') return detail;
  const text = { gpu_oom: 'out of GPU memory', user: 'by the user' }[cause];
  return text ?? (exit_code === null ? 'no exit record' : `exit ${exit_code}`);
}

/** The GPU column of `stoker ls`, as in client/views/job.py. */
function placeOf({ on, node, node_gpus, nodes, gpus, devices }) {
  const requested = nodes > 1 ? `(${nodes}x${gpus})` : gpus ? `(${gpus})` : '';
  if (on === 'local') return devices.map((one) => one.index).join(',') || requested || '-';
  return `${on} ${node ? node + (node_gpus ? `:${node_gpus}` : '') : requested}`.trim();
}

/** A backend of two nodes, one of them down. */
export const backend = (name, more = {}) => ({
  name,
  kind: 'slurm',
  options: { partition: 'gpu' },
  folder: null,
  problem: null,
  summary: '1 node, 8 GPUs (3 in use), 1 node not available',
  checked_at: iso(Date.now() / 1000 - 90),
  nodes: [
    node('n1', { used_gpus: 3 }),
    node('n2', { state: 'down', note: 'down: Not responding' }),
  ],
  ...more,
});

const node = (name, more) => ({
  name,
  gpus: 8,
  used_gpus: 0,
  state: 'up',
  model: 'NVIDIA H100',
  gpu_memory: 80 * GIB,
  cpus: 64,
  note: '',
  ...more,
});

export function job(id, state, now, more = {}) {
  const [name, command] = COMMANDS[id % COMMANDS.length];
  const hasStarted = !['queued', 'held', 'submitted'].includes(state);
  const isOver = ['done', 'failed', 'cancelled', 'lost'].includes(state);
  const started = hasStarted ? now - 400 - ((id * 7919) % 9000) : null;
  const ended = isOver ? Math.min(now, started + 60 + ((id * 104729) % 5400)) : null;
  return {
    id,
    name,
    state,
    command,
    argv: ['/bin/sh', '-c', command],
    shell: true,
    cwd: '/home/ada/vision',
    cause: state === 'failed' ? (id % 3 ? null : 'gpu_oom') : state === 'cancelled' ? 'user' : null,
    exit_code: state === 'done' ? 0 : state === 'failed' ? 1 : null,
    signal: null,
    detail: null,
    get result() {
      return resultOf(this); // tests change the other fields
    },
    progress: null,
    gpus: id % 11 === 4 ? 4 : id % 7 === 3 ? 0 : 1,
    gpu_mem_bytes: id % 5 === 2 ? 20 * GIB : null,
    gpu_mem_auto: false,
    cpus: null,
    mem_bytes: null,
    mem_auto: false,
    need: {},
    reserves: '',
    claim_cpus: 1,
    claim_mem_bytes: null,
    gpu_ids: [],
    prefer: [],
    gpu_model: null,
    min_gpu_mem_bytes: null,
    exclusive: false,
    share: null,
    under_mps: false,
    on_oom: null,
    claim_bytes: null,
    gpu_memory_peak_bytes: hasStarted ? (8 + (id % 60)) * GIB : null,
    gpu_use_percent: hasStarted ? 55 + ((id * 31) % 44) : null,
    gpu_energy_joules: isOver ? 1.2e6 : null,
    on: 'local',
    nodes: 1,
    node: null,
    node_gpus: null,
    option: [],
    get place() {
      return placeOf(this);
    },
    devices: [],
    priority: 0,
    tags: id % 6 === 0 ? ['vision'] : [],
    starred: false,
    note_line: null,
    group: null,
    after:
      state === 'queued' && id % 10 === 6 ? [{ job: id - 8, condition: 'ok', met: false }] : [],
    attempts: hasStarted ? 1 : 0,
    retries: id % 4,
    restartable: false,
    no_bind: false,
    snapshot: null,
    snapshot_dir: null,
    preemptible: false,
    preemptions: 0,
    gives_way_to: null,
    warm: null,
    notify: [],
    conda: null,
    venv: null,
    uv: false,
    module: [],
    container: null,
    mount: [],
    time_limit: id % 3 ? null : 14_400,
    submitted_at: iso(now - 10_000 + (id % 5000)),
    eligible_at: state === 'queued' && id % 10 === 8 ? iso(now + LATER) : null,
    started_at: iso(started),
    ended_at: iso(ended),
    stop_requested: false,
    pid: hasStarted && !isOver ? 40_000 + id : null,
    user_seconds: isOver ? 812.4 : null,
    system_seconds: isOver ? 31 : null,
    max_rss_bytes: isOver ? 6 * GIB : null,
    stdout: hasStarted ? `/home/ada/.local/state/stoker/logs/${id}.1.log` : null,
    stderr: hasStarted ? `/home/ada/.local/state/stoker/logs/${id}.1.log` : null,
    batch: null,
    batch_index: null,
    array: null,
    array_index: null,
    rerun_of: null,
    dedupe: null,
    sweep: null,
    trial: null,
    ...more,
  };
}

export function gpu(index, more = {}) {
  return {
    index,
    uuid: `GPU-${String(index).repeat(8)}-aaaa`,
    visible: String(index),
    model: 'NVIDIA H200',
    pci: `0000:0${index}:00.0`,
    slice_of: null,
    numa_node: 0,
    near_cpus: '',
    nvlink: [],
    share: 'time',
    mps: null,
    slots: 1,
    state: 'free',
    reserved_for: null,
    simulated: false,
    memory_bytes: 140 * GIB,
    memory_used_bytes: Math.round(0.6 * GIB),
    utilisation_percent: 0,
    power_watts: 74,
    temperature_celsius: 31,
    jobs: [],
    other_processes: [],
    holders: [],
    ...more,
  };
}

export const busyGpu = (index, id, more = {}) =>
  gpu(index, {
    state: 'busy',
    jobs: [{ id, claim_bytes: null, memory_bytes: 60 * GIB }],
    memory_used_bytes: Math.round((31.2 + index * 12) * GIB),
    utilisation_percent: 97 - index * 7,
    power_watts: 690 - index * 31,
    temperature_celsius: 71 - index * 2,
    ...more,
  });

export const occupiedGpu = (index) =>
  gpu(index, {
    state: 'taken',
    memory_used_bytes: 88 * GIB,
    utilisation_percent: 91,
    power_watts: 512,
    temperature_celsius: 66,
    other_processes: [{ user: 'grace', pid: 41_213, memory_bytes: 88 * GIB, compute: true }],
  });

/** Usage series: waves with a gap. */
export function trace(now, hours, points, seed) {
  const step = (hours * 3600) / points;
  const wave = (low, high, pace) =>
    Array.from({ length: points }, (_, i) => {
      const x = Math.sin(i / pace + seed) * 0.5 + Math.sin(i / 3.1 + seed * 2) * 0.12 + 0.5;
      return [
        Math.round(now - (points - i) * step),
        i === Math.floor(points / 3) ? null : low + (high - low) * Math.max(0, Math.min(1, x)),
      ];
    });
  return {
    gpu_use: { unit: 'percent', points: wave(40, 100, 20) },
    gpu_memory: { unit: 'bytes', points: wave(60 * GIB, 92 * GIB, 60) },
    power: { unit: 'watts', points: wave(300, 690, 20) },
    temperature: { unit: 'celsius', points: wave(48, 74, 40) },
    cpu: { unit: 'percent', points: wave(90, 780, 15) },
    memory: { unit: 'bytes', points: wave(4 * GIB, 30 * GIB, 80) },
  };
}

/** A training log with colors, progress bars and, if wanted, an error. */
export function trainingLog(lines, hasError = false) {
  const out = ['\x1b[1mstarting\x1b[0m on NVIDIA H200, 8 workers\n'];
  for (let i = 0; i < lines; i++) {
    if (i % 5 === 0)
      for (let n = 0; n <= 100; n += 10)
        out.push(
          `\repoch ${i}: ${String(n).padStart(3)}%|${'█'.repeat(n / 10)}${' '.repeat(10 - n / 10)}| ${n}/100`,
        );
    if (i % 5 === 0) out.push('\n');
    out.push(
      `\x1b[2m[12:${String(i % 60).padStart(2, '0')}:07]\x1b[0m step ${i} \x1b[36mloss\x1b[0m ${(2 / (1 + i / 40)).toFixed(4)} \x1b[32mlr\x1b[0m 0.0003\n`,
    );
    if (i % 37 === 36) out.push('\x1b[33mwarning:\x1b[0m gradient norm 12.4 clipped\n');
  }
  if (hasError)
    out.push(
      'Traceback (most recent call last):\n  File "train.py", line 88, in <module>\n\x1b[31mRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\x1b[0m\n',
    );
  return out.join('');
}
