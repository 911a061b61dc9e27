// The timeline of the fake server: jobs of changing length, idle times with reasons, and a forecast. The
// same GPU always has the same blocks.

const part = (a, b) => ((a * 7919 + b * 104_729 + a * b * 31) % 1000) / 1000;

function pastBlocks(gpu, row, from, now, ids) {
  const blocks = [];
  const add = (kind, seconds, more = {}) => {
    const start = blocks.at(-1)?.to ?? from;
    const to = Math.min(now, start + seconds);
    if (to <= start) return;
    blocks.push({
      from: start,
      to,
      kind,
      lane: 0,
      lanes: 1,
      job: null,
      about: null,
      jobs: [],
      count: 0,
      words: 'idle: no job waited for a GPU',
      forecast: false,
      end_known: true,
      ...more,
    });
  };
  const step = (now - from) / 14;
  for (let i = 0; (blocks.at(-1)?.to ?? from) < now && i < 60; i++) {
    const x = part(row + 1, i + 1);
    if (gpu.state === 'drained')
      add('drained', now - from, { words: 'drained; no job waited for a GPU' });
    else if (x < 0.12)
      add('waiting', step * (0.6 + x * 6), {
        about: 25,
        words: 'no job ran although jobs waited: reserved for job 25',
      });
    else if (x < 0.2) add('idle', step * 0.7);
    else if (x < 0.26)
      add('others', step, { words: 'memory held by another user (bob); no job waited for a GPU' });
    else if (x < 0.32)
      add('mixed', step * 0.5, {
        count: 12,
        jobs: ids.slice(0, 3),
        words: '12 short jobs, busy 64% of the time',
      });
    else {
      const job = ids[(row * 5 + i * 3) % ids.length] ?? 1;
      add('busy', step * (0.4 + 2 * x), { job, words: `job ${job}` });
    }
  }
  return blocks;
}

/** GET /api/timeline */
export function timeline(fake, query) {
  const now = Date.now() / 1000;
  const from = Number(query.get('from') ?? now - 86_400);
  const to = Number(query.get('to') ?? now + 21_600);
  const ended = [...fake.jobs.values()].filter((one) => one.ended_at).map((one) => one.id);
  const ids = ended.length ? ended : [1];
  const queued = [...fake.jobs.values()]
    .filter((one) => one.state === 'queued')
    .map((one) => one.id);
  const end = Math.min(now, to);
  const gpus = fake.gpus.map((gpu, row) => {
    const blocks = from < end ? pastBlocks(gpu, row, from, end, ids) : [];
    const running = gpu.jobs[0]?.id;
    if (running && blocks.length && end === now) {
      const last = blocks.at(-1);
      Object.assign(last, { kind: 'busy', job: running, words: `job ${running}`, about: null });
    }
    if (to > now) {
      const lane = {
        lane: 0,
        lanes: 1,
        about: null,
        jobs: [],
        count: 0,
        kind: 'busy',
        forecast: true,
      };
      const half = now + (to - now) * (0.3 + 0.5 * part(row + 2, 3));
      if (running)
        blocks.push({
          ...lane,
          from: now,
          to: half,
          job: running,
          words: `job ${running}, forecast`,
          end_known: true,
        });
      const next = queued[row];
      if (next && gpu.state !== 'drained')
        blocks.push({
          ...lane,
          from: running ? half : now + 60,
          to,
          job: next,
          words: `job ${next}, end unknown`,
          end_known: false,
        });
    }
    return {
      index: gpu.index,
      visible: String(gpu.index),
      uuid: gpu.uuid,
      jobs: 12,
      shares: {
        busy: '81%',
        other_users: '0%',
        no_work: '10%',
        jobs_waited: '9%',
        not_running: '0%',
      },
      reasons: [{ reason: 'reserved for job 25', seconds: 7800 }],
      simulated: false,
      busy_seconds: 69_984,
      other_users_seconds: 0,
      idle_seconds: 8640,
      idle_with_jobs_waiting_seconds: 7776,
      not_running_seconds: 0,
      unknown_seconds: 0,
      blocks,
    };
  });
  const used = new Set(
    gpus.flatMap((gpu) => gpu.blocks.flatMap((one) => [one.job, one.about, ...one.jobs])),
  );
  const jobs = {};
  for (const id of used) {
    const one = fake.jobs.get(id);
    if (one) jobs[id] = { title: one.name ?? one.command, state: one.state };
  }
  return {
    from,
    to,
    now,
    step: (to - from) / 400,
    gpus,
    left_off: 0,
    jobs,
    forecast: { words: '' },
  };
}
