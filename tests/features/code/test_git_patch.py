"""The files in a diff that git printed."""

from __future__ import annotations

from stoker.features.code.state_reader import changed_paths, split_patch, without_touched

A = (
    b"diff --git a/a b/c b/a b/c\nindex 1..2 100644\n--- a/a b/c\n+++ b/a b/c\n@@ -1 +1 @@\n"
    b"-x\n+y\n"
)
B = b'diff --git "a/\\303\\274\\"" "b/\\303\\274\\""\nold mode 100644\nnew mode 100755\n'


def test_empty_diff_has_no_files() -> None:
    assert split_patch(b"") == {}


def test_diff_is_split_into_its_files() -> None:
    assert split_patch(A + B) == {b"a b/c": A, 'ü"'.encode(): B}


def test_touched_files_are_left_out() -> None:
    touched = b"diff --git a/x b/x\n"
    assert without_touched(b"") == without_touched(touched) == without_touched(touched * 2) == b""
    for patch in (touched + A, A + touched, touched + A + touched + B + touched, A + B):
        wanted = A + B if B in patch else A
        assert without_touched(patch) == wanted


def test_lines_that_look_like_headers_are_content() -> None:
    tricky = A + b"+diff --git a/x b/x\n"
    assert list(split_patch(tricky)) == [b"a b/c"]


def test_file_that_became_a_link_is_one_file() -> None:
    assert split_patch(A + A) == {b"a b/c": A + A}


def test_files_with_other_content_are_named_once_and_sorted() -> None:
    assert changed_paths(A, B) == [b"a b/c", 'ü"'.encode()]
    assert changed_paths(A + B, A + B) == []
    assert changed_paths(b"", B) == ['ü"'.encode()]


def test_untracked_files_in_front_of_a_diff_are_skipped() -> None:
    assert split_patch(b"untracked: t.py has the SHA-256 12\n" + A) == split_patch(A)
    assert split_patch(b"untracked: t.py has the SHA-256 12\n") == {}
