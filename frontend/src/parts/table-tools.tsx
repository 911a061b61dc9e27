// The buttons of a table: choose columns, export what it shows, copy a link to it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { get } from '../api';
import { linkOf, setColumns } from '../table-state';
import type { TableColumns } from '../types';
import { chooseColumns } from './column-chooser';
import { inform } from './dialog';
import { notify, showError } from './toast';

const FORMS = [
  ['csv', 'CSV'],
  ['json', 'JSON'],
  ['parquet', 'Parquet'],
] as const;

interface Props {
  /** The path of the table; `/columns` and `/export` are below it. */
  base: string;
  /** The name under which the columns are remembered. */
  table: string;
  columns: string[];
  standard: string[];
  /** The order that is shown, also where it is the default. */
  sort: string;
  /** What selects the rows: filters and order. */
  selection: URLSearchParams;
}

export function TableTools({ base, table, columns, standard, sort, selection }: Props) {
  const choose = async () => {
    try {
      const { columns: all } = await get<TableColumns>(`${base}/columns`);
      const names = await chooseColumns(all, columns, standard);
      if (names) setColumns(table, names.join('\n') === standard.join('\n') ? null : names);
    } catch (error) {
      showError(error);
    }
  };
  const copy = async () => {
    const link = linkOf(columns, sort);
    try {
      await navigator.clipboard.writeText(link);
      notify('Link copied: it has the filter, the order and the columns');
    } catch {
      // Browsers allow this only on https and localhost.
      void inform(
        'Link to this table',
        <input
          aria-label="Link"
          class="link-text"
          readOnly
          value={link}
          onFocus={(event) => event.currentTarget.select()}
        />,
      );
    }
  };
  return (
    <div class="table-tools">
      <button onClick={() => void choose()}>Columns…</button>
      <ExportMenu base={base} columns={columns} selection={selection} />
      <button onClick={() => void copy()}>Copy link</button>
    </div>
  );
}

function ExportMenu({
  base,
  columns,
  selection,
}: {
  base: string;
  columns: string[];
  selection: URLSearchParams;
}) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const isInside = event.target instanceof Node && menu.current?.contains(event.target);
      if (menu.current?.open && !isInside) menu.current.open = false;
    };
    addEventListener('click', close);
    return () => removeEventListener('click', close);
  }, []);
  const href = (form: string) => {
    const query = new URLSearchParams(selection);
    query.set('format', form);
    for (const name of columns) query.append('column', name);
    return `${base}/export?${query}`;
  };
  const onToggle = () => {
    if (!menu.current?.open) return;
    get<TableColumns>(`${base}/columns`).then(
      (answer) => setProblem(answer.parquet),
      () => undefined,
    );
  };
  return (
    <details
      ref={menu}
      class="export-menu"
      onToggle={onToggle}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !menu.current?.open) return;
        menu.current.open = false;
        menu.current.querySelector('summary')?.focus();
        event.preventDefault();
      }}
    >
      <summary class="button">Export</summary>
      <div class="export-items">
        {FORMS.map(([form, title]) =>
          form === 'parquet' && problem ? (
            <p key={form} class="dim">
              {title}: {problem}
            </p>
          ) : (
            <a key={form} href={href(form)} download onClick={() => (menu.current!.open = false)}>
              {title}
            </a>
          ),
        )}
      </div>
    </details>
  );
}
