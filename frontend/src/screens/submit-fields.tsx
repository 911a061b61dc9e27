// The form fields that jobs, batches and sweeps share. An error about a field is shown below it.
import { createContext, type ComponentChildren } from 'preact';
import { useContext } from 'preact/hooks';
import { ApiError } from '../api';
import { BackendOptions } from '../parts/backends';
import { RecentFolders } from '../parts/recent-folders';
import { backends, defaultBackend, host } from '../store';
import { isInBanner } from '../stream';
import { LABELS, withKeyLabels } from '../words';
import type { Form, Values } from './drafts';
import {
  ADVANCED,
  BOXES,
  COMMON,
  type FieldSpec,
  LOCAL,
  backendOf,
  requestOptions,
} from './option-fields';

export { OPTION_NAMES } from './option-fields';

/** The form values as options of a request; empty fields are left out. */
export const optionsOf = (values: Values, names: string[]) =>
  requestOptions(values, names, defaultBackend.value);

const FormError = createContext<unknown>(null);

/** The error message of the field `name`, if the current error is about it. */
export function FieldError({ name }: { name: string }) {
  const error = useContext(FormError);
  if (!(error instanceof ApiError) || error.field !== name) return null;
  return (
    <small class="bad-ink" role="alert" id={`error-${name}`}>
      {errorText(error)}
    </small>
  );
}

export function useErrorProps(name: string) {
  const error = useContext(FormError);
  const hasError = error instanceof ApiError && error.field === name;
  return hasError ? ({ 'aria-invalid': true, 'aria-describedby': `error-${name}` } as const) : {};
}

export function errorText(error: unknown): string {
  if (!(error instanceof ApiError)) return String(error);
  return withKeyLabels(error.hint ? `${error.message}; ${error.hint}` : error.message);
}

export function Field({
  form,
  name,
  label,
  hint,
  type = 'text',
  placeholder,
  required,
  list,
}: FieldSpec & { form: Form; required?: boolean; list?: string }) {
  return (
    <label class="field">
      <span>{label ?? LABELS[name] ?? name}</span>
      <input
        type={type}
        name={name}
        value={form.values[name] ?? ''}
        placeholder={placeholder}
        required={required}
        list={list}
        {...useErrorProps(name)}
        onInput={(event) => form.set(name, event.currentTarget.value)}
      />
      {hint && <small>{hint}</small>}
      <FieldError name={name} />
    </label>
  );
}

export function Area({
  form,
  name,
  label,
  rows,
  placeholder,
  required,
}: {
  form: Form;
  name: string;
  label: string;
  rows: number;
  placeholder?: string;
  required?: boolean;
}) {
  return (
    <label class="field">
      <span>{label}</span>
      <textarea
        name={name}
        rows={rows}
        value={form.values[name] ?? ''}
        placeholder={placeholder}
        required={required}
        spellcheck={false}
        {...useErrorProps(name)}
        onInput={(event) => form.set(name, event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey))
            event.currentTarget.form?.requestSubmit();
        }}
      />
      <FieldError name={name} />
    </label>
  );
}

/** Where the job runs; nothing if there is no backend to choose. */
function BackendFields({ form }: { form: Form }) {
  const chosen = backendOf(form.values, defaultBackend.value);
  const errorProps = useErrorProps('on');
  if (!backends.value.length && chosen === LOCAL) return null;
  return (
    <>
      <label class="field">
        <span>{LABELS.on}</span>
        <select
          name="on"
          value={chosen}
          {...errorProps}
          onChange={(event) => form.set('on', event.currentTarget.value)}
        >
          <BackendOptions chosen={chosen} />
        </select>
        <FieldError name="on" />
      </label>
      {chosen !== LOCAL && (
        <Field form={form} name="nodes" type="number" placeholder="1" hint="GPUs are per node" />
      )}
    </>
  );
}

export function Resources({
  form,
  more = [],
  without = [],
}: {
  form: Form;
  more?: FieldSpec[];
  without?: string[];
}) {
  const advanced = ADVANCED.filter((one) => !without.includes(one.name));
  const error = useContext(FormError);
  const hasError = error instanceof ApiError && advanced.some((one) => one.name === error.field);
  const hasAdvanced =
    [...advanced, ...BOXES].some((one) => form.values[one.name]) || Boolean(form.values.env);
  return (
    <>
      <RecentFolders />
      <Field
        form={form}
        name="cwd"
        list="recent-folders"
        placeholder={
          host.value.user ? `home directory of ${host.value.user}` : 'your home directory'
        }
      />
      <div class="fields">
        {more.map((one) => (
          <Field key={one.name} form={form} {...one} />
        ))}
        <BackendFields form={form} />
        {COMMON.map((one) => (
          <Field key={one.name} form={form} {...one} />
        ))}
      </div>
      {backendOf(form.values, defaultBackend.value) !== LOCAL && (
        <Area
          form={form}
          name="option"
          label={LABELS.option!}
          rows={2}
          placeholder="partition=gpu, one per line"
        />
      )}
      <details open={hasAdvanced || hasError}>
        <summary>More options</summary>
        <div class="fields">
          {advanced.map((one) => (
            <Field key={one.name} form={form} {...one} />
          ))}
        </div>
        <Area
          form={form}
          name="env"
          label="Environment"
          rows={2}
          placeholder="NAME=value, one per line"
        />
        {BOXES.map((box) => (
          <label key={box.name} class="check">
            <input
              type="checkbox"
              checked={Boolean(form.values[box.name])}
              onChange={(event) => form.set(box.name, event.currentTarget.checked ? 'on' : '')}
            />
            {box.label}
          </label>
        ))}
      </details>
    </>
  );
}

/** Says which environment the job gets; it differs from that of `stoker submit`. */
export function EnvironmentNote({ cloneOf }: { cloneOf?: number }) {
  return (
    <p class="dim hint">
      {cloneOf === undefined ? (
        <>
          Jobs get the environment of the <code>stoker web</code> server; <code>stoker submit</code>{' '}
          uses that of your terminal.
        </>
      ) : (
        <>
          This job gets the environment of job {cloneOf}, as with “Rerun”; variables under
          “Environment” are added.
        </>
      )}
    </p>
  );
}

/** The submit button, with errors that belong to no single field. */
export function SubmitRow({
  form,
  error,
  isDisabled,
  children,
}: {
  form: Form;
  error: unknown;
  isDisabled: boolean;
  children: ComponentChildren;
}) {
  const isAtField =
    error instanceof ApiError && error.field && document.getElementsByName(error.field).length > 0;
  return (
    <>
      {error != null && !isAtField && !isInBanner(error) && (
        <p class="bad-ink" role="alert">
          {errorText(error)}
        </p>
      )}
      <div class="row">
        <button class="primary" disabled={isDisabled}>
          {children}
        </button>
        <span class="dim hint">Ctrl+Enter</span>
        <span class="grow" />
        {form.isChanged && (
          <button type="button" class="link" onClick={form.clear}>
            Reset form
          </button>
        )}
      </div>
    </>
  );
}

export function SubmitForm({
  onSubmit,
  error,
  children,
}: {
  onSubmit(): Promise<void>;
  error: unknown;
  children: ComponentChildren;
}) {
  return (
    <FormError.Provider value={error}>
      <form
        class="submit"
        noValidate={false}
        onSubmit={(event) => {
          event.preventDefault();
          void onSubmit();
        }}
      >
        {children}
      </form>
    </FormError.Provider>
  );
}
