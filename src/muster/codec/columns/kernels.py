"""What kernels are made of: how they are compiled, words loaded and stored, CRC-32C, strings.

Reading a big-endian long byte by byte costs eight loads with eight index checks; one load and a byte swap made the
decoder three times as fast. The price: **nothing here checks bounds**. A caller proves first that the bytes it wants
lie inside the buffer, and every buffer carries `SLACK` spare bytes at its end, because strings are copied 32
bytes at a time.

Strings are decoded the way Java does it: bytes that are not UTF-8 become U+FFFD, one for each ill-formed piece. A
column is first copied as it is; only when it turns out not to be plain ASCII is it looked at character by character.

Compiled code lives in a folder that all processes of one user on a machine share. The folder's name says what the code
depends on, the CPU included: it may travel (in an archive for Spark's workers), and a machine with another CPU compiles
its own and does not run it blindly. Processes that start together compile once: all but one wait.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.caching import CacheImpl, _CacheLocator, _SourceFileBackedLocatorMixin
from numba.extending import intrinsic

from muster.caches import cache_folder

try:
    import fcntl
except ImportError:  # not on this system: each process compiles for itself
    fcntl = None  # type: ignore[assignment]

SLACK = 64
"""Spare bytes that every buffer handed to a kernel has behind its last byte."""


HERE = Path(__file__).parent
TRAVELLED = HERE / "compiled"
"""Where an archive for Spark's workers has the folder of the machine that packed it."""


def _key() -> str:
    """What compiled code depends on: the contents of all kernel files, Python, numba and the CPU.

    Numba looks at the file of the kernel alone; a change in a helper would leave stale code behind.
    """
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    cpu = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = numba.config.CPU_FEATURES
    if features is None:
        features = "" if numba.config.CPU_NAME else llvmlite.binding.get_host_cpu_features().flatten()
    digest.update(repr((sys.version_info[:2], numba.__version__, llvmlite.__version__, cpu, features)).encode())
    return digest.hexdigest()


class KernelCache(_SourceFileBackedLocatorMixin, _CacheLocator):  # type: ignore[misc]
    """Numba's cache of kernels: in one folder, wherever the source lies. Other functions are none of its business."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(FOLDER)

    def get_source_stamp(self) -> str:
        return KEY  # an earlier numba would take the file's time, which an archive does not keep

    @classmethod
    def from_function(cls, function: Any, file: str) -> "KernelCache | None":
        return cls(function, file) if FOLDER is not None and Path(file).parent == HERE else None


KEY = _key()
FOLDER = (
    TRAVELLED / KEY if (TRAVELLED / KEY).is_dir() else cache_folder(f"kernels-{KEY}", os.environ.get("NUMBA_CACHE_DIR"))
)
CacheImpl._locator_classes.insert(0, KernelCache)


@contextmanager
def _by_one_process(function: Any) -> Iterator[None]:
    """Of processes that start together one compiles, and the others load what it has compiled."""
    name = f"{Path(inspect.getfile(function)).stem}.{function.__qualname__}-{function.__code__.co_firstlineno}.*.nbc"
    if FOLDER is None or any(FOLDER.glob(name)):
        yield
        return
    with (FOLDER / "lock").open("w") as held:
        if fcntl is not None:
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


BYTES = types.Array(types.uint8, 1, "C")
LONGS = types.Array(types.int64, 1, "C")
INTS = types.Array(types.int32, 1, "C")
FLAGS = types.Array(types.uint8, 1, "C")
TABLE = types.Array(types.int64, 2, "C")


def kernel(signature: Any) -> Any:
    """Compile eagerly for one signature, without the GIL, into the shared cache."""

    def compiled(function: Any) -> Any:
        with _by_one_process(function):
            return numba.njit(signature, nogil=True, cache=True, boundscheck=False, error_model="numpy", _nrt=False)(
                function
            )

    return compiled


def inlined(function: Any) -> Any:
    """A helper that disappears into the kernels that call it."""
    return numba.njit(nogil=True, boundscheck=False, error_model="numpy", forceinline=True, _nrt=False)(function)


def called(function: Any) -> Any:
    """A helper off the hot path: compiled once and called, because inlining it everywhere takes seconds to compile."""
    return numba.njit(nogil=True, boundscheck=False, error_model="numpy", _nrt=False)(function)


def _pointer(context: Any, builder: Any, array_type: Any, arguments: Any, width: int) -> Any:
    array, position = arguments[:2]
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [position]), ir.IntType(width).as_pointer())


def _loader(width: int, swap: bool, result: Any, signed: bool = True) -> Any:
    @intrinsic
    def load(typing_context: Any, array: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(width)
            pointer = _pointer(context, builder, signature.args[0], arguments, width)
            value = builder.load(pointer, align=1, typ=word)
            if swap:
                value = builder.bswap(value)
            if width < 64:
                value = (builder.sext if signed else builder.zext)(value, ir.IntType(64))
            return value

        return result(array, types.int64), generate

    return load


load_be16 = _loader(16, True, types.int64)
load_be32 = _loader(32, True, types.int64)
load_be64 = _loader(64, True, types.int64)
load_beu32 = _loader(32, True, types.int64, signed=False)
load_word = _loader(64, False, types.uint64)


@intrinsic
def store_word(typing_context: Any, array: Any, position: Any, value: Any) -> Any:
    """Write eight bytes, lowest first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], arguments, 64)
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


