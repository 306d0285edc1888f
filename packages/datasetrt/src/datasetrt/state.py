"""The saved state of a loader, checked completely before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from .checks import COUNTABLE
from .errors import StateError
from .sampler import SamplerState
from .wording import a_type, shown

_VERSION = 1

#: The most unknown keys that a message names.
_NAMED = 5

#: A sampler of ours is shown whole.
_SAMPLER_CHARACTERS = 200

#: Stands for what is not there: None is a value.
_ABSENT = object()


class LoaderState(TypedDict):
    """Where a run is: JSON, the same on all ranks and for any world size, batch size and prefetch.

    ``fingerprint`` names the rows and weights, ``sampler`` their order; ``position`` counts the samples of
    the epoch that were handed out, over all ranks. ``epoch`` is in ``[0, 2**63]``: after the last one,
    ``2**63 - 1``, the state names ``2**63``, which loads, and of which a loop raises
    :class:`InvalidInputError` until :meth:`Loader.set_epoch` chooses another.

    Example:
        >>> import datasetrt as drt
        >>> state = drt.testing.tiny_dataset().loader(sampler=drt.Shuffle(seed=7)).state_dict()
        >>> state["sampler"], state["epoch"], state["position"]
        ({'kind': 'shuffle', 'seed': 7}, 0, 0)
    """

    version: int
    fingerprint: str
    sampler: SamplerState
    epoch: int
    position: int


def checked_state(state: object, fingerprint: str, sampler: SamplerState, length: int) -> tuple[int, int]:
    """Epoch and position of a state that belongs to this dataset and sampler.

    Args:
        state: What was loaded.
        fingerprint: That of the dataset.
        sampler: State of the loader's sampler.
        length: Positions in an epoch.

    Raises:
        StateError: It does not belong here, or is malformed; names the difference.
    """
    if not isinstance(state, Mapping):
        raise _bad(f"the state is {a_type(state)}; give the dict of state_dict()")
    _check_version(state)
    _check_keys(state)
    found = state["fingerprint"]
    if not isinstance(found, str):
        raise _bad(f"the state's fingerprint is {shown(found)}, {a_type(found)}; it must be a str")
    if found != fingerprint:
        raise _mismatch(
            f"the state belongs to a dataset with fingerprint {shown(found)}, but this one has "
            f"{fingerprint!r}; load it where caches, rows, weights and added columns are the same"
        )
    _check_sampler(state["sampler"], sampler)
    # One more than there are epochs: a run that is through with the last one has a state too.
    epoch = _whole("epoch", state["epoch"], COUNTABLE + 1)
    # Position 0 is there also where an epoch has no samples.
    position = _whole("position", state["position"], max(length, 1))
    return epoch, position


def _check_version(state: Mapping[object, object]) -> None:
    version = state.get("version")
    if version is None:
        raise _bad("the state has no version; give the dict of state_dict() as it was saved")
    if type(version) is not int or version != _VERSION:
        raise _bad(
            f"the state has version {shown(version)}, and this release reads version {_VERSION}; "
            "load it with the release that saved it"
        )


def _check_keys(state: Mapping[object, object]) -> None:
    known = LoaderState.__annotations__
    missing = [key for key in known if key not in state]
    unknown = [key for key in state if key not in known]
    if missing or unknown:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has the unknown {', '.join(map(shown, unknown[:_NAMED]))}"] if unknown else []
        raise _bad(f"the state {' and '.join(parts)}; give the dict of state_dict() as it was saved")


def _check_sampler(found: object, expected: Mapping[str, object]) -> None:
    if not isinstance(found, Mapping):
        raise _bad(f"the state's sampler is {shown(found)}; give the dict of state_dict() as it was saved")
    for key in [*expected, *(key for key in found if key not in expected)]:
        ours, theirs = expected.get(key, _ABSENT), found.get(key, _ABSENT)
        # Python holds True and 1 for equal, and 1.0 too.
        if type(theirs) is not type(ours) or theirs != ours:
            raise _mismatch(
                f"the state's sampler is {shown(dict(found), _SAMPLER_CHARACTERS)}, "
                f"but this loader's is {expected}: {key if key in expected else shown(key)} differs; "
                "make the loader with the same sampler"
            )


def _whole(name: str, value: object, end: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(f"the state's {name} is {shown(value)}, {a_type(value)}; it must be a whole number")
    if not 0 <= value < end:
        raise _bad(
            f"the state's {name} is {shown(value)}, outside of 0 to {end - 1}; "
            "give the dict of state_dict() as it was saved"
        )
    return value


def _bad(message: str) -> StateError:
    return StateError(message, kind="bad-state")


def _mismatch(message: str) -> StateError:
    return StateError(message, kind="state-mismatch")
