// Help on screens that have nothing to show yet: what to type, as commands to copy.
import type { ComponentChildren } from 'preact';
import { isReadOnly } from '../store';
import { CopyableCommand } from './copyable';

type Command = [command: string, note: string];

const HELP = {
  jobs: [
    ['stoker submit python train.py', 'one job on one GPU'],
    ['stoker submit -G 2 --gpu-mem 20G python train.py', 'two GPUs, 20 GB of each'],
    ['stoker submit -f jobs.txt', 'one job for each line of a file'],
  ],
  sweeps: [
    ["stoker sweep 'python train.py --lr {lr}' lr=0.1,0.01", 'one trial for each value'],
    [
      "stoker sweep 'python train.py --lr {lr}' 'lr=log(1e-5,1e-1)' --trials 20",
      'values drawn at random',
    ],
  ],
  running: [['stoker submit python train.py', 'starts as soon as a GPU is free']],
  queue: [['stoker why', 'says what the first waiting job waits for']],
  recent: [['stoker log -f @', 'follows the log of the last job']],
  gpus: [
    ['stoker doctor', 'says why no GPU was found'],
    ['STOKER_DEVICES=4 stoker daemon start', 'tries everything with four simulated GPUs'],
  ],
  compare: [
    ['stoker results SWEEP 12 --compare', 'compares a sweep and a job in the terminal'],
    ['stoker plot SWEEP --group seed', 'curves with mean and band over seeds'],
  ],
  history: [['stoker submit python train.py', 'every job stays in the history']],
} satisfies Record<string, Command[]>;

/** Commands for an empty screen or section. */
export function FirstUse({
  topic,
  children,
}: {
  topic: keyof typeof HELP;
  children?: ComponentChildren;
}) {
  return (
    <div class="first-use">
      {children}
      {!isReadOnly.value &&
        HELP[topic].map(([command, note]) => (
          <CopyableCommand key={command} command={command} note={note} />
        ))}
    </div>
  );
}
