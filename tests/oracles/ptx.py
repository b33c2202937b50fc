"""PTX, interpreted with NumPy: all threads of a kernel at once, each with a place of its own.

The subset that LLVM writes for kernels of scalar programs and for libdevice, by NVIDIA's "Parallel
Thread Execution ISA". Approximate instructions are computed exactly. Memory is guarded: an access
outside of the arrays that the kernel is given, or two writes of one byte, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

Bits = np.ndarray
"""A register of some threads: uint64, of flags bool."""
_GAP = 4096
_OWN = np.uint64(1 << 48)
_LETTERS = {"f": "f", "s": "i", "u": "u", "b": "u"}
_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "hi": np.greater, "lo": np.less,
    "hs": np.greater_equal, "ls": np.less_equal,
}  # fmt: skip
_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_BY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide}
_UNARY = {
    "sqrt": np.sqrt, "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x), "ex2": np.exp2,
    "lg2": np.log2, "sin": np.sin, "cos": np.cos, "neg": np.negative, "abs": np.abs,
    "tanh": np.tanh,
}  # fmt: skip
_ROUND = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}


def dtype(kind: str) -> np.dtype:
    """NumPy's dtype of a type of PTX, such as "f32"."""
    return np.dtype(f"{_LETTERS[kind[0]]}{int(kind[1:]) // 8}")


def run(
    text: str, inputs: Sequence[np.ndarray], outputs: Sequence[Any], blocks: int, block: int
) -> list[Any]:
    """What a kernel of one dimension writes.

    Args:
      text: the module; its only entry takes the addresses of inputs and outputs.
      inputs: arrays, as they lie in memory.
      outputs: shape and dtype of each array that is written.
      blocks: how many blocks of threads there are.
      block: threads of a block.
    """
    return Machine(text).run(inputs, outputs, blocks, block)


class Machine:
    """A module, and the memory of a run."""

    def __init__(self, text: str):
        text = re.sub(r"//.*", "", text)
        self.functions: dict[str, tuple[list[str], list[str], dict[str, int]]] = {}
        heads = r"(\.entry|\.func)\s*(\([^)]*\))?\s*(\w+)\s*\(([^)]*)\)[^{;]*\{"
        for found in re.finditer(heads, text):
            body = text[found.end() : _closing(text, found.end())]
            params = re.findall(r"(\w+)(?:\[\d+\])?\s*(?:,|$)", found[4].strip())
            self.functions[found[3]] = (params, *_lines(body))
            if found[1] == ".entry":
                self.entry = found[3]
        self.constants = {
            name: _table(int(bits) // 8, int(size or 1), values)
            for bits, name, size, values in re.findall(
                r"\.(?:global|const)\s+\.align\s+\d+\s+\.b(\d+)\s+(\w+)(?:\[(\d+)\])?"
                r"(?:\s*=\s*\{?([^;}]*)\}?)?;",
                text,
            )
        }
        self.depots = {
            name: int(size)
            for name, size in re.findall(r"\.local\s+\.align\s+\d+\s+\.b8\s+(\w+)\[(\d+)\]", text)
        }

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[Any], blocks: int, block: int
    ) -> list[Any]:
        """See `run`."""
        threads = blocks * block
        inside = [*self.constants.values()]
        arrays = [*(np.ascontiguousarray(x) for x in inputs), *map(_empty, outputs), *inside]
        starts = np.cumsum([_GAP, *(x.nbytes + _GAP for x in arrays)])
        self.memory = np.zeros(starts[-1], np.uint8)
        self.readable, self.writable = (np.zeros(starts[-1], bool) for _ in range(2))
        for k, (start, x) in enumerate(zip(starts, arrays, strict=False)):
            within = slice(start, start + x.nbytes)
            written = len(inputs) <= k < len(inputs) + len(outputs)
            (self.writable if written else self.readable)[within] = True
            self.memory[within] = x.reshape(-1).view(np.uint8)
        first = len(arrays) - len(inside)
        self.places = dict(zip(self.constants, starts[first:].tolist(), strict=False))
        number = np.arange(threads, dtype=np.uint64)
        self.special = {
            "%tid.x": number % block, "%ctaid.x": number // block,
            "%ntid.x": np.full(threads, block, np.uint64),
        }  # fmt: skip
        params, *_ = self.functions[self.entry]
        given = [np.full(threads, s, np.uint64) for s in starts[: len(params)]]
        with np.errstate(all="ignore"):
            Frame(self, self.entry, given, np.arange(threads)).run()
        assert not self.writable.any(), "some of the outputs was not written"
        outside = arrays[len(inputs) : len(arrays) - len(inside)]
        written = zip(starts[len(inputs) :], outside, strict=False)
        return [self.memory[s : s + x.nbytes].view(x.dtype).reshape(x.shape) for s, x in written]

    def load(self, places: Bits, size: int) -> Bits:
        """Numbers of so many bytes from global memory."""
        index = places.astype(np.int64)[:, None] + np.arange(size)
        assert self.readable[index].all(), "read outside of the inputs"
        return self.memory[index].view(f"u{size}")[:, 0].astype(np.uint64)

    def store(self, places: Bits, size: int, values: Bits) -> None:
        """Numbers of so many bytes to global memory."""
        index = places.astype(np.int64)[:, None] + np.arange(size)
        assert self.writable[index].all(), "written outside of the outputs, or twice"
        assert len(np.unique(index)) == index.size, "written by two threads"
        self.writable[index] = False
        self.memory[index] = values.astype(f"u{size}")[:, None].view(np.uint8)


