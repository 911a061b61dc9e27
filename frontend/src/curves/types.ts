// The response of /api/curves.
import type { Got, Point, State } from '../types';

type Response = Got<'/api/curves'>;
type Chart = Response['charts'][number];
type Line = Chart['lines'][number];
type Band = NonNullable<Chart['bands']>[number];

export type CurveLine = Omit<Line, 'points' | 'raw' | 'state'> & {
  state: State;
  points: Point[];
  raw: Point[] | null;
};
export type CurveBand = Omit<Band, 'mean' | 'low' | 'high'> & {
  mean: Point[];
  low: Point[];
  high: Point[];
};
export type CurvesOfMetric = Omit<Chart, 'lines' | 'bands'> & {
  lines: CurveLine[];
  bands?: CurveBand[] | null;
};
export type Curves = Omit<Response, 'charts'> & { charts: CurvesOfMetric[] };
