"""Commands of jobs as text: words of the shell, job files, output paths."""
