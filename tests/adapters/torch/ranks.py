"""Runs a function in several processes that know each other, as torchrun would start them."""

from __future__ import annotations

import multiprocessing
import os
import queue
import socket
import traceback
from collections.abc import Callable
from typing import Any

#: Importing what a test needs takes most of it.
TIMEOUT_SECONDS = 240.0


def run_ranks(work: Callable[..., Any], world: int, *arguments: Any) -> list[Any]:
    """Call ``work(rank, world, *arguments)`` in each process; returns what they returned.

    A rank that fails or does not come back ends all of them, so that one that waits for it cannot hang.
    """
    context = multiprocessing.get_context("spawn")
    found: Any = context.Queue()
    port = _free_port()
    processes = [
        context.Process(target=_call, args=(work, rank, world, port, arguments, found))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    try:
        results = {}
        for _ in processes:
            try:
                rank, result, failure = found.get(timeout=TIMEOUT_SECONDS)
            except queue.Empty:
                missing = sorted(set(range(world)) - set(results))
                raise AssertionError(f"ranks {missing} hang") from None
            assert failure is None, f"rank {rank} failed:\n{failure}"
            results[rank] = result
        for process in processes:
            process.join(30)
            assert process.exitcode == 0
        return [results[rank] for rank in range(world)]
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()


def _call(
    work: Callable[..., Any], rank: int, world: int, port: int, arguments: tuple[Any, ...], found: Any
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    try:
        found.put((rank, work(rank, world, *arguments), None))
    except BaseException:
        found.put((rank, None, traceback.format_exc()))
        raise


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
