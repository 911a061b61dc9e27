// What the server says about running and waiting jobs: progress, usage, short reasons, changes.
const GIB = 2 ** 30;

/** As client/views/running_jobs.py: some jobs report their progress, one only its likely end, one nothing. */
export function runOf(one) {
  const kind = one.id % 4;
  const percent = kind === 3 ? null : (one.id * 13) % 97;
  const requested = one.gpu_mem_bytes;
  const used = one.gpus && one.on === 'local' ? (3 + (one.id % 30)) * GIB : null;
  return {
    work: kind === 0 || kind === 1 ? `step ${percent * 10}/1000 (${percent}%)` : '',
    metric: kind === 3 ? '' : `val_loss 0.${300 + (one.id % 90)}`,
    percent,
    is_reported: kind < 2,
    ends_in: kind === 3 ? (one.time_limit ?? null) : 600 + ((one.id * 131) % 7000),
    ends_by_limit: kind === 3,
    gpu_memory_bytes: used,
    gpu_memory_requested_bytes: requested,
    gpu_memory:
      used === null
        ? ''
        : `${used / GIB}.0 GiB${requested === null ? '' : ` of ${requested / GIB} GiB`}`,
    warnings:
      kind === 2 ? ['its GPU was at 0% for the last 10m00s: it may hang, or not use the GPU'] : [],
    ...one.run,
  };
}

/** As engine/policy/short_reasons.py. */
export function shortWhyOf(one, ahead) {
  if (one.state === 'held') return 'held';
  const first = one.after.find((other) => !other.met);
  if (first) return `after ${first.job}`;
  if (one.eligible_at) return `begins ${one.eligible_at.slice(11, 16)}`;
  const behind = ahead ? `behind ${ahead} ${ahead === 1 ? 'job' : 'jobs'} · ` : '';
  if (!one.gpus) return `${behind}all 2 CPU slots in use`;
  if (ahead && one.id % 4 === 1) return `${behind}GPU 5 reserved for 22`;
  if (one.gpus > 1) return `${behind}needs ${one.gpus} GPUs, 1 is free`;
  return `${behind}no GPU${one.gpu_mem_bytes ? ' with 20 GiB' : ''} is free`;
}

/** As client/views/what_if.py. */
export function whatIfOf(one) {
  if (one.state !== 'queued' || !one.gpus) return [];
  const change = (words, options, fields) => ({
    words: `start now with ${words}`,
    starts_in: 0,
    command: `stoker edit ${one.id} ${options}`,
    fields,
  });
  const changes = [change('a time limit of at most 19m', '--time-limit 19m', { time_limit: 1140 })];
  if (one.gpus > 1) changes.unshift(change('1 GPU', '--gpus 1', { gpus: 1 }));
  return changes;
}
