// The form for a batch: many jobs from one text.
import { useState } from 'preact/hooks';
import { post } from '../api';
import { plural } from '../format';
import { showError, notify } from '../parts/toast';
import { go, jobHref } from '../route';
import type { Created } from '../types';
import { useForm } from './drafts';
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

const EXAMPLE = `# one job per line; \\ continues a line
python train.py --seed 1
python train.py --seed 2
#stoker --gpus 2
python train_big.py`;

export function BatchForm() {
  const form = useForm('batch');
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const text = form.values.text ?? '';
  const body = { text, ...optionsOf(form.values, OPTION_NAMES) };
  const preview = usePreview('/api/batch', text.trim() ? body : null);
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      const { jobs, warning } = await post<Created<'/api/batch'>>('/api/batch', body);
      form.clear();
      notify(`${plural(jobs.length, 'job')} queued`, '', {
        label: 'Open the first job',
        run: () => go(jobHref(jobs[0]!)),
      });
      go('#/');
      if (warning) showError(warning);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <SubmitForm onSubmit={submit} error={error ?? preview.error}>
      <div>
        <Area form={form} name="text" label="Jobs" rows={10} placeholder={EXAMPLE} required />
        <Resources form={form} />
        <EnvironmentNote />
        <SubmitRow form={form} error={error} isDisabled={isBusy || !preview.total}>
          Submit {preview.total ? plural(preview.total, 'job') : 'jobs'}
        </SubmitRow>
      </div>
      <PreviewPanel preview={preview} what="job" none="Type or paste commands, one per line." />
    </SubmitForm>
  );
}
