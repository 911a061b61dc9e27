// The folders of the newest jobs, as suggestions of the field for the working directory.
import type { Got } from '../types';
import { useFetch } from '../use-fetch';

/** The list for inputs with `list="recent-folders"`. */
export function RecentFolders() {
  const { data } = useFetch<Got<'/api/folders'>>('/api/folders');
  return (
    <datalist id="recent-folders">
      {(data?.folders ?? []).map((folder) => (
        <option key={folder} value={folder} />
      ))}
    </datalist>
  );
}
