// A table that scrolls sideways if its columns need more room than the window has.
import { useEffect, useState } from 'preact/hooks';
import { isPhone } from '../theme';
import { type Column, Table, type TableProps } from './table';

const WIDE = 240; // pixels for a column that takes the remaining width
const PERCENT = 200;

function widthOf(column: Column<never>): number {
  if (typeof column.width === 'number') return column.width;
  if (column.kind?.includes('wide')) return WIDE;
  return column.width === 'auto' || column.width === undefined ? (column.head ? 90 : 0) : PERCENT;
}

export function WideTable<T>(props: TableProps<T>) {
  const [room, setRoom] = useState(() => innerWidth);
  useEffect(() => {
    const measure = () => setRoom(innerWidth);
    addEventListener('resize', measure);
    return () => removeEventListener('resize', measure);
  }, []);
  const needed = (props.columns as Column<never>[]).reduce((sum, one) => sum + widthOf(one), 60);
  // On a phone a row has several lines. Otherwise the heading stays in view while the page scrolls.
  if (isPhone.value || needed <= Math.min(room, 1560) - 34) return <Table {...props} />;
  return (
    <div class="wide-table" style={{ '--width': `${needed}px` }}>
      <Table {...props} />
    </div>
  );
}
