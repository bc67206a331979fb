"""The modules of the distribution keras-vit-runtime, derived from the imports in the code.

    python tests/helpers/runtime_modules.py      # Writes runtime_modules.txt, which setup.py reads.

A module is in it if the command line or one of `COMMANDS` imports it, at the top of a file, inside
a function or by its name in a text, and if no import at the top of a file leads from it to
`ABSENT` packages. Functions that import such a module need the other distribution.
"""

import ast
import functools
import pathlib
import runpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIST = ROOT / "runtime_modules.txt"
COMMANDS = ("predict", "evaluate", "verify", "serve")
ROOTS = ("keras_vit.command_line", *(f"keras_vit.commands.{name}" for name in COMMANDS))
# Whatever is not installed with it, as far as the package imports it at the top of a file.
ABSENT = {"tensorflow", "tensorflow_datasets", "keras", "jax", "scipy", "onnx"}


@functools.cache
def modules():
    """Returns every module's file by its name; a package by its own name."""
    found = runpy.run_path(str(ROOT / "docs" / "architecture.py"))["modules"]()
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


@functools.cache
def imports_of(name):
    """Returns the names that a module imports at the top of its file, and all that it mentions."""
    tree, path = ast.parse(modules()[name].read_text()), modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    at_top, anywhere, aliases = set(), set(), {}
    for node in tree.body:
        at_top |= _imported(node, package)
    for node in _without_type_checking(tree):
        anywhere |= _imported(node, package)
        for alias, target in _aliases(node, package):
            aliases[alias] = target
        if isinstance(node, ast.Constant) and node.value in modules():
            anywhere.add(node.value)
    for node in ast.walk(tree):  # `import keras_vit.export`, then `keras_vit.export.verify`.
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            anywhere.add(".".join([aliases.get(first, first), *rest]))
    return at_top, anywhere


def _without_type_checking(tree):
    """Yields the nodes that run, so none below `if TYPE_CHECKING`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _base(node, package):
    if not node.level:
        return node.module
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _imported(node, package):
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        names = {f"{_base(node, package)}.{alias.name}" for alias in node.names}
        return names if names & modules().keys() else {_base(node, package), *names}
    return set()


def _aliases(node, package):
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{_base(node, package)}.{alias.name}"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name


def targets(names):
    """Returns the modules of imported names: each itself, or where a stub says that a name is."""
    found = set()
    for name in names:
        parts = name.split(".")
        known = [
            count for count in range(1, len(parts) + 1) if ".".join(parts[:count]) in modules()
        ]
        if known:
            module, rest = ".".join(parts[: known[-1]]), parts[known[-1] :]
            found.add(_stub(module).get(rest[0], module) if rest else module)
    return found


def packages_of(name):
    """Returns the packages of a module, outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


@functools.cache
def _stub(package):
    path = modules().get(package)
    stub = None if path is None else path.with_suffix(".pyi")
    if stub is None or path.name != "__init__.py" or not stub.exists():
        return {}
    places = {}
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            places |= {
                alias.name: f"{base}.{alias.name}" if node.module is None else base
                for alias in node.names
            }
    return places


def needs_absent(name):
    """Returns whether the import of a module imports one of `ABSENT`."""
    seen, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        at_top, _ = imports_of(module)
        if ABSENT & {imported.partition(".")[0] for imported in at_top}:
            return True
        waiting += [*packages_of(module), *targets(at_top)]
    return False


def runtime_modules():
    """Returns the names of the modules, sorted.

    Raises:
        ValueError: If a command needs an absent package when it is imported.
    """
    wrong = [name for name in ROOTS if needs_absent(name)]
    if wrong:
        raise ValueError(f"These must import none of {sorted(ABSENT)} at the top: {wrong}")
    found, waiting = set(), list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in found or needs_absent(name):
            continue
        found.add(name)
        waiting += [*packages_of(name), *targets(imports_of(name)[1])]
    return sorted(found)


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in runtime_modules()))
    print(f"{LIST.name}: {len(runtime_modules())} modules")
