"""Command profiles: one for all commands that differ only in numbers that do not affect the work.

The key of a profile is the command with such numbers masked:

    python train.py --lr 1e-4 --seed 12 --out runs/12
    python train.py --lr # --seed # --out runs/#

- A number between separators becomes `#`: 3, 0.1, 1e-4, 0x1f, run_17, run-17, ckpt_000100.pt,
  dates. So do long runs of digits, hexadecimal ids, UUIDs and random ids.
- Digits next to letters are part of a name and are kept (resnet18, resnet50, cifar10, fp16, 7b,
  224x224), unless the name is a counter (`_COUNTERS`: exp3, seed7, fold2).
- Values that decide about memory are kept: those of sizes (`_SIZES`) and models (`_MODELS`), as in
  `--batch-size 64`, `--batch-size=64`, `batch_size=64` or `"batch_size": 64`.
- Values that decide about the amount of work are kept too (`_WORK`): `--epochs 500`,
  `max_steps=1000`, `--n-trials 20`. So `--epochs 500` does not get the estimate of `--epochs 5`.
- A positional number (`sleep 90`, `train.py 300`) may be an amount of work or a seed: it becomes
  one `#` for each digit, so that each order of magnitude has its own profile. Numbers after a flag
  that is not about work (`--seed 300`) become one `#`.
- The path and version of an interpreter are removed: /usr/bin/python3.11 becomes python. `cd DIR
  &&` keeps the last part of DIR. `CUDA_VISIBLE_DEVICES=0` and the like are removed; other
  assignments are kept. Quotes are removed, so a shell command and the same words are one profile.

Limits: vit_b_16 and vit_b_32 are one profile unless they are the value of a model option. The
directory of the job is not part of the key. Only the first 4096 characters count. If the durations
of one profile vary widely, its estimate is not used for backfill (engine/profiles/estimates.py).

This code runs for every submitted job. It does not import `re`, which takes a tenth of the time of
`stoker submit`. Thousands of similar commands differ only in numbers, so it caches words, and keys
by the pattern of a command: its text with all digits but 0 equal. Which digits are masked depends
only on the pattern, so a key depends on the pattern and on the words whose digits are kept.
"""

from __future__ import annotations

MAX_KEY_CHARS = 200
_TEXT_CHARS = 4096
_CACHE_WORDS = 4096
_CACHE_WORD_CHARS = 100
_CACHE_KEYS = 4096

# Parts of option names.
_SIZES = ("batch", "hidden", "width", "dim", "layer", "depth", "seq", "len", "resolution", "size",
          "embed", "embd", "channel", "heads", "tokens", "context")  # fmt: skip
# Parts of option names, unless the name also has a part from `_NO_WORK`.
_WORK = ("epoch", "step", "iter", "trial", "sample", "episode", "round", "duration", "second",
         "minute", "hour", "frame", "update", "repeat", "generation", "budget", "limit",
         "example")  # fmt: skip
_NO_WORK = (
    "warmup",
    "every",
    "interval",
    "freq",
    "log",
    "save",
    "decay",
    "seed",
    "lr",
    "rate",
    "patience",
)
_WORK_NAMES = frozenset(("n", "e", "num", "count", "total", "times", "reps"))
# Whole names; names that end with `model` count too.
_MODEL_NAMES = (
    "b bs img imgsz ctx arch backbone encoder decoder net network preset pretrained model_name "
    "model_id model_type model_path model_name_or_path"
)
_COUNTER_NAMES = (
    "run runs exp expt experiment trial try attempt seed rep repeat replica fold split job task "
    "ckpt checkpoint epoch ep step iter iteration part shard chunk worker rank node host gpu cuda "
    "device dev id idx index no nr num item sample case test config cfg conf params setting sweep "
    "grid point out output log logs result results tmp temp file lr wd alpha beta gamma eps tau "
    "subject session scan patient port tag snapshot gen generation round day week month year"
)
_PROGRAMS = "accelerate bash deepspeed julia node perl python Rscript ruby sh torchrun uv zsh"

_MODELS = frozenset(_MODEL_NAMES.split())
_COUNTERS = frozenset(_COUNTER_NAMES.split())
_INTERPRETERS = frozenset(_PROGRAMS.split())

_DIGITS = "0123456789"
_DIGIT = frozenset(_DIGITS)
_CUTS = frozenset("/_")
_HEX = frozenset("0123456789abcdefABCDEF")
_LETTERS_OF_HASH = str.maketrans("0123456789", "ghijklmnop")

