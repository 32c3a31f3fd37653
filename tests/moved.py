"""`python -m tests.moved OLD NEW`: what differs between two commits beside imports, docstrings and where things are.

Every top-level statement of the package is compared over its syntax tree, whatever file it is in. Prints each statement
that only one commit has, and ends with status 1 if there is one: a commit that moves modules has none.
"""

import ast
import subprocess
import sys
from collections import Counter

PACKAGE = "streamdedup"


def main(old: str, new: str) -> int:
    """Compare the commits `old` and `new`; the status is 1 if they differ."""
    before, after = _statements(old), _statements(new)
    for mark, only in (("-", before - after), ("+", after - before)):
        for statement in only.elements():
            print(mark, statement.splitlines()[0][:160])
    print(f"{before.total()} statements before, {after.total()} after")
    return int(before != after)


def _statements(commit: str) -> Counter[str]:
    """Each top-level statement of the package at `commit`, as source without docstrings and imports."""
    found: Counter[str] = Counter()
    listed = _git("ls-tree", "-r", "--name-only", commit, "--", PACKAGE)
    for path in listed.splitlines():
        if path.endswith(".py"):
            tree = ast.parse(_git("show", f"{commit}:{path}"))
            _Bare().visit(tree)
            found.update(map(ast.unparse, tree.body))
    return found


class _Bare(ast.NodeTransformer):
    """Drops imports and bare strings; an `import` that stood alone leaves `pass`."""

    def visit(self, node: ast.AST) -> ast.AST:
        """Visit `node` and all below it."""
        super().generic_visit(node)
        if isinstance(node, ast.Constant) and str(node.value).startswith(f"{PACKAGE}."):
            node.value = PACKAGE  # the dotted path of something that moved
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [child for child in body if not _is_left_out(child)]
            node.body = kept or ([] if isinstance(node, ast.Module) else [ast.Pass()])  # type: ignore[attr-defined]
        return node


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return isinstance(node.value.value, str)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    return isinstance(node, ast.Import | ast.ImportFrom)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
