"""Compile training steps in JAX for chips that are not here: do they compile, do they fit, how
many operations?

`make bench STUDIES=compiled` compiles ResNet-50 for each TPU at each batch size, which takes
hours, and writes outputs/published/record/compiled.csv; lines that are there stay. `python
benchmarks/compiled.py v100 mobilenetv2_energy fp32 64` prints one line of it, and `v100
calibrate fp32 512` a product and a copy of 512 x 512 numbers.

TPUs need libtpu (`pip install libtpu`, the version of requirements/tpu.txt) and no TPU. The V100
needs JAX's plug-in for CUDA and no driver. Compilers may spend less effort than usual: the
largest batch may be smaller by that, and nothing here says how fast a step is.
"""

import csv
import importlib
import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "outputs" / "published" / "record" / "compiled.csv"
COLUMNS = ("chip", "devices", "work", "precision", "batch_size", "peak_bytes", "flops", "source")
# Names of one chip, or of the article's board: the topology, the number of JAX's devices, and the
# name in chips.csv.
TPUS = {
    "v5e-1": ("v5e:1x1", 1, "Google TPU v5e"),
    "v2-2": ("v2:1x1", 2, "Google TPU v2"),
    "v6e-1": ("v6e:1x1", 1, "Google TPU v6e"),
    "v3-2": ("v3:1x1", 2, "Google TPU v3"),
    "v4-1": ("v4:1x1x1", 1, "Google TPU v4"),
    "v5p-1": ("v5p:1x1x1", 1, "Google TPU v5p"),
    "v2-8": ("v2:2x2", 8, ""),
}
BATCHES = (128, 256, 512, 1024, 2048)
# Source: https://github.com/openxla/xla xla/backends/gpu/target_config/specs/v100.txtpb
V100 = {
    "threads_per_block_limit": 1024, "threads_per_warp": 32, "shared_memory_per_block": 49152,
    "shared_memory_per_core": 98304, "shared_memory_per_block_optin": 98304, "threads_per_core_limit": 2048,
    "core_count": 80, "fpus_per_core": 64, "block_dim_limit_x": 2**31 - 1, "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535, "thread_dim_limit_x": 1024, "thread_dim_limit_y": 1024, "thread_dim_limit_z": 64,
    "registers_per_core_limit": 65536, "registers_per_block_limit": 65536, "l2_cache_size": 6291456,
    "memory_bandwidth": 898048000000, "device_memory_size": 16935682048, "clock_rate_ghz": 1.53,
    "device_vendor": '"NVIDIA Corporation"', "name": '"Tesla V100-SXM2-16GB"', "driver_version": '"13.0.0"',
    "runtime_version": '"12.8.0"', "compile_time_toolkit_version": '"12.8.0"', "dnn_version": '"9.10.0"',
}  # fmt: skip


def topology(target: str) -> list:
    """Return a target's devices, as JAX's compilers know them."""
    from jax.experimental import topologies

    if target == "v100":
        known = "\n".join(f"{name}: {value}" for name, value in V100.items())
        text = f"gpu_device_info {{ {known}\ncuda_compute_capability {{ major: 7 }} }}\n"
        text += 'platform_name: "CUDA"\ndnn_version_info { major: 9 minor: 10 }\n'
        text += 'device_description_str: "Tesla V100-SXM2-16GB"\n'
        return topologies.get_topology_desc(
            "ahead", "cuda", target_config=text, topology="1x1x1"
        ).devices
    name = TPUS[target][0]
    sides = [*map(int, name.partition(":")[2].split("x")), 1, 1][:3]
    return topologies.get_topology_desc(
        name, "tpu", chips_per_host_bounds=tuple(min(s, 2) for s in sides)
    ).devices


