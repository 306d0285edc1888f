"""How a batch of payloads becomes what a loop over a loader receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from . import codecs
from .checks import COUNTABLE, MOST_COLUMNS, flag, invalid, whole
from .wording import a_type, note, shown

if TYPE_CHECKING:
    from ._core import CachedSample, Order, SampleBatch
    from .codecs import Codec
    from .dataset import CachedDataset


class Drawn(NamedTuple):
    """A sample, where it stands in the order of an epoch, and the seed for its transform, if that takes one.

    Read by its row, it is in no epoch, and its position is the row.
    """

    sample: CachedSample
    epoch: int | None
    position: int
    seed: int


@dataclass(frozen=True)
class Assembly:
    """What the user wants done with each sample and with each batch.

    ``apply`` takes a sample, and a seed if ``seeded``. A codec takes the payload alone.
    """

    apply: Callable[..., Any] | None
    codec: Codec[Any] | None
    collate: Callable[[list[Any]], Any] | None
    seeded: bool

    @staticmethod
    def of(
        transform: Callable[..., Any] | Codec[Any] | None,
        collate: Callable[[list[Any]], Any] | None = None,
        seeded: bool = False,
    ) -> Assembly:
        """With a transform that was checked before, whichever of the two kinds it is."""
        if isinstance(transform, codecs.Codec):
            return Assembly(None, transform, collate, seeded=False)
        return Assembly(transform, None, collate, seeded)

    @property
    def nothing(self) -> bool:
        """Whether the loop gets what was read as it is."""
        return self.apply is None and self.codec is None and self.collate is None

    @property
    def split(self) -> list[int] | None:
        """The widths at which payloads of a batch are to be cut while they are read, if the codec has any."""
        widths = getattr(self.codec, "column_widths", None) if self.collate is None else None
        return None if widths is None or self.codec is None else _widths(self.codec.name, widths)

    def batch(self, batch: SampleBatch, order: Order) -> Any:
        """What the loop gets for a batch."""
        if self.collate is None and isinstance(self.codec, codecs.BatchCodec):
            return _whole("decoding", self.codec.loads_batch, batch, batch)
        if self.apply is None and self.codec is None:
            return batch if self.collate is None else _whole("collating", self.collate, list(batch), batch)
        results = self._each(batch, order)
        return results if self.collate is None else _whole("collating", self.collate, results, batch)

    def sample(self, drawn: Drawn) -> Any:
        """What the loop gets for one sample."""
        try:
            if self.codec is not None:
                # Arrays that the codec makes of it are writable then, as they are with batches.
                return self.codec.loads(bytearray(drawn.sample.data))
            if self.apply is None:
                return drawn.sample
            if self.seeded:
                return self.apply(drawn.sample, drawn.seed)
            return self.apply(drawn.sample)
        except StopIteration as error:
            raise _stopped(_place(drawn.sample, drawn.position, drawn.epoch)) from error
        except BaseException as error:
            note(error, _place(drawn.sample, drawn.position, drawn.epoch))
            raise

    def _each(self, batch: SampleBatch, order: Order) -> list[Any]:
        results: list[Any] = []
        add = results.append
        try:
            if self.codec is not None:
                for payload in batch.payloads:
                    add(self.codec.loads(payload))
            elif self.apply is not None and self.seeded:
                seeds = order.transform_seeds(batch.epoch, batch.positions).tolist()
                for sample, seed in zip(batch, seeds, strict=True):
                    add(self.apply(sample, seed))
            elif self.apply is not None:
                for sample in batch:
                    add(self.apply(sample))
        except StopIteration as error:
            raise _stopped(_place_in(batch, len(results))) from error
        except BaseException as error:
            note(error, _place_in(batch, len(results)))
            raise
        return results


def assembly(
    ds: CachedDataset[Any],
    transform: Callable[..., Any] | Codec[Any] | None,
    collate: Callable[[list[Any]], Any] | None,
    seeded: bool,
) -> Assembly:
    """Check what the user wants done against each other and against the dataset.

    Raises:
        InvalidInputError: Something cannot be called, or the parts do not go together.
        CodecError: The payloads were packed by another codec; names both.
    """
    flag("seeded", seeded)
    if collate is not None and not callable(collate):
        raise invalid(f"collate = {shown(collate)} cannot be called; give a function of a list")
    if isinstance(collate, type) and _makes_codecs(collate):
        raise invalid(f"collate = {shown(collate)} is the class of a codec; give a function of a list")
    if isinstance(transform, type) and _makes_codecs(transform):
        raise invalid(
            f"transform = {shown(transform)} is the class of a codec; give an instance, such as "
            f"{transform.__name__}()"
        )
    if isinstance(transform, codecs.Codec):
        if seeded:
            raise invalid(
                f"seeded=True needs a transform that takes a seed; the codec {transform.name!r} takes none"
            )
        codecs.check(ds, transform)
    elif transform is None:
        if seeded:
            raise invalid(
                "seeded=True needs a transform that takes a seed, which that of a dataset does not; "
                "give transform=, a function of a sample and a seed"
            )
        # That of the dataset was checked when the dataset got it.
        transform = ds.transform
    elif not callable(transform):
        raise invalid(
            f"transform = {shown(transform)} is neither a function of a sample nor a codec; give one of them"
        )
    return Assembly.of(transform, collate, seeded)


def _widths(codec: str, given: object) -> list[int]:
    """The widths of a user's own codec, as the reader takes them.

    Raises:
        InvalidInputError: They are none.
    """
    what = f"column_widths of the codec {shown(codec)}"
    # An array without dimensions has the method of an iterable, and refuses when it is called.
    if isinstance(given, str | bytes) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise invalid(f"{what} = {shown(given)} is {a_type(given)}; give a list of widths in bytes, or None")
    widths = [whole(what, width, 1, COUNTABLE) for width in islice(given, MOST_COLUMNS + 1)]
    if not 1 <= len(widths) <= MOST_COLUMNS or sum(widths) >= COUNTABLE:
        raise invalid(
            f"{what} = {shown(given)}: give 1 to {MOST_COLUMNS} widths in bytes, which make less than "
            f"{COUNTABLE} together, or None"
        )
    return widths


def _makes_codecs(cls: type) -> bool:
    # Some have the name in their instances only.
    return callable(getattr(cls, "loads", None)) and callable(getattr(cls, "dumps", None))


def _whole(doing: str, function: Callable[[Any], Any], argument: Any, batch: SampleBatch) -> Any:
    """Call a function of a whole batch; what it raises says which batch that was."""
    try:
        return function(argument)
    except StopIteration as error:
        raise _stopped(_batch_place(doing, batch)) from error
    except BaseException as error:
        note(error, _batch_place(doing, batch))
        raise


def _stopped(place: str) -> RuntimeError:
    # To the loop around us StopIteration would say that the epoch is over.
    return RuntimeError(f"StopIteration was raised {place}")


def _place(sample: CachedSample, position: int, epoch: int | None) -> str:
    where = f"row {position} of the dataset" if epoch is None else f"at position {position} of epoch {epoch}"
    return f"while transforming sample {sample.sample_id} of cache {sample.cache_id}, {where}"


def _place_in(batch: SampleBatch, index: int) -> str:
    # Ctrl-C may come when all of them are done.
    index = min(index, len(batch) - 1)
    return _place(batch[index], int(batch.positions[index]), batch.epoch)


def _batch_place(doing: str, batch: SampleBatch) -> str:
    return (
        f"while {doing} the batch of {len(batch)} samples at position {batch.positions[0]} "
        f"of epoch {batch.epoch}, the first being sample {batch.sample_ids[0]} of cache {batch.cache_ids[0]}"
    )
