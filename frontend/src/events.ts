// A parser for server-sent events. The stream is read with fetch instead of EventSource, because fetch
// can send Last-Event-ID with the first request and can tell a 401 response from an unreachable server.

export interface ServerEvent {
  id: string;
  kind: string;
  data: string;
}

/** Parses a stream that arrives in chunks; a chunk may end anywhere. */
export class EventReader {
  private rest = '';
  private id = '';
  private kind = '';
  private data: string[] = [];

  feed(text: string): ServerEvent[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? '';
    const events: ServerEvent[] = [];
    for (const line of lines) {
      if (line === '') {
        if (this.data.length)
          events.push({ id: this.id, kind: this.kind || 'message', data: this.data.join('\n') });
        this.kind = '';
        this.data = [];
        continue;
      }
      const colon = line.indexOf(':');
      if (colon === 0) continue; // a comment keeps the connection alive
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'data') this.data.push(value);
      else if (field === 'event') this.kind = value;
      else if (field === 'id') this.id = value;
    }
    return events;
  }
}
