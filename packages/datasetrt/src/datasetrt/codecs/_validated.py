"""Validated: another codec, with every object checked by pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal

from pydantic import TypeAdapter, ValidationError

from datasetrt.checks import flag, invalid
from datasetrt.errors import CodecError
from datasetrt.wording import reason, shorten, shown

from ._base import Codec, T, decode_error, encode_error
from ._json import Json

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Validated(Generic[T]):
    """Objects of one type, checked by pydantic on their way out of another codec, and on their way in.

    Models, dataclasses and TypedDicts come back as such: the inner codec packs what pydantic makes of them (a
    dict of the fields), and ``loads`` makes the object from it. So even ``Json`` and
    ``Pickle(allow="numpy")`` carry models. ``name`` is the inner codec's: checking does not change which
    bytes can be read.

    Many a `TypeAdapter` cannot be pickled, so a pickled `Validated` carries the adapter's type and config,
    and builds the adapter again where it arrives; the type must be importable there. Two are equal where
    codec, type and options are, as far as the types can be compared.

    Args:
        codec: The codec that packs and unpacks.
        type_adapter: A `pydantic.TypeAdapter`, or the type to make one for.
        validate_on_dump: Check objects before they are packed; False where the producer is trusted and hot.

    Raises:
        InvalidInputError: ``codec`` is no codec, or there is no adapter for the type.

    Example:
        >>> import datasetrt as drt
        >>> from pydantic import BaseModel
        >>> class Box(BaseModel):
        ...     label: int
        ...     corners: tuple[float, float]
        >>> codec = drt.codecs.Validated(drt.codecs.Json(), Box)
        >>> codec.loads(codec.dumps(Box(label=3, corners=(0.0, 1.5))))
        Box(label=3, corners=(0.0, 1.5))
        >>> codec.loads(b'{"label":"x","corners":[0,1]}')
        Traceback (most recent call last):
        datasetrt.errors.CodecError: json: the payload is no Box: label: Input should be a valid...
    """

    __slots__ = ("_adapter", "_codec", "_config", "_type", "_validate_on_dump")

    _codec: Codec[Any]
    _adapter: TypeAdapter[T]
    _type: Any
    _config: Any
    _validate_on_dump: bool

    def __init__(
        self, codec: Codec[Any], type_adapter: TypeAdapter[T] | type[T], *, validate_on_dump: bool = True
    ) -> None:
        self._set(codec, type_adapter, None, flag("validate_on_dump", validate_on_dump))

    def _set(self, codec: Any, type_adapter: Any, config: Any, validate_on_dump: bool) -> None:
        if isinstance(codec, type) or not isinstance(codec, Codec):
            raise invalid(f"{shown(codec)} is no codec; give one such as drt.codecs.Json()")
        if isinstance(type_adapter, TypeAdapter):
            # Private names, read here alone: pydantic has no public way back from an adapter to its type.
            kind, config = getattr(type_adapter, "_type", None), getattr(type_adapter, "_config", None)
            if kind is None:
                raise invalid("this release of pydantic hides a TypeAdapter's type; give the type instead")
            adapter = type_adapter
        else:
            kind, adapter = type_adapter, _adapter(type_adapter, config)
        for name, value in (
            ("_codec", codec),
            ("_adapter", adapter),
            ("_type", kind),
            ("_config", config),
            ("_validate_on_dump", validate_on_dump),
        ):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The inner codec's name.

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Validated(drt.codecs.Json(), list[int]).name
            'json'
        """
        return self._codec.name

    def dumps(self, obj: T, /) -> bytes:
        """Check one object and pack it.

        Args:
            obj: An object of the type.

        Raises:
            CodecError: The object is not of the type, or the inner codec cannot pack it (kind ``encode``);
                the cause is pydantic's own error, or what a validator of the type raised.

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Validated(drt.codecs.Json(), tuple[int, int]).dumps((1, 2))
            b'[1,2]'
        """
        try:
            valid = self._adapter.validate_python(obj) if self._validate_on_dump else obj
            # JSON has no tuples, dates or bytes: let pydantic spell them in its way.
            mode: Literal["json", "python"] = "json" if isinstance(self._codec, Json) else "python"
            plain = self._adapter.dump_python(valid, mode=mode, by_alias=True, round_trip=True)
        except ValidationError as error:
            raise self._invalid("object", "encode", error) from error
        except Exception as error:
            # What pydantic cannot spell, and whatever the type's own validators and serializers raise.
            raise encode_error(self.name, obj, error) from error
        return self._codec.dumps(plain)

    def loads(self, buffer: Buffer, /) -> T:
        """Unpack one payload and check what is in it.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: The inner codec's, or kind ``decode`` for an object that is not of the type; its cause
                is pydantic's `ValidationError` with every problem.

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Validated(drt.codecs.Json(), tuple[int, int]).loads(b"[1,2]")
            (1, 2)
        """
        return self._checked(self._codec.loads(buffer))

    def _checked(self, obj: Any) -> T:
        try:
            return self._adapter.validate_python(obj)
        except ValidationError as error:
            raise self._invalid("payload", "decode", error) from error
        except Exception as error:
            # The type's own validators may raise anything.
            raise decode_error(self.name, error) from error

    def _invalid(self, what: str, kind: str, error: ValidationError) -> CodecError:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # Keys of the payload are in there.
        where = shorten(".".join(map(str, first["loc"]))) or "the whole"
        more = error.error_count() - 1
        rest = f" (and {more} more)" if more else ""
        problem = shorten(first["msg"], 300)
        return CodecError(
            f"{self.name}: the {what} is no {_type_name(self._type)}: {where}: {problem}{rest}; "
            "correct the record, or give the type that it has",
            kind=kind,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Validated is immutable; make another one to change {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Validated is immutable; {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Validated) else NotImplemented

    def __hash__(self) -> int:
        # Not of the type: an Annotated one need not be hashable.
        return hash((self._codec, self._validate_on_dump))

    def __repr__(self) -> str:
        return (
            f"Validated({self._codec!r}, {_type_name(self._type)}, validate_on_dump={self._validate_on_dump})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._identity()

    def _identity(self) -> tuple[Any, ...]:
        return self._codec, self._type, self._config, self._validate_on_dump


def _rebuild(codec: Codec[Any], kind: Any, config: Any, validate_on_dump: bool) -> Validated[Any]:
    made: Validated[Any] = Validated.__new__(Validated)
    made._set(codec, kind, config, validate_on_dump)
    return made


def _adapter(kind: Any, config: Any) -> TypeAdapter[Any]:
    try:
        adapter = TypeAdapter(kind, config=config)
        if not getattr(adapter, "pydantic_complete", True):
            # It waits for a name, or for its first use: at the first payload is too late to tell.
            adapter.rebuild(raise_errors=True)
        return adapter
    except Exception as error:
        # pydantic raises its own errors here, and whatever the type's own schema hooks raise.
        raise invalid(f"pydantic has no adapter for {_type_name(kind)} ({reason(error)})") from error


def _type_name(kind: Any) -> str:
    name = getattr(kind, "__qualname__", None)
    return shorten(name) if isinstance(name, str) else shown(kind)
