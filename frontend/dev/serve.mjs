// `npm run dev [-- PORT]`: the web UI on a real Stoker server. The queue is in a temporary directory,
// the GPUs are simulated, and the jobs are dev/train.py. Ctrl-C stops everything and deletes the queue.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { python, sources } from '../python.mjs';

const port = process.argv[2] ?? '8765';
const here = dirname(fileURLToPath(import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), 'stoker-dev-'));
const env = {
  ...process.env,
  PYTHONPATH: sources,
  STOKER_STATE_DIR: join(scratch, 'state'),
  STOKER_SETTINGS: join(scratch, 'settings.toml'),
  STOKER_DEVICES: '4',
  STOKER_NVML: '0',
};

function stoker(...words) {
  const command = ['-m', 'stoker', ...words];
  const { status, stdout, stderr, error } = spawnSync(python, command, {
    env,
    cwd: here,
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`stoker ${words.join(' ')}: ${error ?? stderr}`);
  return stdout.trim();
}

const train = (...flags) => [python, 'train.py', ...flags];

/** Jobs in most states: running, finished, failed, waiting for GPUs, for a job and for the user. */
function submitJobs() {
  stoker('submit', '--quiet', '--name', 'broken', '--', ...train('--steps', '20', '--fail'));
  stoker('submit', '--quiet', '--name', 'short', '--', ...train('--steps', '20'));
  const base = stoker('submit', '--quiet', '--name', 'resnet50', '--', ...train('--steps', '2000'));
  stoker(
    'submit',
    '--quiet',
    '--name',
    'two-gpus',
    '--gpus',
    '2',
    '--tag',
    'vision',
    '--',
    ...train('--steps', '900'),
  );
  stoker(
    'submit',
    '--quiet',
    '--name',
    'evaluate',
    '--after',
    base,
    '--',
    ...train('--steps', '50'),
  );
  stoker('submit', '--quiet', '--name', 'on-hold', '--hold', '--', ...train());
  const command = `${python} train.py --steps 60 --lr {lr} --seed {seed}`;
  stoker(
    'sweep',
    '--quiet',
    '--name',
    'learning-rates',
    '--metric',
    'val_loss',
    command,
    'lr=0.001,0.01,0.1',
    'seed=range(3)',
  );
}

function cleanUp() {
  try {
    stoker('daemon', 'stop', '--cancel');
  } catch (error) {
    console.error(`${error.message}\nThe queue is still in ${scratch}.`);
    process.exit(1);
  }
  rmSync(scratch, { recursive: true, force: true });
}

try {
  submitJobs();
} catch (error) {
  console.error(error.message);
  console.error('hint: set STOKER_PYTHON to a Python with the packages of stoker[web]');
  cleanUp();
  process.exit(1);
}
const server = spawn(python, ['-m', 'stoker', 'web', '--foreground', '--port', port], {
  env,
  stdio: 'inherit',
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => server.kill(signal));
server.on('exit', (code) => {
  cleanUp();
  process.exit(code ?? 0);
});