def programs(devices: list, work: str, precision: str, size: int) -> list:
    """Return what a target is to compile: a study's step on a batch split over the devices, or
    calibration's programs.

    Args:
        devices: of one target.
        work: a study that JAX trains, or `calibrate`.
        precision: of the step, or of the product.
        size: images a step of all devices together, or rows and columns of the product.
    """
    import jax
    import numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from benchbook import datasets
    from benchbook.frameworks import operations
    from benchbook.frameworks.devices import Device
    from benchbook.frameworks.workload import Settings

    device, mesh = Device("cpu", "a CPU", "jax"), Mesh(numpy.array(devices), ("batch",))
    whole, shares = (NamedSharding(mesh, PartitionSpec(*names)) for names in ((), ("batch",)))

    def shaped(part, sharding, *first: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            (*first, *part.shape[len(first) :]), part.dtype, sharding=sharding
        )

    if work == "calibrate":
        made = [
            operations.multiplication(device, size, precision),
            operations.copy(device, 4 * size * size),
        ]
        made += [device.backend.launch(device)]
        inside = [inspect.getclosurevars(operation).nonlocals for operation in made]
        given = [
            [operation(None), *names["placed"]]
            for operation, names in zip(made, inside, strict=True)
        ]
        return [
            names["compiled"].lower(*(shaped(part, whole) for part in parts))
            for names, parts in zip(inside, given, strict=True)
        ]
    data, weights = None, {}
    if work == "mobilenetv2_energy":
        data, weights = datasets.shapes(40, 8, size=32), {"weights": "random"}
    plan = importlib.import_module(f"benchbook.studies.{work}.plan").Plan
    built = plan.build(
        data, device, batch_size=2, num_workers=0, settings=Settings(precision), **weights
    )
    state = jax.tree.map(lambda part: shaped(part, whole), built.network._state)
    parts = [
        shaped(part, shares, size) for part in built.network.scatter(*next(iter(built.batches(0))))
    ]
    with jax.default_matmul_precision("float32"):
        return [built.network.jitted_step.lower(state, *parts)]


def compiled(target: str, work: str, precision: str, size: int) -> dict:
    """Return a line of the table; without peak_bytes it did not fit into a device's memory.

    Raises:
        Exception: what the compiler says, but for too little memory.
    """
    os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "KERAS_BACKEND": "jax"}
    if target == "v100":
        os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"  # without a GPU nothing can be timed
    import jax

    jax.config.update(
        "jax_exec_time_optimization_effort", -1.0
    )  # else ResNet-50 takes over twice as long
    devices = topology(target)
    _, count, chip = TPUS.get(target, ("", 1, "NVIDIA V100 16GB SXM2"))
    by = "jax-cuda12-plugin" if target == "v100" else "libtpu"
    line = {
        "chip": chip,
        "devices": count,
        "work": work,
        "precision": precision,
        "batch_size": size,
    }
    line["source"] = f"compiled by {by} {importlib.metadata.version(by)}, not run"
    for program in programs(devices[:count], work, precision, size):
        try:
            done = program.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return line
        memory = done.memory_analysis()
        peak = (
            getattr(memory, "peak_memory_in_bytes", 0)
            or memory.argument_size_in_bytes + memory.temp_size_in_bytes
        )
        line["peak_bytes"] = max(line.get("peak_bytes", 0), int(peak))
        line["flops"] = line.get("flops", 0) + int(
            count * (done.cost_analysis() or {}).get("flops", 0)
        )
    return line


def main() -> None:
    if words := sys.argv[1:]:
        target, work, precision, size = words
        print(json.dumps(compiled(target, work, precision, int(size))), flush=True)
        os._exit(0)  # libtpu's own end takes seconds
    lines = list(csv.DictReader(TABLE.open(newline=""))) if TABLE.exists() else []
    known = {(line["chip"], int(line["batch_size"])) for line in lines}
    for target, batch_size in (
        (name, size) for name, (*_, chip) in TPUS.items() if chip for size in BATCHES
    ):
        chip = TPUS[target][2]
        if (chip, batch_size) not in known:
            command = [
                sys.executable,
                __file__,
                target,
                "resnet50_cost",
                "amp_bf16",
                str(batch_size),
            ]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            lines.append(json.loads(said.splitlines()[-1]))
            with TABLE.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines)


if __name__ == "__main__":
    main()
