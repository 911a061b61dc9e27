"""`Record`: typing.NamedTuple without the import of typing.

Type checkers see the real NamedTuple. At run time the same class statement is turned into a
collections.namedtuple, because importing typing (or dataclasses) would cost a fifth (or a half)
of the time that `stoker submit` may take from key press to prompt.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from collections import namedtuple

    def _fields(namespace):
        if "__annotations__" in namespace:
            return list(namespace["__annotations__"])
        if "__annotate_func__" not in namespace and "__annotate__" not in namespace:
            return []
        import annotationlib  # Python 3.14 keeps annotations as a function

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is None:
            return []
        string = annotationlib.Format.STRING
        return list(annotationlib.call_annotate_function(annotate, string))

    class _RecordMeta(type):
        def __new__(mcls, name, bases, namespace):
            if bases == ():
                return type.__new__(mcls, name, bases, namespace)
            fields = _fields(namespace)
            defaults = [namespace[field] for field in fields if field in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])
            for key, value in namespace.items():
                if key not in fields and key not in ("__annotations__", "__module__", "__dict__"):
                    setattr(made, key, value)
            return made

    class Record(metaclass=_RecordMeta):
        pass


__all__ = ["Record"]
