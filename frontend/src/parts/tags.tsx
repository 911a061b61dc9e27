// The tags of a job or sweep: links to what else has them, with buttons to add and remove them.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { type Target, changeTags, keyOf, knownTags, nameOf } from '../annotations';
import { href } from '../route';
import { isReadOnly } from '../store';
import { visible } from '../words';

export function Tags({
  target,
  tags,
  onChanged,
}: {
  target: Target;
  tags: string[];
  onChanged: () => void;
}) {
  const canEdit = !isReadOnly.value;
  const screen = 'job' in target ? 'history' : 'sweeps';
  return (
    <span class="tags" role="group" aria-label="Tags">
      {tags.map((tag) => (
        <span class="tag" key={tag}>
          <a href={href([screen], { tag })} title={`${screen} with this tag`}>
            {visible(tag)}
          </a>
          {canEdit && (
            <button
              class="icon"
              aria-label={`Remove tag ${visible(tag)}`}
              onClick={() => void changeTags(target, [], [tag], onChanged)}
            >
              ×
            </button>
          )}
        </span>
      ))}
      {canEdit && <AddTag target={target} tags={tags} onChanged={onChanged} />}
    </span>
  );
}

function AddTag({ target, tags, onChanged }: Parameters<typeof Tags>[0]) {
  const [isOpen, setOpen] = useState(false);
  const [text, setText] = useState('');
  const field = useRef<HTMLInputElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const known = useKnownTags(isOpen);
  useLayoutEffect(() => {
    if (isOpen) field.current?.focus();
  }, [isOpen]);
  const close = (hasFocus: boolean) => {
    setOpen(false);
    setText('');
    if (hasFocus) setTimeout(() => button.current?.focus());
  };
  const add = (hasFocus: boolean) => {
    const words = text
      .split(',')
      .map((one) => one.trim())
      .filter(Boolean);
    if (words.length) void changeTags(target, words, [], onChanged);
    close(hasFocus);
  };
  if (!isOpen)
    return (
      <button ref={button} class="link add-tag" onClick={() => setOpen(true)}>
        + tag
      </button>
    );
  const list = `known-tags-${keyOf(target)}`;
  return (
    <form
      class="add-tag"
      onSubmit={(event) => {
        event.preventDefault();
        add(true);
      }}
    >
      <input
        ref={field}
        value={text}
        list={list}
        size={12}
        maxLength={200}
        autocomplete="off"
        aria-label={`New tag of ${nameOf(target)}`}
        placeholder="tag, Enter"
        onInput={(event) => setText(event.currentTarget.value)}
        onBlur={() => add(false)}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          event.stopPropagation();
          close(true);
        }}
      />
      <TagList id={list} tags={known.filter((one) => !tags.includes(one))} />
    </form>
  );
}

/** The choices for a field with `list`. */
export function TagList({ id, tags }: { id: string; tags: string[] }) {
  return (
    <datalist id={id}>
      {tags.map((tag) => (
        <option key={tag} value={tag} />
      ))}
    </datalist>
  );
}

/** Tags that were used before; fetched once they are needed. */
export function useKnownTags(isNeeded: boolean): string[] {
  const [tags, setTags] = useState<string[]>([]);
  useEffect(() => {
    if (isNeeded) knownTags().then(setTags, () => setTags([]));
  }, [isNeeded]);
  return tags;
}
