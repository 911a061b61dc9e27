// `node build.mjs` bundles the web UI into src/stoker/web/static; hatch_build.py calls it, too.
// A hash of the sources is written next to the bundle, so that a stale bundle is detected.
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(here, '../src/stoker/web/static');
const BUDGET = 140_000; // bytes, gzipped

/** The hash of the path and content of each file, sorted by path; hatch_build.py computes the same. */
export function sourceHash() {
  const files = ['build.mjs', 'package.json', 'package-lock.json'];
  const walk = (folder) => {
    for (const name of readdirSync(folder)) {
      const path = join(folder, name);
      if (statSync(path).isDirectory()) walk(path);
      else files.push(relative(here, path).split(sep).join('/'));
    }
  };
  walk(join(here, 'src'));
  const hash = createHash('sha256');
  for (const file of files.sort())
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(here, file)))
      .update('\0');
  return hash.digest('hex');
}

function licenses(names) {
  return names
    .map((name) => {
      const folder = join(here, 'node_modules', name);
      const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      const file = ['LICENSE', 'LICENSE.md', 'license']
        .map((one) => join(folder, one))
        .find(existsSync);
      return `${name} ${version} (${license})\n\n${file ? readFileSync(file, 'utf8').trim() : ''}\n`;
    })
    .join(`\n${'-'.repeat(80)}\n\n`);
}

const indexHtml = (script, style) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Stoker</title>
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/${style}">
<script type="module" src="/assets/${script}"></script>
</head>
<body>
<div id="app"></div>
<noscript>The web UI needs JavaScript. The <code>stoker</code> command shows the same information in a terminal.</noscript>
</body>
</html>
`;

async function bundle() {
  const fresh = `${out}.new`;
  rmSync(fresh, { recursive: true, force: true });
  mkdirSync(join(fresh, 'assets'), { recursive: true });
  const result = await build({
    entryPoints: { app: join(here, 'src/main.tsx') },
    bundle: true,
    minify: true,
    format: 'esm',
    target: ['es2022', 'chrome110', 'firefox115', 'safari16.4'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    outdir: join(fresh, 'assets'),
    entryNames: '[name]-[hash]',
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  const names = Object.keys(result.metafile.outputs).map((path) => basename(path));
  const script = names.find((name) => name.endsWith('.js'));
  const style = names.find((name) => name.endsWith('.css'));
  writeFileSync(join(fresh, 'index.html'), indexHtml(script, style));
  cpSync(join(here, 'src/icon.svg'), join(fresh, 'assets/icon.svg'));
  writeFileSync(
    join(fresh, 'assets/notices.txt'),
    licenses(['preact', '@preact/signals', '@preact/signals-core', 'uplot']),
  );
  writeFileSync(join(fresh, 'source.sha256'), `${sourceHash()}\n`);
  const size = [script, style].reduce(
    (sum, name) => sum + gzipSync(readFileSync(join(fresh, 'assets', name)), { level: 9 }).length,
    0,
  );
  if (size > BUDGET) throw new Error(`the web UI has ${size} bytes gzipped, more than ${BUDGET}`);
  rmSync(out, { recursive: true, force: true });
  renameSync(fresh, out);
  console.log(`web UI: ${(size / 1000).toFixed(1)} kB gzipped`);
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) await bundle();
