// One job.
import { useState } from 'preact/hooks';
import { post } from '../api';
import { complain, tell } from '../parts/toast';
import { go, jobHref } from '../route';
import { Area, OPTION_NAMES, PreviewPanel, Resources, SubmitForm, type Values, optionsOf, useForm, usePreview } from './submit-fields';

export function JobForm({ start }: { start: Values }) {
  const form = useForm(start);
  const [isBusy, setBusy] = useState(false);
  const body = optionsOf(form.values, ['command', 'name', ...OPTION_NAMES]);
  const preview = usePreview('/api/jobs', body.command ? body : null);
  const submit = async () => {
    setBusy(true);
    try {
      const { jobs, warning } = await post<{ jobs: number[]; warning?: string | null }>('/api/jobs', body);
      tell(`Job ${jobs[0]} queued`);
      go(jobHref(jobs[0]!));
      if (warning) complain(warning);
    } catch (error) {
      complain(error);
      setBusy(false);
    }
  };
  return (
    <SubmitForm onSubmit={submit}>
      <div>
        <Area form={form} name="command" label="Command" rows={3} placeholder="python train.py --lr 0.1" required />
        <Resources form={form} more={[{ name: 'name', label: 'Name', placeholder: 'none' }]} />
        <div class="row">
          <button class="primary" disabled={isBusy || !body.command}>Submit job</button>
          <span class="dim hint">Ctrl+Enter</span>
        </div>
      </div>
      <PreviewPanel preview={preview} what="job" none="Type a command; it runs in a shell, in the folder given." />
    </SubmitForm>
  );
}
