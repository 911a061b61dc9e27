"""Programs get exactly the values of the sweep, whatever characters and quotes are involved.

These tests run the rendered commands with real shells.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.sweeps.spec.values import Point, Value, plain, typed
from stoker.features.sweeps.template.template import (
    Rendered,
    Template,
    argv,
    check_shell,
    override,
    shell,
    variables,
)

_FOUND = [shutil.which(name) for name in ("sh", "bash", "dash", "zsh", "ksh")]
SHELLS = list({os.path.realpath(path): path for path in _FOUND if path}.values())
HOSTILE = [
    "x; echo INJECTED", "$(id)", "`id`", "it's", '"', "'", "a\nb", "\n", "-rf", "ünï☃", "!", "!!",
    "*", "~", "~root", "", " ", "\\", "\\\\", "a\\", "\\'", "$HOME", "${HOME}", "$((1+1))", "&",
    "|",    "a b  c", "#x", "=ls", "a=b", "{a,b}", "{1..3}", "[a-z]", "?", "<x", ">x", "2",
    "%s", "\t",
    "\r",    "'; id; '", '"; id; "', "$'x'", "if", "time", "é' \"$(id)\" `id` \\", "\x1b[0m",
    "^a^b",
    "a[$(id)]", "--", "()", "-c", "\\n", "x\\\ny", "::", "@", "😀", "$", "a$", "`", "/etc/passwd",
]  # fmt: skip
# Each place must pass exactly one word: the value with the text around it.
PLACES = [
    ("{x}", "{}"), ("--x={x}", "--x={}"), ("a{x}b", "a{}b"), ("{x}{x}", "{}{}"),
    ('"{x}"', "{}"), ('"a {x} b"', "a {} b"), ("'{x}'", "{}"), ("'a {x} b'", "a {} b"),
    ('"it\'s {x}"', "it's {}"), ("'\"{x}\"'", '"{}"'), ("a'{x}'\"{x}\"{x}", "a{}{}{}"),
    ('"$E{x}"', "EE{}"), ("$E{x}", "EE{}"), ('"$E"{x}', "EE{}"), ('"$(echo hi){x}"', "hi{}"),
    ("`echo hi`{x}", "hi{}"), ('"${{E}}{x}"', "EE{}"), ("'\\'{x}", "\\{}"), ("\\'{x}", "'{}"),
    ('"\\"{x}"', '"{}'), ("'{{'{x}'}}'", "{{{}}}"), ("x\\\ny{x}", "xy{}"), ("'#'{x}", "#{}"),
    ("a#{x}", "a#{}"), ('"\n{x}"', "\n{}"), ("=~{x}", "=~{}"),
]  # fmt: skip
PRINT = "printf '%s\\0'"


def run(text: str, with_shell: str, **env: str) -> list[str]:
    done = subprocess.run(
        [with_shell, "-c", text],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "E": "EE", **env},
    )
    assert done.returncode == 0, (text, done.stderr)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@pytest.mark.parametrize("with_shell", SHELLS)
def test_hostile_value_arrives_unchanged_in_every_quoting_context(with_shell: str) -> None:
    texts, expected = [], []
    for place, around in PLACES:
        if place.startswith("=") and with_shell.endswith("zsh"):
            continue  # in zsh, this text of the user means the path of a command
        command = shell(f"{PRINT} {place} end")
        command.check(["x"])
        for value in HOSTILE:
            texts.append(command.render({"x": plain(value)}).argv[0])
            expected += [around.replace("{{", "{").replace("}}", "}").replace("{}", value), "end"]
    found = []
    for start in range(0, len(texts), 200):  # one argument may be 128 KiB
        found += run("\n".join(texts[start : start + 200]), with_shell)
    assert found == expected


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.text(
            st.characters(exclude_characters="\0", exclude_categories=["Cs"])
            | st.sampled_from("'\"\\$`!\n *?[]{}()<>|&;#~=-"),
            max_size=12,
        ),
        min_size=20,
        max_size=60,
    ),
    st.sampled_from(SHELLS),
)
def test_arbitrary_value_arrives_unchanged(values: list[str], with_shell: str) -> None:
    command = shell(PRINT + ' {x} "<{x}>" \'<{x}>\' --x={x} "$E{x}" {params:hydra}')
    texts = [command.render({"x": plain(value)}).argv[0] for value in values]
    expected = [
        word
        for v in values
        for word in (v, f"<{v}>", f"<{v}>", f"--x={v}", f"EE{v}", override("x", plain(v)))
    ]
    assert run("\n".join(texts), with_shell) == expected


@pytest.mark.parametrize("with_shell", SHELLS)
def test_value_as_command_assignment_or_file_name_runs_nothing(
    with_shell: str, tmp_path: Path
) -> None:
    for value in HOSTILE:
        point: Point = {"x": plain(value)}
        assigned = shell('V={x} W=a{x} sh -c \'printf "%s\\0" "$V" "$W"\'').render(point).argv[0]
        assert run(assigned, with_shell) == [value, f"a{value}"]
        exported = shell("export V={x}; printf '%s\\0' \"$V\"").render(point).argv[0]
        assert run(exported, with_shell) == [value]
        if value and "/" not in value:
            target = shell("echo hi >./{x} && cat <./{x}").render(point).argv[0]
            done = subprocess.run(
                [with_shell, "-c", target], cwd=tmp_path, capture_output=True, text=True
            )
            if value not in ("~", "."):
                assert done.stdout == "hi\n", (value, done.stderr)
        missing = shell("if {x}; then :; fi; {x} || printf 'no\\0'").render(point).argv[0]
        done = subprocess.run([with_shell, "-c", missing], capture_output=True, text=True)
        assert "INJECTED" not in done.stdout and "uid=" not in done.stdout
    for value in ("then", "fi", "done", "esac"):  # reserved words, unless quoted
        text = shell("{x} 2>&- || printf 'no\\0'").render({"x": plain(value)}).argv[0]
        assert run(text, with_shell) == ["no"]


def test_value_2_before_a_redirection_is_not_a_descriptor(tmp_path: Path) -> None:
    text = shell("echo {x}>out").render({"x": typed("2")}).argv[0]
    subprocess.run(["/bin/sh", "-c", text], cwd=tmp_path, check=True)
    assert (tmp_path / "out").read_text() == "2\n"


def test_argv_template_passes_values_without_a_shell() -> None:
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    command = argv([sys.executable, "-c", code.replace("{", "{{"), "{x}", "--x={x}", "{params}"])
    command.check(["x"])
    for value in HOSTILE:
        made = command.render({"x": plain(value)})
        assert not made.shell
        done = subprocess.run(made.argv, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == [value, f"--x={value}", "--x", value]


@pytest.mark.parametrize("inner", [["sh", "-c"], ["env", "bash", "-ec"], ["/bin/sh", "-u", "-c"]])
def test_value_after_sh_c_is_quoted_for_the_inner_shell(inner: list[str]) -> None:
    command = argv([*inner, f'{PRINT} {{x}} "<{{x}}>" \'{{x}}\' "$1"', "name", "{x}"])
    command.check(["x"])
    for value in HOSTILE:
        made = command.render({"x": plain(value)})
        done = subprocess.run(made.argv, capture_output=True, check=True)
        assert done.stdout.decode().split("\0")[:-1] == [value, f"<{value}>", value, value]


@pytest.mark.parametrize("with_shell", SHELLS)
def test_gpu_placeholder_is_expanded_when_the_trial_runs(with_shell: str) -> None:
    gpus = "0,1 $(id)' \""
    text = shell(f"{PRINT} {{gpu}} \"a{{gpu}}b\" '{{gpu}}' --g={{gpu}}").render({}).argv[0]
    assert run(text, with_shell, STOKER_GPUS=gpus) == [gpus, f"a{gpus}b", gpus, f"--g={gpus}"]
    for value in HOSTILE:
        words = ["printf", "%s\\0", "{x}", "--g={gpu}", "{params}", "a=b", "{x}{gpu}"]
        made = argv(words).render({"x": plain(value)})
        assert made.shell
        assert run(made.argv[0], with_shell, STOKER_GPUS=gpus) == [
            value, f"--g={gpus}", "--x", value, "a=b", f"{value}{gpus}",
        ]  # fmt: skip
    made = argv(["sh", "-c", f"{PRINT} {{gpu}} {{x}}"]).render({"x": plain("it's")})
    done = subprocess.run(made.argv, capture_output=True, env={"STOKER_GPUS": gpus}, check=True)
    assert not made.shell and done.stdout.decode().split("\0")[:-1] == [gpus, "it's"]


@pytest.mark.parametrize(
    "text",
    [
        "echo $(echo {x})", "echo `echo {x}`", 'echo "$(echo {x})"', "echo ${{V:-{x}}}",
        "echo $'{x}'", 'echo $"{x}"', "cat <<E\n{x}\nE", "cat <<{x}", "cat <<< {x}",
        "echo $(({x}+1))", "(( {x} ))", "echo $[{x}]", "for (({x};;)); do :; done", "# {x}",
        "a # {x}", "echo \\{x}", 'echo "\\{x}"', "echo ${x}", 'echo "${x}"', "a[{x}]=1",
        "[[ {x} == 1 ]]", "[[ a == b && {x} -eq 1 ]]", "let {x}", "declare {x}", "typeset a={x}",
        "eval {x}", "eval \"echo {x}\"", "V={x}; eval \"$V\"", "command eval {x}",
        "if eval {x}; then :; fi",        "bash -c {x}", "bash -c 'echo {x}'",
        'sh -ec "echo {x}"', "/bin/sh -c 'echo {x}'",
        "env bash -c '{x}'", "'bash' -c {x}", "b\"as\"h -c {x}", "\\bash -c {x}", "bash -x -c {x}",
        "bash -o errexit -c {x}", "timeout 5 bash -c '{x}'", "sudo -u a sh -lc {x}",
        "$SHELL -c {x}", '"$SHELL" -c {x}', "fish -c {x}", "find . -exec sh -c {x} ';'",
        "ls | xargs sh -c 'echo {x}'", "ssh host {x}", "ssh host 'echo {x}'", "timeout 5 ssh h {x}",
        "su -c {x}", "su - me -c 'echo {x}'", "parallel echo {x} ::: 1", "watch {x}",
        "tmux new {x}",        "echo {x} | sh", "echo {x} | bash -s", "echo {x} | sudo sh",
        "echo {x} | ssh host",
        "for i in 1; do echo {x}; done | sh", "echo {x} |& sh", "echo {x} | python -",
        "trap {x} EXIT",        "bash <(echo {x})", "source <(echo {x})", "read {x}",
        "unset {x}", "printf -v {x} a",
        "test -v {x}", "export {x}=1", "env -S {x}", "bash -{x}", "flock f -c {x}", "alias {x}=a",
        "echo $(case a in a) echo;; esac) {x}", "echo $(echo a # )\n) {x}", "echo ${{V:-'}}'}} {x}",
        "{x} -c {x}", "echo $'\\'' {x}",
        'A="sh -c"; $A {x}', 'A={x}; sh -c "$A"', "A={x}; $A foo", 'A={x}; B=$A; bash -c "$B"',
        'for a in {x} b; do sh -c "$a"; done', 'set -- {x}; sh -c "$1"', "S=sh; $S -c {x}",
        'A="sh -c"; exec $A {x}', 'A="sh -c"; nice -n 5 ${{A}} {x}', "export A={x}; sh -c $A",
        'echo {x} | while read a; do sh -c "$a"; done', "A=a; A=b; $A {x}", "A=$(which sh); $A {x}",
        'A=(sh -c); "${{A[@]}}" {x}', 'A=({x}); sh -c "$A"', "A=sh; A+=' -c'; $A {x}",
    ],
)  # fmt: skip
def test_placeholder_that_would_be_parsed_twice_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        shell(text).check(["x"])
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "OUT=runs/{x}; mkdir -p $OUT; nice python t.py --out $OUT --lr {x}",
        "PY=python3; $PY t.py --lr {x}", "$PYTHON t.py {x}", "export A={x}; sh -c 'echo $A'",
        'A={x}; echo "$A" > out; python t.py $A', "cd $HOME && python t.py {x}",
        "for i in 1 2 3; do python t.py --i $i --x {x}; done", "A=(1 2); python t.py ${{A[0]}} {x}",
    ],
)  # fmt: skip
def test_variable_that_runs_nothing_is_accepted(text: str) -> None:
    shell(text).check(["x"])


@pytest.mark.parametrize("text", ['A={x}; python -c "$A"', 'A={x}; awk "$A"'])
def test_value_that_reaches_program_text_through_a_variable_must_be_harmless(text: str) -> None:
    shell(text).check(["x"])
    shell(text).render({"x": plain("abc")})
    with pytest.raises(UsageError, match="would become part of a program"):
        shell(text).render({"x": plain("import os; os")})


@pytest.mark.parametrize(
    "words",
    [
        ["ssh", "host", "{x}"], ["ssh", "host", "bash", "-c", "echo {x}"], ["eval", "{x}"],
        ["su", "-c", "{x}"], ["fish", "-c", "echo {x}"], ["env", "-S", "{x}"], ["bash", "-{x}"],
        ["parallel", "{x}"], ["sudo", "ssh", "h", "{x}"], ["{x}", "-c", "{x}"],
        ["bash", "-c", "eval {x}"], ["bash", "-c", "sh -c '{x}'"],
        ["bash", "-c", "echo $(echo {x})"],
        ["csh", "-c", "echo {x}"], ["bash", "-c", "echo '{params}'"],
    ],
)  # fmt: skip
def test_placeholder_in_a_word_that_is_evaluated_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        argv(words).check(["x"])


@pytest.mark.parametrize(
    "command",
    [
        shell('python -c "print({x})"'), argv(["python3", "-u", "-c", "print({x})"]),
        shell("awk '{{print {x}}}' f"), shell("make train LR={x}"), argv(["perl", "-e", "{x}"]),
        shell("python -W ignore -c {x}"), shell("sed s/a/{x}/ f"), shell("node --eval={x}"),
    ],
)  # fmt: skip
def test_program_text_takes_only_harmless_values(command: Template) -> None:
    command.check(["x"])
    assert "0.1" in "".join(command.render({"x": typed("0.1")}).argv)
    for value in ("__import__('os')", "a;b", "$(id)", "a b", "a\nb", "`id`"):
        with pytest.raises(UsageError, match="part of a program"):
            command.render({"x": plain(value)})


def test_value_cannot_become_an_option_of_a_shell() -> None:
    for command in (shell("bash {x} 'id'"), argv(["sh", "{x}", "id"]), shell("env {x} id")):
        command.check(["x"])
        assert command.render({"x": plain("run.sh")})
        with pytest.raises(UsageError, match="option"):
            command.render({"x": plain("-c")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run {lrr}", "did you mean `{lr}`?"), ("run {lr.__class__}", "`{lr.__class__}`"),
        ("run {lr[0]}", "not a plain name"), ("run {lr:.3f}", "not a plain name"),
        ("run {lr!r}", "not a plain name"), ("run {}", "braces"), ("run {lr", "without a `}`"),
        ("run lr}", "without a `{`"), ("run {lr} {params:x}", "hydra"),
        ("run {lr} {params:jsn}", "did you mean `{params:json}`?"), ("run", "does not use `lr`"),
        ("run {lr} {gpus}", "did you mean `{gpu}`?"), ("run {lr} {args}", "mean `{params}`?"),
        ("run {lr} {trial}", "did you mean `{id}`?"), ("run {lr} {outdir}", "mean `{dir}`?"),
        ("run '{params}'", "several words"), ("run a{params}", "several words"),
        ("", "the command is missing"),
        ("run ${HOME} {lr}", "${{HOME}}"), ('echo \'{"a": 1}\' {lr}', "not a plain name"),
    ],
)  # fmt: skip
def test_error_about_a_bad_placeholder_explains_it(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        shell(text).check(["lr"])
    assert expected in f"{caught.value.message} {caught.value.hint}"


def test_lenient_template_needs_no_placeholders() -> None:
    shell("run").check(["lr"], lenient=True)
    shell("run {params}").check(["lr"])
    shell("run {id} {dir} {gpu} {lr}").check(["lr"])
    with pytest.raises(UsageError, match="is reserved by Stoker"):
        shell("run {gpu}").check(["gpu"])
    shell("run {params}").check(["gpu"])


def test_each_style_of_params_is_rendered() -> None:
    point: Point = {"lr": typed("1e-3"), "amp": Value(True, "True"), "o.k": Value(False, "False")}

    def made(style: str) -> tuple[str, ...]:
        return argv(["run", f"{{params{style}}}"]).render(point, 3, "/d").argv[1:]

    assert made("") == ("--lr", "1e-3", "--amp", "True", "--o.k", "False")
    assert made(":hydra") == ("lr=1e-3", "amp=True", "o.k=False")
    assert made(":equals") == ("--lr=1e-3", "--amp=True", "--o.k=False")
    assert made(":flags") == ("--lr=1e-3", "--amp")
    assert json.loads(made(":json")[0]) == {"lr": 0.001, "amp": True, "o.k": False}
    assert made(":file") == ("/d/params.json",) and argv(["{params:file}"]).wants_file
    assert argv(["{id}", "{dir}/x", "{{}}"]).render(point, 3, "/d e") == Rendered(
        ("3", "/d e/x", "{}"), False
    )


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("t --lr {lr} --wd {wd} -x", "t --lr 1  -x"), ("t --wd={wd} -x", "t  -x"),
        ("t wd={wd} -x", "t  -x"), ('t --wd "{wd}" -x', "t  -x"), ("t run-{wd}", "t run-''"),
        ("t -v {wd}", "t "), ("WD={wd} t", " t"), ("t {wd} {lr}", "t  1"), ("t >{wd}", "t >''"),
        ("t --wd \\\n  {wd} x", "t  x"), ("t --wd\n{wd}", "t --wd\n''"),
    ],
)  # fmt: skip
def test_absent_parameter_removes_its_word_and_option_from_shell_text(text: str, made: str) -> None:
    assert shell(text).render({"lr": typed("1")}).argv[0] == made


def test_absent_parameter_removes_its_word_and_option_from_argv() -> None:
    words = ["t", "--lr", "{lr}", "--wd", "{wd}", "--m={wd}", "run-{wd}"]
    assert argv(words).render({"lr": typed("1")}).argv == ("t", "--lr", "1", "run-")
    live = argv([*words, "{gpu}"]).render({"lr": typed("1")}).argv[0]
    assert "--wd" not in live and "'--lr' '1' 'run-'" in live


def test_trial_environment_holds_the_parameters() -> None:
    made = variables({"lr": typed("1e-3"), "optimizer.name": plain("a b"), "n": typed("none")})
    params = json.loads(made.pop("STOKER_PARAMS"))
    assert params == {"lr": 0.001, "optimizer.name": "a b", "n": None}
    assert made == {
        "STOKER_PARAM_lr": "1e-3", "STOKER_PARAM_optimizer_name": "a b", "STOKER_PARAM_n": "none",
    }  # fmt: skip


def test_nul_byte_in_a_value_is_refused() -> None:
    for command in (shell("t {x}"), argv(["t", "{x}"])):
        with pytest.raises(UsageError, match="NUL"):
            command.render({"x": Value("a\0b", "a\0b")})
    with pytest.raises(UsageError, match="NUL"):
        variables({"x": Value("a\0b", "a\0b")})


def test_shell_without_posix_quoting_is_refused() -> None:
    for path in ("/bin/sh", "/usr/bin/zsh", "bash"):
        check_shell(path)
    for path in ("/usr/bin/fish", "/bin/csh", "/opt/odd"):
        with pytest.raises(UsageError):
            check_shell(path)


def test_template_survives_a_json_round_trip() -> None:
    for command in (shell("t {x}"), argv(["t", "{x}"])):
        assert Template.from_json(json.loads(json.dumps(command.to_json()))) == command
