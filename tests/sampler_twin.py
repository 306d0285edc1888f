"""The orders of `docs/sampling.md` a second time, in plain Python written from that page alone.

It is slow and obvious. `testdata/sampler/build.py` wrote the golden vectors with it, and the tests compare
the product with both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isqrt

WORD = (1 << 64) - 1
SHUFFLE, BLOCK, WINDOW, WEIGHTED, ONCE, TRANSFORM, SUBSTITUTE = range(1, 8)


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox4x64-10: four random words for a counter of four and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        x, y = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (y >> 64) ^ c1 ^ k0, y & WORD, (x >> 64) ^ c3 ^ k1, x & WORD
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & WORD, (k1 + 0xBB67AE8584CAA73B) & WORD
    return [c0, c1, c2, c3]


@dataclass(frozen=True)
class Words:
    """The random words of one (seed, purpose, epoch, stream)."""

    seed: int
    purpose: int
    epoch: int
    stream: int = 0

    def block(self, position: int, lane: int = 0) -> list[int]:
        """Four random words."""
        return philox([position, self.epoch, lane, self.stream], [self.seed, self.purpose])

    def below(self, bound: int, position: int, word: int) -> int:
        """An integer in ``[0, bound)``, all equally likely."""
        lane = 0
        while True:
            product = self.block(position, lane)[word] * bound
            if product & WORD >= 2**64 % bound:
                return product >> 64
            lane += 1


@dataclass(frozen=True)
class Permutation:
    """A map of ``[0, n)`` onto itself, and back."""

    at: Callable[[int], int]
    inverse: Callable[[int], int]


def permutation(n: int, words: Words) -> Permutation:
    """The permutation of ``[0, n)`` that the words choose."""
    if n > 1024:
        return _network(n, words)
    table = list(range(n))
    for i in range(n - 1, 0, -1):
        j = words.below(i + 1, i // 4, i % 4)
        table[i], table[j] = table[j], table[i]
    return Permutation(table.__getitem__, table.index)


def _network(n: int, words: Words) -> Permutation:
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    keys = [key for j in range(6) for w in [words.block(j)] for key in [(w[0], w[1] | 1), (w[2], w[3] | 1)]]

    def step(i: int, digit: int, size: int) -> int:
        add, multiply = keys[i]
        h = (digit + add) * multiply & WORD
        h = (h ^ h >> 32) * 0x9E3779B97F4A7C15 & WORD
        return h * size >> 64

    def forward(x: int) -> int:
        left, right = divmod(x, b)
        for i in range(0, 12, 2):
            left = (left + step(i, right, a)) % a
            right = (right + step(i + 1, left, b)) % b
        x = left * b + right
        return x if x < n else forward(x)

    def backward(x: int) -> int:
        left, right = divmod(x, b)
        for i in range(10, -1, -2):
            right = (right - step(i + 1, left, b)) % b
            left = (left - step(i, right, a)) % a
        x = left * b + right
        return x if x < n else backward(x)

    return Permutation(forward, backward)


def blocks(rows: int, seed: int, epoch: int, block_samples: int, window_blocks: int) -> Permutation:
    """Blocks of consecutive rows in random order, samples shuffled within windows of blocks."""
    size = min(block_samples, rows)
    count = -(-rows // size)
    per_window = min(window_blocks, count)
    short = count * size - rows
    order = permutation(count, Words(seed, BLOCK, epoch))
    short_slot = order.inverse(count - 1)

    def begin(slot: int) -> int:
        return slot * size - (short if slot > short_slot else 0)

    def split(place: int) -> tuple[int, int]:
        return divmod(place + (short if place >= begin(short_slot + 1) else 0), size)

    def window(place: int) -> tuple[int, Permutation]:
        number = split(place)[0] // per_window
        first = begin(number * per_window)
        end = begin(min((number + 1) * per_window, count))
        return first, permutation(end - first, Words(seed, WINDOW, epoch, number))

    def forward(position: int) -> int:
        first, within = window(position)
        slot, offset = split(first + within.at(position - first))
        return order.at(slot) * size + offset

    def backward(row: int) -> int:
        place = begin(order.inverse(row // size)) + row % size
        first, within = window(place)
        return first + within.inverse(place - first)

    return Permutation(forward, backward)


def drawn(weights: Sequence[float], seed: int, epoch: int) -> Callable[[int], int]:
    """Independent draws by weight, as a function of position."""
    words = Words(seed, WEIGHTED, epoch)
    sums = list(accumulate(weights))

    def at(position: int) -> int:
        target = (words.block(position)[0] >> 11) * 2.0**-53 * sums[-1]
        return next((row for row, total in enumerate(sums) if total > target), len(sums) - 1)

    return at


def drawn_once(weights: Sequence[float], seed: int, epoch: int) -> list[int]:
    """All rows in the order in which they are drawn by weight, each once."""
    words = Words(seed, ONCE, epoch)
    keys = [exponential((words.block(row)[0] >> 11) + 1) / weight for row, weight in enumerate(weights)]
    return sorted(range(len(weights)), key=keys.__getitem__)


def exponential(v: int) -> float:
    """``-ln(v / 2**53)`` by the operations of the page, for ``1 <= v <= 2**53``."""
    e = v.bit_length() - 1
    m, k = v / 2**e, float(e - 53)
    if m > 1.4142135623730951:
        m, k = m * 0.5, k + 1.0
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = 1.0 / 21.0
    for d in (19, 17, 15, 13, 11, 9, 7, 5, 3, 1):
        p = p * z + 1.0 / d
    return 0.0 - (k * 0.6931471805599453 + 2.0 * s * p)


@dataclass(frozen=True)
class Order:
    """One epoch: the row at each position, and the position of each row where there is one."""

    length: int
    at: Callable[[int], int]
    position_of: Callable[[int], int] | None

    def indices(self, start: int, stop: int) -> list[int]:
        """Rows at the positions from ``start`` to before ``stop``."""
        return [self.at(position) for position in range(start, stop)]


def order(sampler: dict[str, object], rows: int, weights: Sequence[float] | None, epoch: int) -> Order:
    """The order of an epoch; ``sampler`` has ``name`` and the arguments of the public class of that name."""
    match sampler:
        case {"name": "Sequential"}:
            return Order(rows, int, int)
        case {"name": "Shuffle", "seed": int(seed)}:
            shuffled = permutation(rows, Words(seed, SHUFFLE, epoch))
            return Order(rows, shuffled.at, shuffled.inverse)
        case {
            "name": "BlockShuffle",
            "seed": int(seed),
            "block_samples": int(size),
            "window_blocks": int(window),
        }:
            shuffled = blocks(rows, seed, epoch, size, window)
            return Order(rows, shuffled.at, shuffled.inverse)
        case {
            "name": "Weighted",
            "seed": int(seed),
            "num_samples": num_samples,
            "replacement": bool(replacement),
        }:
            length = num_samples if isinstance(num_samples, int) else rows
            table = [1.0] * rows if weights is None else weights
            if replacement:
                return Order(length, drawn(table, seed, epoch), None)
            once = drawn_once(table, seed, epoch)[:length]
            return Order(length, once.__getitem__, once.index)
        case _:
            raise ValueError(f"no such sampler: {sampler}")


def transform_seed(seed: int, epoch: int, position: int) -> int:
    """The seed for a random transform of the sample at a position."""
    return Words(seed, TRANSFORM, epoch).block(position)[0] >> 1


def substitute(seed: int, rows: int, epoch: int, position: int, attempt: int) -> int:
    """The row to try instead of one that cannot be read."""
    return Words(seed, SUBSTITUTE, epoch, attempt).below(rows, position, 0)
