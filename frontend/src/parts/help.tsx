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
      ['l', 'open the log'],
      ['x', 'select', 'acts'],
      ['⇧X', 'select a range', 'acts'],
      ['Esc', 'clear the selection', 'acts'],
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
      ['⇧K ⇧J', 'move up, down in the queue', 'acts'],
      ['⇧T', 'move to the front', 'acts'],
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
