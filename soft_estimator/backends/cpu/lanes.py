"""Eight neighbouring numbers, or four, as one value of a compiled loop.

A loop over eight or sixteen columns reads and writes its sums with every turn, and asks each time whether arrays
overlap: a row of a matrix times sixteen columns took 84 cycles a block so, with lanes 28. Sums that are values stay in
the processor's registers. What processor has vectors of which length is the compiler's business; indices are not
checked.

    y = lanes_of(a, at) + factor * lanes_of(b, at)     # at: place in the array as if it were flat
    put(y, out, at)
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

LANES = 8  # numbers; a loop over columns goes by so many

if TYPE_CHECKING:

    class Lanes:
        """So many numbers; with a number or with each other, one by one."""

        def __add__(self, other: Lanes) -> Lanes: ...
        def __sub__(self, other: Lanes) -> Lanes: ...
        def __mul__(self, other: Lanes) -> Lanes: ...
        def __rmul__(self, other: float) -> Lanes: ...
        def __truediv__(self, other: Lanes) -> Lanes: ...

    def lanes_of(array: np.ndarray, at: int) -> Lanes: ...

    def four_of(array: np.ndarray, at: int) -> Lanes: ...

    def all_as(array: np.ndarray, at: int) -> Lanes: ...

    def put(lanes: Lanes, array: np.ndarray, at: int) -> None: ...

    def nothing_of(array: np.ndarray) -> Lanes: ...

    def no_four(array: np.ndarray) -> Lanes: ...

    def all_alike(number: float) -> Lanes: ...

    def roots(lanes: Lanes) -> Lanes: ...

    def first_three(lanes: Lanes) -> float: ...

    def in_double(lanes: Lanes) -> Lanes: ...

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic, models, overload, register_model

    _INDEX = ir.IntType(32)
    _REAL = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
    _FUSES = ("contract",)  # a product and a sum may be one instruction, as in the loops around

    class Lanes(types.Type):
        """The compiler's name of them; real: Numba's type of a number."""

        def __init__(self, real: types.Float, count: int = LANES) -> None:
            self.real, self.count = real, count
            super().__init__(name=f"{count} lanes of {real}")

    def _vector(lanes: Lanes) -> ir.VectorType:
        return ir.VectorType(_REAL[lanes.real], lanes.count)

    @register_model(Lanes)
    class _LanesModel(models.PrimitiveModel):
        def __init__(self, manager: Any, lanes: Lanes) -> None:
            super().__init__(manager, lanes, _vector(lanes))

    def _usable(array: Any) -> bool:
        return isinstance(array, types.Array) and array.layout == "C" and array.dtype in _REAL

    def _place(context: Any, builder: Any, kind: types.Array, lanes: Lanes, array: Any, at: Any) -> Any:
        """Where the lanes lie in memory."""
        data = context.make_array(kind)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [at]), _vector(lanes).as_pointer())

    def _read(array: Any, at: Any, count: int) -> Any:
        if not _usable(array) or not isinstance(at, types.Integer):
            return None
        lanes = Lanes(array.dtype, count)

        def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out = builder.load(_place(context, builder, array, lanes, *arguments))
            out.align = array.dtype.bitwidth // 8
            return out

        return lanes(array, types.intp), load

    @intrinsic
    def lanes_of(typing: Any, array: Any, at: Any) -> Any:
        """Lanes from a place in a contiguous array, as if it were flat."""
        return _read(array, at, LANES)

    @intrinsic
    def four_of(typing: Any, array: Any, at: Any) -> Any:
        """The same with four numbers."""
        return _read(array, at, 4)

    @intrinsic
    def put(typing: Any, lanes: Any, array: Any, at: Any) -> Any:
        """Write lanes to a place in a contiguous array, as if it were flat."""
        if not isinstance(lanes, Lanes) or not _usable(array) or array.dtype != lanes.real:
            return None

        def store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value, *place = arguments
            out = builder.store(value, _place(context, builder, array, lanes, *place))
            out.align = array.dtype.bitwidth // 8
            return context.get_dummy_value()

        return types.void(lanes, array, types.intp), store

    def _zeros(array: Any, count: int) -> Any:
        if not _usable(array):
            return None
        out = Lanes(array.dtype, count)
        return out(array), lambda _, __, ___, ____: ir.Constant(_vector(out), [0.0] * count)

    @intrinsic
    def nothing_of(typing: Any, array: Any) -> Any:
        """Lanes of zeros, of an array's numbers."""
        return _zeros(array, LANES)

    @intrinsic
    def no_four(typing: Any, array: Any) -> Any:
        """Four zeros, of an array's numbers."""
        return _zeros(array, 4)

    def _everywhere(builder: Any, number: Any, vector: Any) -> Any:
        nothing = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(nothing, number, ir.Constant(_INDEX, 0))
        same = ir.Constant(ir.VectorType(_INDEX, vector.count), [0] * vector.count)
        return builder.shuffle_vector(first, nothing, same)

    @intrinsic
    def all_alike(typing: Any, number: Any) -> Any:
        """Lanes of one number."""
        if number not in _REAL:
            return None
        out = Lanes(number)
        return out(number), lambda _, builder, __, given: _everywhere(builder, given[0], _vector(out))

    @intrinsic
    def all_as(typing: Any, array: Any, at: Any) -> Any:
        """Lanes of the one number at a place in a contiguous array, as if it were flat: without asking, as an index
        does, whether the place counts from the end."""
        if not _usable(array) or not isinstance(at, types.Integer):
            return None
        lanes = Lanes(array.dtype)

        def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(array)(context, builder, arguments[0]).data
            return _everywhere(builder, builder.load(builder.gep(data, [arguments[1]])), _vector(lanes))

        return lanes(array, types.intp), load

    @intrinsic
    def roots(typing: Any, lanes: Any) -> Any:
        """Square roots."""
        if not isinstance(lanes, Lanes):
            return None

        def root(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector, name = _vector(lanes), f"llvm.sqrt.v{lanes.count}f{lanes.real.bitwidth}"
            own = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(vector, [vector]))
            return builder.call(own, arguments)

        return lanes(lanes), root

    @intrinsic
    def first_three(typing: Any, lanes: Any) -> Any:
        """The sum of the first three numbers."""
        if not isinstance(lanes, Lanes):
            return None

        def add(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, y, z = (builder.extract_element(arguments[0], ir.Constant(_INDEX, k)) for k in range(3))
            return builder.fadd(builder.fadd(x, y), z)

        return lanes.real(lanes), add

    @intrinsic
    def in_double(typing: Any, lanes: Any) -> Any:
        """The same numbers in double precision."""
        if not isinstance(lanes, Lanes):
            return None
        out = Lanes(types.float64, lanes.count)

        def extend(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            same = lanes.real == types.float64
            return arguments[0] if same else builder.fpext(arguments[0], _vector(out))

        return out(lanes), extend

    @intrinsic
    def _sum(typing: Any, a: Any, b: Any) -> Any:
        return a(a, a), lambda _, builder, __, both: builder.fadd(*both, flags=_FUSES)

    @intrinsic
    def _difference(typing: Any, a: Any, b: Any) -> Any:
        return a(a, a), lambda _, builder, __, both: builder.fsub(*both, flags=_FUSES)

    @intrinsic
    def _product(typing: Any, a: Any, b: Any) -> Any:
        return a(a, a), lambda _, builder, __, both: builder.fmul(*both, flags=_FUSES)

    @intrinsic
    def _quotient(typing: Any, a: Any, b: Any) -> Any:
        return a(a, a), lambda _, builder, __, both: builder.fdiv(*both)

    @intrinsic
    def _scaled(typing: Any, factor: Any, lanes: Any) -> Any:
        def scale(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number, value = arguments
            return builder.fmul(_everywhere(builder, number, value.type), value, flags=_FUSES)

        return lanes(lanes.real, lanes), scale

    @overload(operator.iadd, strict=False)
    @overload(operator.add, strict=False)
    def _add(a: Any, b: Any) -> Any:
        return (lambda a, b: _sum(a, b)) if isinstance(a, Lanes) and a == b else None

    @overload(operator.isub, strict=False)
    @overload(operator.sub, strict=False)
    def _subtract(a: Any, b: Any) -> Any:
        return (lambda a, b: _difference(a, b)) if isinstance(a, Lanes) and a == b else None

    @overload(operator.mul, strict=False)
    def _multiply(a: Any, b: Any) -> Any:
        if isinstance(a, Lanes) and a == b:
            return lambda a, b: _product(a, b)
        return (lambda a, b: _scaled(a, b)) if isinstance(a, types.Number) and isinstance(b, Lanes) else None

    @overload(operator.truediv, strict=False)
    def _divide(a: Any, b: Any) -> Any:
        return (lambda a, b: _quotient(a, b)) if isinstance(a, Lanes) and a == b else None


__all__ = [
    "LANES",
    "Lanes",
    "all_alike",
    "all_as",
    "first_three",
    "four_of",
    "in_double",
    "lanes_of",
    "no_four",
    "nothing_of",
    "put",
    "roots",
]
