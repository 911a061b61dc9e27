"""`Record`: a replacement for typing.NamedTuple that loads faster.

Type checkers see the real NamedTuple. At run time, the metaclass below builds a tuple class with
named fields. Importing typing would take a quarter of the time budget of `stoker submit`,
dataclasses half of it, and collections.namedtuple compiles code for each class (0.1 to 0.5 ms).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    try:
        from _collections import _tuplegetter as _getter
    except ImportError:

        def _getter(index, doc):
            return property(lambda record: tuple.__getitem__(record, index), doc=doc)

    _MISSING = object()

    def _annotated(namespace):
        if "__annotations__" in namespace:
            return tuple(namespace["__annotations__"])
        try:
            import annotationlib  # Python 3.14 stores annotations as a function
        except ImportError:
            return ()
        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is None:
            return ()
        return tuple(annotationlib.call_annotate_function(annotate, annotationlib.Format.STRING))

    def _new(cls, *values, **named):
        if not values and tuple(named) == cls._fields:  # all by name and in order, the usual case
            values = named.values()
        elif named or len(values) != len(cls._fields):
            values = _complete(cls, values, named)
        return tuple.__new__(cls, values)

    def _complete(cls, values, named):
        given = len(values)
        if given > len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, got {given}")
        if not named and given >= cls._required:
            return values + cls._template[given:]
        found = [*values, *cls._template[given:]]
        positions = cls._positions
        for field, value in named.items():
            place = positions.get(field, -1)
            if place < given:
                why = "has no field" if place < 0 else "got two values for"
                raise TypeError(f"{cls.__name__} {why} {field!r}")
            found[place] = value
        for place in range(given, cls._required):
            if found[place] is _MISSING:
                raise TypeError(f"{cls.__name__} needs a value for {cls._fields[place]!r}")
        return found

    def _make(cls, values):
        return cls(*values)

    def _replace(self, **named):
        values = list(self)
        positions = self._positions
        for field, value in named.items():
            if field not in positions:
                raise ValueError(f"{type(self).__name__} has no field {field!r}")
            values[positions[field]] = value
        return tuple.__new__(type(self), values)

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _repr(self):
        pairs = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{f}={v!r}' for f, v in pairs)})"

    def _getnewargs(self):
        return tuple(self)

    class _RecordMeta(type):
        def __new__(mcls, name, bases, namespace):
            if not bases:
                return type.__new__(mcls, name, bases, namespace)
            fields = _annotated(namespace)
            defaults = {field: namespace[field] for field in fields if field in namespace}
            made = {
                "__slots__": (),
                "__new__": _new,
                "__repr__": _repr,
                "__getnewargs__": _getnewargs,
                "_make": classmethod(_make),
                "_replace": _replace,
                "_asdict": _asdict,
            }
            made.update(namespace)
            made.update(_fields=fields, _field_defaults=defaults, __match_args__=fields)
            made["_positions"] = {field: index for index, field in enumerate(fields)}
            made["_required"] = len(fields) - len(defaults)  # defaults come last
            made["_template"] = tuple(defaults.get(field, _MISSING) for field in fields)
            for index, field in enumerate(fields):
                made[field] = _getter(index, f"field {index}")
            return type(name, (tuple,), made)

    class Record(metaclass=_RecordMeta):
        pass


__all__ = ["Record"]
