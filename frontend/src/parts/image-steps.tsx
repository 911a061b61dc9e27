// Images of a job over steps: one picture per series, with a slider.
import { useEffect, useState } from 'preact/hooks';
import { count } from '../format';
import type { Files } from '../types';
import { visible } from '../words';
import { fileUrl } from './files';

type Series = Files['series'][number];

const SHOWN = 6; // series before “Show all”

export function ImageSteps({ job, series }: { job: number; series: Series[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? series : series.slice(0, SHOWN);
  return (
    <>
      <div class={`image-steps${series.length === 1 ? ' alone' : ''}`}>
        {shown.map((one) => (
          <Steps key={one.name} job={job} series={one} />
        ))}
      </div>
      {shown.length < series.length && (
        <button class="link" onClick={() => setAll(true)}>
          Show all {series.length} series of images
        </button>
      )}
    </>
  );
}

function Steps({ job, series }: { job: number; series: Series }) {
  const last = series.steps.length - 1;
  const [picked, setPicked] = useState<number | null>(null); // null: the newest, also of later ones
  const [failed, setFailed] = useState<string | null>(null);
  const [isTiny, setTiny] = useState(false); // shown with sharp pixels
  const at = Math.min(picked ?? last, last);
  const { step, key } = series.steps[at]!;
  const name = visible(series.name);
  // Load the neighbors, so that the next picture appears at once.
  useEffect(() => {
    for (const near of [series.steps[at - 1], series.steps[at + 1]])
      if (near) new Image().src = fileUrl(job, 'content', near.key);
  }, [key]);
  return (
    <figure>
      <figcaption>
        <b class="cut">{name}</b>
        <span class="dim num">step {count(step)}</span>
      </figcaption>
      {failed === key ? (
        <p class="dim image-failed">This image cannot be shown; open it in the list below.</p>
      ) : (
        <a
          href={fileUrl(job, 'content', key)}
          target="_blank"
          rel="noopener noreferrer"
          aria-label={`Open ${name}, step ${step}, at full size`}
        >
          <img
            src={fileUrl(job, 'content', key)}
            alt={`${name}, step ${step}`}
            decoding="async"
            class={isTiny ? 'tiny' : ''}
            onLoad={(event) =>
              setTiny((event.currentTarget as HTMLImageElement).naturalWidth <= 128)
            }
            onError={() => setFailed(key)}
          />
        </a>
      )}
      {last > 0 && (
        <div class="image-slider">
          <button
            class="icon"
            aria-label="Earlier step"
            disabled={at === 0}
            onClick={() => setPicked(at - 1)}
          >
            ‹
          </button>
          <input
            type="range"
            min={0}
            max={last}
            value={at}
            aria-label={`Step of ${name}`}
            aria-valuetext={`step ${step}`}
            onInput={(event) => {
              const value = Number((event.target as HTMLInputElement).value);
              setPicked(value === last ? null : value);
            }}
          />
          <button
            class="icon"
            aria-label="Later step"
            disabled={at === last}
            onClick={() => setPicked(at + 1 === last ? null : at + 1)}
          >
            ›
          </button>
        </div>
      )}
    </figure>
  );
}
