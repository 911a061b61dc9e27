// The main heading of a screen. It takes the focus after navigation, so that screen readers continue
// from here.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { isTyping } from '../keys';
import { shouldFocusHeading } from '../places';

export function Heading({ kind, children }: { kind?: string; children: ComponentChildren }) {
  const node = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    // Not while the user types: the search field may have been focused before this screen appeared.
    const isBusy = document.querySelector('dialog[open]') || isTyping(document.activeElement);
    if (shouldFocusHeading() && !isBusy) node.current?.focus({ preventScroll: true });
  }, []);
  return (
    <h1 ref={node} class={kind} tabIndex={-1}>
      {children}
    </h1>
  );
}
