"""What verification costs: the engine beside a build of it that verifies nothing, in turns; prints ratios.

python benchmarks/verification/run.py --data FOLDER [--rounds 5]

Needs cargo, and what datasetrt depends on. Both builds are made from this repository, into two folders that
each hold the package; which one a process imports is decided by its path alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
#: Read when the engine is compiled; what comes out says so in its version.
SWITCH = "DATASETRT_BENCH_WITHOUT_VERIFICATION"
SUFFIX = "+unverified"
#: The one that verifies is built last: it stays in cargo's target folder.
BUILDS = ("without", "with")
#: An epoch may take 20 ms, which anything else on the machine can double: the best of many is repeatable.
MEASURED_SECONDS = 2.0


class Workload(NamedTuple):
    """Samples of one size."""

    payload_bytes: int
    samples: int
    batch_size: int


WORKLOADS = {
    "1k": Workload(1 << 10, 200_000, 256),
    "64k": Workload(64 << 10, 6_000, 64),
    "2m": Workload(2 << 20, 200, 8),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--step", choices=("write", "damage", "measure"), help="do this here, once")
    parser.add_argument("--build", choices=BUILDS, help="the build that this process has to have imported")
    options = parser.parse_args()
    if options.step:
        (name,) = options.only
        print(json.dumps(step(options.step, options.build, options.data, name)))
        return
    options.data.mkdir(parents=True, exist_ok=True)
    build_both(options.data)
    for name in options.only:
        for build in reversed(BUILDS):
            in_fresh_process(options.data, build, "write" if build == "with" else "damage", name)
    print("| payload | with, samples/s | without | with/without | GB/s with | CPU time with/without |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in options.only:
        found: dict[str, list[dict[str, float]]] = {build: [] for build in BUILDS}
        for number in range(options.rounds):
            # The other one begins each round: what runs first after a pause is not always the same.
            for build in BUILDS if number % 2 else BUILDS[::-1]:
                found[build].append(in_fresh_process(options.data, build, "measure", name))
                print(f"{name}, round {number + 1}, {build}: {found[build][-1]}", file=sys.stderr)
        print(row(name, found), flush=True)


def row(name: str, found: dict[str, list[dict[str, float]]]) -> str:
    """One line of the table."""
    rate = {build: statistics.median(each["rate"] for each in figures) for build, figures in found.items()}
    cpu = {build: statistics.median(each["cpu"] for each in figures) for build, figures in found.items()}
    bandwidth = rate["with"] * WORKLOADS[name].payload_bytes / 1e9
    return (
        f"| {name} | {rate['with']:,.0f} | {rate['without']:,.0f} | {rate['with'] / rate['without']:.3f} "
        f"| {bandwidth:.2f} | {cpu['with'] / cpu['without']:.3f} |"
    )


def build_both(data: Path) -> None:
    """Compile the engine twice, and put each beside a copy of the Python files."""
    for build in BUILDS:
        environment = {key: value for key, value in os.environ.items() if key != SWITCH}
        environment["PYO3_PYTHON"] = sys.executable
        if build == "without":
            environment[SWITCH] = "1"
        command = ["cargo", "build", "--release", "--package", "datasetrt-python"]
        command += ["--message-format", "json-render-diagnostics"]
        made = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        artifacts = [json.loads(line) for line in made.splitlines()]
        (library,) = [
            file
            for each in artifacts
            if each["reason"] == "compiler-artifact" and each["target"]["name"] == "_core"
            for file in each["filenames"]
            if Path(file).suffix in {".so", ".dylib"}
        ]
        folder = data / build
        shutil.rmtree(folder, ignore_errors=True)
        skipped = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / "packages/datasetrt/src/datasetrt", folder / "datasetrt", ignore=skipped)
        shutil.copy(library, folder / "datasetrt" / "_core.abi3.so")


def in_fresh_process(data: Path, build: str, what: str, name: str) -> dict[str, float]:
    """Do one step with one build; what it found."""
    # The path begins with the build: an installed datasetrt comes after it.
    environment = {**os.environ, "PYTHONPATH": str(data / build)}
    command = [sys.executable, "-P", __file__, "--data", str(data), "--only", name]
    command += ["--step", what, "--build", build]
    result = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return answer


def step(what: str, build: str, data: Path, name: str) -> dict[str, float]:
    """What one process does, with the build that it was promised."""
    import datasetrt

    if Path(datasetrt.__file__).parents[1] != (data / build).absolute():
        raise SystemExit(f"{datasetrt.__file__} was imported instead of the build in {data / build}")
    if datasetrt.__version__.endswith(SUFFIX) != (build == "without"):
        raise SystemExit(f"the build '{build}' calls itself {datasetrt.__version__}")
    if what == "write":
        write(data, name)
        return {}
    if what == "damage":
        try_damage(data)
        return {}
    return measure(data, name)


def write(data: Path, name: str) -> None:
    """Write a workload with the build that verifies, unless an earlier run did; and see that it verifies."""
    import datasetrt as drt

    config = drt.WriterConfig(progress=False)
    drt.cache(
        drt.MapSource(name, range(WORKLOADS[name].samples), Sample(name)), data / "caches", config=config
    )
    shutil.rmtree(data / "caches" / "damaged", ignore_errors=True)
    drt.cache(drt.MapSource("damaged", range(1), Sample("1k")), data / "caches", config=config)
    (shard,) = (data / "caches" / "damaged").glob("shards/*.bin")
    content = bytearray(shard.read_bytes())
    content[content.index(payload_of(0, 1 << 10)) + 500] ^= 1
    shard.write_bytes(content)
    try:
        read_damaged(data)
    except drt.CorruptionError:
        return
    raise SystemExit("the build that verifies delivered a damaged payload")


def try_damage(data: Path) -> None:
    """See that the other build does not verify: otherwise nothing would be measured."""
    if read_damaged(data) == payload_of(0, 1 << 10):
        raise SystemExit("the damage is gone")


def read_damaged(data: Path) -> bytes:
    import datasetrt as drt

    (batch,) = drt.open_dataset(data / "caches" / "damaged").loader(batch_size=1)
    return bytes(batch.payloads[0])


class Sample:
    """The function of the source: a number's sample."""

    def __init__(self, name: str) -> None:
        self.payload_bytes = WORKLOADS[name].payload_bytes

    def __call__(self, number: int) -> Any:
        import datasetrt as drt

        return drt.CacheInput(payload_of(number, self.payload_bytes), {"number": number})


