// The overview: GPUs, running jobs, the queue and recently finished jobs.
import { useState } from 'preact/hooks';
import { askDrain, daemonAct, reorder } from '../actions';
import { count } from '../format';
import { Empty, Failed, Loading, Section } from '../parts/bits';
import { BackendLines } from '../parts/backends';
import { FirstUse } from '../parts/first-use';
import { GpuCard, GpuGrid } from '../parts/gpu-card';
import { Heading } from '../parts/heading';
import { COLUMNS, JobTable } from '../parts/job-table';
import * as store from '../store';
import { isLocal } from '../types';
import { visible } from '../words';

const c = COLUMNS;
const RUNNING = [c.id, c.title, c.gpu, c.run, c.memory, c.time];
const QUEUE = [c.id, c.title, c.needs, c.priority, c.why, c.starts];
const RECENT = [c.id, c.state, c.title, c.result, c.time, c.ended];
const RECENT_WITH_PLACES = [c.id, c.state, c.title, c.result, c.gpu, c.time, c.ended];
const SHORT = 16; // rows of the queue shown at first, so that recent jobs stay visible below it
const BAD = ['failed', 'lost'];

export function OverviewScreen() {
  const { running, queue, recent, gpus, nStarted, isLoaded, loadError } = store;
  if (!isLoaded.value) {
    return loadError.value ? (
      <Failed error={loadError.value} retry={() => void store.load().catch(() => undefined)} />
    ) : (
      <>
        <GpuGrid>
          {[0, 1, 2, 3].map((i) => (
            <div key={i} class="gpu">
              <Loading rows={4} />
            </div>
          ))}
        </GpuGrid>
        <Loading rows={8} />
      </>
    );
  }
  const isNew = !running.value.length && !queue.value.length && !recent.value.length;
  return (
    <>
      <Headline />
      {store.driverError.value && (
        <div class="note" role="note">
          GPU driver: {store.driverError.value}
        </div>
      )}
      {gpus.value.length ? (
        <GpuGrid>
          {gpus.value.map((gpu) => (
            <GpuCard key={gpu.uuid || gpu.index} gpu={gpu} />
          ))}
        </GpuGrid>
      ) : (
        <Empty title="No GPUs on this host">
          <FirstUse topic="gpus">
            {!store.backends.value.length && <p>Jobs run on the CPU.</p>}
          </FirstUse>
        </Empty>
      )}
      <BackendLines />
      {isNew ? (
        <Welcome />
      ) : (
        <>
          <Section title="Running" note={count(nStarted.value)}>
            {running.value.length ? (
              <JobTable
                label="Running jobs"
                jobs={running.value}
                columns={RUNNING}
                phoneHeight={88}
              />
            ) : (
              <Empty title="No jobs are running">
                <FirstUse topic="running" />
              </Empty>
            )}
          </Section>
          <QueueSection />
          <Section
            title="Recent"
            note={recent.value.length ? undefined : 0}
            tools={<a href="#/history">History</a>}
          >
            {recent.value.length ? (
              <JobTable
                label="Recent jobs"
                jobs={recent.value}
                columns={recent.value.every(isLocal) ? RECENT : RECENT_WITH_PLACES}
              />
            ) : (
              <Empty title="No jobs have finished yet">
                <FirstUse topic="recent" />
              </Empty>
            )}
          </Section>
        </>
      )}
    </>
  );
}

/** A summary in one line: counts, and recent failures. */
function Headline() {
  const bad = store.recent.value.filter((job) => BAD.includes(job.state)).length;
  return (
    <header class="page-head slim">
      <Heading>Overview</Heading>
      <p class="headline num">
        <span>{count(store.nStarted.value)} running</span>
        {store.nSubmitted.value > 0 && (
          <a href="#/history?state=submitted">{count(store.nSubmitted.value)} submitted</a>
        )}
        <span>{count(store.nWaiting.value)} waiting</span>
        {store.reserved.value && <span>{visible(store.reserved.value)}</span>}
        {bad > 0 && (
          <a class="bad-ink" href="#/history?state=failed,lost">
            ✕ {bad} of the last {store.recent.value.length} failed
          </a>
        )}
      </p>
    </header>
  );
}

function QueueSection() {
  const { queue } = store;
  const total = store.nWaiting.value + store.nSubmitted.value;
  const [isWhole, setWhole] = useState(false);
  const shown =
    isWhole || queue.value.length <= SHORT + 2 ? queue.value : queue.value.slice(0, SHORT);
  const hidden = total - queue.value.length;
  return (
    <Section title="Queue" note={count(total)} tools={!store.isReadOnly.value && <DrainButton />}>
      {queue.value.length ? (
        <JobTable
          label="Queue"
          jobs={shown}
          columns={QUEUE}
          onDrop={(from, to) => void reorder(queue.value, from, to)}
          total={total}
          phoneHeight={88}
        />
      ) : (
        <Empty title="The queue is empty">
          <FirstUse topic="queue" />
        </Empty>
      )}
      {(shown.length < queue.value.length || hidden > 0) && (
        <p class="more">
          {shown.length < queue.value.length && (
            <button class="link" onClick={() => setWhole(true)}>
              Show the next {count(queue.value.length - shown.length)}
            </button>
          )}
          {hidden > 0 && (
            <a href="#/history?state=waiting,submitted">{count(hidden)} more waiting jobs</a>
          )}
        </p>
      )}
    </Section>
  );
}

function DrainButton() {
  return store.daemon.value.draining ? (
    <button onClick={() => void daemonAct('resume')}>Resume</button>
  ) : (
    <button title="Stop starting new jobs" onClick={() => void askDrain()}>
      Drain…
    </button>
  );
}

function Welcome() {
  return (
    <Empty title="No jobs yet">
      {store.isReadOnly.value ? (
        <p>Submitted jobs appear here.</p>
      ) : (
        <p>
          <a class="button primary" href="#/submit">
            Submit a job
          </a>
        </p>
      )}
      <FirstUse topic="jobs">
        <p>{store.isReadOnly.value ? '' : 'or in a terminal:'}</p>
      </FirstUse>
    </Empty>
  );
}