# Of bytes, which are translated ten times faster than text.
_TO_PATTERN = bytes.maketrans(b"23456789", b"11111111")
# By pattern: the positions of the words whose digits are kept in the key.
_kept: dict[bytes, tuple[int, ...]] = {}
# By pattern and those words.
_keys: dict[tuple[bytes | str, ...], str] = {}

# By word: its text in the key ("" removes it), and whether it names a size or an amount of work.
_known: dict[str, tuple[str, bool]] = {}


def profile_key(argv: tuple[str, ...], shell: bool) -> str:
    """Return the key of a command's profile; `argv` holds one shell command if `shell` is true.

    >>> profile_key(("/usr/bin/python3.11", "train.py", "--lr", "1e-4", "--out", "runs/12"), False)
    'python train.py --lr # --out runs/#'
    >>> profile_key(("CUDA_VISIBLE_DEVICES=1 ./train model=resnet50 batch_size=64 seed=3",), True)
    './train model=resnet50 batch_size=64 seed=#'
    """
    text = " ".join(argv[:_TEXT_CHARS])[:_TEXT_CHARS]
    if "'" in text or '"' in text or "\\" in text:
        text = text.replace("'", "").replace('"', "").replace("\\", "")
    pattern = text.encode("utf-8", "surrogatepass").translate(_TO_PATTERN)
    words = text.split()
    kept = _kept.get(pattern)
    if kept is not None:
        known_key = _keys.get((pattern, *[words[place] for place in kept]))
        if known_key is not None:
            return known_key
    if shell and words and words[0] == "cd":
        return _key(_without_parent_folder(words))[0]
    key, kept = _key(words)
    if len(_keys) >= _CACHE_KEYS:
        _kept.clear()
        _keys.clear()
    _kept[pattern] = kept
    _keys[(pattern, *[words[place] for place in kept])] = key
    return key


def _key(words: list[str]) -> tuple[str, tuple[int, ...]]:
    """Return the key of these words, and the positions of those whose digits it keeps."""
    known = _known
    shown: list[str] = []
    kept = []
    is_size = is_value = False  # what the flag before the word says about it
    for place, word in enumerate(words):
        if is_size and word[0] != "-":
            shown.append(word)
            kept.append(place)
            is_size = is_value = False
            continue
        entry = known.get(word)
        if entry is None:
            if word[0] in _DIGIT and not is_value and (digits := _whole_digits(word)):
                shown.append("#" * digits)
                is_size = False
                continue
            if word.isdigit():
                shown.append("#")
                is_size = is_value = False
                continue
            entry = _mask_word(word)
        as_shown, is_size = entry
        is_value = word[0] == "-" and "=" not in word
        if as_shown:
            shown.append(as_shown)
            if not _DIGIT.isdisjoint(as_shown):
                kept.append(place)
    key = " ".join(shown)
    if not key.isascii():
        key = key.encode("utf-8", "replace").decode()  # bytes that are not UTF-8 become "?"
    return key if len(key) <= MAX_KEY_CHARS else _shortened(key), tuple(kept)


def _whole_digits(word: str) -> int:
    """Return the number of digits before the decimal point; 0 if `word` is not a plain number."""
    whole, _, rest = word.partition(".")
    if not whole.isdigit() or (rest and not rest.isdigit()):
        return 0
    return max(1, len(whole.lstrip("0")))


def _without_parent_folder(words: list[str]) -> list[str]:
    """Return `cd a/b && run` and `cd /home/me/a/b; run` as `cd b && run`."""
    if words[2:3] in (["&&"], [";"]):
        directory, rest = words[1], words[3:]
    elif len(words) > 1 and len(words[1]) > 1 and words[1][-1] == ";":
        directory, rest = words[1][:-1], words[2:]
    else:
        return words
    return ["cd", directory.rstrip("/").rpartition("/")[2] or directory, "&&", *rest]


def _shortened(key: str) -> str:
    from zlib import crc32

    # Letters only: digits would be masked if the key were processed again.
    mark = f"{crc32(key.encode()):08x}".translate(_LETTERS_OF_HASH)
    return f"{key[: MAX_KEY_CHARS - 9]}~{mark}"


