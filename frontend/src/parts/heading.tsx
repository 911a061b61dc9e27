// The main heading of a screen. Whoever arrives by a link, and hears the page rather than sees it,
// goes on from here.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { takesFocus } from '../places';

export function Heading({ kind, children }: { kind?: string; children: ComponentChildren }) {
  const node = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    if (takesFocus() && !document.querySelector('dialog[open]')) node.current?.focus({ preventScroll: true });
  }, []);
  return <h1 ref={node} class={kind} tabIndex={-1}>{children}</h1>;
}
