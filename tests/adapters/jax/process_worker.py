"""One of several JAX processes; started by test_processes.py. Prints what it saw of the global arrays."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import datasetrt_jax as drtj


def main(rank: int, address: str, processes: int, folder: str, mesh: str, steps: int, state: str) -> None:
    """Take some steps and report rows, sums and state."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, processes, rank)
    share: dict[str, Any] = {}
    if mesh == "model":  # rows are not cut over processes
        share = {"process_index": 0, "process_count": 1}
        sharding = NamedSharding(jax.make_mesh((2, 2), ("model", "data")), P("data"))
    else:
        sharding = NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), P("data"))
    batches = drtj.batches(
        folder, global_batch=16, decode=lambda _: {}, columns=["label"], tail="pad", seed=3, **share
    )
    if state:
        batches.set_state(json.loads(state))
    total = jax.jit(lambda batch: (batch["label"] * batch["mask"]).sum())
    rows, sums = [], []
    with drtj.device_batches(batches, sharding) as it:
        for _ in range(steps):
            batch = next(it)
            everything = multihost_utils.process_allgather(batch, tiled=True)
            rows.append(np.where(everything["mask"], everything["label"], -1).tolist())
            sums.append(int(total(batch)))
        print(json.dumps({"rows": rows, "sums": sums, "state": it.get_state()}))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        sys.argv[2],
        int(sys.argv[3]),
        sys.argv[4],
        sys.argv[5],
        int(sys.argv[6]),
        sys.argv[7],
    )
