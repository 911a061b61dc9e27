// `npm run dev -- 30`: the web UI on a fake server with 30 jobs, some of which change.
import { Fake } from './fake.mjs';

const fake = await new Fake(Number(process.argv[2] ?? 30)).listen(Number(process.argv[3] ?? 8765));
console.log(fake.link);
let step = 0;
setInterval(() => {
  step += 1;
  const live = [...fake.jobs.values()].filter((one) => one.state === 'running');
  for (const one of live)
    fake.write(one.id, `\rstep ${step} ${'#'.repeat(step % 40)}${step % 10 ? '' : '\n'}`);
  for (const gpu of fake.gpus)
    if (gpu.jobs.length) gpu.utilisation_percent = 60 + ((step * 7 + gpu.index * 13) % 40);
  fake.publish([]);
}, 1000);
