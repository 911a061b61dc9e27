// The GPUs: usage over the last hours, draining and slots; and the nodes of backends.
import { drainGpu, setSlots } from '../actions';
import { query } from '../api';
import { BackendSection } from '../parts/backends';
import { Empty, Loading, Tabs } from '../parts/bits';
import { GpuHistoryTable } from '../parts/gpu-history';
import { TraceCharts } from '../parts/traces';
import { Heading } from '../parts/heading';
import { GpuCard, isDrained, isMeasured, isSimulated } from '../parts/gpu-card';
import { href, replace, route } from '../route';
import { backends, gpus, isLoaded, isReadOnly } from '../store';
import { isInBanner } from '../stream';
import type { Gpu, GpuHistory, Traces } from '../types';
import { useFetch } from '../use-fetch';

const HOURS = [
  { value: '1', label: '1 h' },
  { value: '6', label: '6 h' },
  { value: '24', label: '24 h' },
];

export function GpusScreen() {
  const hours = route.value.query.get('hours') ?? '6';
  const history = useFetch<GpuHistory>(`/api/gpus/history${query({ hours })}`, 15_000);
  const ofGpu = (gpu: Gpu) =>
    history.data?.gpus.find((one) => (gpu.uuid ? one.uuid === gpu.uuid : one.index === gpu.index));
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
          onPick={(picked) => replace(href(['gpus'], { hours: picked }))}
        />
      </header>
      {!isLoaded.value && <Loading rows={10} />}
      {isLoaded.value && !gpus.value.length && (
        <Empty title="No GPUs on this host">
          {!backends.value.length && 'Jobs run on the CPU.'}
        </Empty>
      )}
      {gpus.value.map((gpu) => (
        <div key={gpu.uuid || gpu.index} class="gpu-row">
          <GpuCard gpu={gpu}>{!isReadOnly.value && <GpuActions gpu={gpu} />}</GpuCard>
          <div>
            <History history={ofGpu(gpu)} />
            {isSimulated(gpu) && !isMeasured(gpu) ? (
              <p class="dim">Simulated GPUs have no measurements.</p>
            ) : (
              <GpuTraces gpu={gpu} hours={hours} />
            )}
          </div>
        </div>
      ))}
      {backends.value.map((one) => (
        <BackendSection key={one.name} backend={one} />
      ))}
    </>
  );
}

function History({ history }: { history: GpuHistory['gpus'][number] | undefined }) {
  return history && history.shares.busy !== '-' ? <GpuHistoryTable history={history} /> : null;
}

function GpuActions({ gpu }: { gpu: Gpu }) {
  return (
    <div class="row">
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
    <p class="dim">No measurements yet</p>
  );
}
