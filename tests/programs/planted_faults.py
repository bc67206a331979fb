"""Plants faults into the code, one at a time, and runs the tests that should notice them.

    python tests/programs/planted_faults.py [--count 30] [--seed 0] [--only PATTERN]

Each fault is a change of one operator, comparison, number or condition in a function, drawn by a
seed so that every folder has some. The tests have the file's name or import it. A fault that no
test notices survives and is printed: a test is missing, unless the change makes no difference.

The files of this checkout are changed and restored, so it must not have uncommitted changes.
"""

import argparse
import ast
import collections
import fnmatch
import pathlib
import random
import re
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("keras_vit", "training", "export")
MOST_TEST_FILES = 4
TIMEOUT = 1200  # Seconds for the tests of a fault.

OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}
COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip


class Fault(NamedTuple):
    """A text that replaces another in a file."""

    path: str
    line: int
    before: str
    after: str


def expressions(tree):
    """Yields the nodes of expressions in functions that compute: no messages, no defaults."""
    left_out = (ast.Raise, ast.Assert, ast.JoinedStr, ast.AnnAssign, ast.arguments)

    def walk(node, inside):
        if isinstance(node, left_out):
            return
        if inside and isinstance(node, ast.expr):
            yield node
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "returns", "annotation"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, inside)

    yield from walk(tree, False)


def faults_of(path):
    """Returns the faults that can be planted into a file."""
    source = path.read_text(encoding="utf-8")
    found = []
    name = str(path.relative_to(ROOT))

    # Columns are bytes. `ast.get_source_segment` would split the source for every node.
    lines = [line.encode() for line in source.split("\n")]

    def text(node):
        return lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    for node in expressions(ast.parse(source)):
        if node.lineno != node.end_lineno:
            continue
        before, after = text(node), None
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            after = f"({text(node.left)}) {OPERATORS[type(node.op)]} ({text(node.right)})"
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            sign = COMPARISONS.get(type(node.ops[0]))
            after = sign and f"({text(node.left)}) {sign} ({text(node.comparators[0])})"
        elif isinstance(node, ast.BoolOp):
            sign = " or " if isinstance(node.op, ast.And) else " and "
            after = sign.join(f"({text(value)})" for value in node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            after = f"bool({text(node.operand)})"
        elif isinstance(node, ast.IfExp):
            after = f"({text(node.orelse)}) if ({text(node.test)}) else ({text(node.body)})"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            after = f"({node.value} + 1)" if type(node.value) is int else f"({node.value} * 1.5)"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            after = str(not node.value)
        if after:
            found.append(Fault(name, node.lineno, before, f"({after})"))
    return found


def drawn(count, seed):
    """Returns faults in turn from every folder, at most one from a file."""
    rng, by_folder = random.Random(seed), collections.defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if faults := faults_of(path):
                by_folder[str(path.parent)].append(rng.choice(faults))
    for faults in by_folder.values():
        rng.shuffle(faults)
    chosen = []
    while len(chosen) < count and any(by_folder.values()):
        for faults in by_folder.values():
            if faults and len(chosen) < count:
                chosen.append(faults.pop())
    return chosen


def tests_of(path):
    """Returns the test files of a file: the ones with its name, then those that import it."""
    stem = pathlib.Path(path).stem
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    if not module.startswith("keras_vit"):
        module = f"keras_vit.{module}"
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [test for test in tests if test.stem == f"test_{stem}"]
    importing = [test for test in tests if module in test.read_text(encoding="utf-8")]
    package = module.rpartition(".")[0]
    importing += [test for test in tests if f"from {package} import" in test.read_text("utf-8")]
    near = [test for test in tests if stem in test.stem]
    others = [test for test in tests if test.parent.name == pathlib.Path(path).parent.name]
    return list(dict.fromkeys([*named, *importing, *near, *others]))[:MOST_TEST_FILES]


def noticed_by(fault):
    """Returns the test that fails with a fault, "" for none, and the seconds that this took."""
    path, began = ROOT / fault.path, time.monotonic()
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    lines[fault.line - 1] = lines[fault.line - 1].replace(fault.before, fault.after, 1)
    try:
        path.write_text("".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-m", "not slow"]
        run = subprocess.run(
            [*command, "-p", "no:cacheprovider", *map(str, tests_of(fault.path))],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
        noticed = " ".join(failed) or run.stderr[-300:].strip() if run.returncode else ""
    except subprocess.TimeoutExpired:
        noticed = f"no answer in {TIMEOUT} s"
    finally:
        path.write_text(source, encoding="utf-8")
    return noticed, time.monotonic() - began


def main():
    """Prints each fault with what became of it, and the survivors at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*", help="pattern of the files' paths")
    arguments = parser.parse_args()
    status = ["git", "status", "--porcelain", "--untracked-files=no"]
    if subprocess.run(status, cwd=ROOT, capture_output=True, check=True).stdout:
        sys.exit("The checkout must have no changes: files are changed and restored.")
    faults = drawn(arguments.count, arguments.seed)
    faults = [fault for fault in faults if fnmatch.fnmatch(fault.path, arguments.only)]
    survivors = []
    for fault in faults:
        noticed, seconds = noticed_by(fault)
        place = f"{fault.path}:{fault.line}: {fault.before} -> {fault.after}"
        print(f"{'noticed ' if noticed else 'SURVIVED'} {seconds:4.0f} s  {place}", flush=True)
        if noticed:  # A test that fails without the fault is to be seen, too.
            print(f"                 {noticed}", flush=True)
        survivors += [] if noticed else [place]
    print(f"{len(survivors)} of {len(faults)} survived")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