def payload_of(number: int, length: int) -> bytes:
    """Bytes that differ from sample to sample and do not compress to nothing."""
    import numpy as np

    return np.random.default_rng(number).bytes(length)


def measure(data: Path, name: str) -> dict[str, float]:
    """Samples a second and CPU seconds an epoch: the best of two seconds, after one that checks."""
    import datasetrt as drt

    work = WORKLOADS[name]
    dataset = drt.open_dataset(data / "caches" / name)
    loader = dataset.loader(batch_size=work.batch_size, sampler=drt.Shuffle(seed=1))
    seen: set[int] = set()
    for batch in loader:
        for number, payload in zip(batch.indices.tolist(), batch.payloads, strict=True):
            seen.add(number)
            # All bytes of some, the length of all: making what is expected is slow.
            expected = payload_of(number, work.payload_bytes) if number % 100 == 0 else None
            if len(payload) != work.payload_bytes or expected not in (None, bytes(payload)):
                raise SystemExit(f"sample {number} has wrong bytes")
    if seen != set(range(work.samples)):
        raise SystemExit(f"{len(seen)} samples were delivered, {work.samples} expected")
    wall: list[float] = []
    cpu: list[float] = []
    while sum(wall) < MEASURED_SECONDS:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        count = sum(len(batch) for batch in loader)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
        if count != work.samples:
            raise SystemExit(f"an epoch had {count} samples, not {work.samples}")
    return {"rate": work.samples / min(wall), "cpu": min(cpu)}


if __name__ == "__main__":
    main()
