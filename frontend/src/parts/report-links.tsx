// Downloads of the report of a sweep, as `stoker report` writes it.
export function ReportLinks({ name }: { name: string }) {
  const link = (format: string) =>
    `/api/sweeps/${encodeURIComponent(name)}/report?format=${format}`;
  return (
    <span class="reports" role="group" aria-label="Report">
      <a class="button" href={link('html')} download title="Download a report as one HTML file">
        Report
      </a>
      <a class="button" href={link('md')} download title="Download the report as Markdown">
        <span class="visually-hidden">Report as </span>.md
      </a>
    </span>
  );
}
