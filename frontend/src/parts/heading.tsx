// The main heading of a screen. It takes the focus after navigation, so that screen readers continue
// from here.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { shouldFocusHeading } from '../places';

export function Heading({ kind, children }: { kind?: string; children: ComponentChildren }) {
  const node = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    if (shouldFocusHeading() && !document.querySelector('dialog[open]'))
      node.current?.focus({ preventScroll: true });
  }, []);
  return (
    <h1 ref={node} class={kind} tabIndex={-1}>
      {children}
    </h1>
  );
}
