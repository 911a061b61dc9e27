"""Randomly generated templates: an accepted template must never execute a value."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.features.sweeps.spec.values import plain
from stoker.features.sweeps.template.template import shell
from tests.features.sweeps.test_templates import SHELLS

VALUES = [
    "; touch RAN;", "$(touch RAN)", "`touch RAN`", "'; touch RAN; '", '"; touch RAN; "',
    "\ntouch RAN\n", ")\ntouch RAN\n", "}\ntouch RAN\n", "a[$(touch RAN)]", "\\'; touch RAN; '",
    "'\ntouch RAN\n'\"\ntouch RAN\n\"", "E\ntouch RAN\n",
]  # fmt: skip
IN_DOUBLE = ["{x}", "a ", "$HOME", '\\"', "\\\\", "'", "$(echo hi)", "${{HOME}}", "`echo hi`", "#",
             '$(echo "a b")', "${{A:-b}}", "\\$", "$$", "!"]  # fmt: skip
LIVE = ["$HOME", "$(echo a b)", "`echo a`", "${{HOME}}", "$((1+1))", "$(echo 'a)')", "${{A:-'q'}}",
        '$(echo "$(echo b)")', "$'a'", "$'\\''", "$(echo a # c\n)",
        "$(case a in a) echo b;; esac)"]  # fmt: skip
COMMANDS = ["echo", "printf %s", "true", "X={x} env", "export A={x}; echo", "{x}", "test -n", "cat",
         "exec echo", "env", "time", "command", "sh -c", "eval"]  # fmt: skip


def word(rng: random.Random) -> str:
    kind = rng.randrange(12)
    if kind < 4:
        return "{x}"
    if kind == 4:
        return "'" + rng.choice(["{x}", "a b{x}", "\\", "$(", '"']) + "'"
    if kind == 5:
        return '"' + "".join(rng.choices(IN_DOUBLE, k=3)) + '"'
    if kind == 6:
        return rng.choice(LIVE)
    if kind == 7:
        return "\\" + rng.choice("'\"$ab#;")
    around = rng.choice(["--a=%s", "{{a,%s}}", "[a%s]", "~%s", "a%s", "%s" + "{x}"])
    return around.replace("%s", word(rng))


def command(rng: random.Random) -> str:
    gap = rng.choice([" ", "\t", " \\\n"])
    made = rng.choice(COMMANDS) + "".join(gap + word(rng) for _ in range(rng.randint(1, 3)))
    ways = ["%s", "%s", "%s >{x}", "%s # c'\n{c}", "%s | cat", "(%s)", "{{ %s; }}", "%s && {c}",
            "%s\n{c}", "for i in {x}; do %s; done", "f() {{ %s; }}; f {x}", "if %s; then {c}; fi",
            "case {x} in {x}) %s;; esac", "%s <<E\nE\n{c}", "%s | sh"]  # fmt: skip
    way = rng.choice(ways)
    return way.replace("%s", made).replace("{c}", command(rng) if "{c}" in way else "")


@pytest.mark.parametrize("with_shell", SHELLS)
def test_random_template_never_executes_a_value(with_shell: str, tmp_path: Path) -> None:
    rng = random.Random(20)
    accepted = refused = 0
    while accepted < 250:
        text = command(rng)
        if "{x}" not in text or len(text) > 300:
            continue
        template = shell(text)
        try:
            template.check(["x"])
            made = [template.render({"x": plain(v)}).argv[0] for v in rng.sample(VALUES, 2)]
        except UsageError:
            refused += 1
            continue
        accepted += 1
        for rendered in made:
            subprocess.run(
                [with_shell, "-c", rendered],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={"PATH": "/usr/bin:/bin", "HOME": "/h"},
            )
            assert not (tmp_path / "RAN").exists(), (text, rendered)
    assert refused > 50
