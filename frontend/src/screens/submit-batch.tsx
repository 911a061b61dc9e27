// Many jobs from one text.
import { useState } from 'preact/hooks';
import { post } from '../api';
import { plural } from '../format';
import { complain, tell } from '../parts/toast';
import { go, jobHref } from '../route';
import { Area, OPTION_NAMES, PreviewPanel, Resources, SubmitForm, optionsOf, useForm, usePreview } from './submit-fields';

const EXAMPLE = `# one job a line; \\ continues a line
python train.py --seed 1
python train.py --seed 2
#stoker --gpus 2
python train_big.py`;

export function BatchForm() {
  const form = useForm({});
  const [isBusy, setBusy] = useState(false);
  const text = form.values.text ?? '';
  const body = { text, ...optionsOf(form.values, OPTION_NAMES) };
  const preview = usePreview('/api/batch', text.trim() ? body : null);
  const submit = async () => {
    setBusy(true);
    try {
      const { jobs, warning } = await post<{ jobs: number[]; warning?: string | null }>('/api/batch', body);
      tell(`${plural(jobs.length, 'job')} queued`, 'Open the first', () => go(jobHref(jobs[0]!)));
      go('#/');
      if (warning) complain(warning);
    } catch (error) {
      complain(error);
      setBusy(false);
    }
  };
  return (
    <SubmitForm onSubmit={submit}>
      <div>
        <Area form={form} name="text" label="Jobs" rows={10} placeholder={EXAMPLE} required />
        <p class="dim hint">GPUPeasy's form works too: <code>name ;; outfile ;; command ;;; name ;; …</code></p>
        <Resources form={form} />
        <div class="row">
          <button class="primary" disabled={isBusy || !preview.total}>Submit {preview.total ? plural(preview.total, 'job') : 'jobs'}</button>
          <span class="dim hint">Ctrl+Enter</span>
        </div>
      </div>
      <PreviewPanel preview={preview} what="job" none="Type or paste commands, one a line." />
    </SubmitForm>
  );
}
