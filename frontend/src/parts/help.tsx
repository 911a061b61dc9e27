// The keys, on one card.
import { inform } from './dialog';

const KEYS: [string, [string, string][]][] = [
  ['Anywhere', [['?', 'this list'], ['/', 'find a job'], ['t', 'light or dark'], ['g o', 'overview'], ['g s', 'sweeps'], ['g h', 'history'], ['g g', 'GPUs'], ['g n', 'submit']]],
  ['In lists', [['j k', 'next, previous row'], ['Enter', 'open'], ['l', 'its log'], ['x', 'select'], ['Esc', 'select none']]],
  ['On jobs', [['c', 'cancel'], ['h', 'hold or release'], ['r', 'run again'], ['e', 'clone and edit'], ['p', 'priority'], ['⇧K ⇧J', 'up, down the queue'], ['⇧T', 'to its front']]],
];

export function showHelp(): void {
  void inform('Keys', (
    <div class="keys">
      {KEYS.map(([title, keys]) => (
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