def _mask_word(word: str) -> tuple[str, bool]:
    """Return the entry of a word for `_known`, and add it unless the word is a number."""
    has_digits = not _DIGIT.isdisjoint(word)
    if has_digits and (word[0] in "+-." or word[0] in _DIGIT) and _is_number(word):
        return "#", False  # not cached: the next number is another one
    entry = _read(word, has_digits)
    if len(word) <= _CACHE_WORD_CHARS:
        if len(_known) >= _CACHE_WORDS:
            _known.clear()
        _known[word] = entry
    return entry


def _read(word: str, has_digits: bool) -> tuple[str, bool]:
    name, equals, value = word.partition("=")
    if value:
        name += equals
        shown, is_size = _known.get(name) or _mask_word(name)
        if not shown or is_size or not has_digits:
            return shown and word, False
        return shown + ("#" if _is_number(value) else _mask(value)), False
    if word.endswith("VISIBLE_DEVICES="):
        return "", False
    if has_digits or "/" in word:
        program = word.rpartition("/")[2]
        if program.startswith("python"):
            program = program.rstrip("0123456789.")
        if program in _INTERPRETERS and (program == "python" or "/bin/" in word):
            return program, False
    is_size = (word[0] == "-" or word[-1] in ":=") and _names_amount(word)
    return (_mask(word) if has_digits and not is_size else word), is_size


def _names_amount(name: str) -> bool:
    """Whether the value of this option decides how much memory or work a job needs."""
    # In `--model.optimizer.lr`, only the last part describes the value.
    name = name.rstrip(":=").rpartition(".")[2].lstrip("-+{").lower().replace("-", "_")
    if name in _MODELS or name.endswith("model") or any(size in name for size in _SIZES):
        return True
    if name in _WORK_NAMES:
        return True
    return any(work in name for work in _WORK) and not any(no in name for no in _NO_WORK)


def _is_number(word: str) -> bool:
    if word[:2] in ("0x", "0X"):
        return _HEX.issuperset(word[2:])
    try:
        float(word)
    except ValueError:
        return False
    return True


def _mask(text: str) -> str:
    """Mask the numbers in a text, piece by piece between separators."""
    stem = text.rstrip(_DIGITS)
    if stem[-1:] in _CUTS and stem != text and _DIGIT.isdisjoint(stem):
        return stem + "#"  # fast path with the same result
    shown: list[str] = []
    in_uuid = False
    start = 0
    length = len(text)
    while start < length:
        end = start
        while end < length and text[end].isalnum():
            end += 1
        if end == start:
            shown.append(text[start])
            in_uuid = in_uuid and text[start] == "-"
            start += 1
            continue
        piece = text[start:end]
        is_hex = _HEX.issuperset(piece)
        if in_uuid and is_hex and len(piece) in (4, 12):
            shown.append("#")
        else:
            in_uuid = is_hex and len(piece) == 8
            if not in_uuid and piece[-1] in "eE" and piece[-2:-1] in _DIGIT:
                exponent = _end_of_exponent(text, end)
                if exponent > end:
                    piece, end = piece[:-1], exponent
            shown.append(_mask_piece(piece, is_hex))
        start = end
    masked = "".join(shown)
    while "#.#" in masked:
        masked = masked.replace("#.#", "#")
    return masked


def _end_of_exponent(text: str, start: int) -> int:
    """Return where the `-4` of `1e-4` ends; `start` if there is no exponent."""
    end = start + 1
    if text[start:end] in ("-", "+"):
        while text[end : end + 1] in _DIGIT:
            end += 1
    return end if end > start + 1 else start


def _mask_piece(piece: str, is_hex: bool) -> str:
    """Mask a run of letters and digits: a name is kept, a number is `#`, a counter is `NAME#`."""
    if _DIGIT.isdisjoint(piece):
        return piece
    if piece.isdigit() or (is_hex and len(piece) >= 7) or _is_number(piece):
        return "#"
    runs = "".join(c if c in _DIGIT else " " for c in piece).split()
    if len(runs) >= 3:
        return "#"  # a random id such as x7fk29qz3
    rest = piece.lstrip(_DIGITS)
    if rest[0] == "T" and len(rest) < len(piece) and rest[1:].isdigit():
        return "#"  # a date with a time
    head = piece[: next(index for index, c in enumerate(piece) if c in _DIGIT)]
    if head.lower() in _COUNTERS or len(max(runs, key=len)) >= 5:
        return f"{head}#"
    return piece
