"""Operations of a TFLite file, and the same answers by other ones."""

from __future__ import annotations

import copy
import math
import struct

from .formats import import_export_package

_POOLINGS = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
_OF_TWO = ("ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "SQUARED_DIFFERENCE", "SUB")

_LOWEST = -3.4e38  # Nearly the lowest float32, but finite.


def operations(content: bytes) -> list[tuple[str, str]]:
    """Returns the operations of a TFLite file, each with the path of the layer that made it.

    Args:
        content: The file's bytes.
    """
    model = _read(content)
    codes = _codes(model)
    return [
        # The name of the output is the path of the layer and the operation in TensorFlow.
        (codes[operation.opcodeIndex], graph.tensors[operation.outputs[0]].name.decode())
        for graph in model.subgraphs
        for operation in graph.operators
    ]


def with_gpu_forms(content: bytes) -> bytes:
    """Returns a TFLite file with the same answers, which the GPU accelerator of LiteRT gives too.

    Version 2.3.0 takes no slice that drops an axis, as of `tokens[:, 0]`: here a reshape does. It
    computes three things wrong: a sum of `(N, D)` and `(1, N, D)`, so both operands get one rank; a
    product of several matrices with one, which is stored as often as it is used; and a pooling
    after a padding, whose zeros it does not see, so a maximum with the lowest number, which changes
    nothing, stands in between.

    Args:
        content: The file's bytes.
    """
    model = _read(content)
    for graph in model.subgraphs:
        editor = _Editor(model, graph)
        operators, graph.operators = graph.operators, []
        for operation in operators:
            name, inputs = editor.codes[operation.opcodeIndex], operation.inputs
            if name in _POOLINGS and editor.made_by.get(inputs[0], ("",))[0] in ("PAD", "PADV2"):
                inputs[0] = editor.at_least(inputs[0], _LOWEST)
            if name in _OF_TWO:
                rank = max(len(editor.shape(operand)) for operand in inputs)
                for place, operand in enumerate(inputs):
                    shape = editor.shape(operand)
                    if 1 < len(shape) < rank:
                        inputs[place] = editor.reshaped(operand, [1] * (rank - len(shape)) + shape)
            if name == "BATCH_MATMUL":
                batch, one = (editor.shape(operand) for operand in inputs)
                times = math.prod(batch[:-2]) // math.prod(one[:-2])
                if times > 1:
                    inputs[1] = editor.stored(inputs[1], batch[:-2] + one[-2:], times) or inputs[1]
            editor.add(name, operation)
            dropped = getattr(operation.builtinOptions, "shrinkAxisMask", 0)
            if dropped:
                (result,) = operation.outputs
                sides, rank = iter(editor.shape(result)), len(editor.shape(inputs[0]))
                shape = [1 if dropped >> axis & 1 else next(sides) for axis in range(rank)]
                operation.builtinOptions.shrinkAxisMask = 0
                operation.outputs = [editor.tensor(result, shape)]
                editor.reshape(operation.outputs[0], result)
    return bytes(_package("tools.flatbuffer_utils").convert_object_to_bytearray(model))


class _Editor:
    """Adds tensors and operations to a graph, whose operations are taken out first."""

    def __init__(self, model, graph):
        self.model, self.graph = model, graph
        self.schema, self.codes = _package("schema_py_generated"), _codes(model)
        self.made_by = {}  # By the number of a tensor: an operation's name and inputs.

    def add(self, name, operation):
        self.graph.operators.append(operation)
        self.made_by |= dict.fromkeys(operation.outputs, (name, operation.inputs))

    def operation(self, name, inputs, output):
        """Adds an operation without options."""
        if name not in self.codes:
            code = self.schema.OperatorCodeT()
            code.builtinCode = getattr(self.schema.BuiltinOperator, name)
            code.deprecatedBuiltinCode, code.version = code.builtinCode, 1
            self.model.operatorCodes.append(code)
            self.codes.append(name)
        operation = self.schema.OperatorT()
        operation.opcodeIndex = self.codes.index(name)
        operation.inputs, operation.outputs = inputs, [output]
        self.add(name, operation)
        return output

    def shape(self, tensor):
        return [int(side) for side in self.graph.tensors[tensor].shape]

    def tensor(self, like, shape, data=None):
        """Adds a tensor as another one, of another shape, and of other data if they are given."""
        added = copy.copy(
            like if isinstance(like, self.schema.TensorT) else self.graph.tensors[like]
        )
        added.shape, added.name = shape, f"added_{len(self.graph.tensors)}".encode()
        if data is not None:
            added.buffer = len(self.model.buffers)
            self.model.buffers.append(self.schema.BufferT())
            self.model.buffers[-1].data = data
        self.graph.tensors.append(added)
        return len(self.graph.tensors) - 1

    def reshape(self, tensor, result):
        shape, sides = self.schema.TensorT(), self.shape(result)
        shape.type = self.schema.TensorType.INT32
        data = list(struct.pack(f"<{len(sides)}i", *sides))
        self.operation("RESHAPE", [tensor, self.tensor(shape, [len(sides)], data)], result)

    def reshaped(self, tensor, shape):
        result = self.stored(tensor, shape)
        if result is None:
            result = self.tensor(tensor, shape)
            self.reshape(tensor, result)
        return result

    def stored(self, tensor, shape, times=1):
        """Adds a constant, or one in float16, in another shape and repeated; None for no constant.

        An operation on constants alone would be refused.
        """
        import numpy as np

        name, inputs = self.made_by.get(tensor, ("", ()))
        if name == "DEQUANTIZE":
            source = self.stored(inputs[0], shape, times)
            return source and self.operation(name, [source], self.tensor(tensor, shape))
        data = self.model.buffers[self.graph.tensors[tensor].buffer].data
        if data is None:
            return None
        return self.tensor(tensor, shape, None if times == 1 else np.tile(data, times))

    def at_least(self, tensor, number):
        lowest = self.schema.TensorT()  # float32
        if self.graph.tensors[tensor].type != lowest.type:
            return tensor
        constant = self.tensor(lowest, [], list(struct.pack("<f", number)))
        return self.operation(
            "MAXIMUM", [tensor, constant], self.tensor(tensor, self.shape(tensor))
        )


def _read(content):
    return _package("tools.flatbuffer_utils").read_model_from_bytearray(bytearray(content))


def _package(module):
    return import_export_package(f"ai_edge_litert.{module}")


def _codes(model):
    codes = vars(_package("schema_py_generated").BuiltinOperator)
    names = {code: name for name, code in codes.items()}
    return [names[max(c.builtinCode, c.deprecatedBuiltinCode)] for c in model.operatorCodes]
