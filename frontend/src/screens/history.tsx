// All jobs. Filters, order and columns are part of the address.
import { useState } from 'preact/hooks';
import { count } from '../format';
import { Empty, Failed, Loading } from '../parts/bits';
import { FailureGroups } from '../parts/failure-groups';
import { FilterBox } from '../parts/filter-box';
import { JobTable } from '../parts/job-table';
import { TableTools } from '../parts/table-tools';
import { BackendOptions } from '../parts/backends';
import { FirstUse } from '../parts/first-use';
import { Heading } from '../parts/heading';
import { TagList, useKnownTags } from '../parts/tags';
import { replace, route } from '../route';
import { backends, counts } from '../store';
import { nextSort, setInAddress, tableState } from '../table-state';
import { isPhone } from '../theme';
import { ACTIVE, FINAL, type Job, STATES, type State, WAITING } from '../types';
import { historyColumns, isDownFirst, sentColumns, STANDARD } from './history-columns';
import { useFailures, useHistory } from './history-data';

const FIELDS = ['state', 'on', 'name', 'tag', 'sweep', 'q', 'starred'] as const;
const TEXTS = ['name', 'tag', 'sweep', 'q'] as const;
const LABELS = { name: 'Name', tag: 'Tag', sweep: 'Sweep', q: 'Command or name' };
const TABLE = 'history';
const BASE = '/api/history';

const GROUPS: Record<string, readonly State[]> = { active: ACTIVE, waiting: WAITING, final: FINAL };

type Filter = Record<(typeof FIELDS)[number], string>;

function filterOf(from: URLSearchParams): Filter {
  return Object.fromEntries(FIELDS.map((field) => [field, from.get(field) ?? ''])) as Filter;
}

/** Whether a job from the event stream matches the filter. */
function matches(job: Job, filter: Filter): boolean {
  const needle = filter.q.toLowerCase();
  return (
    (!filter.state ||
      filter.state
        .split(',')
        .some((one) => one === job.state || GROUPS[one]?.includes(job.state))) &&
    (!filter.on || job.on === filter.on) &&
    (!filter.name || job.name === filter.name) &&
    (!filter.starred || job.starred) &&
    (!filter.tag || job.tags.includes(filter.tag)) &&
    (!filter.sweep || job.sweep === filter.sweep) &&
    (!needle || `${job.name ?? ''} ${job.command}`.toLowerCase().includes(needle))
  );
}

export function HistoryScreen() {
  const filter = filterOf(route.value.query);
  const { where, sort, columns: chosen } = tableState(TABLE);
  const names = chosen ?? STANDARD;
  const selection = new URLSearchParams(
    Object.entries({ ...filter, where, sort }).filter(([, text]) => text),
  );
  const { shown, old, error, onEnd, onRange, loadAll, retry } = useHistory({
    selection,
    columns: sentColumns(names),
    isPlain: !where && !sort,
    matches: (job) => matches(job, filter),
  });
  const groups = useFailures(`${BASE}/failures`, selection);
  const filterError = error && !shown && error.status === 400 ? error : null;
  const rows = shown ?? (filterError || !error ? old : null);
  const setWhere = (text: string) => setInAddress({ where: text });

  const set = (field: string, text: string) => setInAddress({ [field]: text });
  const nFilters = FIELDS.filter((field) => filter[field]).length + (where ? 1 : 0);
  const tags = useKnownTags(true);
  const [isOpen, setOpen] = useState(false); // on a phone the filters are collapsed

  return (
    <>
      <header class="page-head slim">
        <div class="grow">
          <Heading>History</Heading>
        </div>
        {nFilters > 0 && (
          <button class="link" onClick={() => replace('#/history')}>
            Clear filters
          </button>
        )}
        {isPhone.value && (
          <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            Filters{nFilters > 0 && ` (${nFilters})`}
          </button>
        )}
      </header>
      {(isOpen || !isPhone.value) && (
        <form
          class="filters"
          role="search"
          aria-label="Filter jobs"
          onSubmit={(event) => event.preventDefault()}
        >
          <label>
            <span>State</span>
            <select
              value={filter.state}
              onChange={(event) => set('state', event.currentTarget.value)}
            >
              <option value="">
                any ({count(Object.values(counts.value).reduce((a, b) => a + b, 0))})
              </option>
              {Object.keys(GROUPS).map((group) => (
                <option key={group} value={group}>
                  {group}: {GROUPS[group]!.join(', ')}
                </option>
              ))}
              {STATES.map((state) => (
                <option key={state} value={state}>
                  {state} ({count(counts.value[state] ?? 0)})
                </option>
              ))}
            </select>
          </label>
          {(backends.value.length > 0 || filter.on) && (
            <label>
              <span>Runs on</span>
              <select value={filter.on} onChange={(event) => set('on', event.currentTarget.value)}>
                <option value="">any place</option>
                <BackendOptions chosen={filter.on} />
              </select>
            </label>
          )}
          {TEXTS.map((field) => (
            <label key={field} class={field === 'q' ? 'grow' : ''}>
              <span>{LABELS[field]}</span>
              <input
                type="search"
                value={filter[field]}
                list={field === 'tag' ? 'tags-of-jobs' : undefined}
                placeholder={field === 'q' ? 'train.py' : ''}
                onInput={(event) => set(field, event.currentTarget.value)}
              />
            </label>
          ))}
          <TagList id="tags-of-jobs" tags={tags} />
          <label>
            <span>Star</span>
            <select
              value={filter.starred}
              onChange={(event) => set('starred', event.currentTarget.value)}
            >
              <option value="">any</option>
              <option value="true">starred</option>
            </select>
          </label>
        </form>
      )}
      <div class="table-bar">
        <FilterBox
          base={BASE}
          where={where}
          placeholder="state == 'failed' and duration > '1h'"
          error={filterError}
          onWhere={setWhere}
        />
        <TableTools
          base={BASE}
          table={TABLE}
          columns={names}
          standard={STANDARD}
          sort={sort}
          selection={selection}
        />
      </div>
      <FailureGroups groups={groups} where={where} onWhere={setWhere} />
      {error && !rows && !filterError ? (
        <Failed error={error} retry={retry} />
      ) : !rows ? (
        !filterError && <Loading rows={14} />
      ) : !rows.jobs.length ? (
        <Empty title={nFilters ? 'No jobs match' : 'No jobs yet'}>
          {!nFilters && <FirstUse topic="history" />}
        </Empty>
      ) : (
        <section aria-label="Jobs" class={shown ? '' : 'faint'}>
          <JobTable
            label="Jobs"
            jobs={rows.jobs}
            columns={historyColumns(names)}
            sort={sort || '-id'}
            onSort={(name) => setInAddress({ sort: nextSort(sort, name, isDownFirst(name)) })}
            onEnd={onEnd}
            onRange={onRange}
            total={rows.total}
            loadAll={rows.next === null ? undefined : loadAll}
          />
          <p class="more dim num">
            {rows.next === null
              ? `${count(rows.jobs.length)} jobs`
              : `${count(rows.jobs.length)} of ${rows.hasMore ? 'more than ' : ''}${count(rows.total)} jobs loaded, more below`}
            {rows.unread > 0 && (
              <span role="status">
                Reading the metrics of {count(rows.unread)} more finished jobs…
              </span>
            )}
          </p>
        </section>
      )}
    </>
  );
}
