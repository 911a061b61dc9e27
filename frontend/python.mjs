// The Python interpreter that runs Stoker from this checkout.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const venvPython = join(root, '.venv/bin/python');

/** STOKER_PYTHON, or else the environment that `make` creates, or else python3. */
export const python =
  process.env.STOKER_PYTHON ?? (existsSync(venvPython) ? venvPython : 'python3');
export const sources = join(root, 'src');