@intrinsic
def _crc_step_sse42(typing_context: Any, crc: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        long = ir.IntType(64)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(long, [long, long]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), generate


def _crc_tables() -> Any:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        tables[0, byte] = crc
    for row in range(1, 8):
        tables[row] = tables[0, tables[row - 1] & 0xFF] ^ (tables[row - 1] >> 8)
    return tables


CRC_TABLES = _crc_tables()


@inlined
def _crc_step_tables(crc, word):  # type: ignore[no-untyped-def]
    word ^= crc
    return np.uint64(
        CRC_TABLES[7, word & np.uint64(0xFF)]
        ^ CRC_TABLES[6, (word >> np.uint64(8)) & np.uint64(0xFF)]
        ^ CRC_TABLES[5, (word >> np.uint64(16)) & np.uint64(0xFF)]
        ^ CRC_TABLES[4, (word >> np.uint64(24)) & np.uint64(0xFF)]
        ^ CRC_TABLES[3, (word >> np.uint64(32)) & np.uint64(0xFF)]
        ^ CRC_TABLES[2, (word >> np.uint64(40)) & np.uint64(0xFF)]
        ^ CRC_TABLES[1, (word >> np.uint64(48)) & np.uint64(0xFF)]
        ^ CRC_TABLES[0, word >> np.uint64(56)]
    )


def has_crc_instruction() -> bool:
    """Whether code is compiled for a CPU with SSE4.2's crc32; without it the instruction would end the process."""
    if llvmlite.binding.get_process_triple().split("-")[0] not in ("x86_64", "amd64"):
        return False
    if numba.config.CPU_FEATURES is not None:  # NUMBA_CPU_NAME=generic and the like
        return "+sse4.2" in numba.config.CPU_FEATURES.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get("sse4.2", False))


_crc_step = _crc_step_sse42 if has_crc_instruction() else _crc_step_tables


@inlined
def crc32c(buffer, start, end):  # type: ignore[no-untyped-def]
    """CRC-32C of buffer[start:end]."""
    crc = np.uint64(0xFFFFFFFF)
    position = start
    while position + 8 <= end:
        crc = _crc_step(crc, load_word(buffer, position))
        position += 8
    while position < end:
        crc = np.uint64(CRC_TABLES[0, (crc ^ np.uint64(buffer[position])) & np.uint64(0xFF)]) ^ (crc >> np.uint64(8))
        position += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))


@inlined
def copy_bytes(source, start, length, target, position):  # type: ignore[no-untyped-def]
    """Copy, 32 bytes at a time, so that nearly every name takes one turn and no branch is guessed wrong.

    Writes up to 31 bytes past the end, which the next copy or the slack covers.
    """
    done = 0
    while done < length:
        for word in range(4):
            store_word(target, position + done + 8 * word, load_word(source, start + done + 8 * word))
        done += 32


@kernel(types.boolean(BYTES, types.int64))
def is_ascii(data, length):  # type: ignore[no-untyped-def]
    """Whether no byte of data[:length] has its high bit set."""
    seen = np.uint8(0)
    for position in range(length):
        seen |= data[position]
    return seen < 0x80


@inlined
def utf8_piece(buffer, position, end):  # type: ignore[no-untyped-def]
    """Length of the character at a position, or minus the length of the ill-formed piece there."""
    first = np.int64(buffer[position])
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    if first == 0xED and position + 1 < end and 0xA0 <= buffer[position + 1] <= 0xBF:
        # Java replaces an encoded surrogate as one thing.
        return np.int64(-3 if position + 2 < end and 0x80 <= buffer[position + 2] <= 0xBF else -2)
    more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
    low, high = np.int64(0x80), np.int64(0xBF)
    if first == 0xE0:
        low = np.int64(0xA0)
    elif first == 0xF0:
        low = np.int64(0x90)
    elif first == 0xF4:
        high = np.int64(0x8F)
    for step in range(1, more + 1):
        if position + step >= end:
            return -np.int64(step)
        byte = np.int64(buffer[position + step])
        if byte < low or byte > high:
            return -np.int64(step)
        low, high = np.int64(0x80), np.int64(0xBF)
    return more + 1


@kernel(types.int64(BYTES, LONGS, LONGS))
def measure_repaired(buffer, positions, lengths):  # type: ignore[no-untyped-def]
    """Bytes that these strings take once every ill-formed piece is a U+FFFD; a length of -1 is a null."""
    total = 0
    for number in range(len(positions)):
        position = positions[number]
        end = position + lengths[number]
        while position < end:
            piece = utf8_piece(buffer, position, end)
            total += piece if piece > 0 else 3
            position += abs(piece)
    return total


@kernel(types.int64(BYTES, LONGS, LONGS, INTS, BYTES))
def gather_repaired(buffer, positions, lengths, offsets, data):  # type: ignore[no-untyped-def]
    """Fill an Arrow string column (offsets, data), with U+FFFD for what is not UTF-8."""
    used = 0
    for number in range(len(positions)):
        offsets[number] = used
        position = positions[number]
        end = position + lengths[number]
        while position < end:
            piece = utf8_piece(buffer, position, end)
            if piece > 0:
                for step in range(piece):
                    data[used + step] = buffer[position + step]
                used += piece
            else:
                data[used] = 0xEF
                data[used + 1] = 0xBF
                data[used + 2] = 0xBD
                used += 3
            position += abs(piece)
    offsets[len(positions)] = used
    return used


@kernel(types.int64(BYTES, LONGS, LONGS, INTS, BYTES))
def gather_bytes(buffer, positions, lengths, offsets, data):  # type: ignore[no-untyped-def]
    """Fill an Arrow binary column (or a string column of plain ASCII) from places in the buffer."""
    used = 0
    for number in range(len(positions)):
        offsets[number] = used
        if lengths[number] > 0:
            copy_bytes(buffer, positions[number], lengths[number], data, used)
            used += lengths[number]
    offsets[len(positions)] = used
    return used
