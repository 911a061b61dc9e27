"""A fake program of Slurm: records the call and gives the answer that the test declared."""

import fcntl
import json
import os
import sys
import time

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.basename(__file__)
ARGV = sys.argv[1:]


def script() -> str | None:
    """The script that sbatch was given as a file or on stdin."""
    if PROGRAM != "sbatch" or any(word.startswith("--wrap") for word in ARGV):
        return None
    if ARGV and os.path.isfile(ARGV[-1]):
        with open(ARGV[-1]) as file:
            return file.read()
    return sys.stdin.read() if not ARGV or ARGV[-1].startswith("-") else None


def record() -> None:
    call = {
        "program": PROGRAM,
        "argv": ARGV,
        "env": dict(os.environ),
        "script": script(),
        "pid": os.getpid(),
    }
    with open(os.path.join(FOLDER, "calls"), "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(call) + "\n")


def take_answer() -> dict:  # type: ignore[type-arg]
    with open(os.path.join(FOLDER, "answers.json"), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        answers = json.load(file)
        for answer in answers:
            fits = answer["program"] == PROGRAM and set(answer["words"]) <= set(ARGV)
            if not fits or answer["times"] == 0:
                continue
            if answer["times"] is not None:
                answer["times"] -= 1
                file.seek(0)
                file.truncate()
                json.dump(answers, file)
            return answer  # type: ignore[no-any-return]
    error = f"fake {PROGRAM}: no answer declared for {ARGV}\n"
    return {"until": "", "stdout": "", "stderr": error, "code": 99}


record()
ANSWER = take_answer()
# Even if the test process was killed, a program that hangs ends after some minutes.
END = time.monotonic() + 300
while ANSWER["until"] and not os.path.exists(ANSWER["until"]) and time.monotonic() < END:
    time.sleep(0.02)
sys.stdout.write(ANSWER["stdout"])
sys.stdout.flush()
sys.stderr.write(ANSWER["stderr"])
sys.exit(ANSWER["code"])
