// Icons as SVG paths, since not every font has these symbols.
const PATHS = {
  overview: 'M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z',
  sweeps: 'M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4',
  history: 'M3 5h14M3 10h14M3 15h9',
  gpus: 'M5 5h10v10H5zM8 8h4v4H8zM8 2v3M12 2v3M8 15v3M12 15v3M2 8h3M2 12h3M15 8h3M15 12h3',
  submit: 'M10 4v12M4 10h12',
  bell: 'M5 14V9a5 5 0 0 1 10 0v5l1.5 1.5h-13zM8.5 17.5h3',
  'bell-on':
    'M5 14V9a5 5 0 0 1 10 0v5l1.5 1.5h-13zM8.5 17.5h3M2 7a8 8 0 0 1 2-4M18 7a8 8 0 0 0-2-4',
  sun: 'M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6 16 16M16 4l-1.4 1.4M5.4 14.6 4 16',
  moon: 'M16.5 12.5A7 7 0 0 1 7.5 3.5a7 7 0 1 0 9 9z',
};

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg
      class="icon-svg"
      viewBox="0 0 20 20"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      stroke-width="1.6"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
