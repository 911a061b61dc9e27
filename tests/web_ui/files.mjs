// The files of jobs for the fake server: set `fake.files` to what `filesOf` returns, by job.
import { deflateSync } from 'node:zlib';

const AT = '2026-01-02T03:04:05Z';
const EMPTY = {
  folder: '/home/ada/.local/state/stoker/jobs/0/1',
  files: [],
  series: [],
  total_bytes: 0,
  is_cut: false,
  skipped: 0,
};
const NONE = {
  kind: 'none',
  note: null,
  text: null,
  columns: [],
  rows: [],
  content_type: null,
  width: null,
  height: null,
};

/** A gray PNG with a brighter square; `shade` is its brightness. */
export function png(shade, side = 64) {
  const crc = (data) => {
    let sum = 0xffffffff;
    for (const byte of data) {
      sum ^= byte;
      for (let k = 0; k < 8; k++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
    }
    return (sum ^ 0xffffffff) >>> 0;
  };
  const chunk = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind), data]);
    const ends = [Buffer.alloc(4), Buffer.alloc(4)];
    ends[0].writeUInt32BE(data.length);
    ends[1].writeUInt32BE(crc(body));
    return Buffer.concat([ends[0], body, ends[1]]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side, 0);
  head.writeUInt32BE(side, 4);
  head[8] = 8;
  const lines = [];
  for (let y = 0; y < side; y++) {
    const line = Buffer.alloc(side + 1, shade);
    line[0] = 0;
    if (y > 20 && y < 44) line.fill(255 - shade, 20, 44);
    lines.push(line);
  }
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', head),
    chunk('IDAT', deflateSync(Buffer.concat(lines))),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

const file = (path, kind, size = 100) => ({
  path,
  key: path.split('/').map(encodeURIComponent).join('/'),
  size,
  modified_at: AT,
  kind,
});

/** Images over steps, tables, text, sound and checkpoints; `evil` are names and contents of a text file. */
export function someFiles(evil = []) {
  const steps = [0, 100, 200, 1000];
  const images = ['samples', 'val/masks'].flatMap((name) =>
    steps.map((step) => file(`media/${name}/${step}.png`, 'image', 150)),
  );
  const files = [
    file('config.json', 'text', 70),
    file('results.csv', 'table', 900),
    file('speech.wav', 'audio', 16_000),
    file('broken.png', 'image', 40),
    ...evil.map((name) => file(name, 'text')),
    file('checkpoints/last.pt', 'checkpoint', 1_400_000_000),
    file('events.out.tfevents.1700000000.host.1.0', 'events', 2300),
    ...images,
  ];
  return {
    ...EMPTY,
    files,
    series: ['samples', 'val/masks'].map((name) => ({
      name,
      steps: steps.map((step) => ({ step, key: `media/${name}/${step}.png` })),
    })),
    total_bytes: files.reduce((sum, one) => sum + one.size, 0),
    skipped: 2,
  };
}

/** The JSON of a route about files; undefined for other paths. */
export function filesOf(fake, path, query) {
  const found = /^\/api\/jobs\/(\d+)\/files(?:\/(\w+))?$/.exec(path);
  if (!found) return undefined;
  const listed = fake.files?.get(Number(found[1])) ?? EMPTY;
  if (!found[2]) return listed;
  const name = decodeURIComponent(query.get('file') ?? '');
  const one = listed.files.find((file) => file.path === name);
  if (one?.kind === 'table')
    return {
      ...NONE,
      kind: 'table',
      columns: ['epoch', 'val_loss', 'note'],
      rows: Array.from({ length: 30 }, (_, i) => [
        `${i}`,
        `${(2 / (i + 1)).toFixed(4)}`,
        '<b>x</b>',
      ]),
      note: 'the first 30 rows',
    };
  if (one?.kind === 'audio') return { ...NONE, kind: 'audio', content_type: 'audio/wav' };
  if (name === 'broken.png')
    return { ...NONE, note: 'the image has 50000 x 50000 pixels, which is too large to show' };
  if (one?.kind === 'image')
    return { ...NONE, kind: 'image', content_type: 'image/png', width: 64, height: 64 };
  return { ...NONE, kind: 'text', text: name === 'config.json' ? '{\n  "lr": 0.001\n}' : name };
}

/** The bytes of an image, or null if the path is not one. */
export function imageOf(path, query) {
  if (!/\/files\/content$/.test(path)) return null;
  const step = /(\d+)\.png$/.exec(query.get('file') ?? '');
  return png(step ? 20 + (Number(step[1]) % 997) / 5 : 128);
}
