// The files that a job left in its output folder: images over steps, and a list with previews.
import { useState } from 'preact/hooks';
import { query } from '../api';
import { bytes, clock, plural } from '../format';
import { type Files, type JobDetail, isActive } from '../types';
import { useFetch } from '../use-fetch';
import { visible } from '../words';
import { Section } from './bits';
import { FilePreview } from './file-preview';
import { ImageSteps } from './image-steps';

type File = Files['files'][number];

const SHOWN = 100; // files of a folder before “Show all”
const OPEN = 40; // folders are open at first if there are fewer files than this

/** The address of a file of a job. `what` is preview, content or download. */
export const fileUrl = (job: number, what: string, key: string) =>
  `/api/jobs/${job}/files/${what}${query({ file: key })}`;

export function FilesOfJob({ job }: { job: JobDetail }) {
  const found = useFetch<Files>(
    job.attempts ? `/api/jobs/${job.id}/files` : null,
    isActive(job) ? 10_000 : 0,
  );
  const files = found.data;
  if (!files || (!files.files.length && !files.skipped)) return null;
  const more = files.is_cut ? 'more than ' : '';
  return (
    <Section
      title="Files"
      note={`${more}${plural(files.files.length, 'file')}, ${bytes(files.total_bytes)}`}
    >
      <div class="files">
        <p class="dim files-folder">
          <code>{visible(files.folder)}</code>
        </p>
        {files.series.length > 0 && <ImageSteps job={job.id} series={files.series} />}
        <Folders job={job.id} files={files} />
        {(files.is_cut || files.skipped > 0) && (
          <p class="dim">
            {files.is_cut && 'Not all files are listed: there are too many, or too many folders. '}
            {files.skipped > 0 && `Links and special files are not listed: ${files.skipped}.`}
          </p>
        )}
      </div>
    </Section>
  );
}

function Folders({ job, files }: { job: number; files: Files }) {
  const folders = new Map<string, File[]>([['', []]]); // the folder itself comes first
  for (const file of files.files) {
    const folder = file.path.slice(0, file.path.lastIndexOf('/') + 1);
    const list = folders.get(folder);
    if (list) list.push(file);
    else folders.set(folder, [file]);
  }
  const inSeries = new Set(files.series.flatMap((one) => one.steps.map((step) => step.key)));
  return (
    <>
      {[...folders].map(([folder, list]) => {
        if (!folder) return list.length > 0 && <FileList key="" job={job} files={list} folder="" />;
        const isSeries = list.every((one) => inSeries.has(one.key));
        return (
          <Folder
            key={folder}
            job={job}
            folder={folder}
            files={list}
            isOpen={!isSeries && files.files.length - inSeries.size < OPEN}
          />
        );
      })}
    </>
  );
}

interface FolderProps {
  job: number;
  folder: string;
  files: File[];
}

function Folder({ job, folder, files, isOpen }: FolderProps & { isOpen: boolean }) {
  const [opened, setOpened] = useState(isOpen);
  const size = files.reduce((sum, one) => sum + one.size, 0);
  return (
    <details
      class="files-part"
      open={opened}
      onToggle={(event) => setOpened((event.currentTarget as HTMLDetailsElement).open)}
    >
      <summary>
        <span class="mono">{visible(folder)}</span>{' '}
        <span class="dim num">
          {plural(files.length, 'file')}, {bytes(size)}
        </span>
      </summary>
      {opened && <FileList job={job} folder={folder} files={files} />}
    </details>
  );
}

function FileList({ job, folder, files }: FolderProps) {
  const [all, setAll] = useState(false);
  const shown = all ? files : files.slice(0, SHOWN);
  return (
    <>
      <ul class="file-list">
        {shown.map((file) => (
          <FileRow key={file.key} job={job} file={file} name={file.path.slice(folder.length)} />
        ))}
      </ul>
      {shown.length < files.length && (
        <button class="link" onClick={() => setAll(true)}>
          Show all {plural(files.length, 'file')}
        </button>
      )}
    </>
  );
}

function FileRow({ job, file, name }: { job: number; file: File; name: string }) {
  const [isOpen, setOpen] = useState(false);
  const shown = visible(name).replaceAll('\n', '\\n').replaceAll('\t', '\\t');
  const isPlain = file.kind === 'checkpoint' || file.kind === 'events';
  return (
    <li>
      <div class="file-row">
        {isPlain ? (
          <span class="file-name mono">{shown}</span>
        ) : (
          <button
            class="link file-name mono"
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
          >
            {shown}
          </button>
        )}
        <span class="num dim file-size">{bytes(file.size)}</span>
        <time class="num dim">{clock(file.modified_at)}</time>
        <a
          class="button file-download"
          href={fileUrl(job, 'download', file.key)}
          download
          aria-label={`Download ${shown}`}
        >
          Download
        </a>
      </div>
      {isOpen && <FilePreview job={job} file={file} name={shown} />}
    </li>
  );
}