class Frame:
    """A call of a function by some threads, numbered in the whole grid."""

    def __init__(self, machine: Machine, name: str, given: Sequence[Bits], numbers: np.ndarray):
        self.machine, self.numbers, self.count = machine, numbers, len(numbers)
        names, self.code, self.labels = machine.functions[name]
        self.params: dict[str, Bits] = dict(zip(names, given, strict=True))
        self.registers: dict[str, Bits] = {}
        size = max(machine.depots.values(), default=0)
        self.local = np.zeros((self.count, size), np.uint8)
        self.at = np.zeros(self.count, np.int64)

    def run(self) -> Bits | None:
        """Runs until all threads have returned; gives what they return."""
        stops = {*self.labels.values()}
        while (self.at < len(self.code)).any():
            first = int(self.at.min())
            self.here = np.flatnonzero(self.at == first)
            position = first
            while True:
                ahead = self._step(self.code[position], position)
                if ahead is not None:
                    self.at[self.here] = ahead
                    break
                position += 1
                if position in stops:
                    self.at[self.here] = position
                    break
        return self.params.get("func_retval0")

    def _step(self, line: str, position: int) -> Any:
        """Runs an instruction; gives where its threads go on, if that is not the next one."""
        guard = re.match(r"@(!?)(%p\d+)\s+(.*)", line)
        if guard:
            flag = self.registers[guard[2]][self.here] ^ bool(guard[1])
            assert guard[3].startswith("bra"), line
            return np.where(flag, self.labels[guard[3].split()[1]], position + 1)
        name, _, rest = line.partition(" ")
        if name.startswith("bra"):
            return self.labels[rest.strip()]
        if name == "ret":
            return len(self.code)
        args = [a.strip() for a in re.findall(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+", rest)]
        parts = name.split(".")
        if parts[0] == "call":
            return self._call(args)
        getattr(self, f"_{parts[0]}", self._number)(parts, args)
        return None

    def _get(self, name: str, kind: str) -> np.ndarray:
        """An operand at the threads that are here."""
        if kind == "pred":
            if name in ("0", "-1", "1"):
                return np.full(len(self.here), name != "0")
            return self.registers[name][self.here]
        of = dtype(kind)
        if name.startswith("0f"):
            bits = np.uint32(int(name[2:], 16))
        elif name.startswith("0d"):
            bits = np.uint64(int(name[2:], 16))
        elif name in self.machine.special:
            bits = self.machine.special[name][self.numbers[self.here]]
        elif name.startswith("%"):
            bits = self.registers[name][self.here]
        elif name in self.machine.places:
            bits = np.uint64(self.machine.places[name])
        elif name in self.machine.depots:
            bits = np.uint64(0)
        else:
            bits = np.uint64(int(name.rstrip("U"), 0) & 0xFFFFFFFFFFFFFFFF)
        bits = np.broadcast_to(np.asarray(bits), len(self.here))
        return bits.astype(f"u{of.itemsize}").view(of)

    def _set(self, name: str, value: np.ndarray) -> None:
        flag = value.dtype == bool
        if name not in self.registers:
            self.registers[name] = np.zeros(self.count, bool if flag else np.uint64)
        bits = value if flag else np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
        self.registers[name][self.here] = bits

    def _call(self, args: list[str]) -> None:
        """Calls a function of one result."""
        returned, function, given = args[0].strip("()"), args[1], args[2].strip("()")
        values = [self.params[name.strip()][self.here] for name in given.split(",")]
        found = Frame(self.machine, function, values, self.numbers[self.here]).run()
        assert found is not None
        self.params[returned] = np.zeros(self.count, np.uint64)
        self.params[returned][self.here] = found

    def _ld(self, parts: list[str], args: list[str]) -> None:
        of = dtype(parts[-1])
        base, offset = self._place(args[1])
        names = [n.strip() for n in args[0].strip("{}").split(",")]
        for k, name in enumerate(names):
            if parts[1] == "param":
                bits = self.params[base][self.here]
            else:
                own, places = self._there(parts[1], self._bits(base, offset + k * of.itemsize))
                if own:
                    index = places.astype(np.int64)[:, None] + np.arange(of.itemsize)
                    bits = self.local[self.here[:, None], index].view(f"u{of.itemsize}")[:, 0]
                else:
                    bits = self.machine.load(places, of.itemsize)
            value = bits.astype(f"u{of.itemsize}").view(of)
            self._set(name, value.astype(np.uint64) if of.kind == "u" else value)

    def _st(self, parts: list[str], args: list[str]) -> None:
        of = dtype(parts[-1])
        base, offset = self._place(args[0])
        for k, name in enumerate(n.strip() for n in args[1].strip("{}").split(",")):
            bits = self._get(name, f"b{8 * of.itemsize}").astype(np.uint64)
            if parts[1] == "param":
                self.params.setdefault(base, np.zeros(self.count, np.uint64))[self.here] = bits
                continue
            own, places = self._there(parts[1], self._bits(base, offset + k * of.itemsize))
            if own:
                index = places.astype(np.int64)[:, None] + np.arange(of.itemsize)
                as_bytes = bits.astype(f"u{of.itemsize}")[:, None].view(np.uint8)
                self.local[self.here[:, None], index] = as_bytes
            else:
                self.machine.store(places, of.itemsize, bits)

    def _there(self, space: str, places: Bits) -> tuple[bool, Bits]:
        """Whether memory is a thread's own, and the addresses in it."""
        if space in ("local", "global"):
            return space == "local", places
        own = bool((places >= _OWN).all())
        assert own or (places < _OWN).all(), "the threads' own memory and that of all at once"
        return own, places ^ _OWN if own else places

    def _place(self, text: str) -> tuple[str, int]:
        base, _, offset = text.strip("[]").partition("+")
        return base.strip(), int(offset or 0)

    def _bits(self, base: str, offset: int) -> Bits:
        return self._get(base, "b64").astype(np.uint64) + np.uint64(offset % 2**64)

    def _mov(self, parts: list[str], args: list[str]) -> None:
        to, of = args
        if of.startswith("{"):
            low, high = (self._get(n.strip(), "b32").astype(np.uint64) for n in of[1:-1].split(","))
            self._set(to, low | high << np.uint64(32))
        elif to.startswith("{"):
            whole = self._get(of, "b64")
            for k, name in enumerate(n.strip() for n in to[1:-1].split(",")):
                self._set(name, (whole >> np.uint64(32 * k)).astype(np.uint32))
        else:
            self._set(to, self._get(of, parts[-1]))

    def _cvta(self, parts: list[str], args: list[str]) -> None:
        """Generic addresses of a thread's own memory have a bit that no other has."""
        bits = self._get(args[1], "b64")
        self._set(args[0], bits ^ _OWN if "local" in parts else bits)

    def _setp(self, parts: list[str], args: list[str]) -> None:
        compare, kind = parts[1], parts[-1]
        x, y = (self._get(a, kind) for a in args[1:3])
        nan = (x != x) | (y != y)
        if compare in ("num", "nan"):
            found = ~nan if compare == "num" else nan
        elif compare in _COMPARE:
            found = _COMPARE[compare](x, y) & (~nan if compare == "ne" else True)
        else:
            found = _COMPARE[compare[:-1]](x, y) | nan
        if parts[2] in _LOGIC:
            found = _LOGIC[parts[2]](found, self._get(args[3], "pred"))
        self._set(args[0], found)

    def _selp(self, parts: list[str], args: list[str]) -> None:
        x, y = (self._get(a, parts[-1]) for a in args[1:3])
        self._set(args[0], np.where(self._get(args[3], "pred"), x, y))

    def _cvt(self, parts: list[str], args: list[str]) -> None:
        to, of = dtype(parts[-2]), dtype(parts[-1])
        x = self._get(args[1], parts[-1])
        how = parts[1][:2] if len(parts) > 3 else ""
        if of.kind == "f" and to.kind == "f":
            if parts[1] == "sat":
                x = np.where(x > 0, np.minimum(x, 1), 0)
            elif parts[1].endswith("i"):
                x = _ROUND[how](x)
            value = x.astype(to)
        elif of.kind == "f":
            whole, least, most = _ROUND[how](x), np.iinfo(to).min, np.iinfo(to).max
            safe = np.where((whole >= least) & (whole < float(most)), whole, 0).astype(to)
            value = np.where(whole >= float(most), most, np.where(whole < least, least, safe))
            value = np.where(x != x, 0, value).astype(to)
        else:
            value = x.astype(to)
        # a register keeps what is converted to fewer bits with its sign
        self._set(args[0], value.astype(f"{to.kind}8") if to.kind != "f" else value)

    def _fma(self, parts: list[str], args: list[str]) -> None:
        x, y, z = (self._get(a, parts[-1]) for a in args[1:])
        if parts[-1] == "f32":
            exact = x.astype("f8") * y.astype("f8") + z.astype("f8")
        else:
            exact = x.astype(np.longdouble) * y.astype(np.longdouble) + z.astype(np.longdouble)
        self._set(args[0], _rounded(exact, x.dtype, parts[1]))

    def _mad(self, parts: list[str], args: list[str]) -> None:
        """mad.lo, mad.wide, mad.hi, with and without a carry that goes in or out."""
        kind = parts[-1]
        x, y = (self._wide(a, kind) for a in args[1:3])
        bits = int(kind[1:])
        product = x * y
        if "wide" in parts:
            z = self._wide(args[3], f"{kind[0]}{2 * bits}")
            return self._set(args[0], _cut(product + z, 2 * bits))
        half = product >> bits if "hi" in parts else product & (1 << bits) - 1
        return self._sum(parts, args[0], half & (1 << bits) - 1, self._wide(args[3], f"u{bits}"))

    def _sum(self, parts: list[str], to: str, x: np.ndarray, y: np.ndarray) -> None:
        bits = int(parts[-1][1:])
        if parts[0].endswith("c"):
            y = y + self._carry()
        total = x + y
        if "cc" in parts:
            self.registers.setdefault("%carry", np.zeros(self.count, np.uint64))
            self.registers["%carry"][self.here] = (total >> bits).astype(np.uint64)
        self._set(to, _cut(total, bits))

    def _carry(self) -> np.ndarray:
        return self.registers["%carry"][self.here].astype(object)

    def _wide(self, name: str, kind: str) -> np.ndarray:
        """An integer operand as Python's, which have no end."""
        return self._get(name, kind).astype(object)

    _madc = _mad

    def _number(self, parts: list[str], args: list[str]) -> None:
        """Arithmetic and bits."""
        name, kind = parts[0], parts[-1]
        if name in ("addc", "subc") or "cc" in parts:
            x, y = (self._wide(a, f"u{kind[1:]}") for a in args[1:])
            if name in ("sub", "subc"):  # the carry is a borrow's complement
                bits = int(kind[1:])
                borrow = self._carry() if name == "subc" else 0
                total = x - y - borrow
                self.registers.setdefault("%carry", np.zeros(self.count, np.uint64))
                self.registers["%carry"][self.here] = (total < 0).astype(np.uint64)
                return self._set(args[0], _cut(total, bits))
            return self._sum(parts, args[0], x, y)
        if kind == "pred":
            values = [self._get(a, kind) for a in args[1:]]
            return self._set(args[0], ~values[0] if name == "not" else _LOGIC[name](*values))
        values = [self._get(a, kind) for a in args[1:]] if name not in ("shl", "shr") else []
        return self._set(args[0], self._value(name, parts, kind, values, args))

    def _value(
        self, name: str, parts: list[str], kind: str, values: list[Any], args: list[str]
    ) -> np.ndarray:
        of = dtype(kind)
        if name in ("shl", "shr"):
            x, by = self._get(args[1], kind), self._get(args[2], "u32").astype(np.int64)
            bits = 8 * of.itemsize
            over = by >= bits
            by = np.minimum(by, bits - 1).astype(of)
            if name == "shl":
                return np.where(over, 0, x << by).astype(of)
            return np.where(over & (of.kind == "u"), 0, x >> by).astype(of)
        if name in ("max", "min"):
            better = {"max": np.fmax, "min": np.fmin}[name]
            return better(*values).astype(of)
        if name == "copysign":
            return np.copysign(values[1], values[0])
        if name in _UNARY:
            if name == "neg" and of.kind != "f":
                return (0 - values[0]).astype(of)
            return _UNARY[name](values[0]).astype(of)
        if name == "not":
            return ~values[0]
        if name in _LOGIC:
            return _LOGIC[name](*values)
        if name == "clz":
            return np.array([8 * of.itemsize - int(v).bit_length() for v in values[0]], np.uint32)
        if name == "bfe":
            x, start, length = (self._wide(a, "u64") for a in args[1:])
            return _cut((x >> start) & (1 << length) - 1, 8 * of.itemsize)
        if name == "prmt":  # bytes of two words by number; 8 more for a byte of its sign
            low, high, choice = (self._wide(a, "u32") for a in args[1:])
            found = np.zeros_like(low)
            for k in range(4):
                which = choice >> 4 * k & 15
                byte = (high << 32 | low) >> 8 * (which & 7) & 255
                found |= np.where(which & 8, (byte >> 7) * 255, byte) << 8 * k
            return _cut(found, 32)
        if name == "shf":
            low, high, by = (self._wide(a, "u32") for a in args[1:])
            both = (high << 32 | low) << (by % 32) if parts[1] == "l" else 0
            assert parts[1:3] == ["l", "wrap"], parts
            return _cut(both >> 32, 32)
        if of.kind == "f":
            exact = _BY[name](*(v.astype("f8") for v in values)) if of.itemsize == 4 else None
            if exact is None or name == "div":
                return _BY[name](*values)
            return _rounded(exact, of, next((p for p in parts if p in _ROUND), "rn"))
        bits = 8 * of.itemsize
        x, y = (v.astype(object) for v in values)
        if name == "mul":
            if "wide" in parts:
                return _cut(x * y, 2 * bits)
            return _cut(x * y >> (bits if "hi" in parts else 0), bits)
        if name in ("div", "rem"):
            whole = np.array([abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
                              for a, b in zip(x, y, strict=True)], object)  # fmt: skip
            return _cut(whole if name == "div" else x - whole * y, bits)
        return _cut(_BY[name](x, y), bits)


def _cut(value: np.ndarray, bits: int) -> np.ndarray:
    """The lowest bits of Python's integers."""
    return (value & (1 << bits) - 1).astype(np.uint64).astype(f"u{bits // 8}")


def _rounded(exact: np.ndarray, of: np.dtype, how: str) -> np.ndarray:
    """To a float, from one of more bits, in a direction."""
    near = exact.astype(of)
    if how == "rn":
        return near
    wide = near.astype(exact.dtype)
    down, up = np.nextafter(near, of.type(-np.inf)), np.nextafter(near, of.type(np.inf))
    if how == "rz":
        over = np.abs(wide) > np.abs(exact)
        return np.where(over, np.where(near > 0, down, up), near)
    return np.where(wide > exact, down, near) if how == "rm" else np.where(wide < exact, up, near)


def _table(width: int, size: int, values: str) -> np.ndarray:
    """An array of constants; zeros at its end are not written."""
    found = np.zeros(size, f"u{width}")
    given = [int(v, 0) for v in values.split(",") if v.strip()]
    found[: len(given)] = given
    return found


def _empty(of: Any) -> np.ndarray:
    return np.zeros(of.shape, of.dtype)


def _closing(text: str, start: int) -> int:
    """Where the brace closes that opened before."""
    depth = 1
    for found in re.finditer(r"[{}]", text[start:]):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return start + found.start()
    raise ValueError("a brace is open")


def _lines(body: str) -> tuple[list[str], dict[str, int]]:
    """The instructions of a function, and at which of them its labels are."""
    code: list[str] = []
    labels: dict[str, int] = {}
    body = re.sub(r"\.pragma[^;]*;", "", body)
    for line in re.split(r"[;\n]", body):
        line = re.sub(r"^[{}\s]+(?!%)|\s+$", "", line.replace("\t", " ")).strip()
        line = line.lstrip("{ ") if line.startswith("{ .") else line
        label = re.match(r"(\$?\w+):\s*(.*)", line)
        if label:
            labels[label[1]] = len(code)
            line = label[2]
        if line and not line.startswith(".") and line not in "{}":
            code.append(line)
    return code, labels
