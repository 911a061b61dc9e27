// What the machine does now.
import { askDrain, daemonAct, reorder } from '../actions';
import { count } from '../format';
import { Empty, Failed, Loading, Section } from '../parts/bits';
import { GpuCard } from '../parts/gpu-card';
import { COLUMNS, JobTable } from '../parts/job-table';
import * as store from '../store';

const c = COLUMNS;
const RUNNING = [c.id, c.title, c.gpu, c.use, c.time];
const QUEUE = [c.id, c.title, c.needs, c.priority, c.why, c.starts];
const RECENT = [c.id, c.state, c.title, c.result, c.time, c.ended];

export function OverviewScreen() {
  const { running, queue, recent, gpus, nActive, nWaiting, isLoaded, loadError } = store;
  if (!isLoaded.value) {
    return loadError.value
      ? <Failed error={loadError.value} retry={() => void store.load().catch(() => undefined)} />
      : <><div class="gpus">{[0, 1, 2, 3].map((i) => <div key={i} class="gpu"><Loading rows={4} /></div>)}</div><Loading rows={8} /></>;
  }
  const hidden = nWaiting.value - queue.value.length;
  const isNew = !running.value.length && !queue.value.length && !recent.value.length;
  return (
    <>
      {store.trouble.value && <div class="note" role="note">GPU driver: {store.trouble.value}</div>}
      <div class="gpus">
        {gpus.value.map((gpu) => <GpuCard key={gpu.uuid || gpu.index} gpu={gpu} />)}
        {!gpus.value.length && <Empty title="No GPUs on this host">Jobs run on the CPU.</Empty>}
      </div>
      {isNew ? <Welcome /> : (
        <>
          <Section title="Running" note={count(nActive.value)}>
            {running.value.length ? <JobTable label="Running jobs" jobs={running.value} columns={RUNNING} /> : <Empty title="Nothing is running" />}
          </Section>
          <Section title="Queue" note={count(nWaiting.value)} tools={!store.isReadOnly.value && <DrainButton />}>
            {queue.value.length
              ? <JobTable label="Queue" jobs={queue.value} columns={QUEUE} onDrop={(from, to) => void reorder(queue.value, from, to)} total={nWaiting.value} />
              : <Empty title="The queue is empty" />}
            {hidden > 0 && <p class="more"><a href="#/history?state=waiting">{count(hidden)} more waiting jobs</a></p>}
          </Section>
          <Section title="Recent" note={recent.value.length ? undefined : 0} tools={<a href="#/history">History</a>}>
            {recent.value.length ? <JobTable label="Recent jobs" jobs={recent.value} columns={RECENT} /> : <Empty title="Nothing has ended yet" />}
          </Section>
        </>
      )}
    </>
  );
}

function DrainButton() {
  return store.daemon.value.draining
    ? <button class="link" onClick={() => void daemonAct('resume')}>Resume</button>
    : <button class="link" title="Start no more jobs" onClick={() => void askDrain()}>Drain…</button>;
}

function Welcome() {
  return (
    <Empty title="No jobs yet">
      {store.isReadOnly.value
        ? <p>They appear here as soon as somebody submits one.</p>
        : <p><a class="button primary" href="#/submit">Submit a job</a></p>}
      <p>or in a terminal <code>stoker submit python train.py</code></p>
    </Empty>
  );
}
