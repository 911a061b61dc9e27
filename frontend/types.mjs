// `node types.mjs` generates the types of the HTTP API from the OpenAPI document of the server:
// generated/api-schema.ts. `npm run check` does so each time, so the types are never out of date.
// The bundle does not need the file, since esbuild removes types.
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import openapiTS, { astToString } from 'openapi-typescript';
import { python } from './python.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const run = spawnSync(python, [join(here, '../tools/openapi.py')], { encoding: 'utf8' });
if (run.status !== 0) {
  console.error(run.error?.message ?? run.stderr);
  console.error('hint: set STOKER_PYTHON to a Python that can import Stoker and FastAPI');
  process.exit(1);
}
const types = await openapiTS(JSON.parse(run.stdout));
mkdirSync(join(here, 'generated'), { recursive: true });
writeFileSync(join(here, 'generated/api-schema.ts'), astToString(types));
