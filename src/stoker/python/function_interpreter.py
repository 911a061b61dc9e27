"""The interpreter of jobs that call Python functions."""

from __future__ import annotations

import sys

from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.features.environments.environment_options import has_own_python
from stoker.text.activation import is_in_container


def python_for(spec: JobSpec) -> str:
    """The Python that calls a function: that of the job's environment, otherwise this one.

    Stoker must be installed in that environment. Raises UsageError for a container, which does not
    have the files of the call.
    """
    if is_in_container(spec.settings.activation):
        raise UsageError(
            "a function cannot run in a container",
            'submit a command instead, e.g. ["python", "train.py"]',
            "container",
        )
    return "python" if has_own_python(spec.settings.activation) else sys.executable
