// The form for one job: new, or a clone of another job.
import { useState } from 'preact/hooks';
import { post } from '../api';
import { showError, notify } from '../parts/toast';
import { go, jobHref } from '../route';
import type { Created } from '../types';
import { useForm } from './drafts';
import type { Original } from './submit-clone';
import {
  Area,
  EnvironmentNote,
  OPTION_NAMES,
  Resources,
  SubmitForm,
  SubmitRow,
  optionsOf,
} from './submit-fields';
import { PreviewPanel, usePreview } from './submit-preview';

export function JobForm({ draft, original }: { draft: string; original?: Original }) {
  const form = useForm(draft, original?.values);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const { command, ...options } = optionsOf(form.values, ['command', 'name', ...OPTION_NAMES]);
  const isSameCommand = original?.argv && form.values.command === original.values.command;
  const body = {
    ...(isSameCommand ? { argv: original.argv } : { command }),
    ...options,
    ...(original ? { based_on: original.id } : {}),
  };
  const preview = usePreview('/api/jobs', command ? body : null);
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      const { jobs, warning } = await post<Created<'/api/jobs'>>('/api/jobs', body);
      form.clear();
      notify(`Job ${jobs[0]} queued`);
      go(jobHref(jobs[0]!));
      if (warning) showError(warning);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <SubmitForm onSubmit={submit} error={error ?? preview.error}>
      <div>
        <Area
          form={form}
          name="command"
          label="Command"
          rows={3}
          placeholder="python train.py --lr 0.1"
          required
        />
        <Resources form={form} more={[{ name: 'name', label: 'Name', placeholder: 'none' }]} />
        <EnvironmentNote cloneOf={original?.id} />
        <SubmitRow form={form} error={error} isDisabled={isBusy || !command}>
          Submit job
        </SubmitRow>
      </div>
      <PreviewPanel
        preview={preview}
        what="job"
        none="Type a command. It runs in a shell, in the working directory."
      />
    </SubmitForm>
  );
}
