// `node test.mjs` runs the unit tests. esbuild bundles them first, since node cannot run TypeScript.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';

const out = mkdtempSync(join(tmpdir(), 'stoker-web-ui-'));
const names = readdirSync('tests').filter((name) => name.endsWith('.test.ts'));
await build({
  entryPoints: names.map((name) => join('tests', name)),
  bundle: true,
  platform: 'node',
  format: 'esm',
  outdir: out,
  outExtension: { '.js': '.mjs' },
  logLevel: 'warning',
});
const run = spawnSync(
  process.execPath,
  ['--test', ...readdirSync(out).map((name) => join(out, name))],
  { stdio: 'inherit' },
);
rmSync(out, { recursive: true });
process.exit(run.status ?? 1);
