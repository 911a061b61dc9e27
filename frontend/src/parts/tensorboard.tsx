// TensorBoard for the event files of a job: opened by the server if it can, else a command to copy.
import { post } from '../api';
import { isReadOnly } from '../store';
import type { Files, JobDetail, Tensorboard } from '../types';
import { visible } from '../words';
import { inform } from './dialog';
import { showError } from './toast';

export function TensorboardButton({ job, files }: { job: JobDetail; files: Files }) {
  const command = files.tensorboard ?? '';
  const open = async () => {
    if (!files.can_open_tensorboard || isReadOnly.value)
      return inform('TensorBoard', <Copy command={command} />);
    try {
      const { url, port } = await post<Tensorboard>(`/api/jobs/${job.id}/files/tensorboard`, {});
      await inform('TensorBoard', <Opened url={url} port={port} />);
    } catch (error) {
      showError(error);
    }
  };
  return (
    <button onClick={() => void open()}>
      {files.can_open_tensorboard && !isReadOnly.value ? 'Open TensorBoard' : 'TensorBoard…'}
    </button>
  );
}

function Copy({ command }: { command: string }) {
  return (
    <>
      <p>Run this on the host of the job, then open the address that it prints:</p>
      <pre class="copied">{visible(command)}</pre>
      <p class="dim">
        Every user of that host can read what TensorBoard shows on its port while it runs.
      </p>
    </>
  );
}

function Opened({ url, port }: { url: string; port: number }) {
  return (
    <>
      <p class="tensorboard-link">
        <a class="button primary" href={url} target="_blank" rel="noopener noreferrer">
          Open in a new tab
        </a>
      </p>
      <p class="dim">
        It runs on the host of the web server and ends after 30 minutes without use. From another
        machine, forward its port first:
      </p>
      <pre class="copied">{`ssh -L ${port}:127.0.0.1:${port} HOST`}</pre>
    </>
  );
}
