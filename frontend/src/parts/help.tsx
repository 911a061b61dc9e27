// The dialog that lists the keyboard shortcuts.
import { isReadOnly } from '../store';
import { inform } from './dialog';

type Key = [key: string, meaning: string, acts?: 'acts'];

const KEYS: [string, Key[]][] = [
  [
    'Anywhere',
    [
      ['?', 'show this list'],
      ['/', 'find a job, or text in a log'],
      ['t', 'switch between light and dark'],
      ['g o', 'overview'],
      ['g s', 'sweeps'],
      ['g h', 'history'],
      ['g g', 'GPUs'],
      ['g n', 'submit', 'acts'],
      ['u', 'undo', 'acts'],
    ],
  ],
  [
    'In lists',
    [
      ['j k', 'next, previous row'],
      ['Enter', 'open'],
      ['f', 'filter the table'],
      ['l', 'open the log'],
      ['x', 'select, to compare or to act on'],
      ['⇧X', 'select a range'],
      ['Esc', 'clear the selection'],
      ['w', 'why a job waits, and what would start it'],
    ],
  ],
  [
    'On jobs',
    [
      ['c', 'cancel', 'acts'],
      ['h', 'hold or release', 'acts'],
      ['r', 'rerun', 'acts'],
      ['e', 'clone and edit', 'acts'],
      ['p', 'change priority', 'acts'],
      ['s', 'add or remove the star', 'acts'],
      ['⇧K ⇧J', 'move up, down in the queue', 'acts'],
      ['⇧T', 'move to the front', 'acts'],
    ],
  ],
  [
    'On curves',
    [
      ['← →', 'move the cursor'],
      ['↑ ↓', 'next line'],
      ['+ -', 'zoom'],
      ['⇧← ⇧→', 'pan'],
      ['0', 'reset the zoom'],
      ['Home End', 'first, last point'],
      ['Space', 'highlight the line'],
    ],
  ],
  [
    'On the timeline',
    [
      ['← → ↑ ↓', 'next block, next GPU'],
      ['Enter', 'open the job, or the reason'],
      ['+ -', 'zoom'],
      ['PgUp PgDn', 'earlier, later'],
      ['Esc', 'close the details'],
    ],
  ],
  [
    'In logs and forms',
    [
      ['Enter ⇧Enter', 'next, previous match of a search'],
      ['Esc', 'leave a field; in the full log, back to the job'],
      ['Ctrl+Enter', 'submit the form', 'acts'],
    ],
  ],
];

export function showHelp(): void {
  // In a read-only web UI, list only shortcuts that change nothing.
  const shown = KEYS.map(([title, keys]): [string, Key[]] => [
    title,
    keys.filter(([, , acts]) => !acts || !isReadOnly.peek()),
  ]);
  void inform(
    'Keyboard shortcuts',
    <div class="keys">
      {shown
        .filter(([, keys]) => keys.length)
        .map(([title, keys]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {keys.map(([key, meaning]) => [
                <dt key={key}>
                  {key.split(' ').map((one) => (
                    <kbd key={one}>{one}</kbd>
                  ))}
                </dt>,
                <dd key={meaning}>{meaning}</dd>,
              ])}
            </dl>
          </section>
        ))}
    </div>,
  );
}
