"""Note, tags and star of jobs and sweeps in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stoker.client.queue import Queue


class Annotated:
    """What handles of jobs and sweeps share. Nothing is cached."""

    def _target(self) -> tuple[Queue, int | str]:
        """The queue, and the id of the job or the name of the sweep."""
        raise NotImplementedError

    @property
    def note(self) -> str:
        """The note. Assign a text to replace it, "" to remove it."""
        from stoker.features.notes.client import note_of

        return note_of(*self._target()).text

    @note.setter
    def note(self, text: str) -> None:
        from stoker.features.notes.client import set_note

        set_note(*self._target(), text)

    @property
    def starred(self) -> bool:
        """Whether it has a star. Assign True or False to change that."""
        from stoker.features.notes.client import note_of

        return note_of(*self._target()).starred

    @starred.setter
    def starred(self, starred: bool) -> None:
        from stoker.features.notes.client import only, star

        queue, target = self._target()
        star(queue, only(target), bool(starred))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, sorted; `tag` changes them."""
        from stoker.features.notes import store as notes
        from stoker.features.notes.client import owner

        queue, target = self._target()
        return tuple(notes.tags(queue.db, *owner(queue.db, target)))

    def tag(self, *add: str, remove: Iterable[str] | str = ()) -> None:
        """Add tags, and remove others.

        >>> job.tag("baseline", "paper", remove="draft")      # doctest: +SKIP
        """
        from stoker.client.submit.option_values import check_tags
        from stoker.features.notes.client import only
        from stoker.features.notes.client import tag as change_tags

        queue, target = self._target()
        change_tags(queue, only(target), check_tags(add), check_tags(remove))
