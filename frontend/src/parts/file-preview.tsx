// What a file of a job contains: text, a table, an image or a sound. The server decides which of these
// it is; everything is shown as text or by the browser's decoders, never as markup.
import type { Files, FilePreview as Preview } from '../types';
import { useFetch } from '../use-fetch';
import { visible } from '../words';
import { Failed, Loading } from './bits';
import { fileUrl } from './files';

export function FilePreview({
  job,
  file,
  name,
}: {
  job: number;
  file: Files['files'][number];
  name: string;
}) {
  const { data, error, reload } = useFetch<Preview>(fileUrl(job, 'preview', file.key));
  if (!data) return error ? <Failed error={error} retry={reload} /> : <Loading rows={3} />;
  return (
    <div class="file-preview" role="group" aria-label={`Preview of ${name}`}>
      <Shown job={job} file={file} name={name} preview={data} />
      {data.note && <p class="dim">{visible(data.note)}</p>}
    </div>
  );
}

function Shown({
  job,
  file,
  name,
  preview,
}: {
  job: number;
  file: Files['files'][number];
  name: string;
  preview: Preview;
}) {
  // The time makes the browser fetch a file again that was written again.
  const address = `${fileUrl(job, 'content', file.key)}&at=${encodeURIComponent(file.modified_at)}`;
  if (preview.kind === 'image')
    return (
      <img
        src={address}
        alt={name}
        width={preview.width ?? undefined}
        height={preview.height ?? undefined}
        loading="lazy"
        decoding="async"
      />
    );
  if (preview.kind === 'audio')
    return <audio src={address} controls preload="metadata" aria-label={name} />;
  if (preview.kind === 'table') return <Table preview={preview} name={name} />;
  if (preview.kind === 'text')
    return (
      <pre tabIndex={0} aria-label={`Content of ${name}`}>
        {visible(preview.text ?? '')}
      </pre>
    );
  return null;
}

const isNumber = (text: string) => /^[-+]?[\d.]+(e[-+]?\d+)?$|^nan$|^$/i.test(text);

function Table({ preview, name }: { preview: Preview; name: string }) {
  const isNumeric = preview.columns.map((_, i) =>
    preview.rows.every((row) => isNumber(row[i] ?? '')),
  );
  return (
    <div class="file-table" tabIndex={0} role="region" aria-label={`Table ${name}`}>
      <table class="plain">
        <thead>
          <tr>
            {preview.columns.map((column, i) => (
              <th key={i} class={isNumeric[i] ? 'num' : ''}>
                {visible(column)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {preview.rows.map((row, i) => (
            <tr key={i}>
              {row.map((cell, j) => (
                <td key={j} class={isNumeric[j] ? 'num' : ''}>
                  {visible(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
