"""Write down which operations Apple's plug-in for TensorFlow has kernels for: `make lock` does, for its locked wheel.

A Mac alone can load the plug-in, but what it registers is plain arm64 code: TF_InitKernel calls TensorFlow's C
interface with the name, the types and the host arguments of every kernel. Here an emulator runs that function, and the
calls are taken down. Checks of the macOS version get the answer of macOS 14 and later.

Source: https://www.tensorflow.org/api_docs (c/kernels.h: TF_NewKernelBuilder, TF_KernelBuilder_TypeConstraint)
"""

import argparse
import csv
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import lief
import unicorn
from unicorn import arm64_const

PLUGIN = "tensorflow-plugins/libmetal_plugin.dylib"
COLUMNS = ("op", "types", "host")
# types.proto of TensorFlow, as far as kernels are constrained to them.
TYPES = {1: "float", 2: "double", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool"}
TYPES |= {14: "bfloat16", 17: "uint16", 19: "half", 20: "resource", 22: "uint32", 23: "uint64"}
IMPORTS, STACK, HEAP, END, SIZE = 0x7000_0000, 0x8000_0000, 0x9000_0000, 0xA000_0000, 0x80_0000
RETURN = bytes.fromhex("c0035fd6")
RETURN_ONE = bytes.fromhex("20008052") + RETURN
ARGUMENTS = [getattr(arm64_const, f"UC_ARM64_REG_X{number}") for number in range(3)]


class Plugin:
    """The plug-in in an emulator, whose imported functions are answered here.

    Args:
        content: the dylib.
    """

    def __init__(self, content: bytes) -> None:
        self.binary = lief.MachO.parse(list(content)).at(0)
        self.machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.imports, self.free, self.builders, self.kernels = {}, HEAP, {}, []
        for start in (0, IMPORTS, STACK, HEAP, END):
            self.machine.mem_map(start, SIZE)
        self._load()
        self.machine.hook_add(unicorn.UC_HOOK_CODE, self._answer, begin=IMPORTS, end=IMPORTS + SIZE)

    def run(self) -> list[dict]:
        """Return what TF_InitKernel registers: op, types by attribute, and arguments that stay on the host."""
        self.machine.reg_write(arm64_const.UC_ARM64_REG_SP, STACK + SIZE // 2)
        self.machine.reg_write(arm64_const.UC_ARM64_REG_LR, END)
        self.machine.emu_start(self.binary.get_symbol("_TF_InitKernel").value, END)
        return self.kernels

    def _load(self) -> None:
        # At address 0, for which the file was linked, so that no pointer in it changes.
        for segment in self.binary.segments:
            if segment.name != "__LINKEDIT":
                self.machine.mem_write(segment.virtual_address, bytes(segment.content))
        self.machine.mem_write(IMPORTS, RETURN * (SIZE // len(RETURN)))
        places = {}
        for binding in self.binary.bindings:
            place = places.setdefault(binding.symbol.name, IMPORTS + 16 * len(places))
            self.machine.mem_write(binding.address, struct.pack("<Q", place))
        self.imports = {place: name for name, place in places.items()}
        self.machine.mem_write(self.binary.get_symbol("___isPlatformVersionAtLeast").value, RETURN_ONE)

    def _answer(self, machine: unicorn.Uc, address: int, size: int, data: object) -> None:
        """Do what an imported function does, and put its result where the caller looks."""
        name = self.imports.get(address)
        if name is None:
            return
        first, second, third = (machine.reg_read(register) for register in ARGUMENTS)
        result = 0
        if name in ("__Znwm", "_TF_NewStatus", "_TF_NewOpDefinitionBuilder", "_TF_NewKernelBuilder"):
            result = self._allocate(first if name == "__Znwm" else 64)
        if name == "_TF_NewKernelBuilder":
            self.builders[result] = {"op": self._text(first), "device": self._text(second), "types": {}, "host": []}
        elif name == "_TF_KernelBuilder_TypeConstraint":
            self.builders[first]["types"][self._text(second)] = TYPES[third & 0xFFFF_FFFF]
        elif name == "_TF_KernelBuilder_HostMemory":
            self.builders[first]["host"].append(self._text(second))
        elif name == "_TF_RegisterKernelBuilder":
            self.kernels.append(self.builders[second])
        elif name in ("_memcpy", "_memmove"):
            machine.mem_write(first, bytes(machine.mem_read(second, third)))
            result = first
        elif name == "_objc_msgSend":  # instancesRespondToSelector: of a class of macOS 13
            result = 1
        machine.reg_write(ARGUMENTS[0], result)

    def _allocate(self, size: int) -> int:
        place, self.free = self.free, self.free + (size + 31) // 16 * 16
        return place

    def _text(self, place: int) -> str:
        return bytes(self.machine.mem_read(place, 256)).partition(b"\0")[0].decode()


def download(lock: Path, folder: Path) -> Path:
    """Return the plug-in's wheel of a lock, its hash checked."""
    pin = re.search(r"^tensorflow-metal==(?:.*\\\n)*.*$", lock.read_text(), re.MULTILINE)[0]
    (folder / "pin.txt").write_text(pin + "\n")
    where = ["--platform", "macosx_12_0_arm64", "--python-version", "3.11", "--only-binary", ":all:", "--no-deps"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", *where]
    subprocess.run([*command, "--requirement", str(folder / "pin.txt"), "--dest", str(folder)], check=True)
    return next(folder.glob("tensorflow_metal-*.whl"))


def main() -> None:
    """Write the table of the wheel that a lock names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lock", type=Path, help="requirements/arm64.txt")
    parser.add_argument("table", type=Path, help="the CSV to write")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        content = zipfile.ZipFile(download(arguments.lock, Path(folder))).read(PLUGIN)
    kernels = Plugin(content).run()
    rows = sorted(
        (kernel["op"], ";".join(f"{name}={kind}" for name, kind in kernel["types"].items()), ";".join(kernel["host"]))
        for kernel in kernels
        if kernel["device"] == "GPU"
    )
    with arguments.table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
