// The keys, on one card.
import { isReadOnly } from '../store';
import { inform } from './dialog';

type Key = [key: string, meaning: string, acts?: 'acts'];

const KEYS: [string, Key[]][] = [
  ['Anywhere', [['?', 'this list'], ['/', 'find a job, or text in a log'], ['t', 'light or dark'], ['g o', 'overview'], ['g s', 'sweeps'], ['g h', 'history'], ['g g', 'GPUs'], ['g n', 'submit', 'acts'], ['u', 'undo', 'acts']]],
  ['In lists', [['j k', 'next, previous row'], ['Enter', 'open'], ['l', 'its log'], ['x', 'select', 'acts'], ['⇧X', 'select up to here', 'acts'], ['Esc', 'select none', 'acts']]],
  ['On jobs', [['c', 'cancel', 'acts'], ['h', 'hold or release', 'acts'], ['r', 'run again', 'acts'], ['e', 'clone and edit', 'acts'], ['p', 'priority', 'acts'], ['⇧K ⇧J', 'up, down the queue', 'acts'], ['⇧T', 'to its front', 'acts']]],
];

export function showHelp(): void {
  // A read-only page has only the keys that change nothing.
  const shown = KEYS.map(([title, keys]): [string, Key[]] => [title, keys.filter(([, , acts]) => !acts || !isReadOnly.peek())]);
  void inform('Keys', (
    <div class="keys">
      {shown.filter(([, keys]) => keys.length).map(([title, keys]) => (
        <section key={title}>
          <h3>{title}</h3>
          <dl>
            {keys.map(([key, meaning]) => [
              <dt key={key}>{key.split(' ').map((one) => <kbd key={one}>{one}</kbd>)}</dt>,
              <dd key={meaning}>{meaning}</dd>,
            ])}
          </dl>
        </section>
      ))}
    </div>
  ));
}
