"""A daemon thread that is in the native module when the interpreter exits must not take the process with it.

CPython before 3.14 ends such threads by unwinding their stacks, which no Rust frame survives.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, tempfile, threading, time
import datasetrt as drt

begun = threading.Event()

class Source:
    name = "endless"

    def __iter__(self):
        number = 0
        while True:
            number += 1
            if number == 500:
                begun.set()
            if len(sys.argv) > 3:
                time.sleep(0.0001)
            yield drt.CacheInput(b"x" * 1000, {"number": number})

def report(progress):
    time.sleep(0.001)

def write(**options):
    config = drt.WriterConfig(**{"progress": False, **options})
    drt.write_cache(Source(), tempfile.mkdtemp(dir=sys.argv[-1]), config=config)

def load():
    ds = drt.testing.tiny_dataset()
    begun.set()
    while True:
        for _ in ds.loader(batch_size=2, transform=lambda sample: sample.metadata):
            pass

def fail():
    ds = drt.testing.tiny_dataset()
    begun.set()
    while True:
        try:
            ds[99]
        except IndexError:
            pass

work = {
    "write": write,
    "report": lambda: write(progress=report),
    "compress": lambda: write(compression="zstd", compression_level=19, queue_bytes=1),
    "load": load,
    "fail": fail,
}[sys.argv[1]]
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.1)
print("the end", flush=True)
"""


@pytest.mark.parametrize(
    "arguments", [["write"], ["write", "slowly"], ["report"], ["compress"], ["load"], ["fail"]], ids="-".join
)
def test_a_daemon_thread_does_not_abort_the_exit(arguments: list[str], tmp_path: object) -> None:
    command = [sys.executable, "-c", PROGRAM, *arguments, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
