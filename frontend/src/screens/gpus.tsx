// The GPUs: the timeline of what they did and likely will do, and each GPU with its charts, draining and
// slots; and the nodes of backends.
import { useEffect, useRef } from 'preact/hooks';
import { drainGpu, setSlots } from '../actions';
import { query } from '../api';
import { BackendSection } from '../parts/backends';
import { Empty, Loading, Tabs } from '../parts/bits';
import { FirstUse } from '../parts/first-use';
import { GpuCard, GpuGrid, isDrained } from '../parts/gpu-card';
import { GpuHistoryTable } from '../parts/gpu-history';
import { GpuTimeline } from '../parts/gpu-timeline';
import { Heading } from '../parts/heading';
import { HOURS, hoursOf, showRange } from '../parts/time-range';
import { TraceCharts } from '../parts/traces';
import { href, replace, route } from '../route';
import { backends, gpus, isLoaded, isReadOnly } from '../store';
import { isInBanner } from '../stream';
import type { Gpu, GpuHistory, Traces } from '../types';
import { useFetch } from '../use-fetch';

const MANY = 8; // more GPUs than this show the charts of one at a time

export function GpusScreen() {
  const hours = hoursOf(route.value.query);
  const isMany = gpus.value.length > MANY;
  return (
    <>
      <header class="page-head">
        <div class="grow">
          <Heading>GPUs</Heading>
        </div>
        <Tabs
          label="Time range"
          value={hours}
          options={HOURS}
          onPick={(picked) => showRange(null, picked)}
        />
      </header>
      {!isLoaded.value && <Loading rows={10} />}
      {isLoaded.value && !gpus.value.length && (
        <Empty title="No GPUs on this host">
          <FirstUse topic="gpus">{!backends.value.length && <p>Jobs run on the CPU.</p>}</FirstUse>
        </Empty>
      )}
      {gpus.value.length > 0 && <GpuTimeline />}
      {gpus.value.length > 0 && (isMany ? <ManyGpus hours={hours} /> : <FewGpus hours={hours} />)}
      {backends.value.map((one) => (
        <BackendSection key={one.name} backend={one} />
      ))}
    </>
  );
}

/** Each GPU beside its charts. */
function FewGpus({ hours }: { hours: string }) {
  const history = useHistory(hours);
  return (
    <>
      {gpus.value.map((gpu) => (
        <div key={gpu.uuid || gpu.index} class="gpu-row">
          <GpuCard gpu={gpu}>
            <GpuActions gpu={gpu} />
          </GpuCard>
          <div>
            <History history={ofGpu(history, gpu)} />
            <GpuTraces gpu={gpu} hours={hours} />
          </div>
        </div>
      ))}
    </>
  );
}

/** All GPUs, and the charts of the chosen one above them. */
function ManyGpus({ hours }: { hours: string }) {
  const history = useHistory(hours);
  const picked = gpus.value.find((gpu) => String(gpu.index) === route.value.query.get('gpu'));
  const pick = (gpu: Gpu | null) => {
    const next = new URLSearchParams(route.value.query);
    if (gpu) next.set('gpu', String(gpu.index));
    else next.delete('gpu');
    replace(href(['gpus'], next));
  };
  // The charts are above the GPUs, maybe far above the button.
  const box = useRef<HTMLDivElement>(null);
  const index = picked?.index;
  useEffect(() => {
    if (index !== undefined) box.current?.scrollIntoView({ block: 'center' });
  }, [index]);
  return (
    <>
      {picked && (
        <div ref={box} class="gpu-row" role="region" aria-label={`Charts of GPU ${picked.index}`}>
          <GpuCard gpu={picked}>
            <div class="row">
              <button onClick={() => pick(null)}>Close the charts</button>
            </div>
          </GpuCard>
          <div>
            <History history={ofGpu(history, picked)} />
            <GpuTraces gpu={picked} hours={hours} />
          </div>
        </div>
      )}
      <GpuGrid>
        {gpus.value.map((gpu) => (
          <GpuCard key={gpu.uuid || gpu.index} gpu={gpu}>
            <GpuActions gpu={gpu} onCharts={() => pick(gpu)} />
          </GpuCard>
        ))}
      </GpuGrid>
    </>
  );
}

const useHistory = (hours: string) =>
  useFetch<GpuHistory>(`/api/gpus/history${query({ hours })}`, 15_000).data;

const ofGpu = (history: GpuHistory | null, gpu: Gpu) =>
  history?.gpus.find((one) => (gpu.uuid ? one.uuid === gpu.uuid : one.index === gpu.index));

function History({ history }: { history: GpuHistory['gpus'][number] | undefined }) {
  return history && history.shares.busy !== '-' ? <GpuHistoryTable history={history} /> : null;
}

function GpuActions({ gpu, onCharts }: { gpu: Gpu; onCharts?: () => void }) {
  const charts = onCharts && <button onClick={onCharts}>Charts</button>;
  if (isReadOnly.value) return charts ? <div class="row">{charts}</div> : null;
  return (
    <div class="row">
      {charts}
      {isDrained(gpu) ? (
        <button onClick={() => void drainGpu(gpu, false)}>Restore</button>
      ) : (
        <button
          onClick={() => void drainGpu(gpu, true)}
          title="Running jobs finish, no new jobs start"
        >
          Drain
        </button>
      )}
      <button onClick={() => void setSlots(gpu)}>Slots: {gpu.slots}…</button>
    </div>
  );
}

function GpuTraces({ gpu, hours }: { gpu: Gpu; hours: string }) {
  const traces = useFetch<{ series: Traces }>(
    `/api/gpus/${encodeURIComponent(gpu.uuid)}/trace${query({ hours, points: 300 })}`,
    15_000,
  );
  if (!traces.data)
    return traces.error && !isInBanner(traces.error) ? (
      <p class="dim">{traces.error.message}</p>
    ) : (
      <Loading rows={3} />
    );
  const hasAny = Object.values(traces.data.series).some((one) => one.points.length > 1);
  return hasAny ? (
    <TraceCharts series={traces.data.series} height={110} max={{ gpu_memory: gpu.memory_bytes }} />
  ) : (
    <p class="dim">
      {gpu.simulated ? 'A simulated GPU has no measurements' : 'No measurements yet'}
    </p>
  );
}
